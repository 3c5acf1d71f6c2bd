"""What is done to a feature matrix, whichever way it is stored."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.graph.data import Features
from aspect.graph.sparse import SparseMatrix

__all__ = ["dense", "drop_entries", "dropout", "mask_columns", "permute_columns", "row_normalise"]

DRAWS = 2**16  # different values of an int16, from -DRAWS / 2 on


def dense(features: Features) -> Float[Tensor, "nodes features"]:
    """The feature matrix with its zeros."""
    return features.dense() if isinstance(features, SparseMatrix) else features


def row_normalise(features: Features) -> Features:
    """Divide every row by the sum of its absolute values; a row of zeros stays as it is."""
    if isinstance(features, SparseMatrix):
        rows = features.pattern.rows
        pointers = features.pattern.row_pointers.long()
        sums = torch.segment_reduce(features.values.abs(), "sum", offsets=pointers, initial=0)
        return features.with_values(features.values / torch.where(sums > 0, sums, 1)[rows])
    sums = features.abs().sum(1, keepdim=True)
    return features / torch.where(sums > 0, sums, 1)


def mask_columns(features: Features, keep: Float[Tensor, " features"] | None) -> Features:
    """Zero the columns where `keep` is zero; None keeps them all."""
    if keep is None:
        return features
    if isinstance(features, SparseMatrix):
        return features.with_values(features.values * keep[features.pattern.columns])
    return features * keep


def permute_columns(features: Features, order: Int[Tensor, " features"]) -> Features:
    """The same columns in another order: first the one numbered `order[0]`."""
    if not isinstance(features, SparseMatrix):
        return features[:, order]
    columns = torch.argsort(order)[features.pattern.columns.long()]  # where each has gone
    return SparseMatrix.from_entries(
        features.pattern.rows, columns, features.values, features.shape
    )


def drop_entries(features: Features, rate: float, generator: torch.Generator | None) -> Features:
    """Dropout of a feature matrix; of compressed rows only the stored entries are drawn.

    Dropping a zero changes nothing.
    """
    if isinstance(features, SparseMatrix):
        return features.with_values(dropout(features.values, rate, generator))
    return dropout(features, rate, generator)


def dropout(
    x: Float[Tensor, "*shape"], rate: float, generator: torch.Generator | None
) -> Float[Tensor, "*shape"]:
    """Zero entries with probability `rate` and scale the rest up; without a generator, none.

    The rate is rounded to a multiple of 2^-16: four draws are cut from each 64 random bits, since
    on a CPU drawing would otherwise cost more than what is done with the draws.
    """
    if generator is None or rate == 0:
        return x
    kept = max(1, round((1 - rate) * DRAWS))
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    draws = words.random_(-(2**63), None, generator=generator).view(torch.int16)
    keep = torch.empty_like(x, requires_grad=False)
    torch.lt(draws[: x.numel()].view(x.shape), kept - DRAWS // 2, out=keep)
    return x * keep.mul_(DRAWS / kept)
