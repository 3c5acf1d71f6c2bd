"""Does one method beat another, or was it luck? A paired test over splits and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from aspect.errors import SettingsError

TWO_SIDED_95 = 0.975  # quantile that leaves 2.5% on either side

# Up to this many pairs every assignment of signs is tried; beyond, so many random ones.
MOST_EXACT_PAIRS = 14
RANDOM_ASSIGNMENTS = 100_000

# Sums of the same numbers in another order differ by rounding; accuracies differ by far more.
ROUNDING = 1e-9


@dataclass(frozen=True)
class PairedTest:
    """The difference of two methods on the same splits, and how easily luck explains it."""

    difference: float  # mean of a - b
    low: float  # 95% interval of the difference, corrected for overlapping splits
    high: float
    p_value: float  # sign-flip permutation test, two-sided
    corrected_p_value: float  # t test corrected for overlapping splits, two-sided
    wins: int  # pairs in which a is ahead
    losses: int
    count: int  # pairs

    @property
    def is_significant(self) -> bool:
        """Whether both tests agree at 5%: what a claim of being better should rest on."""
        return max(self.p_value, self.corrected_p_value) < 2 * (1 - TWO_SIDED_95)


def paired_test(a: ArrayLike, b: ArrayLike, *, test_to_train: float = 1 / 3) -> PairedTest:
    """Compare two tables of scores, `[seeds, splits]` or `[pairs]`, taken on the same splits.

    Pairs are the splits: a table is first averaged over its seeds, because scores of one split
    share its test nodes, and to flip the seeds one by one would count the same luck again. (The
    seeds of two methods have nothing in common anyway, and may differ in number.) A one-axis table
    holds pairs as they are, such as one poisoned graph, pre-training and split each.

    `p_value` flips the signs of the differences: if the methods were equal, each difference could
    as well have come out the other way. It assumes no shape of distribution, which matters with
    ten values and many ties; Wilcoxon's ranks would discard the ties and the sizes. All
    assignments are tried up to 14 pairs, then 100,000 from a fixed generator.

    Splits of one graph overlap, hence their differences are correlated and this p-value is too
    small. `corrected_p_value` widens the variance for that (Nadeau and Bengio, 2003): s^2 (1 / n +
    test_to_train), with the ratio of test to training nodes, 1/3 for 60/20/20. It is cautious.
    """
    first, second = _by_pair(a), _by_pair(b)
    if first.shape != second.shape or len(first) < 2:  # noqa: PLR2004 - one pair has no spread
        raise SettingsError(
            "A paired test needs two tables with the same 2 or more splits. "
            f"Got {len(first)} and {len(second)}."
        )
    if not 0 <= test_to_train < math.inf:
        raise SettingsError(f"Ratio of test to training nodes must be >= 0. Got {test_to_train}.")
    differences = first - second
    mean, count = float(differences.mean()), len(differences)
    error = math.sqrt(float(differences.var(ddof=1)) * (1 / count + test_to_train))
    half = float(stdtrit(count - 1, TWO_SIDED_95)) * error
    # Two-sided; certain where nothing varies but for rounding.
    corrected = float(abs(mean) < ROUNDING)
    if error > ROUNDING:
        corrected = 2 * float(stdtr(count - 1, -abs(mean) / error))
    return PairedTest(
        difference=mean,
        low=mean - half,
        high=mean + half,
        p_value=_flip_signs(differences),
        corrected_p_value=corrected,
        wins=int((differences > ROUNDING).sum()),
        losses=int((differences < -ROUNDING).sum()),
        count=count,
    )


def drop_with_error(
    clean: ArrayLike, perturbed: ArrayLike, *, test_to_train: float
) -> tuple[float, float]:
    """(clean - perturbed) / clean of the sums over splits in percent, and its standard error.

    The error is that of a ratio, widened for overlapping splits as in `paired_test`; NaN for one
    split.
    """
    before, after = np.asarray(clean, dtype=float), np.asarray(perturbed, dtype=float)
    left = after.sum() / before.sum()
    if (count := len(before)) == 1:
        return 100 * (1 - left), math.nan
    variance = ((after - left * before) ** 2).sum() / (count - 1) * (1 / count + test_to_train)
    return 100 * (1 - left), 100 * math.sqrt(variance) / before.mean()


def mean_drop(drops: ArrayLike, errors: ArrayLike, splits: ArrayLike) -> tuple[float, float, float]:
    """The mean of drops over graphs, and its 95% interval; the ends are NaN without errors.

    Student's t with the degrees of freedom of Welch and Satterthwaite; of one graph its own.
    """
    variances, freedom = np.asarray(errors, dtype=float) ** 2, np.asarray(splits) - 1
    mean, total = float(np.asarray(drops, dtype=float).mean()), variances.sum()
    if not total > 0:  # one split somewhere, or no difference between any two
        return (mean, mean, mean) if total == 0 else (mean, math.nan, math.nan)
    degrees = total**2 / (variances**2 / freedom).sum()
    half = float(stdtrit(degrees, TWO_SIDED_95)) * math.sqrt(total) / len(variances)
    return mean, mean - half, mean + half


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the chance that any of the claims up to this one is luck.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def _by_pair(table: ArrayLike) -> NDArray[np.float64]:
    """One score per pair: the mean over the seeds of a table with two axes."""
    values = np.asarray(table, dtype=np.float64)
    if values.ndim not in (1, 2) or values.size == 0 or not np.isfinite(values).all():
        raise SettingsError(
            "Scores to compare must be finite and of shape [seeds, splits] or [pairs]. "
            f"Got shape {list(values.shape)}."
        )
    return values if values.ndim == 1 else np.asarray(values.mean(axis=0))


def _flip_signs(differences: NDArray[np.float64]) -> float:
    """Share of sign assignments whose sum is at least as far from zero as the one observed."""
    count = len(differences)
    if count <= MOST_EXACT_PAIRS:
        numbers = np.arange(2**count)
        signs = 1.0 - 2.0 * ((numbers[:, None] >> np.arange(count)) & 1)
        extra = 0  # the assignment observed is among them
    else:
        import torch  # a report of few splits does without

        from aspect.randomness import generator_for

        generator = generator_for(0, "paired-test", count)
        drawn = torch.randint(2, (RANDOM_ASSIGNMENTS, count), generator=generator)
        signs = 1.0 - 2.0 * drawn.numpy()
        extra = 1
    reached = np.abs(signs @ differences) >= abs(differences.sum()) - ROUNDING
    return float((reached.sum() + extra) / (len(signs) + extra))
