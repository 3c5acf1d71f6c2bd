"""InfoNCE of a training step on a GPU, in few passes over the similarities (Triton).

In plain torch the matrix of all pairs is read and written eleven times a step: product,
exponential, two sums, weights, two products. Here one kernel makes unit rows, one takes both sums
of the exponentials, one turns similarities into weights in place. Where products may be in TF32,
rows and similarities are kept in float16, whose significand has as many bits, and summed in
float32.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.data.sparse import aligned
from aspect.losses.blocked import refuse_second_derivative, row_ranges

# A similarity in float16 is off by up to 2^-12, an exponential by that over the temperature.
LOWEST_HALF_TEMPERATURE = 0.1
TALL, WIDE = 64, 128  # rows and columns of the matrix that a program holds
ROUNDS = 4  # so many times it goes on to the rows below
LOG2_E = math.log2(math.e)  # exp2 is what the hardware has
FULL = 2.0**10  # largest weight in float16, so that small ones are in its range too


def fused_log_sums(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    block: int,
    keep: bool,
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """The losses of `info_nce` along rows and columns, in blocks of rows of the matrix.

    `keep` keeps the similarities for the backward pass, which else computes them again.
    """
    precise = (
        torch.get_float32_matmul_precision() == "highest"
        or queries.dtype != torch.float32
        or temperature < LOWEST_HALF_TEMPERATURE
    )
    kind = queries.dtype if precise else torch.float16
    rows, columns = _FusedLogSums.apply(queries, keys, 1 / temperature, block, keep, kind)  # type: ignore[no-untyped-call]  # torch
    return rows, columns


class _FusedLogSums(torch.autograd.Function):
    """`log sum_j exp(s_ij) - s_ii` along rows and columns for s_ij = sharpness * u_i . v_j."""

    @staticmethod
    @override
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        sharpness: float,
        block: int,
        keep: bool,
        kind: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        nodes = len(queries)
        u, v, query_scales, key_scales, cosine = _unit_rows(queries, keys, kind)
        padded = aligned(v, dim=0)
        row_sums = queries.new_empty(nodes)
        column_sums = queries.new_zeros(nodes)
        kept: list[Tensor] = []
        for rows in row_ranges(nodes, block):
            cosines = u[rows] @ padded.t()
            row_sums[rows], of_block = _sums(cosines, nodes, sharpness, row_sums.dtype)
            column_sums += of_block
            if keep:
                kept.append(cosines)
        positive = cosine * sharpness
        ctx.save_for_backward(u, v, query_scales, key_scales, row_sums, column_sums)
        ctx.sharpness, ctx.block, ctx.kept = sharpness, block, kept
        return row_sums.log() - positive, column_sums.log() - positive

    @staticmethod
    @override
    def backward(ctx: Any, to_rows: Tensor, to_columns: Tensor) -> Any:
        refuse_second_derivative()
        u, v, query_scales, key_scales, row_sums, column_sums = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, []  # weights take their place: another pass computes them again
        nodes, padded = len(u), aligned(v, dim=0)
        largest = torch.maximum(to_rows.abs().amax(), to_columns.abs().amax()).clamp(min=1e-30)
        unit = FULL / largest
        by_row, by_column = to_rows * unit / row_sums, to_columns * unit / column_sums
        to_queries = []
        to_keys = to_rows.new_zeros(padded.shape)
        for number, rows in enumerate(row_ranges(nodes, ctx.block)):
            weights = kept[number] if kept else u[rows] @ padded.t()
            _weigh(weights, nodes, ctx.sharpness, by_row[rows], by_column)
            to_queries.append(torch.mm(weights, padded, out_dtype=to_rows.dtype))
            to_keys += torch.mm(weights.t(), u[rows], out_dtype=to_rows.dtype)
        positive = (to_rows + to_columns) * unit
        factor = ctx.sharpness / unit
        return (
            _through_unit_rows(torch.cat(to_queries), u, v, positive, query_scales, factor),
            _through_unit_rows(to_keys, v, u, positive, key_scales, factor),
            None,
            None,
            None,
            None,
        )


def _unit_rows(x: Tensor, y: Tensor, kind: torch.dtype) -> tuple[Tensor, ...]:
    """Rows of length one of both views, their factors, and the cosines of the pairs.

    A row of zeros stays so and gets no gradient.
    """
    nodes, dim = x.shape
    units = x.new_empty(2, nodes, dim, dtype=kind)
    numbers = x.new_empty(3, nodes)
    _unit_kernel[(nodes,)](
        x.contiguous(), y.contiguous(), *units, *numbers, dim, WIDTH=triton.next_power_of_2(dim)
    )
    return *units, *numbers


def _sums(
    cosines: Tensor, nodes: int, sharpness: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Sums of the exponentials of a block along its rows and columns; padded columns aside."""
    rows, stride = cosines.shape
    tall, wide = triton.cdiv(rows, TALL * ROUNDS), triton.cdiv(nodes, WIDE)
    by_row = cosines.new_empty(wide, rows, dtype=dtype)
    by_column = cosines.new_empty(tall, nodes, dtype=dtype)
    _sum_kernel[(wide, tall)](
        cosines, by_row, by_column, rows, nodes, stride, sharpness * LOG2_E,
        TALL=TALL, WIDE=WIDE, ROUNDS=ROUNDS, num_warps=8,
    )  # fmt: skip
    return by_row.sum(0), by_column.sum(0)


