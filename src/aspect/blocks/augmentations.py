"""Random changes of a graph that make a second view of it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["column_mask", "edge_weights"]


def edge_weights(
    num_edges: int, drop: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, " edges"] | None:
    """One for each kept undirected edge, zero for each dropped; None if nothing is dropped."""
    if drop == 0:
        return None
    empty = torch.empty(num_edges, dtype=dtype, device=generator.device)
    return empty.bernoulli_(1 - drop, generator=generator)


def column_mask(
    num_features: int, rate: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, " features"] | None:
    """One for each kept feature column, zero for each masked; None if nothing is masked."""
    return edge_weights(num_features, rate, generator, dtype)
