"""Numbers behind the tables: means and intervals, average ranks and drops, significance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from aspect.evaluation.significance import (
    TWO_SIDED_95,
    PairedTest,
    drop_with_error,
    holm,
    paired_test,
)
from aspect.report.results import CLEAN, HEADLINE, PERCENT, PLACE, Results

Place = tuple[str, str, str, str]  # in the order of `PLACE`
Pair = tuple[Place, Place]

LEVEL = 0.05
# Graphs with the nodes of another one: the faulty Cornell is Texas under other edges, and the
# filtered pair is what is left without duplicates.
REPEATS = {
    "cornell_old": "texas",
    "chameleon": "chameleon_filtered",
    "squirrel": "squirrel_filtered",
}
FEWEST_SPLITS = 2  # one pair has no std
FEWEST_RANKED = 2  # methods, and graphs
TIED_DIGITS = 9
FEWEST_TO_TEST = 6  # splits or graphs; n signs give no p below 2 ** (1 - n)

# Test nodes per training node, where records do not say. The published splits of geom-gcn are
# 48/32/20 and those of Platonov et al. 50/25/25; the larger ratio is the cautious one.
TEST_TO_TRAIN = {"class-balanced": 1 / 3, "random": 1 / 3, "published": 1 / 2}


@lru_cache(maxsize=64)  # several tables and figures share a summary; nobody changes it
def summarise(
    results: Results, metric: str = HEADLINE, kept: frozenset[int] | None = None
) -> pd.DataFrame:
    """One row per place of any record; numbers are missing where it has no scores.

    The mean is over the seeds' means; `std` over the splits of one seed, averaged over the seeds.
    The 95% interval is Student's t over the means of the seeds, or over the splits of one seed; it
    ends where scores do, at 0 and 100.

    Args:
        results: of any records.
        metric: `HEADLINE` or one of `METRICS`; a place with a run that lacks it has no numbers.
        kept: the splits to use; none: all.
    """
    scores = results.select(metric=metric)
    if kept is not None:
        scores = scores[scores["split"].isin(kept)]
    scores = scores[
        ~scores["value"].isna().groupby([scores[name] for name in PLACE]).transform("any")
    ]
    by_seed = scores.groupby([*PLACE, "seed"], sort=False)["value"].agg(["mean", "std", "count"])
    summary = by_seed.groupby(PLACE, sort=False).agg(
        mean=("mean", "mean"),
        std=("std", "mean"),
        std_seeds=("mean", "std"),
        seeds=("mean", "size"),
        count=("count", "sum"),
    )
    several = summary["seeds"] > 1
    number = summary["seeds"].where(several, summary["count"])
    error = summary["std_seeds"].where(several, summary["std"]) / np.sqrt(number)
    half = error * stdtrit((number - 1).clip(lower=1), TWO_SIDED_95)
    summary = summary.assign(
        low=(summary["mean"] - half).clip(lower=0),
        high=(summary["mean"] + half).clip(upper=PERCENT),
        splits=scores.groupby(PLACE, sort=False)["split"].nunique(),
    )
    # Variants of one column share their splits, so that a missing one can be named.
    column = ["split_kind", "perturbation", "graph"]
    expected = scores.groupby(column)["split"].nunique().rename("expected")
    gaps = results.runs[results.runs["is_gap"].astype(bool)].groupby(PLACE)["error"]
    index = pd.MultiIndex.from_frame(results.runs[PLACE].drop_duplicates())
    summary = summary.reindex(index).join(expected, on=column)
    summary["failed"] = gaps.size().reindex(index).fillna(0).astype(int)
    summary["error"] = gaps.first().reindex(index).fillna("")
    counts = ["seeds", "count", "splits", "expected"]
    return summary.fillna(dict.fromkeys(counts, 0)).astype(dict.fromkeys(counts, int))


@lru_cache(maxsize=8)
def by_split(results: Results) -> pd.Series:
    """Mean score over the seeds of every place and split: what pairs are formed of."""
    scores = results.select(metric=HEADLINE).sort_values("seed", kind="stable")
    return scores.groupby([*PLACE, "split"])["value"].mean()


def common_splits(
    results: Results, splits: str, graph: str, perturbations: Sequence[str]
) -> frozenset[int]:
    """Splits that the clean graph and all perturbations have; all of them if none is common.

    Else a curve over budgets would bend where its splits change.
    """
    scores = results.select(split_kind=splits, graph=graph, metric=HEADLINE)
    states = [CLEAN, *perturbations]
    by_state = scores[scores["perturbation"].isin(states)].groupby("perturbation")["split"]
    sets = [frozenset(numbers) for _, numbers in by_state]
    return frozenset.intersection(*sets) or frozenset.union(*sets) if sets else frozenset()


def average_ranks(means: pd.DataFrame) -> pd.Series:
    """Mean rank of every row over the columns, the best first; rows with gaps are left out.

    >>> average_ranks(pd.DataFrame({"x": [90.0, 80.0], "y": [70.0, 70.0]}, ["a", "b"])).to_dict()
    {'a': 1.25, 'b': 1.75}
    """
    # The same accuracies, summed in another order, differ in the last digits alone: a tie.
    ranks = means.dropna().round(TIED_DIGITS).rank(ascending=False).mean(axis=1)
    return ranks.sort_values(kind="stable")


def critical_difference(num_methods: int, num_graphs: int) -> float:
    """Nemenyi's: mean ranks that differ by less cannot be told apart at 5% (Demsar, 2006).

    >>> round(critical_difference(5, 30), 3)  # q of his Table 5: 2.728
    1.114
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - LEVEL, num_methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(num_methods * (num_methods + 1) / (6 * num_graphs)))


