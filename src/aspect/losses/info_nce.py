"""InfoNCE between two views: exact in O(nodes * block) memory, or with sampled negatives.

For unit rows u_i, v_j and s_ij = u_i . v_j / temperature, the loss of node i is
`log sum_j exp(s_ij) - s_ii` in the row direction (u asks, v answers), and in the column direction
`log sum_j exp(s_ji) - s_ii`. One pass over the similarity matrix, in blocks of rows, serves both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.losses.blocked import (
    KEPT_BYTES,
    Block,
    exponential_blocks,
    refuse_second_derivative,
    rows_per_block,
    through_unit_rows,
    unit_rows,
    with_smaller_blocks,
)
from aspect.losses.cosine import directions

__all__ = [
    "LOWEST_FLOAT32_TEMPERATURE",
    "LOWEST_TEMPERATURE",
    "NodeLosses",
    "check_temperature",
    "info_nce",
    "sampled_info_nce",
]

# exp is taken of similarities in [-1/temperature, 1/temperature] as they are: for a temperature of
# 2/80 that is from 4e-18 to 2e17 and safe in float32, down to 2/700 it is safe in float64.
LOWEST_TEMPERATURE = 2 / 700
LOWEST_FLOAT32_TEMPERATURE = 2 / 80


@dataclass(frozen=True, eq=False)
class NodeLosses:
    """The loss of every node in both directions."""

    rows: Float[Tensor, " nodes"]
    columns: Float[Tensor, " nodes"]

    @property
    def symmetric(self) -> Float[Tensor, " nodes"]:
        """The mean of both directions."""
        return (self.rows + self.columns) / 2


def info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    *,
    block: int | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> NodeLosses:
    """Exact loss of every node against all others, with exact gradients.

    Args:
        queries: one view's embeddings; rows are normalised here.
        keys: the other view's, in the same order of nodes.
        temperature: above 0.003; low values sharpen the softmax.
        block: rows of the similarity matrix held at a time; chosen by the device if not given.
        kept_bytes: up to this size the matrix is kept for the backward pass; 0 never keeps it.
    """
    check_temperature(temperature)
    dtype = queries.dtype
    if temperature < LOWEST_FLOAT32_TEMPERATURE:
        queries, keys = queries.double(), keys.double()
    row_bytes = queries.element_size() * len(keys)
    if block is None:
        block = rows_per_block(keys)
    keep = row_bytes * len(queries) <= kept_bytes and torch.is_grad_enabled()
    rows, columns = _BlockedContrast.apply(  # type: ignore[no-untyped-call]  # torch
        queries, keys, 1 / temperature, block, keep
    )
    return NodeLosses(rows.to(dtype), columns.to(dtype))


def sampled_info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    negatives: int,
    generator: torch.Generator,
) -> NodeLosses:
    """Loss of every node against its positive and a shared random sample of the others.

    The sample's sum is scaled up to the size of the whole, so it is unbiased; its logarithm is not:
    by Jensen's inequality the loss is underestimated by about var / (2 mean^2) of the sum, which
    falls as 1 / negatives and vanishes when every node is drawn.
    """
    check_temperature(temperature)
    unit_queries, unit_keys = directions(queries), directions(keys)
    nodes = len(queries)
    drawn = torch.randperm(nodes, generator=generator, device=generator.device)[:negatives]
    positive = (unit_queries * unit_keys).sum(1) / temperature
    rows = _sampled_direction(unit_queries, unit_keys, positive, drawn, temperature)
    columns = _sampled_direction(unit_keys, unit_queries, positive, drawn, temperature)
    return NodeLosses(rows, columns)


def _sampled_direction(
    asking: Tensor, answering: Tensor, positive: Tensor, drawn: Tensor, temperature: float
) -> Tensor:
    scores = asking @ answering[drawn].t() / temperature
    # A node that is in the sample itself is its own positive, not a negative.
    own = torch.arange(len(asking), device=drawn.device)[:, None] == drawn[None, :]
    scores = scores.masked_fill(own, -torch.inf)
    others = len(asking) - 1
    counts = (len(drawn) - own.sum(1)).clamp(min=1)
    scale = (others / counts).log().to(scores.dtype)
    every = torch.cat([positive[:, None], scores + scale[:, None]], dim=1)
    return every.logsumexp(1) - positive


def check_temperature(temperature: float) -> None:
    """Refuse what exponentials of similarities cannot bear."""
    if not temperature >= LOWEST_TEMPERATURE:
        raise ValueError(
            f"Temperature of InfoNCE must be at least {LOWEST_TEMPERATURE:.4f}. Got {temperature}."
        )


class _BlockedContrast(torch.autograd.Function):
    """Both directions' losses from blocks of exp(s_ij)."""

    @staticmethod
    @override
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, sharpness: float, block: int, keep: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.sharpness, ctx.block, ctx.kept = sharpness, block, []
        queries, query_scales = unit_rows(queries)
        keys, key_scales = unit_rows(keys)

        def sums(size: int) -> tuple[Tensor, Tensor]:
            ctx.block = size
            ctx.kept = [] if keep and size == block else None
            blocks = exponential_blocks(queries, keys, sharpness, size)
            return _sums(blocks, queries, keys, ctx.kept)

        row_sums, column_sums = with_smaller_blocks(sums, block, len(keys) * keys.element_size())
        ctx.save_for_backward(queries, keys, query_scales, key_scales, row_sums, column_sums)
        positive = torch.linalg.vecdot(queries, keys) * sharpness
        return row_sums.log() - positive, column_sums.log() - positive

    @staticmethod
    @override
    def backward(
        ctx: Any, row_gradient: Tensor, column_gradient: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None]:
        refuse_second_derivative()
        queries, keys, query_scales, key_scales, row_sums, column_sums = ctx.saved_tensors
        by_row, by_column = row_gradient / row_sums, column_gradient / column_sums
        kept, ctx.kept = ctx.kept, None

        def gradients(size: int) -> tuple[Tensor, Tensor | None]:
            ready = kept is not None and size == ctx.block
            blocks = iter(kept) if ready else exponential_blocks(queries, keys, ctx.sharpness, size)
            return _gradients(blocks, queries, keys, by_row, by_column, ctx.needs_input_grad[1])

        bytes_per_row = len(keys) * keys.element_size()
        query_gradient, key_gradient = with_smaller_blocks(gradients, ctx.block, bytes_per_row)
        positive = (row_gradient + column_gradient).unsqueeze(1)
        query_gradient.addcmul_(positive, keys, value=-1)
        to_queries = through_unit_rows(query_gradient, queries, query_scales * ctx.sharpness)
        if key_gradient is None:
            return to_queries, None, None, None, None
        key_gradient.addcmul_(positive, queries, value=-1)
        to_keys = through_unit_rows(key_gradient, keys, key_scales * ctx.sharpness)
        return to_queries, to_keys, None, None, None


