"""Chebyshev polynomials of an operator, and learned filters (monotone, ramp) made of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.operators import Operator


def chebyshev_basis(
    rescaled_laplacian: Operator, x: Float[Tensor, "nodes dim"], order: int
) -> Iterator[Float[Tensor, "nodes dim"]]:
    """Yield T_0(L)x, ..., T_order(L)x for order >= 1; the operator's spectrum lies in [-1, 1]."""
    before, current = x, rescaled_laplacian(x)
    yield before
    yield current
    for _ in range(order - 1):
        # 2 L T_k - T_(k-1): from the one before through L T_k and as far again, in a single pass.
        before, current = current, torch.lerp(before, rescaled_laplacian(current), 2)
        yield current


def chebyshev_nodes(order: int) -> Float[Tensor, " order_plus_one"]:
    """The zeros of T_(order + 1) from near -1 to near 1: frequencies in rising order (float64)."""
    steps = torch.arange(order, -1, -1, dtype=torch.float64) + 0.5
    return torch.cos(steps * math.pi / (order + 1))


def chebyshev_transform(order: int) -> Float[Tensor, "order_plus_one order_plus_one"]:
    """The matrix that turns values at the nodes into coefficients (float64).

    Row k holds 2 T_k(x_j) / (order + 1). The first row is halved, which Eq. (31), Chebyshev
    coefficients, leaves out: without it the polynomial misses its values by their mean.
    """
    degrees = torch.arange(order + 1, dtype=torch.float64)
    angles = torch.arccos(chebyshev_nodes(order))
    matrix = 2 / (order + 1) * torch.cos(degrees[:, None] * angles[None, :])
    matrix[0] /= 2
    return matrix


Band = Literal["low", "high"]

FIRST_LOW = 2.0
# ReLU has no gradient at zero: a learned start at exactly zero would never move.
FIRST_HIGH_LEARNED = 0.05


class InterpolatedFilter(nn.Module, ABC):
    """A polynomial filter that is given by its values at the order + 1 Chebyshev nodes."""

    transform: Tensor

    def __init__(self, order: int) -> None:
        super().__init__()
        if order < 1:
            raise ValueError(
                f"Order of {type(self).__name__} must be an integer >= 1. Got {order}."
            )
        self.register_buffer("transform", chebyshev_transform(order), persistent=False)

    @abstractmethod
    def values(self) -> Float[Tensor, " order_plus_one"]:
        """The response at the nodes, lowest frequency first."""

    @override
    def forward(self) -> Float[Tensor, " order_plus_one"]:
        """The Chebyshev coefficients whose polynomial takes `values()` at the nodes."""
        values = self.values()
        return self.transform.to(values.dtype) @ values


class MonotoneFilter(InterpolatedFilter):
    """A polynomial filter of one band, Eq. (30), filter responses.

    The values at the order + 1 nodes are prefix sums of ReLU'd increments, falling for `low`,
    rising for `high`: monotone at the nodes, not always between them. `learned_start` learns the
    first value as well, as the paper does; otherwise it is PolyGCL's constant, 2 for low and 0 for
    high.
    """

    def __init__(self, band: Band, order: int, *, learned_start: bool = True) -> None:
        super().__init__(order)
        self.sign = -1.0 if band == "low" else 1.0
        first_high = FIRST_HIGH_LEARNED if learned_start else 0.0
        start = torch.tensor([FIRST_LOW if band == "low" else first_high])
        if learned_start:
            self.start: Tensor = nn.Parameter(start)
        else:
            self.register_buffer("start", start)
        self.increments = nn.Parameter(torch.full((order,), 2 / order))

    @override
    def values(self) -> Float[Tensor, " order_plus_one"]:
        steps = torch.cat([self.start.relu(), self.sign * self.increments.relu()])
        return steps.cumsum(0)


class RampFilter(InterpolatedFilter):
    """Values along a cosine from a to a + b (high) or to a - b (low), and never below zero (S3GCL).

    `relu(a +- b (1 - cos(pi j / order)) / 2)` at node j; a starts at 2 for low and at 0 for high, b
    at 2, so that both bands add up to 2 everywhere. That both are learned is our reading: the
    filter's module is missing from S3GCL's code.
    """

    ramp: Tensor

    def __init__(self, band: Band, order: int) -> None:
        super().__init__(order)
        self.start = nn.Parameter(torch.tensor(FIRST_LOW if band == "low" else 0.0))
        self.height = nn.Parameter(torch.tensor(2.0))
        rise = (1 - torch.cos(torch.arange(order + 1) * math.pi / order)) / 2
        self.register_buffer("ramp", -rise if band == "low" else rise, persistent=False)

    @override
    def values(self) -> Float[Tensor, " order_plus_one"]:
        return (self.start + self.height * self.ramp).relu()
