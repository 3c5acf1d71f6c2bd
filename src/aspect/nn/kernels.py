"""Filter and fusion of a training step on a GPU, in few passes over memory (Triton).

In plain torch a step reads and writes the Chebyshev basis some forty times: products, sums,
dropout, batch norm and their gradients, each by itself. Here the recurrence is one kernel a term,
and bands with their dropout are one more; the backward pass is a single one, since features have no
gradient. Batch norm becomes part of the linear layer (`SpectralEncoder`), by the statistics given
out here. Where products may be in TF32, the basis is kept in float16, whose significand has as many
bits; a power of two for each column keeps it in range.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.data.features import draw_words, kept_draws
from aspect.data.graph import Features
from aspect.data.operators import RescaledLaplacian
from aspect.data.sparse import ALIGNED, SparseMatrix, aligned

LARGEST = 2.0**15  # what a float16 holds with a margin
BLOCK = 1024  # entries that a program holds at a time
REDUCED = 512  # the same where a single warp sums them up: it needs no shared memory
PROGRAMS = 4096  # of the gradient, at most: each writes a few numbers
WIDTH = 1024  # columns of a row of the basis that a program computes
AT_ONCE = 16  # neighbours that are loaded at a time: rows of hubs decide how long a term takes


def scaled_basis(
    operator: RescaledLaplacian, x: Features, order: int
) -> tuple[Float[Tensor, "terms nodes padded"], Float[Tensor, " padded"] | None]:
    """T_0(L)x, ..., T_order(L)x, columns padded up to a multiple of `ALIGNED`, and their scales.

    No scale means one: in float32 as x is. A column of T_k(L)x is never longer than that of x,
    which bounds its entries. Entries of a sparse x are written where they stand: the dense form
    would be read and written four times before it is a term.
    """
    nodes, dim = x.shape
    precise = torch.get_float32_matmul_precision() == "highest" or x.dtype != torch.float32
    scale = None if precise else torch.exp2((LARGEST / _column_lengths(x)).log2().floor())
    kind = x.dtype if precise else torch.float16
    # Rows of zeros behind the last: a dense product takes a fast kernel only with them.
    basis = torch.empty(order + 1, _aligned(nodes), _aligned(dim), dtype=kind, device=x.device)
    basis[0].zero_()
    if isinstance(x, SparseMatrix):
        values = x.values if scale is None else x.values * scale[x.pattern.columns]
        basis[0].view(-1)[x.pattern.places_in(basis.shape[2])] = values.to(kind)
    else:
        basis[0, :nodes, :dim] = x if scale is None else x * scale[:dim]
    is_dense = operator.neighbours.pattern.is_well_filled
    if scale is not None and operator.diagonal == 0 and is_dense:
        _dense_terms(operator, basis)
    else:
        _sparse_terms(operator, basis)
    return basis[:, :nodes], scale


def _column_lengths(x: Features) -> Float[Tensor, " padded"]:
    """The length of every column, never zero; padded ones included."""
    if isinstance(x, SparseMatrix):
        squares = x.values.new_zeros(_aligned(x.shape[1]))
        squares.index_add_(0, x.pattern.columns, x.values.square())
        lengths = squares.sqrt()
    else:
        lengths = aligned(torch.linalg.vector_norm(x, dim=0), dim=0)
    return lengths.clamp(min=1e-30)


def _dense_terms(operator: RescaledLaplacian, basis: Float[Tensor, "terms nodes dim"]) -> None:
    """All terms but the first by products with a dense matrix, for graphs with many edges."""
    matrix = operator.neighbours
    rows = basis.shape[1]
    dense = torch.zeros(rows, rows, dtype=basis.dtype, device=basis.device)
    dense.view(-1)[matrix.pattern.places_in(rows)] = matrix.values.to(basis.dtype)
    torch.mm(dense, basis[0], out=basis[1])
    for term in range(2, len(basis)):
        torch.addmm(basis[term - 2], dense, basis[term - 1], beta=-1, alpha=2, out=basis[term])


def _sparse_terms(operator: RescaledLaplacian, basis: Float[Tensor, "terms nodes dim"]) -> None:
    """All terms but the first, row by row."""
    pattern, values = operator.neighbours.pattern, operator.neighbours.values
    nodes, dim = operator.neighbours.shape[0], basis.shape[2]
    width = min(WIDTH, triton.next_power_of_2(dim))
    for term in range(1, len(basis)):
        _term_kernel[(nodes, triton.cdiv(dim, width))](
            pattern.longest_first,
            pattern.row_pointers,
            pattern.columns,
            values,
            basis[term - 1],
            basis[max(term - 2, 0)],
            basis[term],
            dim,
            operator.diagonal,
            IS_FIRST=term == 1,
            AT_ONCE=AT_ONCE,
            WIDTH=width,
            num_warps=max(1, width // 256),
        )


def filtered_bands(
    coefficients: Float[Tensor, "bands terms"],
    basis: Float[Tensor, "terms nodes dim"],
    scale: Float[Tensor, " dim"] | None,
    rate: float,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Every band after dropout [bands, nodes, padded], and its columns' means and variances."""
    dim = basis.shape[2]
    padded = _aligned(dim)
    words, kept = None, kept_draws(rate)
    if generator is not None and rate > 0:
        words = draw_words(len(coefficients) * basis.shape[1] * padded, generator)
    bands, mean, variance = _FilteredBands.apply(  # type: ignore[no-untyped-call]  # torch
        coefficients, basis, scale, words, kept, padded
    )
    return bands, mean, variance


