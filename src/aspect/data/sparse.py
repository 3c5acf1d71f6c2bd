"""A sparse matrix in compressed rows, whose products have gradients for both factors.

torch's own autograd transposes a compressed matrix at every backward pass; here the transposed
pattern is found once and shared by all matrices of that pattern, whatever values they carry.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

# Tensor cores load 16 bytes at a time, Triton loads so where sizes are multiples of 16: rows that
# begin elsewhere take other, slower kernels.
ALIGNED = 16
# On a GPU whose products may be in TF32: entries of the whole matrix for each stored one up to
# which a product with all the zeros is faster than one without.
DENSE_RATIO = 100

LARGEST_INT32 = 2**31 - 1

OLDEST_GPU = (8, 0)  # compute capability that Triton supports fully

# torch says so at the first compressed tensor of every process; our tests hold what we use of it.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
# Patterns are checked when they are built, and all tensors here opt out of torch's checks, which
# version 2.11 warns of nevertheless.
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")


@cache
def has_triton() -> bool:
    """Whether our kernels can be compiled: Triton comes with CUDA builds, and wants a newer GPU."""
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability() >= OLDEST_GPU


def aligned(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*padded"]:
    """On a GPU with zeros behind the last of a dimension, up to a multiple of `ALIGNED`."""
    missing = -x.shape[dim] % ALIGNED
    if x.device.type != "cuda" or missing == 0:
        return x
    return pad(x, (0, 0) * (x.ndim - 1 - dim % x.ndim) + (0, missing))


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the entries of a matrix stand; sorted by row, then by column."""

    row_pointers: Int[Tensor, " rows_plus_one"]
    columns: Int[Tensor, " entries"]
    shape: tuple[int, int]

    @cached_property
    def rows(self) -> Int[Tensor, " entries"]:
        """The row of every entry."""
        counts, total = self.row_pointers.diff(), len(self.columns)
        numbers = torch.arange(self.shape[0], device=counts.device)
        return torch.repeat_interleave(numbers, counts, output_size=total)

    @cached_property
    def segments(self) -> Int[Tensor, " rows_plus_one"]:
        """The row pointers in the type that segment reductions ask for."""
        return self.row_pointers.long()

    @cached_property
    def longest_first(self) -> Int[Tensor, " rows"]:
        """Rows by falling number of entries: what takes longest on a GPU begins first."""
        return self.row_pointers.diff().argsort(descending=True, stable=True).int()

    def places_in(self, width: int) -> Int[Tensor, " entries"]:
        """Where the entries stand in a dense matrix with so many columns, flattened."""
        if width not in self._places:
            self._places[width] = self.rows * width + self.columns
        return self._places[width]

    @cached_property
    def _places(self) -> dict[int, Int[Tensor, " entries"]]:
        return {}

    @property
    def is_well_filled(self) -> bool:
        """Whether tensor cores multiply the whole matrix faster than its entries are looked up."""
        return math.prod(self.shape) <= DENSE_RATIO * len(self.columns)

    @cached_property
    def row_starts(self) -> list[int]:
        """The row pointers on the host, read back once."""
        starts: list[int] = self.row_pointers.tolist()
        return starts

    def entries_of(
        self, rows: Int[Tensor, " taken"], total: int | None = None
    ) -> tuple[Int[Tensor, " found"], Int[Tensor, " found"]]:
        """All entries of some rows, and before them the place of each one's row among those given.

        `total` is the number of these entries, where it is known: a GPU need not be waited for.
        """
        counts = self.segments.diff()[rows]
        numbers = torch.arange(len(rows), device=rows.device)
        owners = torch.repeat_interleave(numbers, counts, output_size=total)
        shifts = self.segments[rows] - (counts.cumsum(0) - counts)
        return owners, torch.arange(len(owners), device=rows.device) + shifts[owners]

    @cached_property
    def transposed(self) -> tuple[Pattern, Int[Tensor, " entries"]]:
        """The pattern of the transpose, and where each of its entries stands in this one."""
        columns, order = torch.sort(self.columns, stable=True)
        pointers = _pointers(columns, self.shape[1])
        rows = self.rows[order].to(columns.dtype)
        return Pattern(pointers, rows, self.shape[::-1]), order


def run_numbers(ordered: Int[Tensor, " values"]) -> Int[Tensor, " values"]:
    """Of sorted numbers, how many smaller ones there are, equal ones counted once.

    That is the inverse of `torch.unique`, which asks the host how many there are.
    """
    rises = torch.cat([ordered.new_zeros(1), (ordered.diff() > 0).long()])
    return rises[: len(ordered)].cumsum(0)


