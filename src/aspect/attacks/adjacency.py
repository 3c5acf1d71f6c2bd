"""The edges of a graph under attack: what each flip changes, without building the graph anew."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from aspect.data.graph import Graph, edge_keys
from aspect.data.sparse import LARGEST_INT32, Pattern, SparseMatrix

__all__ = ["AttackedEdges"]


class AttackedEdges:
    """Which pairs are joined now, and which may still be flipped: a pair is flipped at most once.

    A pair is a key, smaller end * nodes + larger end. Sets of keys are kept ascending, so that a
    few flips cost one pass over the edges and no sorting.
    """

    def __init__(self, graph: Graph) -> None:
        self.num_nodes, self.dtype = graph.num_nodes, graph.dtype
        loops = torch.arange(graph.num_nodes, device=graph.device) * (graph.num_nodes + 1)
        source, target = graph.edge_index
        entries = _inserted(source * graph.num_nodes + target, loops)
        self.degrees: Int[Tensor, " nodes"] = graph.degrees()  # without self-loops
        self.removable: Int[Tensor, " edges"] = edge_keys(graph)  # edges not flipped yet
        self._entries = entries  # both directions and self-loops: where the adjacency is not zero
        self._closed = entries  # the same, of pairs that no edge may be added to any more

    def flip(self, keys: Int[Tensor, " flips"]) -> None:
        """Take away the edges among the pairs and join the others; none was flipped before."""
        removed = _contains(self.removable, keys)
        self.removable = _without(self.removable, keys[removed])
        self._entries = _without(self._entries, self._both_ways(keys[removed]))
        added = self._both_ways(keys[~removed])
        self._entries = _inserted(self._entries, added)
        self._closed = _inserted(self._closed, added)
        change = torch.where(removed, -1, 1)
        for ends in self.ends(keys):
            self.degrees = self.degrees.index_add(0, ends, change)

    def joined(self, keys: Int[Tensor, " pairs"]) -> Bool[Tensor, " pairs"]:
        """Which of the pairs are edges now."""
        return _contains(self._entries, keys)

    def ends(self, keys: Int[Tensor, " pairs"]) -> tuple[Tensor, Tensor]:
        """The smaller and the larger node of every pair."""
        return keys // self.num_nodes, keys % self.num_nodes

    def normalised(self) -> SparseMatrix:
        """`Â = D^(-1/2) (A + I) D^(-1/2)`, D the degrees of A + I."""
        pattern = self._pattern(self._entries)
        scale = (self.degrees + 1).to(self.dtype).rsqrt()
        length = len(pattern.columns)  # without which a GPU would have to be waited for
        rows = torch.repeat_interleave(scale, self.degrees + 1, output_size=length)
        return SparseMatrix(pattern, rows * scale[pattern.columns])

    def closed(self) -> Pattern:
        """The pairs, in both directions, that cannot become an edge: edges, flipped, loops."""
        return self._pattern(self._closed)

    def _pattern(self, entries: Int[Tensor, " entries"]) -> Pattern:
        n = self.num_nodes
        starts = torch.arange(n + 1, device=entries.device) * n
        pointers = torch.searchsorted(entries, starts)
        kind = torch.int32 if max(len(entries), n) <= LARGEST_INT32 else torch.int64
        return Pattern(pointers.to(kind), (entries % n).to(kind), (n, n))

    def _both_ways(self, keys: Int[Tensor, " pairs"]) -> Int[Tensor, " entries"]:
        low, high = self.ends(keys)
        return torch.cat([keys, high * self.num_nodes + low]).sort().values


def _contains(ascending: Int[Tensor, " some"], keys: Int[Tensor, " keys"]) -> Bool[Tensor, " keys"]:
    """Which of the keys are in the set."""
    if len(ascending) == 0:
        return torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
    places = torch.searchsorted(ascending, keys).clamp(max=len(ascending) - 1)
    found: Tensor = ascending[places] == keys
    return found


def _without(ascending: Int[Tensor, " some"], keys: Int[Tensor, " keys"]) -> Int[Tensor, " fewer"]:
    """The set without keys that are in it."""
    keep = torch.ones(len(ascending), dtype=torch.bool, device=ascending.device)
    keep[torch.searchsorted(ascending, keys)] = False
    return ascending[keep]


def _inserted(ascending: Int[Tensor, " some"], keys: Int[Tensor, " keys"]) -> Int[Tensor, " more"]:
    """The set with further keys, ascending themselves and not in it."""
    places = torch.searchsorted(ascending, keys)
    places += torch.arange(len(keys), device=keys.device)
    result = ascending.new_empty(len(ascending) + len(keys))
    old = torch.ones(len(result), dtype=torch.bool, device=ascending.device)
    old[places] = False
    result[old] = ascending
    result[places] = keys
    return result
