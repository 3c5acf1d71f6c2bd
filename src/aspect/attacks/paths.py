"""How many paths of three edges join two nodes: an edge score that reads no features.

A path u, a, b, v says that u has a neighbour in common with a node that is joined to v as well. On
homophilic graphs friends of friends are joined, on heterophilic ones nodes with the same neighbours
are alike: both have many such paths. An edge that an attack adds between distant nodes has few.

SciPy finds them, on the CPU for a graph on a GPU too: with many paths torch takes far longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from aspect.data.graph import Graph, edge_keys

NUMBERS_AT_ONCE = 2**20  # more fit no cache
NUMBERS_PER_WALK = 4  # its last step and its weight, while it is added

Nodes = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Paths:
    """Neighbours of every node, and what a step through a node counts for: one over its degree."""

    adjacency: csr_array
    steps: Numbers
    edges: Int[Tensor, " edges"]  # keys

    @classmethod
    def of(cls, graph: Graph) -> Paths:
        """Of a graph; its weights have no part in it."""
        source, target = graph.edge_index.cpu().numpy()
        shape = graph.num_nodes, graph.num_nodes
        adjacency = csr_array((np.ones(len(source)), (source, target)), shape=shape)
        return cls(adjacency, 1 / np.diff(adjacency.indptr).clip(min=1), edge_keys(graph))

    def scores(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """Weighted numbers of paths; those over the edge of a pair do not count.

        A path u, a, b, v counts `1 / (d_a d_b)`. Takes O(sum of squared degrees + nodes^2) time.
        """
        is_edge = torch.isin(low * len(self.steps) + high, self.edges)
        ends = low.cpu().numpy(), high.cpu().numpy()
        over_the_edge = self._over_the_edge(*ends).to(low.device) * is_edge
        return (self._walks(*ends).to(low.device) - over_the_edge).clamp(min=0)

    def block(self, nodes: Int[Tensor, " some"]) -> Float[Tensor, "some nodes"]:
        """The same of some nodes with all to which no edge joins them."""
        walks = self.adjacency @ (self._two_steps(nodes.cpu().numpy()) * self.steps).T
        return torch.from_numpy(np.ascontiguousarray(walks.T)).to(nodes.device)

    def mean(self) -> float:
        """The mean of all pairs of nodes, their edges included."""
        nodes, keys = np.arange(len(self.steps)), self.edges.cpu().numpy()
        # From each node start as many walks, all counted, as it has neighbours.
        total = self.adjacency.nnz - self._walks(nodes, nodes).sum()
        total = total - 2 * self._over_the_edge(*np.divmod(keys, len(nodes))).sum()
        return max(0.0, float(total)) / max(1, len(nodes) * (len(nodes) - 1))

    def _walks(self, low: Nodes, high: Nodes) -> Float[Tensor, " pairs"]:
        """Walks of three steps from each low node to its high one, over an edge of theirs too."""
        found = np.zeros(len(low))
        order = np.argsort(low, kind="stable")
        for part in self._parts(low[order], high[order]):
            pairs = order[part]
            starts, rows = np.unique(low[pairs], return_inverse=True)
            last = self.adjacency[high[pairs]]
            of_walk = np.repeat(rows, np.diff(last.indptr))
            last.data = self._two_steps(starts)[of_walk, last.indices] * self.steps[last.indices]
            found[pairs] = last @ np.ones(len(self.steps))  # in order: `sum` rounds otherwise
        return torch.from_numpy(found)

    def _parts(self, low: Nodes, high: Nodes) -> Iterator[slice]:
        """Pairs whose walks are found at once; they come ordered by their low node."""
        walks = np.diff(self.adjacency.indptr)[high]
        is_first = np.diff(low, prepend=-1) > 0
        numbers = len(self.steps) * is_first + NUMBERS_PER_WALK * walks
        bounds = np.flatnonzero(np.diff(numbers.cumsum() // NUMBERS_AT_ONCE, prepend=-1))
        yield from map(slice, bounds, [*bounds[1:], len(low)])

    def _two_steps(self, starts: Nodes) -> Numbers:
        """Walks of two steps from each start to every node, by the first step."""
        first = self.adjacency[starts]
        first.data = self.steps[first.indices]
        walks: Numbers = (first @ self.adjacency).toarray()
        return walks

    def _over_the_edge(self, low: Nodes, high: Nodes) -> Float[Tensor, " pairs"]:
        """The part of the walks that crosses the edge between their own ends."""
        around = self.adjacency @ self.steps
        one, other = self.steps[low], self.steps[high]
        return torch.from_numpy(one * around[low] + other * around[high] - one * other)
