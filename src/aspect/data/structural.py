"""Features made from the edges alone, for graphs that have none; only ever used when asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.eigenvectors import leading_eigenvectors, normalised_adjacency
from aspect.data.graph import Features, Graph
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, SettingsError
from aspect.randomness import generator_for

__all__ = ["STRUCTURAL", "Structural", "structural_features", "with_structural_features"]

Structural = Literal["degree", "identity", "random", "laplacian"]
STRUCTURAL: tuple[str, ...] = get_args(Structural)

COLUMNS = 32  # of random and laplacian features
SEED = 0  # one graph, one set of random features


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

    The same at every call; in an eigenspace of several dimensions the solver chooses the basis.
    """
    if graph.num_edges == 0:
        raise GraphError("Laplacian features need edges. Got none; ask for degree or random ones.")
    count = min(COLUMNS, graph.num_nodes - 1)
    _, vectors = leading_eigenvectors(normalised_adjacency(graph), count, "LA")
    scaled = vectors * graph.num_nodes**0.5
    return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))
