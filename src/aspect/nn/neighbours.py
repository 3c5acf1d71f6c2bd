"""Nearest neighbours among feature rows, exact and in blocks."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.features import dense, take_rows
from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix
from aspect.losses.info_nce import Positives

__all__ = ["nearest_by_cosine", "similar_positives"]

BLOCK_BYTES = 64 * 2**20  # of similarities, in float64
# Similarities are compared in steps of 2^-32: what is equal but for rounding counts as equal.
STEPS = 2**32


@torch.no_grad()
def nearest_by_cosine(
    features: Features, count: int, *, block: int | None = None
) -> Int[Tensor, "nodes count"]:
    """The most similar other rows of every row, each row's in ascending order.

    Of equally similar ones, and binary features make many, those with the lowest numbers are taken:
    no device and no block size changes the choice. A row of zeros has no direction and is given
    its own number, so many times; to others its similarity is zero.

    Args:
        features: One row per node.
        count: Neighbours of each, fewer than there are rows.
        block: Rows compared with all others at a time; chosen for 64 MiB if not given.
    """
    nodes = features.shape[0]
    if not 0 <= count < nodes:
        raise ValueError(f"Neighbours must be between 0 and {nodes - 1} in number. Got {count}.")
    if block is None:
        block = max(1, BLOCK_BYTES // (8 * nodes))
    unit = _unit_rows(features.to(torch.float64))
    every = torch.arange(nodes, device=features.device)
    starts = range(0, nodes, block)
    return torch.cat([_nearest(unit, every[start : start + block], count) for start in starts])


def similar_positives(features: Features, count: int) -> Positives:
    """Every node and those with the most similar features, at most all others (GREET, S3GCL)."""
    nearest = nearest_by_cosine(features, min(count, features.shape[0] - 1))
    return Positives.from_neighbours(nearest, features.dtype)


def _unit_rows(features: Features) -> Features:
    if isinstance(features, SparseMatrix):
        pointers, rows = features.pattern.row_pointers.long(), features.pattern.rows
        squares = torch.segment_reduce(
            features.values.square(), "sum", offsets=pointers, initial=0
        ).sqrt()
        return features.with_values(features.values / torch.where(squares > 0, squares, 1)[rows])
    lengths = features.norm(dim=1, keepdim=True)
    return features / torch.where(lengths > 0, lengths, 1)


def _nearest(unit: Features, rows: Int[Tensor, " block"], count: int) -> Int[Tensor, "block count"]:
    asking = dense(take_rows(unit, rows))
    if count == 0:
        return rows.new_empty(len(rows), 0)
    similar = ((unit @ asking.t()).t() * STEPS).round_()
    similar[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
    chosen = _largest(similar, count)
    without_direction = (asking == 0).all(1, keepdim=True)
    return torch.where(without_direction, rows.unsqueeze(1), chosen)


def _largest(values: Float[Tensor, "block nodes"], count: int) -> Int[Tensor, "block count"]:
    """Columns of the largest values, ascending; of equal values the first ones."""
    least = values.topk(count).values[:, -1:]
    above, level = values > least, values == least
    room = count - above.sum(1, keepdim=True)
    taken = above | (level & (level.cumsum(1) <= room))
    return taken.nonzero()[:, 1].view(len(values), count)
