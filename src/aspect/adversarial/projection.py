"""The nearest point of a budget: shares in [0, 1] whose sum is bounded."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["project_to_budget"]

HALVINGS = 60  # of the interval that holds the shift: below a float64's precision


def project_to_budget(
    values: Float[Tensor, " candidates"], budget: int | float
) -> Float[Tensor, " candidates"]:
    """The Euclidean projection onto {0 <= x <= 1, sum x <= budget}.

    Where clipping alone exceeds the budget, it is `clip(values - shift)` for the shift at which the
    sum is the budget; the sum falls with the shift, so halving an interval finds it. Nothing waits
    for a device: the same steps are taken whether the budget binds or not.
    """
    if len(values) == 0:
        return values
    low = values.new_zeros(())  # the sum is above the budget here, or the budget does not bind
    high = values.max().clamp(min=0)  # nothing is left here
    binds = values.clamp(0, 1).sum() > budget
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_above = (values - middle).clamp(0, 1).sum() > budget
        low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
    return (values - torch.where(binds, high, low.new_zeros(()))).clamp(0, 1)
