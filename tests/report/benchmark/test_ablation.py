"""Ablations: variants beside their head."""

import pytest

from aspect.experiment.plan import Entry
from aspect.report.benchmark.ablation import ablation_tables
from report.benchmark_records import ABLATION, make_records, metattack, poison

LEVEL = {"aspect": 80.0, "aspect-global": 78.0, "aspect-no-policy": 81.0, "raw": 99.0}


def level(entry, perturbation, split, **_):
    return LEVEL[entry] + split - (10 if perturbation else 0)


def test_columns_are_graphs_by_states_and_others_take_no_part():
    records = make_records([*ABLATION, "raw"], perturbations=[None, poison()], score=level)
    accuracy, difference = ablation_tables(records)
    assert accuracy.columns == difference.columns
    assert accuracy.columns == (
        "cora, clean",
        "cora, random 10%",
        "texas, clean",
        "texas, random 10%",
    )
    assert accuracy.caption.endswith("over 4 class-balanced splits, 2 pre-training seeds each.")
    titles = ["ASPECT", "Global fusion", "Without policy loss"]
    assert [line.title for line in accuracy.lines] == titles
    assert [line.cells[0].value for line in accuracy.lines] == [81.5, 79.5, 82.5]
    assert [line.cells[0].mark for line in accuracy.lines] == ["second", "", "best"]
    assert [line.cells[1].value for line in accuracy.lines] == [71.5, 69.5, 72.5]
    assert [line.title for line in difference.lines] == titles[1:]
    assert [line.cells[0].value for line in difference.lines] == pytest.approx([-2.0, 1.0])
    assert (accuracy.name, difference.name) == ("ablation-aspect", "ablation-aspect-difference")


def test_clean_graphs_alone_go_by_their_names():
    assert ablation_tables(make_records(ABLATION))[0].columns == ("cora", "texas")


def test_every_group_has_its_tables_and_the_head_comes_first():
    others = [
        Entry(name="low-wide", method="low", group="low", set={"width": 9}),
        Entry(name="low", group="low"),
    ]
    tables = ablation_tables(make_records([*ABLATION, *others]))
    assert [table.name for table in tables][::2] == ["ablation-aspect", "ablation-low"]
    assert [line.title for line in tables[2].lines] == ["low", "low-wide"]


def test_a_failed_variant_is_a_gap():
    records = make_records(
        ABLATION, ["cora"], failed=[lambda record: record.cell.entry == "aspect-global"]
    )
    accuracy, difference = ablation_tables(records)
    assert accuracy.lines[1].cells[0].text == "- [1]"
    assert difference.lines[0].cells[0].text == "-"


def test_published_figures_stand_beside_ours():
    attacks = [metattack(), metattack(solver="implicit")]
    records = make_records(ABLATION, ["cora"], [None, poison(), *attacks])
    accuracy, _ = ablation_tables(records, with_published=True)
    beside = {
        line.title: [cell.published for cell in line.cells]
        for line in accuracy.lines
        if any(cell.published for cell in line.cells)
    }
    assert list(beside) == ["ASPECT", "Global fusion"]
    assert accuracy.columns == (
        "cora, clean",
        "cora, metattack (unrolled) 10%",
        "cora, metattack (implicit) 10%",
        "cora, random 10%",
    )
    assert beside["Global fusion"] == [87.49, 83.2, None, None]
    assert "Li, Yang and Chen, 2026, Table 3" in accuracy.caption


def test_the_papers_figures_of_the_method_stand_beside_a_head_of_any_name():
    entries = [
        Entry(name="aspect-fused", method="aspect", title="Ours", group="aspect-fused"),
        Entry(name="aspect-half", method="aspect", group="aspect-fused"),
    ]
    accuracy, _ = ablation_tables(make_records(entries, ["cora"]), with_published=True)
    assert [line.cells[0].published for line in accuracy.lines] == [88.94, None]


def test_no_groups_no_tables():
    assert ablation_tables(make_records()) == []
    assert ablation_tables(make_records(ABLATION[1:])) == []  # variants of nothing
