"""Matrices of all pairs of nodes, a block of rows at a time: what losses over all pairs share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

logger = logging.getLogger(__name__)

# One block of similarities should fit a CPU's caches, but hold rows enough for a fast product; a
# GPU is better served by few large products.
BLOCK_BYTES = {"cpu": 6 * 2**20, "cuda": 256 * 2**20}
FEWEST_ROWS = 256
# Up to here a matrix is kept for the backward pass, beyond it is computed again. A GPU keeps one of
# this part of its memory: a step has several of them.
KEPT_BYTES = 256 * 2**20
KEPT_PART = 32

Result = TypeVar("Result")


def rows_per_block(keys: Float[Tensor, "nodes dim"], sampled: int | None = None) -> int:
    """How many rows of similarities with these keys, or a sample of them, are held at a time."""
    block_bytes = BLOCK_BYTES.get(keys.device.type, BLOCK_BYTES["cpu"])
    row_bytes = keys.element_size() * (sampled or len(keys))
    return min(len(keys), max(FEWEST_ROWS, block_bytes // row_bytes))


@cache
def kept_bytes_on(device: torch.device) -> int:
    """The largest matrix of all pairs that is kept for the backward pass."""
    if device.type != "cuda":
        return KEPT_BYTES
    return max(KEPT_BYTES, torch.cuda.get_device_properties(device).total_memory // KEPT_PART)


def row_ranges(count: int, block: int) -> Iterator[slice]:
    """The rows in blocks, the last one smaller."""
    for start in range(0, count, block):
        yield slice(start, min(count, start + block))


def refuse_second_derivative(what: str = "InfoNCE") -> None:
    """What has a derivative by hand is differentiable once.

    Torch's `once_differentiable` refuses nothing where the loss alone is differentiated: gradients
    would be constants.
    """
    if torch.is_grad_enabled():  # in a backward pass that is so only with create_graph
        raise RuntimeError(f"{what} has no second derivative here. Got create_graph=True.")


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
    """Once for each size, not at every step."""
    logger.warning("%s ran out of memory and goes on in blocks of %d rows.", what, block)
