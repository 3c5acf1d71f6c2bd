"""What is done to a feature matrix, whichever way it is stored."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.graph import Features
from aspect.data.sparse import Pattern, SparseMatrix

__all__ = [
    "dense",
    "drop_entries",
    "dropout",
    "mask_columns",
    "mean_size",
    "num_entries",
    "permute_columns",
    "row_normalise",
    "seen_features",
    "take_rows",
]

DRAWS = 2**16  # different values of an int16, from -DRAWS / 2 on


def dense(features: Features) -> Float[Tensor, "nodes features"]:
    """The feature matrix with its zeros."""
    return features.dense() if isinstance(features, SparseMatrix) else features


def num_entries(features: Features) -> int:
    """Entries that are not zero, though they may be stored."""
    values = features.values if isinstance(features, SparseMatrix) else features
    return int(torch.count_nonzero(values))


def mean_size(features: Features) -> Float[Tensor, ""]:
    """The size of an entry that is not zero, on average; zero where there is none."""
    values = features.values if isinstance(features, SparseMatrix) else features.flatten()
    return values.abs().sum() / (values != 0).sum().clamp(min=1)


def row_normalise(features: Features) -> Features:
    """Divide every row by the sum of its absolute values; a row of zeros stays as it is."""
    if isinstance(features, SparseMatrix):
        rows = features.pattern.rows
        pointers = features.pattern.row_pointers.long()
        sums = torch.segment_reduce(features.values.abs(), "sum", offsets=pointers, initial=0)
        return features.with_values(features.values / torch.where(sums > 0, sums, 1)[rows])
    sums = features.abs().sum(1, keepdim=True)
    return features / torch.where(sums > 0, sums, 1)


def seen_features(features: Features, *, normalise_rows: bool) -> Features:
    """Features as a method sees them: with rows normalised, or as they are."""
    return row_normalise(features) if normalise_rows else features


def mask_columns(features: Features, keep: Float[Tensor, " features"] | None) -> Features:
    """Zero the columns where `keep` is zero; None keeps them all."""
    if keep is None:
        return features
    if isinstance(features, SparseMatrix):
        return features.with_values(features.values * keep[features.pattern.columns])
    return features * keep


def take_rows(
    features: Features, rows: Int[Tensor, " taken"]
) -> Float[Tensor, "taken features"] | SparseMatrix:
    """The rows of these numbers in this order, stored as before; one may come twice."""
    if not isinstance(features, SparseMatrix):
        return features[rows]
    pointers = features.pattern.row_pointers.long()
    counts = pointers.diff()[rows]
    ends = counts.cumsum(0)
    # How far each entry moves is the same for all entries of a row.
    moved = torch.repeat_interleave(pointers[rows] - (ends - counts), counts)
    entries = torch.arange(len(moved), device=rows.device) + moved
    kind = features.pattern.columns.dtype
    new_pointers = torch.cat([ends.new_zeros(1), ends]).to(kind)
    shape = (len(rows), features.shape[1])
    pattern = Pattern(new_pointers, features.pattern.columns[entries], shape)
    return SparseMatrix(pattern, features.values[entries])


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
