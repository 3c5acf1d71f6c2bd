"""InfoNCE between two views: exact in O(nodes * block) memory, or with sampled negatives.

For unit rows u_i, v_j and s_ij = u_i . v_j / temperature, the loss of node i is
`log sum_j exp(s_ij) - s_ii` in the row direction, from u to v, and `log sum_j exp(s_ji) - s_ii` in
the column direction, from v to u. One pass over the similarity matrix, in blocks of rows, serves
both. What a sum leaves out is set to zero within its block, never subtracted afterwards: at low
temperatures a positive outweighs all else.

The derivative is written by hand. Autograd in blocks with `torch.utils.checkpoint` takes up to 37%
longer on a CPU and 1.5 to 3 times the memory (10,000 nodes: 478 MiB, not 154), rounds gradients
otherwise, and cannot go on in smaller blocks when memory runs out in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from aspect.data.graph import Graph
from aspect.data.sparse import Pattern, SparseMatrix, aligned, has_triton
from aspect.losses.blocked import (
    KEPT_BYTES,
    kept_bytes_on,
    refuse_second_derivative,
    row_ranges,
    rows_per_block,
    with_smaller_blocks,
)
from aspect.losses.similarity import cosines, directions

# exp is taken of similarities in [-1/temperature, 1/temperature] as they are: for a temperature of
# 2/80 that is from 4e-18 to 2e17 and safe in float32, down to 2/700 it is safe in float64.
LOWEST_TEMPERATURE = 2 / 700
LOWEST_FLOAT32_TEMPERATURE = 2 / 80

Block = tuple[slice, Tensor]  # a range of rows, and exp(s_ij) in them
Places = tuple[Tensor, Tensor]  # rows and columns of some entries of a block
# Of a block of rows: the entries left out of the sums along rows, and along columns.
LeftOut = Callable[[slice], tuple[Places, Places]]


@dataclass(frozen=True, eq=False)
class NodeLosses:
    """The loss of every node in both directions."""

    rows: Float[Tensor, " nodes"]
    columns: Float[Tensor, " nodes"]

    @property
    def symmetric(self) -> Float[Tensor, " nodes"]:
        """The mean of both directions."""
        return (self.rows + self.columns) / 2


@dataclass(frozen=True, eq=False)
class Positives:
    """The positives of every node, itself among them; all other nodes are its negatives.

    The relation need not be symmetric: a node's nearest neighbour may have nearer ones.
    """

    matrix: SparseMatrix  # ones, row i at i's positives

    @classmethod
    def from_neighbours(
        cls, neighbours: Int[Tensor, "nodes count"], dtype: torch.dtype = torch.float32
    ) -> Positives:
        """Every node and those given for it; its own number may be among them (GREET, S3GCL)."""
        nodes = len(neighbours)
        itself = torch.arange(nodes, device=neighbours.device).unsqueeze(1)
        keys = torch.unique(itself * nodes + torch.cat([itself, neighbours], dim=1))
        return cls._from_keys(keys, nodes, dtype)

    @classmethod
    def from_graph(cls, graph: Graph) -> Positives:
        """Every node and its neighbours in the graph (S3GCL)."""
        nodes = graph.num_nodes
        itself = torch.arange(nodes, device=graph.device)
        source, target = graph.edge_index
        keys = torch.cat([source * nodes + target, itself * nodes + itself])
        return cls._from_keys(keys, nodes, graph.dtype)

    @classmethod
    def _from_keys(cls, keys: Tensor, nodes: int, dtype: torch.dtype) -> Positives:
        ones = torch.ones(len(keys), dtype=dtype, device=keys.device)
        return cls(SparseMatrix.from_entries(keys // nodes, keys % nodes, ones, (nodes, nodes)))

    @cached_property
    def mean(self) -> SparseMatrix:
        """The matrix that takes the mean over each node's positives."""
        counts = self.matrix.pattern.row_pointers.diff().to(self.matrix.dtype)
        return self.matrix.with_values(1 / counts[self.matrix.pattern.rows])

    def among(self, nodes: Int[Tensor, " batch"]) -> Positives:
        """Those of some nodes alone, numbered in the order given (GREET's batches)."""
        numbers = torch.full((self.matrix.shape[0],), -1, dtype=torch.long, device=nodes.device)
        numbers[nodes] = torch.arange(len(nodes), device=nodes.device)
        rows = numbers[self.matrix.pattern.rows]
        columns = numbers[self.matrix.pattern.columns.long()]
        kept = (rows >= 0) & (columns >= 0)
        keys = rows[kept] * len(nodes) + columns[kept]
        return self._from_keys(keys, len(nodes), self.matrix.dtype)

    def in_block(self, rows: slice) -> tuple[Places, Places]:
        """Where j in P_i, and where i in P_j, for the rows i of a block."""
        pattern = self.matrix.pattern
        return _places(pattern, rows), _places(pattern.transposed[0], rows)


