"""Figures below the published ones: none is left out, none is invented."""

import pytest

from aspect.report.benchmark.published import published
from aspect.report.benchmark.shortfalls import TOLERANCE, shortfall_tables
from report.benchmark_records import make_records

GRAPHS = ("cora", "texas")


def records(differences, **options):
    """Those of ASPECT, so far from the paper's figures."""

    def score(graph, **_):
        return published("aspect", graph, "clean").mean + differences[graph]

    return make_records(["aspect", "raw"], GRAPHS, score=score, **options)


def test_what_is_further_below_has_a_line():
    (table,) = shortfall_tables(records({"cora": -1.9, "texas": -2.1}))
    assert table.name == "clean-below"
    (line,) = table.lines
    assert line.title == "aspect, texas"
    figure = published("aspect", "texas", "clean").mean
    strict, optimistic, paper, difference = (cell.value for cell in line.cells)
    assert (strict, paper) == (pytest.approx(figure - 2.1), figure)
    assert optimistic == pytest.approx(strict + 0.5)
    assert difference == pytest.approx(-2.1)
    assert f"More than {TOLERANCE:g} points below" in table.caption


def test_without_a_shortfall_there_is_no_table():
    assert shortfall_tables(records({"cora": -1.9, "texas": 3.0})) == []


def test_the_papers_figures_are_of_class_balanced_splits():
    assert shortfall_tables(records({"cora": -9.0, "texas": -9.0}, split_kind="random")) == []


def test_what_failed_is_not_below():
    failed = [lambda record: record.cell.graph == "texas"]
    (table,) = shortfall_tables(records({"cora": -9.0, "texas": -9.0}, failed=failed))
    assert [line.title for line in table.lines] == ["aspect, cora"]
    assert table.notes == ()  # those of cells that are not shown would refer to nothing
