"""Features made from the edges alone, for graphs that have none; only ever used when asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aspect.errors import GraphError, SettingsError
from aspect.graph.data import Features, Graph
from aspect.graph.sparse import SparseMatrix
from aspect.randomness import generator_for

__all__ = ["STRUCTURAL", "Structural", "structural_features", "with_structural_features"]

Structural = Literal["degree", "identity", "random", "laplacian"]
STRUCTURAL: tuple[str, ...] = get_args(Structural)

COLUMNS = 32  # of random and laplacian features
SEED = 0  # one graph, one set of random features
SAME_SIZE = 0.999
DENSE_UP_TO = 256  # nodes; below that all eigenvectors cost less than the iteration


def with_structural_features(graph: Graph, kind: str) -> Graph:
    """The same edges with features made from them in place of those it had."""
    return replace(graph, features=structural_features(graph, kind), feature_names=None)


def structural_features(graph: Graph, kind: str) -> Features:
    """`degree`, `identity`, `random` or `laplacian` features of a graph, the same at every call."""
    if kind not in STRUCTURAL:
        raise SettingsError(f"--features must be one of {', '.join(STRUCTURAL)}. Got {kind!r}.")
    if kind == "degree":
        return _degree(graph)
    if kind == "identity":
        nodes = torch.arange(graph.num_nodes)
        size = (graph.num_nodes, graph.num_nodes)
        return SparseMatrix.from_entries(nodes, nodes, torch.ones(graph.num_nodes), size)
    if kind == "random":
        generator = generator_for(SEED, "features")
        return torch.randn(graph.num_nodes, COLUMNS, generator=generator).mul(COLUMNS**-0.5)
    return _laplacian(graph)


def _degree(graph: Graph) -> Float[Tensor, "nodes bins"]:
    """One-hot of the power of two below the degree: raw degrees of hubs would drown all others."""
    bins = torch.log2(graph.degrees().double() + 1).floor().long()
    one_hot: Tensor = torch.nn.functional.one_hot(bins)
    return one_hot.float()


def _laplacian(graph: Graph) -> Float[Tensor, "nodes dim"]:
    """Eigenvectors of the normalised Laplacian's smallest eigenvalues, of mean square one.

    The start vector is fixed and each vector's largest entry (the first of equals) is positive, so
    the result is the same at every call; in an eigenspace of several dimensions the solver chooses.
    """
    if graph.num_edges == 0:
        raise GraphError("Laplacian features need edges. Got none; ask for degree or random ones.")
    adjacency = _normalised_adjacency(graph)
    count = min(COLUMNS, graph.num_nodes - 1)
    vectors = _leading_vectors(adjacency, count)
    sizes = np.abs(vectors)
    # The first of those that are largest up to rounding: in a symmetric graph several are.
    leading = (sizes > SAME_SIZE * sizes.max(axis=0)).argmax(axis=0)
    signs = np.sign(vectors[leading, np.arange(count)])
    scaled = vectors * signs * graph.num_nodes**0.5
    return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))


def _leading_vectors(adjacency: scipy.sparse.csr_array, count: int) -> NDArray[np.float64]:
    """The Laplacian's smallest are the adjacency's largest, which need no linear system solved."""
    size = adjacency.shape[0]
    if size <= DENSE_UP_TO:
        return np.linalg.eigh(adjacency.toarray())[1][:, ::-1][:, :count]
    start = np.cos(np.arange(size) * 2.399963)  # regular, yet orthogonal to nothing but by accident
    try:
        values, vectors = scipy.sparse.linalg.eigsh(
            adjacency, k=count, which="LA", v0=start, tol=1e-6
        )
    except scipy.sparse.linalg.ArpackError as error:
        raise GraphError(
            f"No {count} eigenvectors were found for laplacian features. "
            "Ask for degree, identity or random ones."
        ) from error
    return np.asarray(vectors[:, np.argsort(-values, kind="stable")])


def _normalised_adjacency(graph: Graph) -> scipy.sparse.csr_array:
    rows, columns = graph.edge_index.cpu().numpy()
    degrees = graph.degrees().cpu().numpy()
    scale = 1 / np.sqrt(np.maximum(degrees, 1))
    size = (graph.num_nodes, graph.num_nodes)
    # An isolated node has L_ii = 1, as in the operators: its row of the adjacency is empty.
    return scipy.sparse.csr_array((scale[rows] * scale[columns], (rows, columns)), shape=size)
