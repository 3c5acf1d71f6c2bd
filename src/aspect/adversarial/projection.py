"""The nearest point of a budget: shares in [0, 1] whose sum is bounded."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["project_to_budget"]

SPARE_BITS = 8  # of the shift, beyond those of a number's precision


def project_to_budget(
    values: Float[Tensor, " candidates"], budget: int | float
) -> Float[Tensor, " candidates"]:
    """The Euclidean projection onto {0 <= x <= 1, sum x <= budget}.

    Where clipping alone exceeds the budget, it is `clip(values - shift)` for the shift at which the
    sum is the budget. With a budget of b and a bit, the sum is at least b + 1 at one below the
    value that b others exceed, and at most b at that value: the shift lies between, and halving
    finds one binary digit of it at a time. Nothing waits for a device, and the operations are few,
    since small graphs cost a device little but their number.
    """
    allowed = int(budget)
    if len(values) <= allowed:
        return values.clamp(0, 1)
    binds = values.clamp(0, 1).sum() > budget
    bits = SPARE_BITS - round(math.log2(torch.finfo(values.dtype).eps))
    high = values.kthvalue(len(values) - allowed).values.clamp(min=0)
    low = (high - 1).clamp(min=0)
    for _ in range(bits):
        middle = torch.lerp(low, high, 0.5)
        is_above = (values - middle).clamp_(0, 1).sum() > budget
        low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
    return (values - high * binds).clamp_(0, 1)
