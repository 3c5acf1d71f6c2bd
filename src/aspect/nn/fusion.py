"""Blend the bands of every node by its policy, and read an embedding out of the result."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Readout", "fuse", "read_out"]

Readout = Literal["fused", "concatenated", "weighted"]


def fuse(
    views: Float[Tensor, "bands nodes dim"], weights: Float[Tensor, "nodes bands"]
) -> Float[Tensor, "nodes dim"]:
    """Blend the views node by node (`eq:fusion`); weight one on a band keeps that band alone."""
    return (views * weights.t().unsqueeze(-1)).sum(0)


def read_out(
    views: Float[Tensor, "bands nodes dim"], weights: Float[Tensor, "nodes bands"], readout: Readout
) -> Float[Tensor, "nodes out"]:
    """What a probe sees: the blend, the bands side by side, or side by side with their weights."""
    if readout == "fused":
        return fuse(views, weights)
    if readout == "weighted":
        views = views * weights.t().unsqueeze(-1)
    return torch.cat(list(views), dim=1)
