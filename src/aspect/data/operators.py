"""The normalised Laplacian as a callable, its largest eigenvalue and leading eigenvectors.

Spectral code needs `operator(x)` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.graph import Graph
from aspect.data.sparse import Pattern, SparseMatrix, run_numbers
from aspect.errors import GraphError

Operator = Callable[[Float[Tensor, "nodes dim"]], Float[Tensor, "nodes dim"]]
Array = NDArray[np.float64]
Order = Literal["LA", "LM"]  # SciPy's words: the largest by value, or by magnitude

STEP = 2.399963  # irrational: the start vector is orthogonal to none, but by accident

DENSE_UP_TO = 256  # nodes; below that all eigenvectors cost less than the iteration
SAME_SIZE = 0.999
TOLERANCE = 1e-6  # of an eigenvalue, relative
FEW_NODES = 5_000  # of which the largest eigenvalue is found to that tolerance


@dataclass(frozen=True, eq=False)
class RescaledLaplacian:
    """`2 L / lambda_max - I`, whose spectrum lies in [-1, 1], for L = I - D^(-1/2) A D^(-1/2)."""

    neighbours: SparseMatrix  # -2 / lambda_max D^(-1/2) A D^(-1/2)
    diagonal: float  # 2 / lambda_max - 1, which is zero for the usual lambda_max of 2

    def __call__(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """Apply the operator; a node without neighbours has L_ii = 1."""
        product = self.neighbours @ x
        return product if self.diagonal == 0 else product + self.diagonal * x


class Propagation:
    """The fixed pattern along which a graph propagates; operators differ in their weights alone.

    Dropping edges sets weights to zero and recomputes degrees, so that no shape ever changes. In a
    weighted graph each edge has its own weight besides; self-loops weigh one, as in PyG.
    """

    def __init__(self, graph: Graph, *, self_loops: bool, lambda_max: float = 2.0) -> None:
        nodes = torch.arange(graph.num_nodes, device=graph.device)
        source, target = graph.edge_index
        if self_loops:
            source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        own = torch.ones(len(source), dtype=graph.dtype, device=graph.device)
        if graph.weights is not None:
            own[: len(graph.weights)] = graph.weights
        matrix = SparseMatrix.from_entries(source, target, own, (graph.num_nodes, graph.num_nodes))
        self.pattern: Pattern = matrix.pattern
        self._own = None if graph.weights is None else matrix.values  # weights of the entries
        self.num_edges = graph.num_edges
        self.lambda_max = lambda_max
        self.dtype = graph.dtype

    @cached_property
    def edge_of_entry(self) -> Int[Tensor, " entries"]:
        """Which undirected edge an entry belongs to; self-loops share the number `num_edges`."""
        rows, columns = self.pattern.rows, self.pattern.columns.long()
        low, high = torch.minimum(rows, columns), torch.maximum(rows, columns)
        keys = torch.where(
            low == high, torch.iinfo(torch.long).max, low * self.pattern.shape[0] + high
        )
        ordered, order = keys.sort()
        return torch.empty_like(order).scatter(0, order, run_numbers(ordered))

    def operator(self, edge_weights: Float[Tensor, " edges"] | None = None) -> RescaledLaplacian:
        """The rescaled Laplacian with every undirected edge times a factor (one if not given).

        With factors it is rescaled by the bound 2: `lambda_max` is that of the graph as it is, and
        dropping edges can raise it.
        """
        if edge_weights is None:
            return self._clean
        one = torch.ones(1, dtype=edge_weights.dtype, device=edge_weights.device)
        weights = torch.cat([edge_weights, one])[self.edge_of_entry]
        return self._normalised(weights if self._own is None else weights * self._own, 2.0)

    @cached_property
    def _clean(self) -> RescaledLaplacian:
        columns = self.pattern.columns
        weights = self._own
        if weights is None:
            weights = torch.ones(len(columns), dtype=self.dtype, device=columns.device)
        return self._normalised(weights, self.lambda_max)

    def _normalised(
        self, weights: Float[Tensor, " entries"], lambda_max: float
    ) -> RescaledLaplacian:
        rows, columns = self.pattern.rows, self.pattern.columns
        scale = inverse_root_degrees(self.pattern, weights)
        factor = 2 / lambda_max
        values = -factor * weights * scale[rows] * scale[columns]
        return RescaledLaplacian(SparseMatrix(self.pattern, values), factor - 1)


def inverse_root_degrees(
    pattern: Pattern, weights: Float[Tensor, " entries"]
) -> Float[Tensor, " nodes"]:
    """`D^(-1/2)` for the degrees that the weights sum to, row by row; zero for a row of zeros."""
    # Rows are contiguous, so that a segment sum repeats bit for bit, unlike index_add on CUDA.
    degrees = torch.segment_reduce(weights, "sum", offsets=pattern.segments, initial=0)
    return torch.where(degrees > 0, degrees, 1).rsqrt() * (degrees > 0)


def largest_eigenvalue(graph: Graph, *, self_loops: bool) -> float:
    """The Laplacian's largest eigenvalue, or one if that is larger.

    It is never above 2. Below the truth it would let the spectrum leave [-1, 1].
    """
    if graph.num_edges == 0:
        return 2.0  # there is nothing to propagate, and any bound will do
    in_float64 = graph.to("cpu").to(torch.float64)
    shifted = Propagation(in_float64, self_loops=self_loops).operator().neighbours  # L - I
    pattern = shifted.pattern
    entries = shifted.values.numpy(), pattern.columns.numpy(), pattern.row_pointers.numpy()
    matrix = scipy.sparse.csr_array(entries, shape=pattern.shape)
    # Eigenvalues of a long chain lie so close that telling them apart takes hours.
    tolerance = TOLERANCE if graph.num_nodes <= FEW_NODES else 1e-4
    values, _ = leading_eigenvectors(matrix, 1, "LA", tolerance)
    return min(2.0, 1.0 + max(0.0, float(values[0])))


def normalised_adjacency(graph: Graph, added_degree: float = 0.0) -> scipy.sparse.csr_array:
    """`D^(-1/2) A D^(-1/2)` in float64, where D holds the degrees plus a constant.

    The row of an isolated node is empty: it has L_ii = 1, as in the operators. In a weighted graph
    degrees are sums of weights, and the constant counts edges of the mean weight.
    """
    rows, columns = graph.edge_index.cpu().numpy()
    size = (graph.num_nodes, graph.num_nodes)
    weights = np.ones(len(rows))
    if graph.weights is not None:
        weights = graph.weights.cpu().numpy().astype(np.float64)
    mean = weights.mean() if len(weights) else 1.0
    degrees = np.bincount(rows, weights, graph.num_nodes) + added_degree * mean
    scale = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
    values = weights * scale[rows] * scale[columns]
    return scipy.sparse.csr_array((values, (rows, columns)), shape=size)


def leading_eigenvectors(
    matrix: scipy.sparse.csr_array, count: int, order: Order, tolerance: float = TOLERANCE
) -> tuple[Array, Array]:
    """The first so many eigenvalues of a symmetric matrix, and their vectors as columns.

    By magnitude, they are its truncated singular value decomposition. The start vector is fixed
    and each vector's largest entry (the first of equals) is positive, so that the result is the
    same at every call; in an eigenspace of several dimensions the solver chooses the basis.
    """
    size = matrix.shape[0]
    if size <= DENSE_UP_TO:
        values, vectors = np.linalg.eigh(matrix.toarray())
        values, vectors = values[::-1], vectors[:, ::-1]
    else:
        start = np.cos(np.arange(size) * STEP)
        try:
            values, vectors = scipy.sparse.linalg.eigsh(
                matrix, k=count, which=order, v0=start, tol=tolerance
            )
        except scipy.sparse.linalg.ArpackError as error:
            raise GraphError(
                f"No {count} eigenvectors of the adjacency were found; ask for fewer."
            ) from error
    ranked = np.abs(values) if order == "LM" else values
    chosen = np.argsort(-ranked, kind="stable")[:count]
    values, vectors = values[chosen], vectors[:, chosen]
    sizes = np.abs(vectors)
    # The first of those that are largest up to rounding: in a symmetric graph several are.
    leading = (sizes > SAME_SIZE * sizes.max(axis=0)).argmax(axis=0)
    return values, vectors * np.sign(vectors[leading, np.arange(len(values))])
