"""The numbers behind pictures of a gate: densities, bins and correlations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde, spearmanr

__all__ = [
    "Bins",
    "density",
    "equal_count_bins",
    "equal_width_bins",
    "known",
    "quantile_bins",
    "spearman",
]

NARROWEST = 0.008  # width of a density's kernel, for values that hardly differ
SAME = 1e-6  # spread of values that are all the same but for rounding
FEWEST = 5  # values that a bin of equal width needs, to say anything

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Bins:
    """Means of y in bins of x, from left to right; bins without enough values are left out."""

    x: Values  # mean of the bin's own values
    means: Values
    stds: Values  # within the bin
    counts: NDArray[np.int64]


def known(
    x: Sequence[float | None], y: Sequence[float] | Sequence[float | None]
) -> tuple[Values, Values]:
    """The pairs of which both are known."""
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    table = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def density(values: Sequence[float], positions: Values) -> Values:
    """Kernel density of shares: what would lie outside of [0, 1] is reflected at its ends.

    The kernel is half as wide as Scott's rule makes it, which is meant for a single hill; values
    that hardly differ become a narrow peak.
    """
    shares = np.asarray(values, dtype=np.float64)
    spread = float(shares.std(ddof=1)) if len(shares) > 1 else 0.0
    if spread < SAME:
        shares, spread = shares.mean() + NARROWEST * np.array([-1.0, 1.0]), NARROWEST * np.sqrt(2)
    factor = max(0.5 * len(shares) ** -0.2, NARROWEST / spread)
    kernel = gaussian_kde(shares, bw_method=factor)
    found: Values = kernel(positions) + kernel(-positions) + kernel(2 - positions)
    return found


def spearman(x: Values, y: Values) -> float | None:
    """Correlation of the ranks; None where one side has nothing to rank."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:  # noqa: PLR2004 - ranks need a pair
        return None
    return float(spearmanr(x, y).statistic)


def equal_count_bins(x: Values, y: Values, count: int) -> Bins:
    """Bins of about the same number of values; fewer where there are not enough."""
    most = max(1, min(count, len(x) // FEWEST))
    return _bins(x, y, np.array_split(np.argsort(x, kind="stable"), most))


def equal_width_bins(x: Values, y: Values, count: int) -> Bins:
    """Bins of equal width over [0, 1]."""
    places = np.minimum((x * count).astype(int), count - 1)
    found = [np.flatnonzero(places == place) for place in range(count)]
    return _bins(x, y, [bin_ for bin_ in found if len(bin_) >= FEWEST])


def quantile_bins(x: Values, y: Values, count: int) -> Bins:
    """Bins by rank; equal values are spread over their bins by lot, the same at every look.

    Shares of few neighbours are often equal, to one above all: by their order in the graph they
    would carry its order into the picture.
    """
    lot = np.random.default_rng(0).random(len(x))
    return _bins(x, y, np.array_split(np.lexsort((lot, x)), count))


def _bins(x: Values, y: Values, members: Sequence[NDArray[np.int64]]) -> Bins:
    filled = [own for own in members if len(own)]
    return Bins(
        np.array([x[own].mean() for own in filled]),
        np.array([y[own].mean() for own in filled]),
        np.array([y[own].std() for own in filled]),
        np.array([len(own) for own in filled], dtype=np.int64),
    )
