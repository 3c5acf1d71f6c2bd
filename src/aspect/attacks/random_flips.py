"""The attacker that knows nothing: edges and non-edges at random."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.attacks.budget import check_flips
from aspect.attacks.flips import edge_keys
from aspect.errors import SettingsError
from aspect.graph.data import Graph

__all__ = ["random_flips"]

# Numbers drawn at a time, whatever the number of flips, so that a longer draw begins as a shorter.
DRAWN_AT_ONCE = 4096


def random_flips(
    graph: Graph, count: int, generator: torch.Generator, *, keep_last_edges: bool = True
) -> Int[Tensor, "flips 2"]:
    """Different pairs of nodes, smaller one first, in the order of their drawing.

    Each is with equal chance an edge to be removed or a pair to become one; where no edge or no
    pair is left, the other kind is taken. The first flips of a longer draw are those of a shorter
    one. With `keep_last_edges` no node loses its last edge, after however many of the flips.

    Args:
        graph: The graph before.
        count: Flips wanted; refused if there are not so many.
        generator: On the CPU.
        keep_last_edges: Off: nodes may become isolated.
    """
    check_flips(count, graph)
    draw = _Draw(graph, generator, keep_last_edges)
    keys = torch.tensor([draw.next_key(made=made, wanted=count) for made in range(count)])
    return torch.stack([keys // graph.num_nodes, keys % graph.num_nodes], dim=1)


class _Draw:
    """One flip after the other, with what the flips so far have left of the graph."""

    def __init__(self, graph: Graph, generator: torch.Generator, keep_last_edges: bool) -> None:
        self.num_nodes, self.keep_last_edges = graph.num_nodes, keep_last_edges
        edges = edge_keys(graph).cpu()
        self.removable = iter(edges[torch.randperm(len(edges), generator=generator)].tolist())
        self.taken = set(edges.tolist())  # edges, and pairs that became one
        self.addable = self.num_nodes * (self.num_nodes - 1) // 2 - len(edges)
        self.degrees: list[int] = graph.degrees().tolist()
        self.uniform = _uniform(generator)

    def next_key(self, *, made: int, wanted: int) -> int:
        """The next flip, if there is one."""
        first, second = (self._removed, self._added)
        if next(self.uniform) < 0.5:  # noqa: PLR2004 - equal chances
            first, second = second, first
        key = first()
        key = second() if key is None else key
        if key is None:
            raise SettingsError(
                f"Number of flips must be at most {made} here: every further one would take the "
                f"last edge of a node. Got {wanted}."
            )
        return key

    def _removed(self) -> int | None:
        """An edge that may go; one that must stay now is not asked again."""
        for key in self.removable:
            low, high = divmod(key, self.num_nodes)
            if not self.keep_last_edges or min(self.degrees[low], self.degrees[high]) > 1:
                self.degrees[low] -= 1
                self.degrees[high] -= 1
                return int(key)
        return None

    def _added(self) -> int | None:
        """A pair that is no edge, drawn until one is found; graphs are sparse."""
        if self.addable == 0:
            return None
        self.addable -= 1
        while True:
            ends = sorted(int(next(self.uniform) * self.num_nodes) for _ in range(2))
            key = ends[0] * self.num_nodes + ends[1]
            if ends[0] < ends[1] and key not in self.taken:
                self.taken.add(key)
                for end in ends:
                    self.degrees[end] += 1
                return key


def _uniform(generator: torch.Generator) -> Iterator[float]:
    """Numbers in [0, 1) without end."""
    while True:
        yield from torch.rand(DRAWN_AT_ONCE, generator=generator, dtype=torch.float64).tolist()
