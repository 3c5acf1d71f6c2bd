"""Bounds on mutual information by classifying true and false pairs (the DGI family, GMI)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus


def two_group_loss(
    real: Float[Tensor, "*real"], corrupted: Float[Tensor, "*corrupted"]
) -> Float[Tensor, ""]:
    """Binary cross-entropy of logits, the mean over both groups together; ln 2 for zeros.

    `(sum softplus(-s+) + sum softplus(s-)) / (number of both)`, for nodes of a graph and of a
    corrupted one. Several heads' logits (MVGRL's and PolyGCL's two) count as more nodes; GraphCL
    adds its two before.
    """
    total = softplus(-real).sum() + softplus(corrupted).sum()
    return total / (real.numel() + corrupted.numel())


def squashed_divergence(
    true: Float[Tensor, "*true"], false: Float[Tensor, "*false"]
) -> Float[Tensor, ""]:
    """`mean softplus(-sigmoid(s)) + mean softplus(sigmoid(s'))`, from 1.0064 to 2.0064 (GMI).

    The sigmoid before the softplus is in GMI's code and keeps both its terms weak beside the
    reconstruction; the Jensen-Shannon bound itself has none.
    """
    return softplus(-true.sigmoid()).mean() + softplus(false.sigmoid()).mean()
