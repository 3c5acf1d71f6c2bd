"""Flips that are drawn one after the other: what random attacks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.graph import Graph
from aspect.errors import SettingsError

__all__ = ["Choices", "draw_flips"]

# Numbers drawn at a time, whatever the number of flips, so that a longer draw begins as a shorter.
DRAWN_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Choices:
    """What an attack may flip."""

    removable: Int[Tensor, " removable"]  # keys of edges that may go
    edges: Int[Tensor, " edges"]  # keys of the pairs that may not be added
    addable: int  # how many pairs may be
    propose: Callable[[Iterator[float]], tuple[int, int]]  # two nodes, from numbers in [0, 1)
    suits: Callable[[int, int], bool]  # whether the attack may join them, edge or not


def draw_flips(
    graph: Graph,
    count: int,
    choices: Choices,
    generator: torch.Generator,
    *,
    keep_last_edges: bool,
) -> Int[Tensor, "flips 2"]:
    """Different pairs, smaller node first, in the order of their drawing.

    Each is with equal chance an edge to be removed or a pair to become one; where one kind is used
    up, the other is taken. The first flips of a longer draw are those of a shorter one.
    """
    draw = _Draw(graph, choices, generator, keep_last_edges)
    keys = torch.tensor([draw.next_key(made=made, wanted=count) for made in range(count)])
    return torch.stack([keys // graph.num_nodes, keys % graph.num_nodes], dim=1)


class _Draw:
    """One flip after the other, with what the flips so far have left of the graph."""

    def __init__(
        self, graph: Graph, choices: Choices, generator: torch.Generator, keep_last_edges: bool
    ) -> None:
        self.num_nodes, self.keep_last_edges = graph.num_nodes, keep_last_edges
        self.choices = choices
        order = torch.randperm(len(choices.removable), generator=generator)
        self.removable = iter(choices.removable[order].tolist())
        self.taken = set(choices.edges.tolist())  # edges, and pairs that became one
        self.addable = choices.addable
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
            kept = ", or would take the last edge of a node" if self.keep_last_edges else ""
            raise SettingsError(
                f"Number of flips must be at most {made} here: every further one is not for this "
                f"attack to make{kept}. Got {wanted}."
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
            low, high = sorted(self.choices.propose(self.uniform))
            key = low * self.num_nodes + high
            if self.choices.suits(low, high) and key not in self.taken:
                self.taken.add(key)
                self.degrees[low] += 1
                self.degrees[high] += 1
                return key


def _uniform(generator: torch.Generator) -> Iterator[float]:
    """Numbers in [0, 1) without end."""
    while True:
        yield from torch.rand(DRAWN_AT_ONCE, generator=generator, dtype=torch.float64).tolist()
