"""Lead or luck: the tests are those of the evaluation, over the splits that both have."""

import numpy as np
import pytest

from aspect.evaluation.significance import holm, paired_test
from aspect.experiment.plan import Entry
from aspect.report.benchmark.collection import collect
from aspect.report.benchmark.comparisons import find_head, significance_tables, undecidable
from aspect.report.benchmark.scores import Place
from report.benchmark_records import ABLATION, evade, make_records, poison

GRAPHS = ("cora", "citeseer", "pubmed", "texas", "actor", "squirrel")


def by_split(records, entry, graph, perturbation=None):
    place = Place(entry, graph, "class-balanced", perturbation)
    return list(collect(records).find(place).by_split().values())


def test_numbers_are_those_of_the_paired_test_after_holm():
    records = make_records(["aspect", "low", "raw"], ["cora", "texas"], splits=10)
    (table,) = significance_tables(records)
    assert [line.title for line in table.lines] == ["low", "raw"]
    tests = [
        paired_test(by_split(records, "aspect", graph), by_split(records, rival, graph))
        for rival in ("low", "raw")
        for graph in ("cora", "texas")
    ]
    corrected = holm([test.corrected_p_value for test in tests])
    cells = [cell for line in table.lines for cell in line.cells[:2]]
    for cell, test, p_value in zip(cells, tests, corrected, strict=True):
        assert (cell.value, cell.low, cell.high) == (test.difference, test.low, test.high)
        assert cell.p_value == max(p_value, test.p_value)
        assert cell.decided == (cell.p_value < 0.05)


def test_a_large_lead_is_decided_in_a_large_table():
    """The smallest chance of ten flipped signs, 0.002, must not be multiplied by a hundred."""

    def score(entry, split, **_):
        luck = np.random.default_rng(split + 100 * len(entry)).normal()
        return 80 + luck + (10 if entry == "aspect" else 0)

    rivals = [f"rival-{number}" for number in range(20)]
    (table,) = significance_tables(
        make_records(["aspect", *rivals], GRAPHS, seeds=1, splits=10, score=score)
    )
    assert all(cell.decided for line in table.lines for cell in line.cells[:6])
    assert {line.cells[6].text for line in table.lines} == {"6 / 0 / 0"}


def test_equals_are_ties():
    (table,) = significance_tables(
        make_records(["aspect", "low"], GRAPHS, splits=10, score=lambda split, **_: 80 + split)
    )
    (line,) = table.lines
    assert [cell.value for cell in line.cells[:6]] == [0.0] * 6
    assert [cell.p_value for cell in line.cells[:6]] == [1.0] * 6
    assert line.cells[6].text == "0 / 6 / 0"
    assert line.cells[7].p_value == 1.0


def test_over_graphs_signs_are_flipped_where_there_are_six():
    def score(entry, split, graph, **_):
        return 70 + split + (len(graph) if entry == "aspect" else 0)

    (table,) = significance_tables(make_records(["aspect", "low"], GRAPHS, splits=6, score=score))
    overall = table.lines[0].cells[7]
    assert overall.value == pytest.approx(np.mean([len(graph) for graph in GRAPHS]))
    assert overall.p_value == pytest.approx(2 / 2**6)
    (few,) = significance_tables(make_records(["aspect", "low"], GRAPHS[:5], splits=6, score=score))
    assert few.lines[0].cells[6].p_value is None


def test_over_graphs_claims_are_corrected_for_the_rivals_and_can_be_decided():
    """Six graphs won are one chance in 32 by their signs: no rival may multiply that."""

    def score(entry, split, graph, **_):
        return 70 + split + (5 + 0.1 * len(graph) if entry == "aspect" else 0)

    (table,) = significance_tables(
        make_records(["aspect", "low", "raw", "high"], GRAPHS, splits=6, score=score)
    )
    assert all(line.cells[-1].decided for line in table.lines)
    leads = [5 + 0.1 * len(graph) for graph in GRAPHS]
    test = paired_test(leads, [0.0] * 6, test_to_train=0.0)
    expected = max(3 * test.corrected_p_value, test.p_value)
    assert [line.cells[-1].p_value for line in table.lines] == pytest.approx([expected] * 3)


def test_the_mean_over_graphs_counts_the_nodes_of_texas_once():
    def score(entry, split, graph, **_):
        return 70 + split + ((10 if graph == "cornell_old" else 1) if entry == "aspect" else 0)

    for other, mean in (("texas", 1.0), ("cora", 5.5)):
        records = make_records(["aspect", "low"], [other, "cornell_old"], splits=6, score=score)
        (table,) = significance_tables(records)
        assert table.lines[0].cells[-1].value == pytest.approx(mean)
        assert len(table.notes) == (other == "texas")


