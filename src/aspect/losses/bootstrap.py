"""Predicting what a slower network says of each node (BGRL)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from aspect.losses.cosine import cosines

__all__ = ["bootstrap_loss"]


def bootstrap_loss(
    predicted: Float[Tensor, "nodes dim"], target: Float[Tensor, "nodes dim"]
) -> Float[Tensor, ""]:
    """`1 - mean_i cos(q_i, y_i)`, from 0 to 2; no gradient reaches the target.

    BGRL's loss is the sum over both directions: 2 minus two mean cosines.
    """
    return 1 - cosines(predicted, target.detach()).mean()