def _weigh(
    cosines: Tensor, nodes: int, sharpness: float, by_row: Tensor, by_column: Tensor
) -> None:
    """Turn similarities into `exp(s_ij) (a_i + b_j)` in place, padded columns into zeros."""
    rows, stride = cosines.shape
    _weigh_kernel[(triton.cdiv(stride, WIDE), triton.cdiv(rows, TALL))](
        cosines,
        by_row,
        by_column,
        rows,
        nodes,
        stride,
        sharpness * LOG2_E,
        TALL=TALL,
        WIDE=WIDE,
        num_warps=8,
    )


def _through_unit_rows(
    gradient: Tensor, unit: Tensor, other: Tensor, positive: Tensor, scales: Tensor, factor: Tensor
) -> Tensor:
    """The gradient before the rows were made unit: its part across each row."""
    nodes, dim = unit.shape
    result = scales.new_empty(nodes, dim)
    _across_kernel[(nodes,)](
        gradient, unit, other, positive, scales, factor, result, dim,
        WIDTH=triton.next_power_of_2(dim),
    )  # fmt: skip
    return result


@triton.jit
def _unit_kernel(
    x, y, unit_x, unit_y, scales_x, scales_y, cosines, dim, WIDTH: tl.constexpr,
):  # fmt: skip
    """One row of each view divided by its length, and their product."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WIDTH)
    inside = places < dim
    here = row * dim + places
    one = tl.load(x + here, mask=inside, other=0)
    other = tl.load(y + here, mask=inside, other=0)
    squared_one, squared_other = tl.sum(one * one, axis=0), tl.sum(other * other, axis=0)
    scale_one = tl.where(squared_one > 0, 1 / tl.sqrt(squared_one), 0.0)
    scale_other = tl.where(squared_other > 0, 1 / tl.sqrt(squared_other), 0.0)
    tl.store(unit_x + here, one * scale_one, mask=inside)
    tl.store(unit_y + here, other * scale_other, mask=inside)
    tl.store(scales_x + row, scale_one)
    tl.store(scales_y + row, scale_other)
    tl.store(cosines + row, tl.sum(one * other, axis=0) * scale_one * scale_other)


@triton.jit
def _sum_kernel(
    cosines, by_row, by_column, rows, nodes, stride, sharpness,
    TALL: tl.constexpr, WIDE: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Sums of exp(s_ij) over some tiles one below the other, along their rows and columns."""
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros([TALL, WIDE], by_row.dtype.element_ty)
    for number in range(ROUNDS):
        row = (tl.program_id(1) * ROUNDS + number) * TALL + tl.arange(0, TALL)
        inside = (row < rows)[:, None] & (column < nodes)[None, :]
        places = row.to(tl.int64)[:, None] * stride + column[None, :]
        score = tl.load(cosines + places, mask=inside, other=0).to(total.dtype)
        terms = tl.where(inside, tl.exp2(score * sharpness), 0.0)
        total += terms
        sums = tl.sum(terms, axis=1)
        tl.store(by_row + tl.program_id(0).to(tl.int64) * rows + row, sums, mask=row < rows)
    tl.store(
        by_column + tl.program_id(1).to(tl.int64) * nodes + column,
        tl.sum(total, axis=0),
        mask=column < nodes,
    )


@triton.jit
def _weigh_kernel(
    cosines, by_row, by_column, rows, nodes, stride, sharpness,
    TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A tile of exp(s_ij) (a_i + b_j)."""
    row = tl.program_id(1) * TALL + tl.arange(0, TALL)
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    stored = (row < rows)[:, None] & (column < stride)[None, :]
    inside = stored & (column < nodes)[None, :]
    places = row.to(tl.int64)[:, None] * stride + column[None, :]
    score = tl.load(cosines + places, mask=inside, other=0).to(by_row.dtype.element_ty)
    a = tl.load(by_row + row, mask=row < rows, other=0)
    b = tl.load(by_column + column, mask=column < nodes, other=0)
    weight = tl.exp2(score * sharpness) * (a[:, None] + b[None, :])
    tl.store(cosines + places, tl.where(inside, weight, 0.0), mask=stored)


@triton.jit
def _across_kernel(
    gradient, unit, other, positive, scales, factor, out, dim,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """One row: the positive's part is subtracted, what lies along the row is left out."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WIDTH)
    inside = places < dim
    here = row * dim + places
    scale = tl.load(scales + row)
    flow = tl.load(gradient + here, mask=inside, other=0).to(scale.dtype)
    partner = tl.load(other + here, mask=inside, other=0).to(scale.dtype)
    flow -= tl.load(positive + row) * partner
    own = tl.load(unit + here, mask=inside, other=0).to(scale.dtype)
    flow -= tl.sum(flow * own, axis=0) * own
    tl.store(out + here, flow * scale * tl.load(factor), mask=inside)
