"""Leading eigenvectors of a graph's normalised adjacency, the same at every call."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from aspect.data.graph import Graph
from aspect.errors import GraphError

__all__ = ["leading_eigenvectors", "normalised_adjacency"]

Array = NDArray[np.float64]
Order = Literal["LA", "LM"]  # SciPy's words: the largest by value, or by magnitude

DENSE_UP_TO = 256  # nodes; below that all eigenvectors cost less than the iteration
SAME_SIZE = 0.999
TOLERANCE = 1e-6  # of an eigenvalue, relative


def normalised_adjacency(graph: Graph, added_degree: float = 0.0) -> scipy.sparse.csr_array:
    """`D^(-1/2) A D^(-1/2)` in float64, where D holds the degrees plus a constant.

    The row of an isolated node is empty: it has L_ii = 1, as in the operators.
    """
    rows, columns = graph.edge_index.cpu().numpy()
    degrees = graph.degrees().cpu().numpy() + added_degree
    scale = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
    size = (graph.num_nodes, graph.num_nodes)
    return scipy.sparse.csr_array((scale[rows] * scale[columns], (rows, columns)), shape=size)


def leading_eigenvectors(
    matrix: scipy.sparse.csr_array, count: int, order: Order
) -> tuple[Array, Array]:
    """The first so many eigenvalues of a symmetric matrix, and their vectors as columns.

    By magnitude, they are its truncated singular value decomposition. The start vector is fixed
    and each vector's largest entry (the first of equals) is positive, so that the result is the
    same at every call; in an eigenspace of several dimensions the solver chooses the basis.
    """
    values, vectors = _eigenpairs(matrix, count, order)
    ranked = np.abs(values) if order == "LM" else values
    chosen = np.argsort(-ranked, kind="stable")[:count]
    values, vectors = values[chosen], vectors[:, chosen]
    sizes = np.abs(vectors)
    # The first of those that are largest up to rounding: in a symmetric graph several are.
    leading = (sizes > SAME_SIZE * sizes.max(axis=0)).argmax(axis=0)
    return values, vectors * np.sign(vectors[leading, np.arange(len(values))])


def _eigenpairs(matrix: scipy.sparse.csr_array, count: int, order: Order) -> tuple[Array, Array]:
    """At least so many of them, in any order."""
    size = matrix.shape[0]
    if size <= DENSE_UP_TO:
        values, vectors = np.linalg.eigh(matrix.toarray())
        return values[::-1], vectors[:, ::-1]
    start = np.cos(np.arange(size) * 2.399963)  # regular, yet orthogonal to nothing but by accident
    try:
        values, vectors = scipy.sparse.linalg.eigsh(
            matrix, k=count, which=order, v0=start, tol=TOLERANCE
        )
    except scipy.sparse.linalg.ArpackError as error:
        raise GraphError(
            f"No {count} eigenvectors of the adjacency were found; ask for fewer."
        ) from error
    return np.asarray(values), np.asarray(vectors)
