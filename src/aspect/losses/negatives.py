"""Log-sums over a node's negatives: exact in O(nodes * block) memory, with exact gradients.

For unit rows u_i, v_j and s_ij = u_i . v_j / temperature. What is left out of a sum is set to zero
within its block, never subtracted afterwards: at low temperatures a positive outweighs all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.data.sparse import Pattern
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
from aspect.losses.info_nce import LOWEST_FLOAT32_TEMPERATURE, check_temperature
from aspect.losses.positives import Positives

__all__ = ["LogSums", "log_sum_of_negatives"]


@dataclass(frozen=True, eq=False)
class LogSums:
    """Log-sums of every node; zero, without gradient, for a node that has no negatives."""

    rows: Float[Tensor, " nodes"]  # of s_ij over j
    columns: Float[Tensor, " nodes"]  # of s_ji over j


def log_sum_of_negatives(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    positives: Positives,
    *,
    block: int | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> LogSums:
    """`log sum_(j not in P_i) exp(s_ij)`, and with the views exchanged, for the same P.

    The arguments are those of `info_nce`.
    """
    check_temperature(temperature)
    dtype = queries.dtype
    if temperature < LOWEST_FLOAT32_TEMPERATURE:
        queries, keys = queries.double(), keys.double()
    row_bytes = queries.element_size() * len(keys)
    keep = row_bytes * len(queries) <= kept_bytes and torch.is_grad_enabled()
    size = block or rows_per_block(keys)
    rows, columns = _NegativeSums.apply(  # type: ignore[no-untyped-call]  # torch
        queries, keys, positives, 1 / temperature, size, keep
    )
    return LogSums(rows.to(dtype), columns.to(dtype))


@dataclass(frozen=True, eq=False)
class _Marked:
    """Entries of a matrix, and whether each one's mirror image is marked too."""

    pattern: Pattern
    is_mutual: Tensor

    def inside(self, rows: slice) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Where the marked entries of a block stand, counted from its first row."""
        begin, end = self.pattern.row_pointers[[rows.start, rows.stop]].tolist()
        place = self.pattern.rows[begin:end] - rows.start, self.pattern.columns[begin:end].long()
        return place, self.is_mutual[begin:end]


def _both_ways(positives: Positives) -> tuple[_Marked, _Marked]:
    """What a row leaves out, and, standing in the same matrix, what a column leaves out."""
    pattern, (mirrored, order) = positives.matrix.pattern, positives.matrix.pattern.transposed
    mutual = positives.is_mutual
    return _Marked(pattern, mutual), _Marked(mirrored, mutual[order])


class _NegativeSums(torch.autograd.Function):
    """Both directions' log-sums from blocks of exp(s_ij)."""

    @staticmethod
    @override
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        positives: Positives,
        sharpness: float,
        block: int,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.sharpness, ctx.marked = sharpness, _both_ways(positives)
        queries, query_scales = unit_rows(queries)
        keys, key_scales = unit_rows(keys)

        def sums(size: int) -> tuple[Tensor, Tensor]:
            ctx.block, ctx.kept = size, [] if keep else None
            blocks = exponential_blocks(queries, keys, sharpness, size)
            return _sums_outside(blocks, queries, ctx.marked, ctx.kept)

        bytes_per_row = len(keys) * keys.element_size()
        row_sums, column_sums = with_smaller_blocks(sums, block, bytes_per_row)
        # A sum over nothing is zero; with one in its place its logarithm is zero, its slope too.
        row_sums, column_sums = (torch.where(x > 0, x, 1) for x in (row_sums, column_sums))
        ctx.save_for_backward(queries, keys, query_scales, key_scales, row_sums, column_sums)
        return row_sums.log(), column_sums.log()

    @staticmethod
    @override
    def backward(
        ctx: Any, row_gradient: Tensor, column_gradient: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None, None]:
        refuse_second_derivative()
        queries, keys, query_scales, key_scales, row_sums, column_sums = ctx.saved_tensors
        factors = row_gradient / row_sums, column_gradient / column_sums
        kept, ctx.kept = ctx.kept, None  # a later backward pass computes them again

        def gradients(size: int) -> tuple[Tensor, Tensor]:
            ready = kept is not None and size == ctx.block
            blocks = iter(kept) if ready else exponential_blocks(queries, keys, ctx.sharpness, size)
            return _gradients_outside(blocks, queries, keys, *factors, ctx.marked)

        bytes_per_row = len(keys) * keys.element_size()
        to_queries, to_keys = with_smaller_blocks(gradients, ctx.block, bytes_per_row)
        to_queries = through_unit_rows(to_queries, queries, query_scales * ctx.sharpness)
        to_keys = through_unit_rows(to_keys, keys, key_scales * ctx.sharpness)
        return to_queries, to_keys, None, None, None, None


def _sums_outside(
    blocks: Iterator[Block],
    queries: Tensor,
    marked: tuple[_Marked, _Marked],
    kept: list[Block] | None,
) -> tuple[Tensor, Tensor]:
    row_sums, column_sums = queries.new_zeros(2, len(queries))
    for rows, terms in blocks:
        (own, _), (mirrored, _) = (each.inside(rows) for each in marked)
        row_sums[rows] = _outside(terms, own, dim=1)
        column_sums += _outside(terms, mirrored, dim=0)
        if kept is not None:
            kept.append((rows, terms))
    return row_sums, column_sums


def _outside(terms: Tensor, places: tuple[Tensor, Tensor], dim: int) -> Tensor:
    """The sums without some entries, which are put back afterwards."""
    held = terms[places]
    terms[places] = 0
    total = terms.sum(dim)
    terms[places] = held
    return total


def _gradients_outside(
    blocks: Iterator[Block],
    queries: Tensor,
    keys: Tensor,
    by_row: Tensor,
    by_column: Tensor,
    marked: tuple[_Marked, _Marked],
) -> tuple[Tensor, Tensor]:
    """W @ keys and W.T @ queries for W_ij = exp(s_ij) ([j not in P_i] a_i + [i not in P_j] b_j)."""
    to_queries, to_keys = torch.empty_like(queries), torch.zeros_like(keys)
    for rows, terms in blocks:
        weights = torch.add(by_row[rows, None], by_column).mul_(terms)
        (own, own_mutual), (mirrored, mirrored_mutual) = (each.inside(rows) for each in marked)
        weights[own] = torch.where(own_mutual, 0, terms[own] * by_column[own[1]])
        left = terms[mirrored] * by_row[rows][mirrored[0]]
        weights[mirrored] = torch.where(mirrored_mutual, 0, left)
        torch.mm(weights, keys, out=to_queries[rows])
        to_keys.addmm_(weights.t(), queries[rows])
    return to_queries, to_keys
