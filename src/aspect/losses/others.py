"""Log-sums over all other nodes of the same view: exact in O(nodes * block) memory.

The matrix of similarities is symmetric, so that one product gives the exact gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.losses.blocked import (
    exponential_blocks,
    refuse_second_derivative,
    rows_per_block,
    through_unit_rows,
    unit_rows,
    with_smaller_blocks,
)
from aspect.losses.info_nce import LOWEST_FLOAT32_TEMPERATURE, check_temperature

__all__ = ["log_sum_of_others"]


def log_sum_of_others(
    x: Float[Tensor, "nodes dim"], temperature: float, *, block: int | None = None
) -> Float[Tensor, " nodes"]:
    """`log sum_(j != i) exp(x_i . x_j / temperature)` within one view."""
    check_temperature(temperature)
    dtype = x.dtype
    if temperature < LOWEST_FLOAT32_TEMPERATURE:
        x = x.double()
    size = block or rows_per_block(x)
    sums: Tensor = _OtherSums.apply(x, 1 / temperature, size)  # type: ignore[no-untyped-call]  # torch
    return sums.to(dtype)


class _OtherSums(torch.autograd.Function):
    """From blocks of exp(s_ij) whose diagonal is set to zero: never subtracted, it may be most."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, sharpness: float, block: int) -> Tensor:
        ctx.sharpness, ctx.block = sharpness, block
        x, scales = unit_rows(x)

        def sums(size: int) -> Tensor:
            ctx.block = size
            # Written in place: small tensors kept between the blocks would fragment the memory.
            found = x.new_empty(len(x))
            for rows, terms in exponential_blocks(x, x, sharpness, size):
                found[rows] = _diagonal_zeroed(rows, terms).sum(1)
            return found

        total: Tensor = with_smaller_blocks(sums, block, len(x) * x.element_size())
        ctx.save_for_backward(x, scales, total)
        return total.log()

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_derivative()
        x, scales, total = ctx.saved_tensors
        factor = gradient / torch.where(total > 0, total, 1)

        def gradients(size: int) -> Tensor:
            found = torch.empty_like(x)
            for rows, terms in exponential_blocks(x, x, ctx.sharpness, size):
                weights = torch.add(factor[rows, None], factor)
                weights.mul_(_diagonal_zeroed(rows, terms))
                torch.mm(weights, x, out=found[rows])
            return found

        to_x = with_smaller_blocks(gradients, ctx.block, len(x) * x.element_size())
        return through_unit_rows(to_x, x, scales * ctx.sharpness), None, None


def _diagonal_zeroed(rows: slice, terms: Tensor) -> Tensor:
    """No node is its own negative."""
    terms[:, rows].fill_diagonal_(0)
    return terms
