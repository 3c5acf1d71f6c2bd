"""Random changes of a graph that make a second view of it."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Graph

__all__ = [
    "column_mask",
    "edge_weights",
    "entry_weights",
    "exact_mask",
    "isolate_nodes",
    "weighted_mask",
]


def edge_weights(
    graph: Graph, drop: float, generator: torch.Generator
) -> Float[Tensor, " edges"] | None:
    """One for each kept undirected edge, zero for each dropped; None if nothing is dropped."""
    return _draw_kept(graph.num_edges, drop, generator, graph.dtype)


def entry_weights(
    graph: Graph, drop: float, generator: torch.Generator
) -> Float[Tensor, " entries"] | None:
    """As `edge_weights`, but an edge's two directions are decided apart: views are asymmetric.

    So do GRACE, BGRL, GBT, CCA-SSG, ARIEL and HLCL. Weights are in the order of the edge index.
    """
    return _draw_kept(graph.edge_index.shape[1], drop, generator, graph.dtype)


def column_mask(
    num_features: int, rate: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, " features"] | None:
    """One for each kept feature column, zero for each masked; None if nothing is masked."""
    return _draw_kept(num_features, rate, generator, dtype)


def exact_mask(
    count: int, rate: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, " count"]:
    """Exactly floor(rate * count) zeros at random places, and ones: not a draw for each.

    Of columns in GGD and GREET, of rows in GraphCL.
    """
    weights = torch.ones(count, dtype=dtype, device=generator.device)
    order = torch.randperm(count, generator=generator, device=generator.device)
    weights[order[: math.floor(rate * count)]] = 0
    return weights


def weighted_mask(
    drop: Float[Tensor, " entries"], generator: torch.Generator
) -> Float[Tensor, " entries"]:
    """One or zero for each, dropped with its own probability (GCA's edges and columns)."""
    return torch.bernoulli(1 - drop, generator=generator)


def isolate_nodes(
    graph: Graph, rate: float, generator: torch.Generator
) -> Float[Tensor, " entries"] | None:
    """Weights of the edge index with all edges of some nodes dropped; the nodes stay (HLCL)."""
    kept = _draw_kept(graph.num_nodes, rate, generator, graph.dtype)
    if kept is None:
        return None
    source, target = graph.edge_index
    return kept[source] * kept[target]


def _draw_kept(
    count: int, drop: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, " count"] | None:
    if drop == 0:
        return None
    empty = torch.empty(count, dtype=dtype, device=generator.device)
    return empty.bernoulli_(1 - drop, generator=generator)
