"""Means, intervals, ranks, drops and tests against the same numbers computed by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from aspect.evaluation.significance import holm, mean_drop, paired_test
from aspect.methods.registry import find_method, method_names
from aspect.report.benchmark_tables import (
    perturbed_tables,
    published_figures,
    significance_tables,
)
from aspect.report.results import CLEAN, CONTROLS, collect
from aspect.report.statistics import (
    average_ranks,
    by_split,
    compare_with,
    critical_difference,
    drops,
    mean_differences,
    ranking,
    summarise,
    tied_groups,
)
from report.benchmark_records import ABLATION, evade, make_records, poison

TABLE = np.random.default_rng(0).uniform(60, 90, size=(3, 5))  # seeds by splits
GRAPHS = ("cora", "citeseer", "pubmed", "texas", "actor", "squirrel")


def given(seed, split, **_):
    return float(TABLE[seed, split])


def one(perturbation=None, kept=None, metric="strict", **changes):
    """The summary of a single place."""
    options = {"seeds": 3, "splits": 5, "score": given, **changes}
    records = make_records(["aspect"], ["cora"], [perturbation], **options)
    (row,) = summarise(collect(records), metric, kept).to_dict("records")
    return row


@pytest.mark.parametrize("perturbation", [None, poison()], ids=["clean", "poison"])
@pytest.mark.parametrize("kept", [None, frozenset({1, 3})], ids=["all", "some"])
def test_a_mean_is_over_seeds_with_a_t_interval(perturbation, kept):
    table = TABLE if kept is None else TABLE[:, sorted(kept)]
    row = one(perturbation, kept)
    means = table.mean(axis=1)
    assert row["mean"] == pytest.approx(means.mean())
    assert row["std"] == pytest.approx(table.std(axis=1, ddof=1).mean())
    assert row["std_seeds"] == pytest.approx(means.std(ddof=1))
    interval = stats.t.interval(0.95, 2, means.mean(), stats.sem(means))
    assert (row["low"], row["high"]) == pytest.approx(interval)
    assert (row["seeds"], row["splits"], row["count"]) == (3, table.shape[1], table.size)
    assert (row["expected"], row["failed"]) == (table.shape[1], 0)


def test_the_interval_of_one_seed_is_over_its_splits():
    row = one(seeds=1)
    interval = stats.t.interval(0.95, 4, TABLE[0].mean(), stats.sem(TABLE[0]))
    assert (row["low"], row["high"]) == pytest.approx(interval)
    single = one(seeds=1, splits=1)
    assert single["mean"] == TABLE[0, 0]
    assert all(np.isnan(single[name]) for name in ("std", "std_seeds", "low", "high"))


def test_holes_are_left_out_and_counted():
    def is_gone(record):
        return record.cell.spec.seed == 0 and record.cell.spec.split_numbers == (1,)

    row = one(poison(), missing=[is_gone])
    left = TABLE[0, [0, 2, 3, 4]]
    assert row["mean"] == pytest.approx((left.mean() + TABLE[1:].mean(1).sum()) / 3)
    assert row["std"] == pytest.approx((left.std(ddof=1) + TABLE[1:].std(1, ddof=1).sum()) / 3)
    assert (row["count"], row["seeds"] * row["expected"]) == (14, 15)


def test_failures_leave_the_other_seeds_or_nothing():
    row = one(failed=[lambda record: record.cell.spec.seed == 2])
    assert row["mean"] == pytest.approx(TABLE[:2].mean())
    assert (row["failed"], row["error"]) == (1, "The loss is no longer a number after epoch 3.")
    nothing = one(failed=[lambda _: True])
    assert np.isnan(nothing["mean"])
    assert nothing["failed"] == 3


def test_ranks_share_ties_and_leave_out_rows_with_gaps():
    means = pd.DataFrame(
        {"x": [90.0, 80.0, 80.0, 10.0], "y": [70.0, 90.0, 60.0, None]}, index=list("abcd")
    )
    assert average_ranks(means).to_dict() == {"a": 1.5, "b": 1.75, "c": 2.75}
    # One mean, summed in two orders.
    sums = (sum([0.1, 0.2, 0.3]), sum([0.3, 0.2, 0.1]))
    assert sums[0] != sums[1]
    assert average_ranks(pd.DataFrame({"x": sums}, list("ab"))).to_dict() == {"a": 1.5, "b": 1.5}


def test_the_papers_average_drops_follow_from_its_figures():
    """The same rule, on the numbers that the paper prints."""
    figures = published_figures().set_index(["table", "method", "graph"])["mean"].sort_index()
    graphs = sorted(figures["perturbed", "dgi"].index)
    printed = figures["average-drop"].droplevel("graph")

    def score(entry, graph, perturbation, **_):
        return figures["perturbed" if perturbation else "clean", entry, graph]

    records = make_records(printed.index, graphs, [None, poison()], seeds=1, splits=1, score=score)
    found = drops(collect(records), "class-balanced", "random-poison-10")
    average = found["drop"].groupby("variant").mean()
    differing = average[(average - printed).abs() > 0.01].round(2)
    # One of eighteen is not what its own line gives: the paper prints 12.57.
    assert differing.to_dict() == {"cca-ssg": 12.38}


def bootstrapped(clean, perturbed, draws=4000):
    """Standard error of the drop of the sums, by drawing splits again."""
    generator = np.random.default_rng(0)
    chosen = generator.integers(len(clean), size=(draws, len(clean)))
    return np.std(100 * (1 - perturbed[chosen].sum(axis=1) / clean[chosen].sum(axis=1)))


def test_a_drop_has_the_standard_error_of_a_ratio():
    generator = np.random.default_rng(3)
    clean = generator.uniform(75, 85, size=60)
    perturbed = 0.9 * clean + generator.normal(size=60)

    def score(split, perturbation, **_):
        return (perturbed if perturbation else clean)[split]

    records = make_records(["aspect"], ["cora"], [None, poison()], seeds=1, splits=60, score=score)
    (line,) = drops(collect(records), "class-balanced", "random-poison-10").to_dict("records")
    assert line["splits"] == 60
    assert line["drop"] == pytest.approx(100 * (1 - perturbed.sum() / clean.sum()))
    overlap = np.sqrt(1 + 60 / 3)  # a test node for every three training nodes
    assert line["error"] == pytest.approx(overlap * bootstrapped(clean, perturbed), rel=0.15)


def test_the_interval_of_a_drop_is_as_wide_as_that_of_the_paired_test():
    """Where every clean score is 100, the drop in percent is the difference in points."""
    clean, perturbed = np.full(10, 100.0), np.random.default_rng(4).uniform(80, 90, size=10)

    def score(split, perturbation, **_):
        return (perturbed if perturbation else clean)[split]

    records = make_records(["aspect"], ["cora"], [None, poison()], seeds=1, splits=10, score=score)
    lines = drops(collect(records), "class-balanced", "random-poison-10")
    test = paired_test(clean, perturbed)
    assert mean_drop(*lines.to_numpy().T) == pytest.approx((test.difference, test.low, test.high))


def test_the_interval_of_a_mean_drop_is_that_of_welch():
    one, other = np.array([4.0, 6.0, 5.0, 9.0]), np.array([1.0, 3.0, 2.0, 2.5, 1.5])
    lines = pd.DataFrame(
        {
            "drop": [one.mean(), -other.mean()],  # the mean of both is half of the difference
            "error": [stats.sem(one), stats.sem(other)],
            "splits": [len(one), len(other)],
        }
    )
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert mean_drop(*lines.to_numpy().T)[1:] == pytest.approx(
        (expected.low / 2, expected.high / 2)
    )
    single = stats.t.interval(0.95, len(one) - 1, loc=one.mean(), scale=stats.sem(one))
    assert mean_drop(*lines.iloc[:1].to_numpy().T)[1:] == pytest.approx(single)
    assert np.isnan(mean_drop(*lines.assign(error=[1.0, np.nan]).to_numpy().T)[1])


def test_numbers_are_those_of_the_paired_test_after_holm():
    results = collect(make_records(["aspect", "low", "raw"], ["cora", "texas"], splits=10))
    values = by_split(results)["class-balanced", CLEAN]
    tests = [
        paired_test(values["aspect", graph].to_numpy(), values[rival, graph].to_numpy())
        for rival in ("low", "raw")
        for graph in ("cora", "texas")
    ]
    corrected = holm([test.corrected_p_value for test in tests])
    rows = compare_with(results, "class-balanced", CLEAN, "aspect").itertuples()
    for row, test, p_value in zip(rows, tests, corrected, strict=True):
        assert (row.difference, row.low, row.high) == (test.difference, test.low, test.high)
        assert row.p == max(p_value, test.p_value)
        assert row.significant == (row.p < 0.05)


def test_baselines_and_controls_are_two_families():
    """Each is corrected as if the other were not there."""
    baselines, controls = ["grace", "dgi"], ["raw", "low"]
    options = {"graphs": ["cora", "texas"], "splits": 10}
    together = collect(make_records(["aspect", "raw", "grace", "low", "dgi"], **options))
    found = compare_with(together, "class-balanced", CLEAN, "aspect")
    means = mean_differences(found)
    for family in (baselines, controls):
        alone = collect(make_records(["aspect", *family], **options))
        expected = compare_with(alone, "class-balanced", CLEAN, "aspect")
        columns = ["difference", "low", "high", "p"]
        pd.testing.assert_frame_equal(
            found.loc[family, columns], expected.loc[family, columns], check_like=True
        )
        assert set(family) <= set(means.index)


def test_controls_are_those_of_the_registry():
    control = {name for name in method_names() if find_method(name).family == "control"}
    assert set(CONTROLS) == control


# Two-tailed Nemenyi test at 5%: Table 5 of Demsar (2006), for 2 to 10 methods.
NEMENYI = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


@pytest.mark.parametrize(("methods", "q"), [*enumerate(NEMENYI, start=2)])
def test_critical_differences_are_demsars(methods, q):
    expected = q * (methods * (methods + 1) / (6 * 14)) ** 0.5
    assert critical_difference(methods, 14) == pytest.approx(expected, abs=1e-3)


def test_groups_are_the_largest_and_none_is_a_part_of_another():
    assert tied_groups([1.0, 2.0, 3.0], 5.0) == [(0, 2)]
    assert tied_groups([1.0, 4.0, 9.0], 2.0) == []
    assert tied_groups([1.0, 2.0, 2.0, 4.0, 4.6], 2.5) == [(0, 2), (1, 3), (3, 4)]


def test_ranks_leave_graphs_out_whose_nodes_are_there_twice():
    graphs = ["texas", "cornell_old", "chameleon", "chameleon_filtered", "squirrel"]
    results = collect(make_records(["aspect", "raw"], graphs))
    found = ranking(results, "class-balanced")
    assert (found.num_graphs, found.repeated) == (3, ["cornell_old", "chameleon"])


def test_a_graph_on_which_all_runs_failed_is_no_part_of_ranks():
    failed = [lambda each: each.cell.graph == "actor"]
    records = make_records(["aspect", "raw"], ["cora", "texas", "actor"], failed=failed)
    found = ranking(collect(records), "class-balanced")
    assert (found.num_graphs, found.repeated) == (2, [])


def lines(records, reference=None):
    ((table,), _) = significance_tables(collect(records), reference)
    return table.lines


def test_a_large_difference_is_significant_in_a_large_table():
    """The smallest p of ten flipped signs, 0.002, must not be multiplied by a hundred."""

    def score(entry, split, **_):
        luck = np.random.default_rng(split + 100 * len(entry)).normal()
        return 80 + luck + (10 if entry == "aspect" else 0)

    rivals = [f"rival-{number}" for number in range(16)]
    rows = lines(make_records(["aspect", *rivals], GRAPHS, seeds=1, splits=10, score=score))
    assert all(cell.significant for line in rows for cell in line.cells[:6])
    assert {line.cells[6].text for line in rows} == {"6 / 0 / 0"}


def test_equal_scores_are_not_significant():
    def score(split, graph, **_):
        return 70.0 + split + len(graph)

    (line,) = lines(make_records(["aspect", "low"], GRAPHS, splits=10, score=score))
    assert [(cell.value, cell.p_value) for cell in line.cells[:6]] == [(0.0, 1.0)] * 6
    assert line.cells[6].text == "0 / 6 / 0"
    assert (line.cells[-1].value, line.cells[-1].p_value) == (0.0, 1.0)
    assert not any(cell.significant for cell in line.cells)


def test_the_reference_is_the_users_choice():
    def score(entry, split, **_):
        return 80 + split + (0 if entry == "aspect" else 5 + 0.1 * split)

    records = make_records(["aspect", "low"], ["cora"], splits=10, score=score)
    (behind,) = lines(records)
    assert (behind.title, behind.cells[1].text) == ("low", "0 / 0 / 1")
    (ahead,) = lines(records, "low")
    assert (ahead.title, ahead.cells[1].text) == ("aspect", "1 / 0 / 0")
    assert ahead.cells[0].value == -behind.cells[0].value > 0


def test_means_over_graphs_are_tested_from_six_on_and_corrected_for_the_rivals():
    def score(entry, split, graph, **_):
        return 70 + split + (5 + 0.1 * len(graph) if entry == "aspect" else 0)

    entries = ["aspect", "low", "raw", "high"]
    rows = lines(make_records(entries, GRAPHS, splits=6, score=score))
    differences = [5 + 0.1 * len(graph) for graph in GRAPHS]
    test = paired_test(differences, [0.0] * 6, test_to_train=0.0)
    expected = max(3 * test.corrected_p_value, test.p_value)
    for line in rows:
        assert line.cells[-1].value == pytest.approx(np.mean(differences))
        assert line.cells[-1].p_value == pytest.approx(expected)
        assert line.cells[-1].significant
    few = lines(make_records(["aspect", "low"], GRAPHS[:5], splits=6, score=score))
    assert few[0].cells[-1].p_value is None


def test_the_mean_over_graphs_counts_the_nodes_of_texas_once():
    def score(entry, split, graph, **_):
        return 70 + split + ((10 if graph == "cornell_old" else 1) if entry == "aspect" else 0)

    for other, mean in (("texas", 1.0), ("cora", 5.5)):
        records = make_records(["aspect", "low"], [other, "cornell_old"], splits=6, score=score)
        ((table,), _) = significance_tables(collect(records))
        assert table.lines[0].cells[-1].value == pytest.approx(mean)
        assert len(table.notes) == (other == "texas")


def test_pairs_are_formed_over_common_splits_and_fewer_are_noted():
    records = make_records(
        ["aspect", "low", "raw"],
        ["cora"],
        [poison()],
        splits=7,
        missing=[lambda each: (each.cell.entry, each.scores[0].split) == ("low", 2)],
    )
    results = collect(records)
    ((table,), _) = significance_tables(results)
    values = by_split(results)["class-balanced", "random-poison-10"]
    difference = values["aspect", "cora"].drop(2).mean() - values["low", "cora"].mean()
    assert table.lines[0].cells[0].value == pytest.approx(difference)
    assert table.notes == ("[1] Over the 6 splits that both have.",)
    assert [line.cells[0].footnote for line in table.lines] == [1, 0]

    def missing(record):
        return record.cell.graph == "texas" and record.scores[0].split > 4

    records = make_records(
        ["aspect", "low"], ["cora", "texas"], [poison()], splits=6, missing=[missing]
    )
    ((table,), _) = significance_tables(collect(records))
    assert table.lines[0].cells[1].text == "- [1]"
    assert table.notes == ("[1] No test: fewer than 6 splits in common.",)
    assert "over 1 comparison with controls." in table.caption


@pytest.mark.parametrize(("splits", "tables"), [(5, 0), (6, 1)])
def test_a_table_in_which_nothing_could_be_significant_is_left_out_by_name(splits, tables):
    """The signs of five pairs have no p below 1/16, those of six one of 1/32."""
    records = make_records(
        ["aspect", "low"], ["cora"], splits=splits, score=lambda entry, **_: 60 + len(entry)
    )
    found, untested = significance_tables(collect(records))
    assert len(found) == tables
    assert all(table.lines[0].cells[0].significant for table in found)
    assert untested == (["clean graphs"] if not tables else [])
    alone = collect(make_records(["aspect"], splits=2))
    assert significance_tables(alone) == ([], [])  # nothing to compare with


def interval(records):
    cell = lines(records)[0].cells[0]
    return cell.high - cell.low


@pytest.mark.parametrize(
    ("ratio", "told", "changes"),
    [
        (1 / 3, None, {}),
        (0.61, 0.61, {"missing_in_test": (1,)}),
        (1 / 2, None, {"split_kind": "published"}),
    ],
)
def test_the_interval_is_widened_by_the_ratio_of_test_to_training_nodes(ratio, told, changes):
    records = make_records(["aspect", "low"], ["texas"], splits=10)
    changed = [
        record.model_copy(
            update={
                "scores": tuple(
                    each.model_copy(update={"test_to_train": told}) for each in record.scores
                )
            }
        )
        for record in make_records(["aspect", "low"], ["texas"], splits=10, **changes)
    ]
    expected = np.sqrt((0.1 + ratio) / (0.1 + 1 / 3))
    assert interval(changed) == pytest.approx(expected * interval(records))


def test_every_perturbation_has_its_table_and_variants_are_not_compared():
    """They would weaken what Holm's correction leaves of the others."""
    attacks = [None, poison(), evade(0.2)]
    records = make_records([*ABLATION, "raw"], perturbations=attacks, splits=6)
    tables, _ = significance_tables(collect(records))
    assert [table.name for table in tables] == [
        "significance",
        "significance-random-poison-10",
        "significance-random-evade-20",
    ]
    assert all([line.title for line in table.lines] == ["raw"] for table in tables)
    assert significance_tables(collect([])) == ([], [])
    assert perturbed_tables(collect([])) == []
