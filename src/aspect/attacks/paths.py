"""How many paths of three edges join two nodes: an edge score that reads no features.

A path u, a, b, v says that u has a neighbour in common with a node that is joined to v as well. On
homophilic graphs friends of friends are joined, on heterophilic ones nodes with the same neighbours
are alike: both have many such paths. An edge that an attack adds between distant nodes has few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.graph import Graph, edge_keys
from aspect.data.sparse import Pattern, SparseMatrix

NUMBERS_AT_ONCE = 2**23
NUMBERS_PER_WALK = 8  # its ends and its weight, while it is found and added


@dataclass(frozen=True, eq=False)
class Paths:
    """Neighbours of every node, and what a step through a node counts for: one over its degree."""

    adjacency: Pattern
    steps: Float[Tensor, " nodes"]
    edges: Int[Tensor, " edges"]  # keys

    @classmethod
    def of(cls, graph: Graph) -> Paths:
        """Of a graph; its weights have no part in it."""
        source, target = graph.edge_index
        steps = graph.degrees().double().clamp(min=1).reciprocal()
        adjacency = SparseMatrix.from_entries(source, target, steps[source], (len(steps),) * 2)
        return cls(adjacency.pattern, steps, edge_keys(graph))

    def scores(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """Weighted numbers of paths; those over the edge of a pair do not count.

        A path u, a, b, v counts `1 / (d_a d_b)`. Takes O(sum of squared degrees) time.
        """
        is_edge = torch.isin(low * len(self.steps) + high, self.edges)
        over_the_edge = self._over_the_edge(low, high) * is_edge
        return (self._walks(low, high) - over_the_edge).clamp(min=0)

    def block(self, nodes: Int[Tensor, " some"]) -> Float[Tensor, "some nodes"]:
        """The same of some nodes with all to which no edge joins them."""
        two_steps = self.steps.new_zeros(len(nodes), len(self.steps))
        for block in self._blocks(nodes):
            self._add_two_steps(nodes[block], two_steps[block])
        ones = self.steps.new_ones(len(self.adjacency.columns))
        walks: Tensor = SparseMatrix(self.adjacency, ones) @ (two_steps * self.steps).t()
        return walks.t().contiguous()

    def mean(self) -> float:
        """The mean of all pairs of nodes, their edges included."""
        nodes = torch.arange(len(self.steps), device=self.steps.device)
        low, high = self.edges // len(nodes), self.edges % len(nodes)
        # From each node start as many walks, all counted, as it has neighbours.
        total = len(self.adjacency.columns) - self._walks(nodes, nodes).sum()
        total = total - 2 * self._over_the_edge(low, high).sum()
        return max(0.0, float(total)) / max(1, len(nodes) * (len(nodes) - 1))

    def _walks(self, low: Tensor, high: Tensor) -> Float[Tensor, " pairs"]:
        """Walks of three steps from each low node to its high one, over an edge of theirs too."""
        found = self.steps.new_zeros(len(low))
        starts, rows = torch.unique(low, return_inverse=True)
        order = torch.argsort(rows)
        ends = torch.bincount(rows, minlength=len(starts)).cumsum(0)
        blocks = list(self._blocks(starts))
        most = max((block.stop - block.start for block in blocks), default=0)
        two_steps = self.steps.new_zeros(most, len(self.steps))
        for block in blocks:
            places = self._add_two_steps(starts[block], two_steps)
            begin = int(ends[block.start - 1]) if block.start else 0
            pairs = order[begin : int(ends[block.stop - 1])]
            of_pair, last = self._next(high[pairs])
            walks = two_steps[rows[pairs][of_pair] - block.start, last] * self.steps[last]
            found[pairs] = found.new_zeros(len(pairs)).index_add(0, of_pair, walks)
            two_steps[places] = 0  # much less than all of it
        return found

    def _blocks(self, starts: Int[Tensor, " some"]) -> Iterator[slice]:
        """Starts that follow each other, whose walks of two steps are found at once."""
        numbers = len(self.steps) + NUMBERS_PER_WALK * self._num_walks[starts]
        blocks = numbers.cumsum(0) // NUMBERS_AT_ONCE
        begin = 0
        for size in torch.unique_consecutive(blocks, return_counts=True)[1].tolist():
            yield slice(begin, begin + size)
            begin += size

    @cached_property
    def _num_walks(self) -> Int[Tensor, " nodes"]:
        """Walks of two steps from every node."""
        degrees = self.adjacency.segments.diff()
        of_neighbours = degrees[self.adjacency.columns.long()]
        return torch.zeros_like(degrees).index_add(0, self.adjacency.rows, of_neighbours)

    def _add_two_steps(
        self, starts: Int[Tensor, " some"], walks: Float[Tensor, "rows nodes"]
    ) -> tuple[Tensor, Tensor]:
        """Add the walks of two steps from each start, a row each; where they are added."""
        of_start, middle = self._next(starts)
        of_middle, reached = self._next(middle)
        places = of_start[of_middle], reached
        walks.index_put_(places, self.steps[middle][of_middle], accumulate=True)
        return places

    def _over_the_edge(self, low: Tensor, high: Tensor) -> Float[Tensor, " pairs"]:
        """The part of the walks that crosses the edge between their own ends."""
        of_node, neighbour = self._next(torch.arange(len(self.steps), device=low.device))
        around = torch.zeros_like(self.steps).index_add(0, of_node, self.steps[neighbour])
        one, other = self.steps[low], self.steps[high]
        return one * around[low] + other * around[high] - one * other

    def _next(self, nodes: Int[Tensor, " nodes"]) -> tuple[Tensor, Tensor]:
        """All neighbours of some nodes, and for each the place of its node among those given."""
        owners, entries = self.adjacency.entries_of(nodes)
        return owners, self.adjacency.columns[entries].long()
