"""Matrices of all pairs of nodes, a block of rows at a time: what losses over all pairs share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "KEPT_BYTES",
    "Block",
    "exponential_blocks",
    "refuse_second_derivative",
    "row_ranges",
    "rows_per_block",
    "through_unit_rows",
    "unit_rows",
    "with_smaller_blocks",
]

logger = logging.getLogger(__name__)

# One block of similarities should fit a CPU's caches, but hold rows enough for a fast product; a
# GPU is better served by few large products.
BLOCK_BYTES = {"cpu": 6 * 2**20, "cuda": 256 * 2**20}
FEWEST_ROWS = 256
# Up to here the exponentials are kept for the backward pass, beyond it they are computed again.
KEPT_BYTES = 256 * 2**20

Block = tuple[slice, Tensor]  # which rows, and what stands in them
Result = TypeVar("Result")


def rows_per_block(keys: Float[Tensor, "nodes dim"]) -> int:
    """How many rows of similarities with these keys, and of as many nodes, are held at a time."""
    wanted = BLOCK_BYTES.get(keys.device.type, BLOCK_BYTES["cpu"])
    return min(len(keys), max(FEWEST_ROWS, wanted // (keys.element_size() * len(keys))))


def row_ranges(count: int, block: int) -> Iterator[slice]:
    """The rows in blocks, the last one smaller."""
    for start in range(0, count, block):
        yield slice(start, min(count, start + block))


def exponential_blocks(
    queries: Tensor, keys: Tensor, sharpness: float, block: int
) -> Iterator[Block]:
    """Rows of exp(s_ij), and which they are; s_ij = sharpness * u_i . v_j for unit rows."""
    for rows in row_ranges(len(queries), block):
        yield rows, ((queries[rows] * sharpness) @ keys.t()).exp_()


def unit_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of length one, and their factors; a row of zeros stays so and gets no gradient."""
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    scales = torch.where(lengths > 0, 1 / lengths, 0)
    return x * scales, scales


def through_unit_rows(gradient: Tensor, unit: Tensor, scales: Tensor) -> Tensor:
    """The gradient before the rows were made unit: its part across each row, in place."""
    along = torch.linalg.vecdot(gradient, unit).unsqueeze(1)
    return gradient.addcmul_(along, unit, value=-1).mul_(scales)


def refuse_second_derivative(what: str = "InfoNCE") -> None:
    """What is found in blocks is differentiable once."""
    if torch.is_grad_enabled():  # which is so where create_graph asks for a second derivative
        raise RuntimeError(f"{what} in blocks has no second derivative. Got create_graph=True.")


def with_smaller_blocks(
    compute: Callable[[int], Result], block: int, row_bytes: int, what: str = "InfoNCE"
) -> Result:
    """Run with blocks of this many rows, or with half as many as often as memory demands."""
    while True:
        try:
            return compute(block)
        except torch.OutOfMemoryError as error:
            if block == 1:
                raise torch.OutOfMemoryError(
                    f"{what} ran out of memory even with one row of similarities at a time "
                    f"({row_bytes} bytes). ({error})"
                ) from error
            block //= 2
            _warn_of_smaller_blocks(block, what)


@cache
def _warn_of_smaller_blocks(block: int, what: str) -> None:
    """Say it once for each size, not at every step."""
    logger.warning("%s ran out of memory and goes on in blocks of %d rows.", what, block)
