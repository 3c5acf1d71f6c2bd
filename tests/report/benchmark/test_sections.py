"""All tables of a benchmark, also under hostile names."""

import csv
import io
import re

import pytest

from aspect.benchmark.plan import Entry
from aspect.report.benchmark.sections import benchmark_tables
from report.benchmark_records import ABLATION, NASTY, fail, make_records, poison


def test_sections_in_reading_order_without_empty_ones():
    attacks = [None, poison(0.1), poison(0.2)]
    full = benchmark_tables(make_records([*ABLATION, "raw"], perturbations=attacks))
    assert [section.name for section in full] == [
        "clean",
        "perturbed",
        "ablation",
        "sweep",
        "significance",
        "cost",
    ]
    assert all(section.text and section.tables for section in full)
    names = [table.name for section in full for table in section.tables]
    assert len(set(names)) == len(names)
    alone = benchmark_tables(make_records(["aspect"]))
    assert [section.name for section in alone] == ["clean", "cost"]
    assert benchmark_tables([]) == []


def test_nothing_but_failures_still_shows_the_gaps():
    sections = benchmark_tables([fail(record) for record in make_records()])
    (clean, *_) = sections[0].tables
    assert {cell.text for line in clean.lines for cell in line.cells} == {"- [1]"}


def test_published_figures_are_optional():
    records = make_records(["aspect"], ["cora"])
    for wanted in (True, False):
        sections = benchmark_tables(records, with_published=wanted)
        assert any(line.apart for line in sections[0].tables[0].lines) == wanted


@pytest.fixture(scope="module")
def hostile():
    entries = [
        Entry(name=name, title=name, note=name, group=NASTY[0], set={"n": number})
        for number, name in enumerate(NASTY)
    ]
    records = make_records(
        entries,
        NASTY,
        [None, poison(0.1, solver=NASTY[2]), poison(0.2, solver=NASTY[2])],
        failed=[lambda record: record.cell.work.seed == 1],
        splits=3,
    )
    return [
        table
        for section in benchmark_tables([fail(records[0], NASTY[0]), *records[1:]])
        for table in section.tables
    ]


def test_names_of_tables_are_letters_digits_and_dashes(hostile):
    for table in hostile:
        assert re.fullmatch(r"[a-z0-9-]+", table.name), table.name
    assert len({table.name for table in hostile}) == len(hostile)


def test_hostile_names_stay_in_their_cells(hostile):
    for table in hostile:
        width = len(table.columns) + 1
        for line in table.to_markdown().splitlines():
            assert re.sub(r"\\.", "", line).count("|") == width + 1
            assert not re.search(r"(?<!\\)[<>`]", line)
        for row in csv.reader(io.StringIO(table.to_csv())):
            assert not any(text.startswith(("=", "@")) for text in row)
        rows = [line for line in table.to_latex().splitlines() if line.endswith(r"\\")]
        assert len(rows) == len(table.lines) + 1
        for line in rows:
            assert line.replace(r"\&", "").count("&") == width - 1


def test_hostile_errors_are_escaped_in_notes(hostile):
    clean = hostile[0]
    assert any("onerror" in note for note in clean.notes)
    assert not re.search(r"(?<!\\)<", clean.to_markdown_with_caption())
