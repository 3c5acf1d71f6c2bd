"""What may be changed: pairs whose edge may be flipped, and feature entries that may be moved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.features import mean_size, num_entries
from aspect.data.graph import Features, Graph, edge_index_of, edge_keys, pair_keys
from aspect.data.operators import Propagation, RescaledLaplacian
from aspect.data.sparse import SparseMatrix

__all__ = ["EdgeCandidates", "FeatureCandidates", "draw_edges", "draw_entries"]

# Draws that turn out to be edges, loops or known pairs are lost: more are drawn than are wanted.
SURPLUS = 2


@dataclass(frozen=True, eq=False)
class EdgeCandidates:
    """Pairs that may be flipped: every edge of the graph, and some pairs that are none."""

    keys: Int[Tensor, " candidates"]  # smaller end * nodes + larger end, ascending
    present: Float[Tensor, " candidates"]  # one for an edge, zero for a pair that is none
    propagation: Propagation  # along all of them

    def operator(self, flips: Float[Tensor, " candidates"]) -> RescaledLaplacian:
        """The graph with every pair flipped by a share from 0 to 1, its degrees following."""
        return self.propagation.operator(self.present + (1 - 2 * self.present) * flips)


def draw_edges(
    graph: Graph, others: int, generator: torch.Generator, *, self_loops: bool
) -> EdgeCandidates:
    """All edges and up to so many other pairs, half of them two hops apart.

    Args:
        graph: The graph to be changed.
        others: Pairs without an edge to draw; a dense graph may hold fewer.
        generator: On the graph's device.
        self_loops: Of the propagation.
    """
    edges = edge_keys(graph)
    near = _absent(_two_hops(graph, SURPLUS * others, generator), edges)[: others // 2]
    wanted = others - others // 2
    far = _absent(_pairs(graph, SURPLUS * wanted, generator), torch.cat([edges, near]))[:wanted]
    keys = torch.cat([edges, near, far]).sort().values
    present = torch.isin(keys, edges, assume_unique=True).to(graph.dtype)
    together = Graph(graph.features, edge_index_of(keys, graph.num_nodes))
    return EdgeCandidates(keys, present, Propagation(together, self_loops=self_loops))


def _pairs(graph: Graph, count: int, generator: torch.Generator) -> Int[Tensor, " pairs"]:
    """Pairs of any two nodes; some may come twice, or be loops."""
    nodes = graph.num_nodes
    one, other = torch.randint(nodes, (2, count), generator=generator, device=graph.device)
    return _keys(one, other, nodes)


def _two_hops(graph: Graph, count: int, generator: torch.Generator) -> Int[Tensor, " pairs"]:
    """The ends of walks of two steps, whose first step is any edge."""
    source, target = graph.edge_index
    if graph.num_edges == 0:
        return edge_keys(graph)
    first = torch.randint(len(source), (count,), generator=generator, device=graph.device)
    middle = target[first]
    degrees = graph.degrees()
    begins = degrees.cumsum(0) - degrees  # where each node's edges stand
    draws = torch.rand(count, generator=generator, device=graph.device, dtype=torch.float64)
    second = begins[middle] + (draws * degrees[middle]).long()
    return _keys(source[first], target[second], graph.num_nodes)


def _keys(one: Tensor, other: Tensor, num_nodes: int) -> Int[Tensor, " pairs"]:
    return pair_keys(one, other, num_nodes)[one != other]


def _absent(drawn: Int[Tensor, " pairs"], known: Int[Tensor, " others"]) -> Int[Tensor, " left"]:
    """Each pair once, in the order of the draws, without those that are known."""
    every, places = torch.unique(drawn, return_inverse=True)
    order = torch.arange(len(drawn), device=drawn.device)
    first = torch.full_like(every, len(drawn)).scatter_reduce(0, places, order, "amin")
    fresh = first[~torch.isin(every, known)].sort().values
    return drawn[fresh]


@dataclass(frozen=True, eq=False)
class FeatureCandidates:
    """Feature entries that may be moved, up or down."""

    places: SparseMatrix  # ones where an entry may be moved
    size: float  # of an entry that is not zero, on average: the unit of moves

    @property
    def count(self) -> int:
        """How many entries may be moved."""
        return len(self.places.values)

    def moved(self, changes: Float[Tensor, " candidates"]) -> SparseMatrix:
        """The changes as a matrix; zeros outside of the candidates."""
        return self.places.with_values(changes)

    def applied(self, features: Features, changes: Float[Tensor, " candidates"]) -> Features:
        """The features with the changes added, dense or compressed as before."""
        moved = self.moved(changes)
        if not isinstance(features, SparseMatrix):
            return features + moved.dense()
        shape, columns = features.shape, features.shape[1]
        keys, values = [], []
        for part in (features, moved):
            keys.append(part.pattern.rows * columns + part.pattern.columns.long())
            values.append(part.values)
        every, places = torch.unique(torch.cat(keys), return_inverse=True)
        total = features.values.new_zeros(len(every)).index_add(0, places, torch.cat(values))
        return SparseMatrix.from_entries(every // columns, every % columns, total, shape)


def draw_entries(features: Features, share: float, generator: torch.Generator) -> FeatureCandidates:
    """Entries that may be moved: of compressed features as many absent ones as stored ones.

    Of dense features it may be any. There are fewer than wanted where few can be drawn.

    Args:
        features: As the encoder sees them.
        share: Entries that may be moved, as a share of those that are not zero.
        generator: On the features' device.
    """
    (nodes, columns), device = features.shape, features.device
    values = features.values if isinstance(features, SparseMatrix) else features.flatten()
    wanted = round(share * num_entries(features))
    if isinstance(features, SparseMatrix):
        stored = features.pattern.rows * columns + features.pattern.columns.long()
        kept = torch.randperm(len(stored), generator=generator, device=device)[: wanted // 2]
        wanted -= len(kept)
        known, chosen = stored, [stored[kept]]
    else:
        known, chosen = values.new_empty(0, dtype=torch.long), []
    drawn = torch.randint(nodes * columns, (SURPLUS * wanted,), generator=generator, device=device)
    chosen.append(_absent(drawn, known)[:wanted])
    keys = torch.cat(chosen)
    ones = torch.ones(len(keys), dtype=values.dtype, device=device)
    places = SparseMatrix.from_entries(keys // columns, keys % columns, ones, (nodes, columns))
    return FeatureCandidates(places, float(mean_size(features)))