def _pointers(sorted_rows: Int[Tensor, " entries"], rows: int) -> Int[Tensor, " rows_plus_one"]:
    """How many entries stand before each row; found without asking the host, unlike a bincount."""
    numbers = torch.arange(rows + 1, dtype=sorted_rows.dtype, device=sorted_rows.device)
    is_small = sorted_rows.dtype == torch.int32
    return torch.searchsorted(sorted_rows, numbers, out_int32=is_small)


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A pattern with one value per entry; a product has gradients for values and dense factor."""

    pattern: Pattern
    values: Float[Tensor, " entries"]

    @classmethod
    def from_entries(
        cls,
        rows: Int[Tensor, " entries"],
        columns: Int[Tensor, " entries"],
        values: Float[Tensor, " entries"],
        shape: tuple[int, int],
    ) -> SparseMatrix:
        """Build from entries in any order; no pair may appear twice."""
        order = torch.argsort(rows.long() * shape[1] + columns.long())
        kind = torch.int32 if max(len(rows), *shape) <= LARGEST_INT32 else torch.int64
        pointers = _pointers(rows[order].to(kind), shape[0])
        return cls(Pattern(pointers, columns[order].to(kind), shape), values[order])

    @classmethod
    def from_dense(cls, dense: Float[Tensor, "rows columns"]) -> SparseMatrix:
        """Keep the entries that are not zero."""
        rows, columns = dense.nonzero(as_tuple=True)
        shape = (dense.shape[0], dense.shape[1])
        return cls.from_entries(rows, columns, dense[rows, columns], shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self.values.device

    @property
    def transposed(self) -> SparseMatrix:
        """The transpose; its pattern is found at the first call and kept."""
        pattern, order = self.pattern.transposed
        return SparseMatrix(pattern, self.values[order])

    def with_values(self, values: Float[Tensor, " entries"]) -> SparseMatrix:
        """The same pattern with other values; a value may be zero."""
        return SparseMatrix(self.pattern, values)

    def to(self, target: torch.device | str | torch.dtype) -> SparseMatrix:
        """A copy on another device, or with values of another type."""
        if isinstance(target, torch.dtype):
            return SparseMatrix(self.pattern, self.values.to(target))
        pointers = self.pattern.row_pointers.to(target)
        pattern = Pattern(pointers, self.pattern.columns.to(target), self.shape)
        return SparseMatrix(pattern, self.values.to(target))

    def dense(self, width: int | None = None) -> Float[Tensor, "rows columns"]:
        """All entries, zeros included, and zeros up to a width; nothing waits for a device."""
        rows, width = self.shape[0], width or self.shape[1]
        empty = self.values.new_zeros(rows * width)
        return empty.scatter(0, self.pattern.places_in(width), self.values).view(rows, width)

    def as_csr(self) -> Tensor:
        """The same as torch's own compressed tensor."""
        # The pattern was checked when it was built; checking it again at every product would cost
        # more than the product on small graphs.
        return torch.sparse_csr_tensor(
            self.pattern.row_pointers,
            self.pattern.columns,
            self.values,
            self.shape,
            check_invariants=False,
        )

    def __matmul__(self, dense: Float[Tensor, "columns dim"]) -> Float[Tensor, "rows dim"]:
        product: Tensor = _Product.apply(self.values, dense, self.pattern)  # type: ignore[no-untyped-call]  # torch
        return product

    def __call__(self, x: Float[Tensor, "columns dim"]) -> Float[Tensor, "rows dim"]:
        """The product: a matrix is an `Operator`."""
        return self @ x


def _product(
    matrix: SparseMatrix, dense: Float[Tensor, "columns dim"]
) -> Float[Tensor, "rows dim"]:
    in_tf32 = torch.get_float32_matmul_precision() != "highest" and dense.dtype == torch.float32
    if dense.is_cuda and in_tf32 and matrix.pattern.is_well_filled:
        padded = aligned(dense, dim=0)
        return matrix.dense(len(padded)) @ padded
    return matrix.as_csr() @ dense


class _Product(torch.autograd.Function):
    """Sparse times dense; a value's gradient is found at its entry alone, never for all pairs."""

    @staticmethod
    @override
    def forward(ctx: Any, values: Tensor, dense: Tensor, pattern: Pattern) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(values, dense if ctx.needs_input_grad[0] else None)
        return _product(SparseMatrix(pattern, values), dense)

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, dense = ctx.saved_tensors
        matrix, gradient = SparseMatrix(ctx.pattern, values), gradient.contiguous()
        to_values, to_dense = None, None
        if ctx.needs_input_grad[0]:
            sampled = torch.sparse.sampled_addmm(matrix.as_csr(), gradient, dense.t(), beta=0.0)
            to_values = sampled.values()
        if ctx.needs_input_grad[1]:
            to_dense = _product(matrix.transposed, gradient)
        return to_values, to_dense, None
