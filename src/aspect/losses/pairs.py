"""Inner products of chosen pairs of rows, in memory that does not grow with pairs * width."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.data.sparse import SparseMatrix
from aspect.losses.blocked import row_ranges
from aspect.losses.cosine import directions

__all__ = ["pair_cosines", "pair_products"]

BLOCK = 2**14  # pairs whose rows are gathered at a time


def pair_products(
    x: Float[Tensor, "nodes dim"], one: Int[Tensor, " pairs"], other: Int[Tensor, " pairs"]
) -> Float[Tensor, " pairs"]:
    """`x[one] . x[other]` pair by pair; a pair may come twice (GMI's reconstruction)."""
    products: Tensor = _PairProducts.apply(x, one, other)  # type: ignore[no-untyped-call]  # torch
    return products


def pair_cosines(
    x: Float[Tensor, "nodes dim"], one: Int[Tensor, " pairs"], other: Int[Tensor, " pairs"]
) -> Float[Tensor, " pairs"]:
    """The cosine of each pair of rows, zero where one is zero (GREET's edges and random pairs)."""
    return pair_products(directions(x), one, other)


class _PairProducts(torch.autograd.Function):
    """Gathered in blocks; the gradient is a sparse product, so that nothing gathered is kept."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        ctx.save_for_backward(x, one, other)
        products = x.new_empty(len(one))
        for pairs in row_ranges(len(one), BLOCK):
            products[pairs] = torch.linalg.vecdot(x[one[pairs]], x[other[pairs]])
        return products

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, one, other = ctx.saved_tensors
        # A pair that comes twice is two entries of one place, which a product adds up.
        matrix = SparseMatrix.from_entries(one, other, gradient, (len(x), len(x)))
        return matrix @ x + matrix.transposed @ x, None, None
