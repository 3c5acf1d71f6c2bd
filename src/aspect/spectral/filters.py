"""Learned monotone filters: their values only fall (low band) or only rise (high band)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aspect.spectral.chebyshev import chebyshev_transform

__all__ = ["Band", "MonotoneFilter"]

Band = Literal["low", "high"]

FIRST_LOW = 2.0
# ReLU has no gradient at zero: a learned start at exactly zero would never move.
FIRST_HIGH_LEARNED = 0.05


class MonotoneFilter(nn.Module):
    """A polynomial filter of one band (`eq:filter_response_parameterization`).

    The values at the order + 1 nodes are prefix sums of ReLU'd increments, falling for `low`,
    rising for `high`: monotone at the nodes, not always between them. `learned_start` learns the
    first value as well, as the paper does; otherwise it is PolyGCL's constant, 2 for low and 0 for
    high.
    """

    transform: Tensor

    def __init__(self, band: Band, order: int, *, learned_start: bool = True) -> None:
        super().__init__()
        if order < 1:
            raise ValueError(f"Order of MonotoneFilter must be an integer >= 1. Got {order}.")
        self.sign = -1.0 if band == "low" else 1.0
        first_high = FIRST_HIGH_LEARNED if learned_start else 0.0
        start = torch.tensor([FIRST_LOW if band == "low" else first_high])
        if learned_start:
            self.start: Tensor = nn.Parameter(start)
        else:
            self.register_buffer("start", start)
        self.increments = nn.Parameter(torch.full((order,), 2 / order))
        self.register_buffer("transform", chebyshev_transform(order), persistent=False)

    def values(self) -> Float[Tensor, " order_plus_one"]:
        """The response at the nodes, lowest frequency first."""
        steps = torch.cat([self.start.relu(), self.sign * self.increments.relu()])
        return steps.cumsum(0)

    def forward(self) -> Float[Tensor, " order_plus_one"]:
        """The Chebyshev coefficients whose polynomial takes `values()` at the nodes."""
        values = self.values()
        return self.transform.to(values.dtype) @ values