def info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    *,
    block: int | None = None,
    kept_bytes: int | None = None,
) -> NodeLosses:
    """Exact loss of every node against all others, with exact gradients.

    Args:
        queries: one view's embeddings; rows are normalised here.
        keys: the other view's, in the same order of nodes.
        temperature: above 0.003; low values sharpen the softmax.
        block: rows of the similarity matrix held at a time; chosen by the device if not given.
        kept_bytes: up to this size the matrix is kept for the backward pass, 0 never keeps it;
            chosen by the device if not given.
    """
    dtype = queries.dtype
    queries, keys = in_safe_precision(temperature, queries, keys)
    rows, columns = _log_sums(queries, keys, temperature, None, block, kept_bytes)
    return NodeLosses(rows.to(dtype), columns.to(dtype))


def intra_view_info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    *,
    among_keys: Float[Tensor, " nodes"] | None = None,
    block: int | None = None,
    kept_bytes: int | None = None,
) -> NodeLosses:
    """`log(sum_j exp(u_i.v_j / t) + sum_(j != i) exp(u_i.u_j / t)) - u_i.v_i / t`, and exchanged.

    The negatives are all other nodes of both views, 2n - 2 (GRACE, GCA, ARIEL). GRACE's loss is the
    mean of `symmetric`. `among_keys` is `within_view` of keys that were met before.
    """
    dtype = queries.dtype
    queries, keys = in_safe_precision(temperature, queries, keys)
    between = info_nce(queries, keys, temperature, block=block, kept_bytes=kept_bytes)
    positive = cosines(queries, keys) / temperature
    losses = []
    for across, view, known in (
        (between.rows, queries, None),
        (between.columns, keys, among_keys),
    ):
        within = within_view(view, temperature, block=block) if known is None else known
        losses.append(torch.logaddexp(across, within - positive).to(dtype))
    return NodeLosses(*losses)


def within_view(
    view: Float[Tensor, "nodes dim"], temperature: float, *, block: int | None = None
) -> Float[Tensor, " nodes"]:
    """`log sum_(j != i) exp(u_i.u_j / t)`, in the precision of `in_safe_precision`."""
    (view,) = in_safe_precision(temperature, view)
    sums, _ = _log_sums(view, None, temperature, _diagonal_of(view), block, kept_bytes=0)
    return sums


def several_positives_info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    positives: Positives,
    *,
    block: int | None = None,
    kept_bytes: int | None = None,
) -> NodeLosses:
    """`log sum_(j not in P_i) exp(s_ij) - mean_(j in P_i) s_ij`, and with the views exchanged.

    Negatives alone stand in the sum, so that the loss can be negative; a node without negatives has
    no such sum. GREET takes `symmetric`, S3GCL `rows`.
    """
    dtype = queries.dtype
    queries, keys = in_safe_precision(temperature, queries, keys)
    negatives = _log_sums(queries, keys, temperature, positives.in_block, block, kept_bytes)
    u, v = directions(queries), directions(keys)
    mean = positives.mean.to(u.dtype)
    losses = []
    for log_sums, one, other in zip(negatives, (u, v), (v, u), strict=True):
        repulsion = torch.where(log_sums.isneginf(), 0, log_sums)
        attraction = torch.linalg.vecdot(one, mean @ other) / temperature
        losses.append((repulsion - attraction).to(dtype))
    return NodeLosses(*losses)


def several_positives_loss(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    positives: Positives,
    batches: Sequence[Int[Tensor, " _"]] | None = None,
) -> Float[Tensor, ""]:
    """The mean of `symmetric` over all nodes, each contrasted with all or with its batch (GREET).

    Batches hold every node once; positives outside a node's batch do not count.
    """
    if batches is None:
        return several_positives_info_nce(queries, keys, temperature, positives).symmetric.mean()
    total = queries.new_zeros(())
    for batch in batches:
        losses = several_positives_info_nce(
            queries[batch], keys[batch], temperature, positives.among(batch)
        )
        total = total + losses.symmetric.sum()
    return total / len(queries)


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
    dtype, nodes = queries.dtype, len(queries)
    queries, keys = in_safe_precision(temperature, queries, keys)
    drawn = torch.randperm(nodes, generator=generator, device=generator.device)[:negatives]
    positive, *log_sums = _SampledLogSums.apply(  # type: ignore[no-untyped-call]  # torch
        queries, keys, drawn, 1 / temperature, rows_per_block(queries, len(drawn))
    )
    # A node that is in the sample itself is its positive, not a negative.
    counts = positive.new_full((nodes,), len(drawn)).index_fill_(0, drawn, len(drawn) - 1)
    scale = ((nodes - 1) / counts.clamp(min=1)).log()
    losses = [torch.logaddexp(positive, sums + scale) - positive for sums in log_sums]
    return NodeLosses(*(loss.to(dtype) for loss in losses))


