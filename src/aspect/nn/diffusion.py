"""Diffusion by random walks: personalised PageRank, return probabilities, and MVGRL's views."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.data.features import seen_features, take_rows
from aspect.data.graph import Features, Graph
from aspect.data.operators import Operator
from aspect.data.sparse import SparseMatrix
from aspect.nn.filters import chebyshev_basis
from aspect.nn.propagation import SymmetricPropagation

# Columns that are pushed through the graph at a time: few stay within a CPU's caches.
BLOCK = {"cpu": 64, "cuda": 1024}
FIRST_ROOM = 2**16  # entries that are kept before the store grows


@dataclass(frozen=True, eq=False)
class PersonalisedPageRank:
    """`S = r (I - (1 - r) M)^(-1)` as an operator, for a symmetric M with spectrum in [-1, 1].

    S is never formed: with a = 1 - r, w = sqrt(1 - a^2) and q = (1 - w) / a, it is the series
    `r / w (I + 2 sum_k q^k T_k(M))`, whose terms fall as q^k (0.5^k for MVGRL's r of 0.2, where
    the iteration `x <- (1 - r) M x + r x_0` falls as 0.8^k). Cut where what is left out is below
    `tolerance` in the operator's norm. S is symmetric: the backward pass is S once more, and no
    term is kept for it.
    """

    matrix: SparseMatrix
    restart: float = 0.2
    tolerance: float = 1e-6

    def __call__(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """S x, with exact gradients for x and none for the matrix."""
        diffused: Tensor = _Diffusion.apply(x, self)  # type: ignore[no-untyped-call]  # torch
        return diffused

    @property
    def order(self) -> int:
        """The degree at which the series is cut."""
        first, ratio = self._series()
        left_out = self.tolerance * (1 - ratio) / (2 * first)
        return max(1, math.ceil(math.log(left_out) / math.log(ratio)) - 1)

    def _series(self) -> tuple[float, float]:
        keep = 1 - self.restart
        root = math.sqrt(1 - keep**2)
        return self.restart / root, (1 - root) / keep

    def diffuse(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """S x term by term; a backward pass through it would keep every term."""
        coefficient, ratio = self._series()
        terms = chebyshev_basis(lambda y: self.matrix @ y, x, self.order)
        total = coefficient * next(terms)
        coefficient *= 2
        for term in terms:
            coefficient *= ratio
            total.add_(term, alpha=coefficient)
        return total

    @torch.no_grad()
    def sparse(self, *, threshold: float) -> SparseMatrix:
        """The entries of S that are at least `threshold`.

        Made in blocks of rows, so that memory is nodes * block and what is kept.
        """
        kept = _Entries(self.matrix)
        for start, units in _unit_columns(self.matrix):
            rows = self.diffuse(units).t()  # S is symmetric: its columns are its rows
            row, column = (rows >= threshold).nonzero(as_tuple=True)
            kept.add(row + start, column, rows[row, column])
        return kept.matrix()


class _Entries:
    """Entries of a sparse matrix, collected in one store that doubles when it is full.

    Small tensors kept one by one between large ones that come and go would hold the heap open: the
    memory of all blocks for a few entries.
    """

    def __init__(self, matrix: SparseMatrix) -> None:
        self.shape, self.count = matrix.shape, 0
        self.index = torch.empty(2, FIRST_ROOM, dtype=torch.long, device=matrix.device)
        self.values = torch.empty(FIRST_ROOM, dtype=matrix.dtype, device=matrix.device)

    def add(
        self,
        rows: Int[Tensor, " added"],
        columns: Int[Tensor, " added"],
        values: Float[Tensor, " added"],
    ) -> None:
        """Append entries."""
        end = self.count + len(values)
        while end > len(self.values):
            self.index = torch.cat([self.index, torch.empty_like(self.index)], dim=1)
            self.values = torch.cat([self.values, torch.empty_like(self.values)])
        added = slice(self.count, end)
        self.index[0, added], self.index[1, added], self.values[added] = rows, columns, values
        self.count = end

    def matrix(self) -> SparseMatrix:
        """All entries, sorted."""
        rows, columns = self.index[:, : self.count]
        return SparseMatrix.from_entries(rows, columns, self.values[: self.count], self.shape)


class _Diffusion(torch.autograd.Function):
    """A symmetric linear map that keeps nothing."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, rank: PersonalisedPageRank) -> Tensor:
        ctx.rank = rank
        return rank.diffuse(x)

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.rank.diffuse(gradient.contiguous()), None


def _unit_columns(matrix: SparseMatrix) -> Iterator[tuple[int, Float[Tensor, "nodes block"]]]:
    """The columns of the unit matrix in blocks, each with the number of its first."""
    nodes, block = matrix.shape[0], BLOCK.get(matrix.device.type, BLOCK["cpu"])
    for start in range(0, nodes, block):
        size = min(block, nodes - start)
        units = torch.zeros(nodes, size, dtype=matrix.dtype, device=matrix.device)
        units[start : start + size].fill_diagonal_(1)
        yield start, units


@torch.no_grad()
def return_probabilities(graph: Graph, steps: int = 16) -> Float[Tensor, "nodes steps"]:
    """The diagonals of `(D^(-1) A)^k` for k = 1, ..., steps: GREET's structural encoding.

    With M = D^(-1/2) A D^(-1/2), which has the same diagonals, and y_k = M^k e_i, the chance of
    being back at i after j + k steps is y_j . y_k: half as many products as steps, in blocks of
    columns. A node without neighbours never comes back.
    """
    matrix = SymmetricPropagation(graph, loop_weight=0.0).smoothing()
    probabilities = []
    for _, units in _unit_columns(matrix):
        chances, before = list[Tensor](), units
        while len(chances) < steps:
            after = matrix @ before
            chances.append((before * after).sum(0))
            chances.append(after.square().sum(0))
            before = after
        probabilities.append(torch.stack(chances[:steps], dim=1))
    return torch.cat(probabilities)


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
        rank = PersonalisedPageRank(SymmetricPropagation(graph).smoothing(), restart)
        if threshold is None:
            return cls(features, edges, rank)
        kept = rank.sparse(threshold=threshold)
        return cls(features, edges, scale_columns(kept))

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
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
