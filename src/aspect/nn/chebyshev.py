"""Chebyshev polynomials of an operator, and the way from values at the nodes to coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.operators import Operator

__all__ = ["chebyshev_basis", "chebyshev_nodes", "chebyshev_transform"]


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

    Row k holds 2 T_k(x_j) / (order + 1). The first row is halved, which the paper's formula
    (`eq:chebyshev_coefficient_recovery`) leaves out: without it the polynomial misses its values by
    their mean.
    """
    degrees = torch.arange(order + 1, dtype=torch.float64)
    angles = torch.arccos(chebyshev_nodes(order))
    matrix = 2 / (order + 1) * torch.cos(degrees[:, None] * angles[None, :])
    matrix[0] /= 2
    return matrix