def tied_groups(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """First and last place of every largest group whose ranks differ by less; ranks rise.

    >>> tied_groups([1.0, 2.0, 2.5, 9.0], 1.2)
    [(0, 1), (1, 2)]
    """
    groups: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(place for place, rank in enumerate(ranks) if rank - ranks[first] < difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def repeated_graphs(results: Results, graphs: Iterable[str]) -> list[str]:
    """Those that share their nodes with another one of them: `REPEATS`."""
    names = {results.graphs[graph]: graph for graph in graphs}
    return [names[name] for name, of in REPEATS.items() if {name, of} <= names.keys()]


class Ranking(NamedTuple):
    """Mean ranks on clean graphs of the methods without a gap, the best first."""

    ranks: pd.Series
    unranked: list[str]  # methods that lack a graph
    num_graphs: int
    repeated: list[str]  # graphs that are left out: they share their nodes with another one
    difference: float  # ranks that differ by less cannot be told apart


def ranking(results: Results, splits: str) -> Ranking | None:
    """The ranking on one kind of splits; None where there are too few methods or graphs."""
    means = score_means(results, splits).dropna(axis=1, how="all")
    repeated = repeated_graphs(results, map(str, means))
    means = means.drop(columns=repeated)
    ranks, num_graphs = average_ranks(means), means.shape[1]
    if min(len(ranks), num_graphs) < FEWEST_RANKED:
        return None
    unranked = [name for name in means.index if name not in ranks.index]
    difference = critical_difference(len(ranks), num_graphs)
    return Ranking(ranks, unranked, num_graphs, repeated, difference)


def _test_to_train(results: Results) -> dict[Place, float]:
    """Test nodes per training node of every place: overlapping splits widen its intervals."""
    told = results.select(metric="test_to_train").groupby(PLACE)["value"].max().to_dict()
    return {place: told.get(place, TEST_TO_TRAIN[place[0]]) for place in results.places}


def drops(results: Results, splits: str, perturbation: str) -> pd.DataFrame:
    """How much of its accuracy each variant loses on each graph, one row for both.

    Over the splits that the clean and the perturbed graph both have: `drop` and `error` are those
    of `drop_with_error`, and `splits` is their number.
    """
    wide = by_split(results).unstack("perturbation").reindex(columns=[CLEAN, perturbation])
    pairs = wide[wide.index.get_level_values("split_kind") == splits].dropna()
    ratios = _test_to_train(results)
    rows = {}
    for place, lines in pairs.groupby(level=["variant", "graph"], sort=False):
        if lines[CLEAN].any():
            variant, graph = map(str, place)
            ratio = ratios[splits, perturbation, variant, graph]
            drop = drop_with_error(lines[CLEAN], lines[perturbation], test_to_train=ratio)
            rows[variant, graph] = (*drop, len(lines))
    index = pd.MultiIndex.from_tuples(list(rows), names=["variant", "graph"])
    table = pd.DataFrame(rows.values(), index, ["drop", "error", "splits"])
    return table.astype({"drop": float, "error": float, "splits": int})


def score_means(
    results: Results, splits: str, perturbation: str = CLEAN, column: str = "mean"
) -> pd.DataFrame:
    """Scores, methods x graphs in the plan's order; gaps are missing."""
    graphs = results.columns(splits, perturbation)
    rows = results.rows(splits, perturbation, graphs)
    places = pd.MultiIndex.from_product([[splits], [perturbation], rows, graphs], names=PLACE)
    values = summarise(results)[column].reindex(places).to_numpy(dtype=float)
    return pd.DataFrame(values.reshape(len(rows), len(graphs)), index=rows, columns=graphs)


def compare(
    results: Results, pairs: Sequence[Pair], fewest_splits: int = FEWEST_SPLITS
) -> pd.DataFrame:
    """Paired tests of first less second, corrected together; gaps where too few splits are shared.

    Holm's correction is applied to the t test, which is already widened for overlapping splits.
    The sign-flip test must agree, as it is: ten splits give it nothing below 0.002, so that
    no difference of any size could stand a correction for a table of thirty comparisons.

    Returns:
        difference, low, high, p, count and significant, one row per pair in their order.
    """
    wide = by_split(results).unstack("split")
    by_place = dict(zip(wide.index, wide.to_numpy(), strict=True))
    gap = np.full(wide.shape[1], np.nan)
    ratios = _test_to_train(results)
    tests: list[PairedTest | None] = []
    for first, second in pairs:
        a, b = by_place.get(first, gap), by_place.get(second, gap)
        common = np.isfinite(a + b)
        tests.append(
            paired_test(a[common], b[common], test_to_train=ratios[first])
            if common.sum() >= fewest_splits
            else None
        )
    return _corrected(tests)


def _corrected(tests: Sequence[PairedTest | None]) -> pd.DataFrame:
    made = [test for test in tests if test is not None]
    corrected = iter(holm([test.corrected_p_value for test in made]))
    rows = [
        (np.nan, np.nan, np.nan, np.nan, 0)
        if test is None
        else (test.difference, test.low, test.high, max(next(corrected), test.p_value), test.count)
        for test in tests
    ]
    frame = pd.DataFrame(rows, columns=["difference", "low", "high", "p", "count"])
    return frame.assign(significant=frame["p"] < LEVEL)


@lru_cache(maxsize=64)
def compare_with(results: Results, splits: str, perturbation: str, reference: str) -> pd.DataFrame:
    """The reference less every other method on every graph, indexed by variant and graph.

    Controls and other methods are two families, each corrected by itself. Nothing is tested on
    fewer than `FEWEST_TO_TEST` splits: no difference could be significant.
    """
    graphs = results.columns(splits, perturbation, [reference])
    rivals = [name for name in results.rows(splits, perturbation, graphs) if name != reference]
    families = []
    for is_control in (False, True):
        family = [name for name in rivals if results.is_control(name) == is_control]
        index = pd.MultiIndex.from_product([family, graphs], names=["variant", "graph"])
        pairs: list[Pair] = [
            ((splits, perturbation, reference, graph), (splits, perturbation, rival, graph))
            for rival, graph in index
        ]
        tests = compare(results, pairs, FEWEST_TO_TEST).set_index(index)
        families.append(tests.assign(is_control=is_control))
    return pd.concat([tests for tests in families if len(tests)] or families[:1])


def tally(tests: pd.DataFrame) -> tuple[int, int, int]:
    """How many of the tests say better, not significant and worse."""
    better = int((tests["significant"] & (tests["difference"] > 0)).sum())
    worse = int((tests["significant"] & (tests["difference"] < 0)).sum())
    return better, int((tests["count"] > 0).sum()) - better - worse, worse


def mean_differences(comparisons: pd.DataFrame) -> pd.DataFrame:
    """The mean over graphs of `compare_with`; from `FEWEST_TO_TEST` graphs on it is tested.

    Corrected by families, as there.
    """
    families = [_mean_differences(tests) for _, tests in comparisons.groupby("is_control")]
    return pd.concat(families) if families else _mean_differences(comparisons)


def _mean_differences(comparisons: pd.DataFrame) -> pd.DataFrame:
    by_variant = [
        rows["difference"].dropna() for _, rows in comparisons.groupby(level="variant", sort=False)
    ]
    # Graphs share no nodes, so that nothing is widened.
    tests = [
        paired_test(values.to_numpy(), np.zeros(len(values)), test_to_train=0.0)
        if len(values) >= FEWEST_TO_TEST
        else None
        for values in by_variant
    ]
    names = comparisons.index.get_level_values("variant").unique()
    tested = _corrected(tests).set_index(names)
    return tested.assign(difference=[values.mean() for values in by_variant])