class _FilteredBands(torch.autograd.Function):
    """Combination of the basis, dropout, statistics; only the coefficients get a gradient."""

    @staticmethod
    @override
    def forward(
        ctx: Any,
        coefficients: Tensor,
        basis: Tensor,
        scale: Tensor | None,
        words: Tensor | None,
        kept: tuple[int, float],
        padded: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        terms, nodes, dim = basis.shape
        bands = coefficients.new_empty(len(coefficients), nodes, padded)
        size = nodes * padded
        factors = None if scale is None else 1 / scale
        _combine_kernel[(triton.cdiv(size, BLOCK),)](
            basis, coefficients, factors, words, bands, size, basis.stride(0), dim, padded, *kept,
            TERMS=terms, BANDS=len(bands), WIDE=_wide(bands), SCALES=factors is not None,
            DROPS=words is not None, BLOCK=BLOCK,
        )  # fmt: skip
        statistics = [torch.batch_norm_stats(band, 0.0) for band in bands]
        mean = torch.stack([one for one, _ in statistics])
        variance = torch.stack([inverse for _, inverse in statistics]).pow(-2)  # inf: none
        ctx.save_for_backward(basis, factors, words, bands, mean)
        ctx.kept = kept
        return bands, mean, variance

    @staticmethod
    @override
    def backward(ctx: Any, to_bands: Tensor, to_mean: Tensor, to_variance: Tensor) -> Any:
        basis, factors, words, bands, mean = ctx.saved_tensors
        terms, nodes, dim = basis.shape
        count, _, padded = bands.shape
        size = nodes * padded
        # Of the statistics: each entry's part is `shift + slope * entry`.
        slope = to_variance * (2 / nodes)
        shift = to_mean / nodes - slope * mean
        blocks = triton.cdiv(size, REDUCED)
        programs = min(blocks, PROGRAMS)
        partial = bands.new_empty(programs, terms, _wide(bands))
        _gradient_kernel[(programs,)](
            basis, factors, words, bands, to_bands.contiguous(), shift, slope, partial,
            size, basis.stride(0), dim, padded, triton.cdiv(blocks, programs), *ctx.kept,
            TERMS=terms, BANDS=count, WIDE=_wide(bands), SCALES=factors is not None,
            DROPS=words is not None, BLOCK=REDUCED, num_warps=1,
        )  # fmt: skip
        return partial.sum(0)[:, :count].t(), None, None, None, None, None


def fused_bands(
    bands: Float[Tensor, "bands nodes dim"], weights: Float[Tensor, "nodes bands"]
) -> Float[Tensor, "nodes dim"]:
    """`sum_b w_ib z_bi`, forward and backward in one pass each."""
    fused: Tensor = _FusedBands.apply(bands, weights)  # type: ignore[no-untyped-call]  # torch
    return fused


class _FusedBands(torch.autograd.Function):
    """Eq. (10), fusion."""

    @staticmethod
    @override
    def forward(ctx: Any, bands: Tensor, weights: Tensor) -> Tensor:
        count, nodes, dim = bands.shape
        bands, weights = bands.contiguous(), weights.contiguous()
        fused = bands.new_empty(nodes, dim)
        _fuse_kernel[(nodes,)](
            bands, weights, fused, nodes * dim, dim, BANDS=count, WIDTH=triton.next_power_of_2(dim)
        )
        ctx.save_for_backward(bands, weights)
        return fused

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> Any:
        bands, weights = ctx.saved_tensors
        count, nodes, dim = bands.shape
        to_bands, to_weights = torch.empty_like(bands), torch.empty_like(weights)
        _unfuse_kernel[(nodes,)](
            bands, weights, gradient.contiguous(), to_bands, to_weights, nodes * dim, dim,
            BANDS=count, WIDTH=triton.next_power_of_2(dim),
        )  # fmt: skip
        return to_bands, to_weights


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _wide(bands: Tensor) -> int:
    """The number of bands as a power of two, which Triton's blocks ask for."""
    wide: int = triton.next_power_of_2(len(bands))
    return wide


@triton.jit
def _term_kernel(
    order, pointers, columns, values, current, before, out, dim, diagonal,
    IS_FIRST: tl.constexpr, AT_ONCE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some columns of one row of `2 L T_(k-1) - T_(k-2)`, or of `L T_0` for the first term."""
    row = tl.load(order + tl.program_id(0))
    places = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = places < dim
    begin, end = tl.load(pointers + row), tl.load(pointers + row + 1)
    here = row.to(tl.int64) * dim + places
    total = diagonal * tl.load(current + here, mask=inside, other=0).to(values.dtype.element_ty)
    for start in range(begin, end, AT_ONCE):
        for step in tl.static_range(AT_ONCE):
            is_real = start + step < end
            neighbour = tl.load(columns + start + step, mask=is_real, other=0).to(tl.int64)
            weight = tl.load(values + start + step, mask=is_real, other=0)
            entry = tl.load(current + neighbour * dim + places, mask=inside & is_real, other=0)
            total += weight * entry.to(weight.dtype)
    if not IS_FIRST:
        total = 2 * total - tl.load(before + here, mask=inside, other=0).to(total.dtype)
    tl.store(out + here, total, mask=inside)


@triton.jit
def _kept(words, places, size, bands, real, threshold, factor, DROPS: tl.constexpr):
    """Zero for what dropout drops, else the factor that makes up for it."""
    if DROPS:
        draws = tl.load(words + bands[:, None] * size + places[None, :], mask=real, other=0)
        return tl.where(draws < threshold, factor, 0.0)
    return tl.full(real.shape, 1.0, tl.float32)


@triton.jit
def _combine_kernel(
    basis, coefficients, scales, words, out, size, stride, dim, padded, threshold, factor,
    TERMS: tl.constexpr, BANDS: tl.constexpr, WIDE: tl.constexpr, SCALES: tl.constexpr,
    DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All bands of some entries from the terms of the basis, with dropout."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = places % padded
    source = (places // padded) * dim + column
    stored = (places < size) & (column < dim)
    bands = tl.arange(0, WIDE)
    total = tl.zeros([WIDE, BLOCK], coefficients.dtype.element_ty)
    for term in tl.static_range(TERMS):
        weight = tl.load(coefficients + bands * TERMS + term, mask=bands < BANDS, other=0)
        entry = tl.load(basis + term * stride + source, mask=stored, other=0)
        total += weight[:, None] * entry.to(total.dtype)[None, :]
    if SCALES:
        total *= tl.load(scales + column, mask=stored, other=0)[None, :]
    real = (bands < BANDS)[:, None] & (places < size)[None, :]
    total *= _kept(words, places, size, bands, real, threshold, factor, DROPS)
    tl.store(out + bands[:, None] * size + places[None, :], total, mask=real)


@triton.jit
def _gradient_kernel(
    basis, scales, words, filtered, gradient, shift, slope, out,
    size, stride, dim, padded, rounds, threshold, factor,
    TERMS: tl.constexpr, BANDS: tl.constexpr, WIDE: tl.constexpr, SCALES: tl.constexpr,
    DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Products of the bands' gradients, those through the statistics included, with the basis."""
    bands = tl.arange(0, WIDE)
    slots = tl.arange(0, 16)  # terms; a power of two
    total = tl.zeros([16, WIDE], filtered.dtype.element_ty)
    for number in range(rounds):
        places = (tl.program_id(0) * rounds + number) * BLOCK + tl.arange(0, BLOCK)
        column = places % padded
        source = (places // padded) * dim + column
        stored = (places < size) & (column < dim)
        real = (bands < BANDS)[:, None] & stored[None, :]
        entries = bands[:, None] * size + places[None, :]
        columns = bands[:, None] * padded + column[None, :]
        flow = tl.load(gradient + entries, mask=real, other=0)
        flow += tl.load(shift + columns, mask=real, other=0)
        flow += tl.load(slope + columns, mask=real, other=0) * tl.load(
            filtered + entries, mask=real, other=0
        )
        flow *= _kept(words, places, size, bands, real, threshold, factor, DROPS)
        if SCALES:
            flow *= tl.load(scales + column, mask=stored, other=0)[None, :]
        for term in tl.static_range(TERMS):
            entry = tl.load(basis + term * stride + source, mask=stored, other=0)
            product = tl.sum(flow * entry.to(flow.dtype)[None, :], axis=1)
            total += tl.where(slots == term, 1.0, 0.0)[:, None] * product[None, :]
    place = (tl.program_id(0) * TERMS + slots[:, None]) * WIDE + bands[None, :]
    tl.store(out + place, total, mask=(slots < TERMS)[:, None] & (bands >= 0)[None, :])


@triton.jit
def _fuse_kernel(bands, weights, out, size, dim, BANDS: tl.constexpr, WIDTH: tl.constexpr):
    """One node's bands times its weights."""
    node = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WIDTH)
    inside = places < dim
    total = tl.zeros([WIDTH], bands.dtype.element_ty)
    for band in tl.static_range(BANDS):
        entry = tl.load(bands + band * size + node * dim + places, mask=inside, other=0)
        total += tl.load(weights + node * BANDS + band) * entry
    tl.store(out + node * dim + places, total, mask=inside)


@triton.jit
def _unfuse_kernel(
    bands, weights, gradient, to_bands, to_weights, size, dim,
    BANDS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradients of one node's bands and weights."""
    node = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WIDTH)
    inside = places < dim
    flow = tl.load(gradient + node * dim + places, mask=inside, other=0)
    for band in tl.static_range(BANDS):
        here = band * size + node * dim + places
        entry = tl.load(bands + here, mask=inside, other=0)
        weight = tl.load(weights + node * BANDS + band)
        tl.store(to_bands + here, weight * flow, mask=inside)
        tl.store(to_weights + node * BANDS + band, tl.sum(flow * entry, axis=0))
