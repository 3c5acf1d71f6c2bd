"""A bound on mutual information from scores of true and of false pairs (GMI)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["squashed_divergence"]


def squashed_divergence(
    true: Float[Tensor, "*true"], false: Float[Tensor, "*false"]
) -> Float[Tensor, ""]:
    """`mean softplus(-sigmoid(s)) + mean softplus(sigmoid(s'))`, from 1.0064 to 2.0064.

    The sigmoid before the softplus is in GMI's code and keeps both its terms weak beside the
    reconstruction; the Jensen-Shannon bound itself has none.
    """
    return softplus(-true.sigmoid()).mean() + softplus(false.sigmoid()).mean()