def test_behind_is_lost():
    def score(entry, split, **_):
        return 80 + split + (0 if entry == "aspect" else 5 + 0.1 * split)

    (table,) = significance_tables(
        make_records(["aspect", "low"], ["cora"], splits=10, score=score)
    )
    assert table.lines[0].cells[1].text == "0 / 0 / 1"
    assert table.lines[0].cells[0].value < 0


def test_pairs_are_formed_over_common_splits_and_fewer_are_told():
    records = make_records(
        ["aspect", "low", "raw"],
        ["cora"],
        [poison()],
        splits=7,
        missing=[lambda each: (each.cell.entry, each.scores[0].split) == ("low", 2)],
    )
    (table,) = significance_tables(records)
    ours, theirs = (by_split(records, entry, "cora", poison()) for entry in ("aspect", "low"))
    del ours[2]
    assert table.lines[0].cells[0].value == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert table.lines[0].cells[0].footnote == 1
    assert table.notes == ("[1] Over the 6 splits that both have.",)
    assert table.lines[1].cells[0].footnote == 0


def test_too_few_splits_give_no_test_and_count_nowhere():
    def missing(record):
        return record.cell.graph == "texas" and record.scores[0].split > 4

    records = make_records(
        ["aspect", "low"], ["cora", "texas"], [poison()], splits=6, missing=[missing]
    )
    (table,) = significance_tables(records)
    assert table.lines[0].cells[1].text == "- [1]"
    assert table.notes == ("[1] No test: fewer than 6 splits in common.",)
    assert "over 1 comparison." in table.caption


@pytest.mark.parametrize(("splits", "tables"), [(1, 0), (5, 0), (6, 1)])
def test_a_table_that_could_decide_nothing_is_left_out_by_name(splits, tables):
    """The signs of five pairs have no chance below 1/16, those of six one of 1/32."""
    records = make_records(
        ["aspect", "low"], ["cora"], splits=splits, score=lambda entry, **_: 60 + len(entry)
    )
    found = significance_tables(records)
    assert len(found) == tables
    assert all(table.lines[0].cells[0].decided for table in found)
    assert undecidable(records) == (["clean graphs"] if not tables else [])
    assert undecidable(make_records(["aspect"], splits=2)) == []  # nobody to compare with


def test_variants_are_no_rivals():
    """They would weaken what Holm's rule leaves of the others."""
    (table,) = significance_tables(make_records([*ABLATION, "raw"], splits=6))
    assert [line.title for line in table.lines] == ["raw"]


def with_ratio(records, ratio):
    return [
        record.model_copy(
            update={
                "scores": tuple(
                    each.model_copy(update={"test_to_train": ratio}) for each in record.scores
                )
            }
        )
        for record in records
    ]


def interval(records):
    cell = significance_tables(records)[0].lines[0].cells[0]
    return cell.high - cell.low


@pytest.mark.parametrize(
    ("ratio", "told", "changes"),
    [
        (1 / 3, None, {}),
        (0.61, 0.61, {}),
        (3 / 4, None, {"missing_in_test": (1,)}),  # some classes are in training whole
        (0.61, 0.61, {"missing_in_test": (1,)}),
        (1 / 2, None, {"split_kind": "published"}),
        (1 / 3, None, {"split_kind": "random", "missing_in_test": (1,)}),
    ],
)
def test_the_interval_is_widened_by_the_ratio_of_test_to_training_nodes(ratio, told, changes):
    records = make_records(["aspect", "low"], ["texas"], splits=10)
    changed = make_records(["aspect", "low"], ["texas"], splits=10, **changes)
    expected = np.sqrt((0.1 + ratio) / (0.1 + 1 / 3))
    assert interval(with_ratio(changed, told)) == pytest.approx(expected * interval(records))


def test_every_perturbation_has_its_table():
    attacks = [None, poison(), evade(0.2)]
    tables = significance_tables(make_records(perturbations=attacks, splits=6))
    assert [table.name for table in tables] == [
        "significance",
        "significance-random-poison-10",
        "significance-random-evade-20",
    ]


@pytest.mark.parametrize(
    ("entries", "head"),
    [
        (["low", "aspect"], "aspect"),
        (["raw", Entry(name="low", group="low"), "random"], "low"),
        (["raw", "low"], "raw"),
        (ABLATION[::-1], "aspect"),
    ],
)
def test_the_head_is_ours_or_a_groups_or_the_first(entries, head):
    assert find_head(collect(make_records(entries))) == head


def test_one_entry_has_no_rival():
    assert significance_tables(make_records(["aspect"])) == []
    assert significance_tables([]) == []