def in_safe_precision(temperature: float, *views: Tensor) -> tuple[Tensor, ...]:
    """The views in float32 or wider, and in float64 where float32 cannot hold the exponentials."""
    if not temperature >= LOWEST_TEMPERATURE:
        raise ValueError(
            f"Temperature of InfoNCE must be at least {LOWEST_TEMPERATURE:.4f}. Got {temperature}."
        )
    if temperature < LOWEST_FLOAT32_TEMPERATURE:
        return tuple(view.double() for view in views)
    return tuple(view.to(torch.promote_types(view.dtype, torch.float32)) for view in views)


def _places(pattern: Pattern, rows: slice) -> Places:
    """A pattern's entries in a block, counted from its first row."""
    begin, end = pattern.row_starts[rows.start], pattern.row_starts[rows.stop]
    return pattern.rows[begin:end] - rows.start, pattern.columns[begin:end].long()


def _diagonal_of(view: Tensor) -> LeftOut:
    """No node is its own negative."""

    def in_block(rows: slice) -> tuple[Places, Places]:
        columns = torch.arange(rows.start, rows.stop, device=view.device)
        places = columns - rows.start, columns
        return places, places

    return in_block


def _log_sums(
    queries: Tensor,
    keys: Tensor | None,
    temperature: float,
    left_out: LeftOut | None,
    block: int | None,
    kept_bytes: int | None,
) -> tuple[Tensor, Tensor]:
    others = queries if keys is None else keys
    matrix_bytes = queries.element_size() * len(others) * len(queries)
    most = kept_bytes_on(queries.device) if kept_bytes is None else kept_bytes
    keep = matrix_bytes <= most and torch.is_grad_enabled()
    if keys is not None and left_out is None and queries.device.type == "cuda" and has_triton():
        from aspect.losses.kernels import fused_log_sums  # needs Triton

        size = block or (len(queries) if keep else rows_per_block(others))

        def fused(rows: int) -> tuple[Tensor, Tensor]:
            return fused_log_sums(queries, keys, temperature, rows, keep and rows == size)

        return with_smaller_blocks(fused, size, queries.element_size() * len(others))
    rows, columns = _LogSums.apply(  # type: ignore[no-untyped-call]  # torch
        queries, keys, 1 / temperature, left_out, block or rows_per_block(others), keep
    )
    return rows, columns


