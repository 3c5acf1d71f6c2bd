"""Telling nodes of a graph from nodes of a corrupted one (the DGI family)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["two_group_loss"]


def two_group_loss(
    real: Float[Tensor, "*real"], corrupted: Float[Tensor, "*corrupted"]
) -> Float[Tensor, ""]:
    """Binary cross-entropy of logits, the mean over both groups together; ln 2 for zeros.

    `(sum softplus(-s+) + sum softplus(s-)) / (number of both)`. Several heads' logits (MVGRL's
    and PolyGCL's two, side by side or stacked) count as more nodes; GraphCL adds its two before.
    """
    total = softplus(-real).sum() + softplus(corrupted).sum()
    return total / (real.numel() + corrupted.numel())
