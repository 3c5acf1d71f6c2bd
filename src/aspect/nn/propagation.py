"""Propagation along edges and self-loops: the matrices of graph convolutions."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aspect.data.graph import Graph
from aspect.data.operators import Operator, Propagation, inverse_root_degrees
from aspect.data.sparse import SparseMatrix


class SymmetricPropagation:
    """The fixed pattern of A + I; operators along it differ in the weights of their entries.

    `D^(-1/2) (W + l I) D^(-1/2)` for entry weights W and loop weight l, where D holds the sums of
    rows, loops included: dropping an edge sets its weight to zero, and degrees follow. In a
    weighted graph what an operator is given is multiplied by the edges' own weights. The entry
    (row, column) carries the column's message to the row, so that with weights that differ between
    the directions a node is normalised by what it receives. Gradients reach the weights, through
    the degrees as well.
    """

    def __init__(self, graph: Graph, *, loop_weight: float = 1.0) -> None:
        self._along = Propagation(graph, self_loops=True)
        self.pattern = self._along.pattern
        self.loop_weight = loop_weight
        self.num_entries = graph.edge_index.shape[1]
        self.dtype = graph.dtype
        self._own = graph.weights

    @cached_property
    def is_loop(self) -> Bool[Tensor, " all_entries"]:
        """Which entries of the pattern lie on the diagonal."""
        return self.pattern.rows == self.pattern.columns

    @cached_property
    def _positions(self) -> Int[Tensor, " all_entries"]:
        """Where each entry's weight stands in the graph's edge index; loops stand behind it."""
        # Both are sorted by row, then by column, so that leaving out the loops aligns them.
        counted = (~self.is_loop).cumsum(0) - 1
        return torch.where(self.is_loop, self.num_entries, counted)

    def both_ways(self, edge_weights: Float[Tensor, " edges"]) -> Float[Tensor, " entries"]:
        """A weight per undirected edge, in the order of `edge_keys`, as one per entry."""
        return edge_weights[self._along.edge_of_entry[~self.is_loop]]

    def smoothing(self, weights: Float[Tensor, " entries"] | None = None) -> SparseMatrix:
        """The low-pass operator; weights are in the order of the graph's edge index.

        Without weights and with loops of weight one it is the A-hat of a graph convolution.
        """
        return self._clean if weights is None else self._normalised(weights)

    def sharpening(
        self,
        weights: Float[Tensor, " entries"] | None = None,
        *,
        strength: float = 1.0,
        unit_diagonal: bool = False,
    ) -> SparseMatrix:
        """The high-pass operator: I minus so many times the low-pass one.

        With `unit_diagonal` only what lies off the diagonal is subtracted: GREET's form, and that
        of HLCL's code, whose paper subtracts all of it.
        """
        matrix = self.smoothing(weights)
        values, eye = -strength * matrix.values, self.is_loop.to(matrix.dtype)
        sharpened = torch.where(self.is_loop, eye, values) if unit_diagonal else values + eye
        return matrix.with_values(sharpened)

    @cached_property
    def _clean(self) -> SparseMatrix:
        device = self.pattern.columns.device
        return self._normalised(torch.ones(self.num_entries, dtype=self.dtype, device=device))

    def _normalised(self, weights: Float[Tensor, " entries"]) -> SparseMatrix:
        if self._own is not None:
            weights = weights * self._own
        entries = torch.cat([weights, weights.new_full((1,), self.loop_weight)])[self._positions]
        scale = inverse_root_degrees(self.pattern, entries)
        values = entries * scale[self.pattern.rows] * scale[self.pattern.columns]
        return SparseMatrix(self.pattern, values)


def neighbour_mean(graph: Graph) -> SparseMatrix:
    """`D^(-1) A`, without self-loops; a node without neighbours gets zeros."""
    matrix = Propagation(graph, self_loops=False).operator().neighbours
    # Both are sorted by row, then by column.
    weights = torch.ones_like(matrix.values) if graph.weights is None else graph.weights
    degrees = torch.segment_reduce(weights, "sum", offsets=matrix.pattern.segments, initial=0)
    return matrix.with_values(weights / degrees[matrix.pattern.rows])


def spread(
    x: Float[Tensor, "nodes dim"], operator: Operator, hops: int
) -> Float[Tensor, "nodes dim"]:
    """The operator applied so many times: what reaches each node within so many hops."""
    for _ in range(hops):
        x = operator(x)
    return x
