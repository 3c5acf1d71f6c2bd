"""A graph seen along its edges and by diffusion, whole or some of its nodes (MVGRL's two views)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.features import seen_features, take_rows
from aspect.data.graph import Features, Graph
from aspect.data.operators import Operator
from aspect.data.sparse import SparseMatrix
from aspect.nn.diffusion import PersonalisedPageRank
from aspect.nn.propagation import MatrixOperator, SymmetricPropagation

__all__ = ["CroppedOperator", "DiffusedGraph", "scale_columns"]


@dataclass(frozen=True, eq=False)
class CroppedOperator:
    """The rows and columns of some nodes alone: cut out, not normalised anew."""

    operator: Operator  # on all nodes
    nodes: Int[Tensor, " window"]
    num_nodes: int  # in all

    def __call__(self, x: Float[Tensor, "window dim"]) -> Float[Tensor, "window dim"]:
        """The product with x; nodes outside hold zeros, and what reaches them is lost."""
        whole = x.new_zeros(self.num_nodes, x.shape[1]).index_copy(0, self.nodes, x)
        return self.operator(whole)[self.nodes]


@dataclass(frozen=True, eq=False)
class DiffusedGraph:
    """Features with two operators that spread them."""

    features: Features
    edges: Operator  # D^(-1/2) (A + l I) D^(-1/2) for a loop weight l
    diffusion: Operator  # S, by personalised PageRank along edges with loops of weight one

    @classmethod
    def of(
        cls,
        graph: Graph,
        *,
        normalise_rows: bool = True,
        loop_weight: float = 1.0,
        restart: float = 0.2,
        threshold: float | None = None,
    ) -> DiffusedGraph:
        """Both views of a whole graph; S is formed only where entries below a threshold go.

        What is left of it is scaled by `scale_columns`, as in MVGRL's code.
        """
        features = seen_features(graph.features, normalise_rows=normalise_rows)
        edges = SymmetricPropagation(graph, loop_weight=loop_weight).smoothing()
        rank = PersonalisedPageRank(SymmetricPropagation(graph).smoothing().matrix, restart)
        if threshold is None:
            return cls(features, edges, rank)
        kept = rank.sparse(threshold=threshold)
        return cls(features, edges, MatrixOperator(scale_columns(kept)))

    @property
    def num_nodes(self) -> int:
        """Nodes that are seen."""
        return self.features.shape[0]

    def within(self, nodes: Int[Tensor, " window"]) -> DiffusedGraph:
        """Some nodes, in the order given, each in both views."""
        edges, diffusion = (
            CroppedOperator(operator, nodes, self.num_nodes)
            for operator in (self.edges, self.diffusion)
        )
        return DiffusedGraph(take_rows(self.features, nodes), edges, diffusion)


def scale_columns(matrix: SparseMatrix) -> SparseMatrix:
    """Every column shifted and stretched to [0, 1]; one with an entry left out has 0 for least."""
    flipped = matrix.transposed
    pointers = flipped.pattern.row_pointers.long()
    largest = torch.segment_reduce(flipped.values, "max", offsets=pointers, initial=0)
    smallest = torch.segment_reduce(flipped.values, "min", offsets=pointers, initial=torch.inf)
    least = torch.where(pointers.diff() == matrix.shape[0], smallest, 0)
    extent = torch.where(largest > least, largest - least, 1)
    columns = matrix.pattern.columns.long()
    return matrix.with_values((matrix.values - least[columns]) / extent[columns])