class _LogSums(torch.autograd.Function):
    """Log-sums of exp(s_ij) along rows and columns; minus infinity where nothing is summed.

    Without `left_out` they are InfoNCE's losses: the positive s_ii is subtracted. Without keys the
    sums are within one view, whose matrix is symmetric: rows and columns are the same numbers, and
    a single product gives the gradient.
    """

    @staticmethod
    @override
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor | None,
        sharpness: float,
        left_out: LeftOut | None,
        block: int,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.sharpness, ctx.left_out, ctx.within = sharpness, left_out, keys is None
        queries, query_scales = _unit_rows(queries)
        keys, key_scales = (queries, query_scales) if keys is None else _unit_rows(keys)
        padded = aligned(keys, dim=0)

        def sums(size: int) -> tuple[Tensor, Tensor]:
            ctx.block, ctx.kept = size, [] if keep and size == block else None
            blocks = exponential_blocks(queries, padded, sharpness, size)
            return _sums(blocks, queries, keys, left_out, ctx.within, ctx.kept)

        row_sums, column_sums = with_smaller_blocks(sums, block, len(keys) * keys.element_size())
        ctx.save_for_backward(queries, keys, query_scales, key_scales, row_sums, column_sums)
        rows, columns = row_sums.log(), column_sums.log()
        if left_out is None:
            positive = torch.linalg.vecdot(queries, keys) * sharpness
            return rows - positive, columns - positive
        return rows, columns

    @staticmethod
    @override
    def backward(
        ctx: Any, row_gradient: Tensor, column_gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        queries, keys, query_scales, key_scales, row_sums, column_sums = ctx.saved_tensors
        # A sum over nothing has no slope: with one in its place nothing is divided by zero.
        by_row = row_gradient / torch.where(row_sums > 0, row_sums, 1)
        by_column = column_gradient / torch.where(column_sums > 0, column_sums, 1)
        if ctx.within:
            by_column = by_row
        kept, ctx.kept = ctx.kept, None  # a later backward pass computes them again
        padded = aligned(keys, dim=0)
        by_column = pad(by_column, (0, len(padded) - len(keys)))

        def gradients(size: int) -> tuple[Tensor, Tensor | None]:
            ready = kept is not None and size == ctx.block
            blocks = (
                iter(kept) if ready else exponential_blocks(queries, padded, ctx.sharpness, size)
            )
            wants_keys = ctx.needs_input_grad[1]
            return _gradients(blocks, queries, padded, by_row, by_column, ctx.left_out, wants_keys)

        row_bytes = len(keys) * keys.element_size()
        to_queries, to_keys = with_smaller_blocks(gradients, ctx.block, row_bytes)
        if ctx.left_out is None:
            positive = (row_gradient + column_gradient).unsqueeze(1)
            to_queries.addcmul_(positive, keys, value=-1)
            if to_keys is not None:
                to_keys[: len(keys)].addcmul_(positive, queries, value=-1)
        to_queries = _through_unit_rows(to_queries, queries, query_scales * ctx.sharpness)
        if to_keys is not None:
            to_keys = _through_unit_rows(to_keys[: len(keys)], keys, key_scales * ctx.sharpness)
        return to_queries, to_keys, None, None, None, None


class _SampledLogSums(torch.autograd.Function):
    """Similarities of the pairs, and log-sums of those with a sample, along rows and columns.

    Beyond `KEPT_BYTES` nothing of the size of a view or of the similarities is kept: unit rows and
    exponentials are computed again, a block of nodes at a time. A node's own place in the sample
    does not count.
    """

    @staticmethod
    @override
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, drawn: Tensor, sharpness: float, block: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        views = queries, keys
        scales = [_unit_scales(view) for view in views]
        samples = [view[drawn] * scale[drawn] for view, scale in zip(views, scales, strict=True)]
        positive = queries.new_empty(len(queries))
        sums = [torch.empty_like(positive), torch.empty_like(positive)]
        is_small = queries.element_size() * len(queries) * len(drawn) <= KEPT_BYTES
        keeps, ctx.kept = is_small and any(ctx.needs_input_grad), []
        for rows in row_ranges(len(queries), block):
            units = [view[rows] * scale[rows] for view, scale in zip(views, scales, strict=True)]
            positive[rows] = torch.linalg.vecdot(*units) * sharpness
            for one, others, total in zip(units, reversed(samples), sums, strict=True):
                terms = _terms(one, others, drawn, rows, sharpness)
                total[rows] = terms.sum(1)
                if keeps:
                    ctx.kept.append((one, terms))
        ctx.save_for_backward(queries, keys, drawn, *scales, *sums)
        ctx.sharpness, ctx.block = sharpness, block
        return positive, sums[0].log(), sums[1].log()

    @staticmethod
    @override
    def backward(
        ctx: Any, to_positive: Tensor, to_rows: Tensor, to_columns: Tensor
    ) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        queries, keys, drawn, *rest = ctx.saved_tensors
        views, scales, sums = (queries, keys), rest[:2], rest[2:]
        samples = [view[drawn] * scale[drawn] for view, scale in zip(views, scales, strict=True)]
        to_views = torch.empty_like(queries), torch.empty_like(keys)
        to_samples = [torch.zeros_like(sample) for sample in samples]
        # A sum over nothing has no slope: with one in its place nothing is divided by zero.
        slopes = [
            gradient / torch.where(total > 0, total, 1)
            for gradient, total in zip((to_rows, to_columns), sums, strict=True)
        ]
        kept, ctx.kept = ctx.kept, []  # a later backward pass computes them again
        for number, rows in enumerate(row_ranges(len(queries), ctx.block)):
            if kept:
                units, terms = zip(*kept[2 * number : 2 * number + 2], strict=True)
            else:
                units = tuple(
                    view[rows] * one[rows] for view, one in zip(views, scales, strict=True)
                )
                terms = tuple(
                    _terms(one, others, drawn, rows, ctx.sharpness)
                    for one, others in zip(units, reversed(samples), strict=True)
                )
            for k, (one, other) in enumerate((units, units[::-1])):
                weights = terms[k].mul_(slopes[k][rows, None])
                flow = torch.mm(weights, samples[1 - k], out=to_views[k][rows])
                flow.addcmul_(to_positive[rows, None], other)
                _through_unit_rows(flow, one, scales[k][rows] * ctx.sharpness)
                to_samples[1 - k].addmm_(weights.t(), one)
        for k, (to_view, flow) in enumerate(zip(to_views, to_samples, strict=True)):
            part = _through_unit_rows(flow, samples[k], scales[k][drawn] * ctx.sharpness)
            to_view.index_add_(0, drawn, part)
        return *to_views, None, None, None


def _terms(
    unit: Tensor, sample: Tensor, drawn: Tensor, rows: slice, sharpness: float
) -> Float[Tensor, "rows sample"]:
    """Exponentials of a block of rows with the sample, zero where a node meets itself."""
    terms = ((unit * sharpness) @ sample.t()).exp_()
    # Of a sampled node outside the block an entry of another row is put back as it is: shapes must
    # not hang on the draw, or a GPU would wait for the host.
    row, column = drawn - rows.start, torch.arange(len(drawn), device=drawn.device)
    inside = (row >= 0) & (row < len(unit))
    places = row.clamp(0, len(unit) - 1), column
    return terms.index_put_(places, terms[places].masked_fill(inside, 0))


def _unit_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of length one, and their factors; a row of zeros stays so and gets no gradient."""
    scales = _unit_scales(x)
    return x * scales, scales


def _unit_scales(x: Tensor) -> Float[Tensor, "nodes one"]:
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return torch.where(lengths > 0, 1 / lengths, 0)


def _through_unit_rows(gradient: Tensor, unit: Tensor, scales: Tensor) -> Tensor:
    """The gradient before the rows were made unit: its part across each row, in place."""
    along = torch.linalg.vecdot(gradient, unit).unsqueeze(1)
    return gradient.addcmul_(along, unit, value=-1).mul_(scales)


def exponential_blocks(
    queries: Tensor, keys: Tensor, sharpness: float, block: int
) -> Iterator[Block]:
    """Rows of exp(s_ij), and which they are; s_ij = sharpness * u_i . v_j for unit rows."""
    for rows in row_ranges(len(queries), block):
        yield rows, ((queries[rows] * sharpness) @ keys.t()).exp_()


def _sums(
    blocks: Iterator[Block],
    queries: Tensor,
    keys: Tensor,
    left_out: LeftOut | None,
    within: bool,
    kept: list[Block] | None,
) -> tuple[Tensor, Tensor]:
    """Sums along rows and columns; blocks go to `kept` where it is a list."""
    # Written in place: small tensors kept between the blocks would fragment the memory.
    row_sums = queries.new_empty(len(queries))
    column_sums = row_sums if within else queries.new_zeros(len(keys))
    for rows, padded in blocks:
        terms = padded[:, : len(keys)]
        from_rows, from_columns = (None, None) if left_out is None else left_out(rows)
        row_sums[rows] = _sum_without(terms, from_rows, dim=1)
        if not within:
            column_sums += _sum_without(terms, from_columns, dim=0)
        if kept is not None:
            kept.append((rows, padded))
    return row_sums, column_sums


def _sum_without(terms: Tensor, places: Places | None, dim: int) -> Tensor:
    """The sum without some entries, which are put back afterwards."""
    if places is None:
        return terms.sum(dim)
    held = terms[places]
    terms.index_put_(places, terms.new_zeros(()))  # an assigned 0 would be copied from the host
    total = terms.sum(dim)
    terms[places] = held
    return total


def _gradients(
    blocks: Iterator[Block],
    queries: Tensor,
    keys: Tensor,
    by_row: Tensor,
    by_column: Tensor,
    left_out: LeftOut | None,
    wants_keys: bool,
) -> tuple[Tensor, Tensor | None]:
    """W @ keys and W.T @ queries for W_ij = exp(s_ij) (a_i + b_j), a_i or b_j zero if left out.

    Keys may be padded: rows of zeros behind the last have b_j zero and add nothing.
    """
    to_queries = torch.empty_like(queries)
    to_keys = torch.zeros_like(keys) if wants_keys else None
    for rows, terms in blocks:
        if left_out is None:
            weights = torch.add(by_row[rows, None], by_column)
        else:
            from_rows, from_columns = left_out(rows)
            weights = by_column.repeat(len(terms), 1)
            weights.index_put_(from_columns, weights.new_zeros(()))
            held = weights[from_rows]
            weights.add_(by_row[rows, None])
            weights[from_rows] = held
        weights.mul_(terms)
        torch.mm(weights, keys, out=to_queries[rows])
        if to_keys is not None:
            to_keys.addmm_(weights.t(), queries[rows])
    return to_queries, to_keys
