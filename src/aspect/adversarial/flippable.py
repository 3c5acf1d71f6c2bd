"""Pairs that may be flipped by shares, all of a graph's or some, and the way to a flipped graph.

The searches of ARIEL and RDGI stand on it; that of ASPECT-S has its own in `ascent.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.adversarial.candidates import EdgeCandidates
from aspect.adversarial.projection import project_to_budget
from aspect.data.graph import Graph, count_pairs, edge_index_of, flip_pairs
from aspect.data.operators import Operator
from aspect.nn.propagation import MatrixOperator, SymmetricPropagation, dense_smoothing

__all__ = [
    "AllPairs",
    "Flippable",
    "SomePairs",
    "added_smoothing",
    "flipped_smoothing",
    "within_budget",
]


class Flippable(ABC):
    """Pairs of nodes, each with a share from 0 to 1 by which it is flipped."""

    @abstractmethod
    def nothing(self) -> Float[Tensor, "*pairs"]:
        """Shares of zero: the graph as it is."""

    @abstractmethod
    def smoothing(self, shares: Float[Tensor, "*pairs"]) -> Operator:
        """`D^(-1/2) (A + I) D^(-1/2)` of the flipped graph, degrees following; differentiable."""

    @abstractmethod
    def keys(self, flips: Float[Tensor, "*pairs"]) -> Int[Tensor, " flips"]:
        """The pairs whose share is not zero, as smaller end * nodes + larger end."""


@dataclass(frozen=True, eq=False)
class AllPairs(Flippable):
    """Every pair: shares stand above the diagonal of a matrix, and what is below counts nothing."""

    present: Bool[Tensor, "nodes nodes"]  # the edges, in both directions
    dtype: torch.dtype  # of shares

    @classmethod
    def of(cls, graph: Graph) -> AllPairs:
        """The pairs of all nodes."""
        nodes = graph.num_nodes
        present = torch.zeros(nodes, nodes, dtype=torch.bool, device=graph.device)
        present[graph.edge_index[0], graph.edge_index[1]] = True
        return cls(present, graph.dtype)

    @override
    def nothing(self) -> Float[Tensor, "nodes nodes"]:
        return torch.zeros_like(self.present, dtype=self.dtype)

    @override
    def smoothing(self, shares: Float[Tensor, "nodes nodes"]) -> Operator:
        upper = shares.triu(1)
        symmetric = upper + upper.t()
        # A + S (1 - 2 A) entry by entry, of which nothing but one byte an entry is kept.
        matrix = dense_smoothing(torch.where(self.present, 1 - symmetric, symmetric))
        return matrix.matmul

    @override
    def keys(self, flips: Float[Tensor, "nodes nodes"]) -> Int[Tensor, " flips"]:
        return flips.triu(1).flatten().nonzero().squeeze(1)


@dataclass(frozen=True, eq=False)
class SomePairs(Flippable):
    """Candidates alone, their propagation with self-loops: memory grows with their number."""

    candidates: EdgeCandidates

    @override
    def nothing(self) -> Float[Tensor, " candidates"]:
        return torch.zeros_like(self.candidates.present)

    @override
    def smoothing(self, shares: Float[Tensor, " candidates"]) -> Operator:
        rescaled = self.candidates.operator(shares)  # minus the normalised adjacency
        return lambda x: -rescaled(x)

    @override
    def keys(self, flips: Float[Tensor, " candidates"]) -> Int[Tensor, " flips"]:
        return self.candidates.keys[flips > 0]


def within_budget(shares: Float[Tensor, "*pairs"], budget: int | float) -> Float[Tensor, "*pairs"]:
    """The nearest shares in [0, 1] whose sum does not exceed the budget.

    As `project_to_budget`, for as many pairs as a whole graph has: where clipping is enough, no
    more is done, and else what is not above zero, about half of all, is left out.
    """
    clipped = shares.clamp(0, 1)
    if float(clipped.sum(dtype=torch.float64)) <= budget:
        return clipped
    rising = shares > 0
    clipped[rising] = project_to_budget(shares[rising], budget)
    return clipped


def flipped_smoothing(graph: Graph, keys: Int[Tensor, " flips"]) -> MatrixOperator:
    """The convolution's matrix with these pairs flipped: edges removed, others joined."""
    return SymmetricPropagation(flip_pairs(graph, keys)).smoothing()


def added_smoothing(graph: Graph, keys: Int[Tensor, " flips"]) -> MatrixOperator:
    """The convolution's matrix with these pairs added, whether they are edges or not.

    So the official code of RDGI: an edge that it means to remove weighs two.
    """
    every, counts = count_pairs(graph, keys)
    joined = SymmetricPropagation(Graph(graph.features, edge_index_of(every, graph.num_nodes)))
    return joined.smoothing(joined.both_ways(counts.to(graph.dtype)))