def _sums(
    blocks: Iterator[Block], queries: Tensor, keys: Tensor, kept: list[Block] | None
) -> tuple[Tensor, Tensor]:
    """Sums of the exponentials along rows and columns; blocks go to `kept` where it is a list."""
    row_sums = queries.new_empty(len(queries))
    column_sums = queries.new_zeros(len(keys))
    for rows, terms in blocks:
        row_sums[rows] = terms.sum(1)
        column_sums += terms.sum(0)
        if kept is not None:
            kept.append((rows, terms))
    return row_sums, column_sums


def _gradients(
    blocks: Iterator[Block],
    queries: Tensor,
    keys: Tensor,
    by_row: Tensor,
    by_column: Tensor,
    wants_keys: bool,
) -> tuple[Tensor, Tensor | None]:
    """W @ keys and W.T @ queries for W_ij = exp(s_ij) (by_row_i + by_column_j)."""
    query_gradient = torch.empty_like(queries)
    key_gradient = torch.zeros_like(keys) if wants_keys else None
    for rows, terms in blocks:
        weights = torch.add(by_row[rows, None], by_column).mul_(terms)
        torch.mm(weights, keys, out=query_gradient[rows])
        if key_gradient is not None:
            key_gradient.addmm_(weights.t(), queries[rows])
    return query_gradient, key_gradient
