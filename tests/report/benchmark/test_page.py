"""The benchmark's page: everything is on it, nothing comes from outside, every name is text."""

import csv
import io
import json
import re
from collections import Counter
from urllib.parse import unquote

import pytest

from aspect.experiment.plan import Entry
from aspect.report.benchmark.chapters import Chapter, chapters
from aspect.report.benchmark.page import benchmark_page
from aspect.report.benchmark.sources import Material
from aspect.report.html import downloads, headline
from aspect.report.tables import Cell, Line, Table
from report.benchmark_records import ABLATION, NASTY, fail, make_records, poison
from report.node_details import NASTY as NASTY_ID
from report.node_details import make_details, plain_details
from report.test_html import Page

COMMANDS = ("aspect bench plan", "aspect report runs/plan")


def failing(record):
    return record.cell.entry == "low" and record.cell.graph == "texas"


@pytest.fixture(scope="module")
def material():
    entries = (*ABLATION, "low", Entry(name="raw", title="Raw features", note="as they are"))
    records = make_records(entries, perturbations=(None, poison(0.1), poison(0.2)))
    failed = [fail(record) if failing(record) else record for record in records]
    return Material(tuple(failed), (make_details(), plain_details()), COMMANDS)


@pytest.fixture(scope="module")
def parts(material):
    return chapters(material)


@pytest.fixture(scope="module")
def page_text(material, parts):
    return benchmark_page(material, parts)


@pytest.fixture(scope="module")
def page(page_text):
    return Page(page_text)


def test_all_that_is_found_is_on_the_page(parts, page, page_text):
    tables = [table for part in parts for table in part.all_tables]
    drawings = [drawing for part in parts for drawing in part.all_drawings]
    ids = {attributes.get("id") for _, attributes in page.tags}
    assert len(tables) >= 8
    assert {f"table-{table.name}" for table in tables} <= ids
    assert {drawing.name for drawing in drawings} <= ids
    for table in tables:
        for line in table.lines:
            for cell in line.cells:
                assert " ".join(cell.text.split()) in page.text
    assert page_text.count("<svg ") == len(drawings)


def test_the_head_counts_the_cells_and_the_foot_lists_the_failed(page, material):
    failed = sum(failing(record) for record in material.records)
    assert f"{failed} cells failed and left a gap" in page.text
    assert page.text.count("The loss is no longer a number after epoch 3.") >= failed
    assert "aspect bench plan aspect report runs/plan" in page.text
    assert "policy_weight" in page.text  # a setting of one entry alone
    assert "a processor" in page.text


LEVELS = {
    ("aspect", "cora"): 80.0,
    ("aspect", "texas"): 70.0,
    ("low", "cora"): 70.0,
    ("low", "texas"): 75.0,
    ("raw", "cora"): 60.0,
    ("raw", "texas"): 60.0,
}


@pytest.mark.parametrize(
    ("changed", "splits", "told"),
    [
        ({}, 6, "2 clean graphs: aspect on 1, low on 1; whether by more than luck, the"),
        ({}, 4, "2 clean graphs: aspect on 1, low on 1. cells"),  # nothing is tested
        ({("aspect", "texas"): 75.0}, 4, "2 clean graphs: aspect on 2, low on 1 (ties count for"),
        ({("aspect", "texas"): 75.001}, 4, "2 clean graphs: aspect on 2, low on 1 (ties count"),
        ({("aspect", "texas"): 76.0}, 4, "2 clean graphs: aspect on 2. cells"),
    ],
)
def test_the_head_says_who_is_best_where(changed, splits, told):
    levels = {**LEVELS, **changed}
    records = make_records(score=lambda entry, graph, **_: levels[entry, graph], splits=splits)
    page = Page(benchmark_page(Material(tuple(records), (), COMMANDS)))
    assert f"Highest accuracy on {told}" in page.text


def test_variants_are_not_ranked_in_the_head():
    def score(entry, **_):
        return 90.0 if entry == "aspect-global" else 70.0 - len(entry)

    records = make_records([*ABLATION, "low"], score=score)
    page = Page(benchmark_page(Material(tuple(records), (), COMMANDS)))
    assert page.text.count("2 methods and 2 variants on 2 graphs") == 1
    assert "Highest accuracy on 2 clean graphs: low on 2." in page.text


def test_a_cell_carries_what_stands_behind_it(page):
    tips = [attributes["data-tip"] for _, attributes in page.tags if "data-tip" in attributes]
    assert any(
        "2 seeds, 4 splits: 8 scores" in tip and "95% interval" in tip and "optimistic rule" in tip
        for tip in tips
    )


def test_nothing_comes_from_outside(page_text, page):
    addresses = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert all(each.startswith(("#", "data:text/plain;")) for each in addresses)
    assert not any("src" in attributes for _, attributes in page.tags)
    assert not re.search(r"https?:|@import", page_text)
    policy = next(tag["content"] for _, tag in page.tags if "Content-Sec" in str(tag))
    assert policy.startswith("default-src 'none';")


def test_ids_are_unique_and_anchors_find_them(page):
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    anchors = {tag["href"][1:] for _, tag in page.tags if tag.get("href", "").startswith("#")}
    assert anchors <= set(ids)


def test_the_same_material_gives_the_same_bytes(material, page_text):
    assert benchmark_page(material) == page_text


def test_the_nodes_are_in_the_page(page_text):
    found = re.search(
        r'<script type="application/json" id="explorer-data">(.*?)</script>', page_text
    )
    assert [model["graph"] for model in json.loads(found[1])] == ["ring", "bare"]


@pytest.mark.filterwarnings("error")
def test_hostile_names_stay_text():
    entries = [Entry(name=name, title=name, note=name, group=NASTY[0]) for name in NASTY]
    records = make_records(entries, (NASTY[0], NASTY[2]), (None, poison(0.1), poison(0.2)))
    records = [fail(records[0], NASTY[0]), *records[1:]]
    records[1] = records[1].model_copy(
        update={"device": NASTY[0], "notices": (NASTY[0],), "warnings": (NASTY[0],)}
    )
    details = make_details(
        title=NASTY[0], graph=NASTY[0], ids=(NASTY_ID,) * 24, class_names=(NASTY[0],) * 3
    )
    material = Material(tuple(records), (details, details), (NASTY[0],))
    text = benchmark_page(material, title=NASTY[0])
    page = Page(text)
    kinds = Counter(tag for tag, _ in page.tags)
    assert kinds["img"] == 0
    assert kinds["title"] == 1
    assert kinds["script"] == 2  # the page's own, and the data of the nodes
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count(NASTY[0]) > 10
    test_ids_are_unique_and_anchors_find_them(page)


def test_runs_without_labels_have_a_page_of_their_own():
    (record,) = make_records(("aspect",), ("mine.csv",), seeds=1)
    bare = record.model_copy(update={"scores": (), "notices": ("The graph has no labels.",)})
    page = Page(benchmark_page(Material((bare,), (plain_details(),), COMMANDS)))
    assert "The graph has no labels." in page.text
    assert "Node by node" in page.text
    assert "Clean graphs" not in page.text


def test_records_alone_make_a_page():
    page = Page(benchmark_page(Material(tuple(make_records()), (), COMMANDS), title="Mine"))
    assert "Mine" in page.text
    assert "Node by node" not in page.text
    assert not any(attributes.get("id") == "explorer-data" for _, attributes in page.tags)


def test_a_table_can_be_saved_as_it_is():
    table = Table("t", "A caption.", ("x",), (Line("=cmd()", "", (Cell(1.5, std=0.5),)),))
    files = {each.file: unquote(each.address.partition(",")[2]) for each in downloads(table)}
    assert list(files) == ["t.csv", "t.md", "t.tex"]
    assert files["t.csv"] == table.to_csv()
    assert files["t.tex"] == table.to_latex()
    rows = list(csv.reader(io.StringIO(files["t.csv"])))
    assert rows[1][0] == "'=cmd()"


def number(text):
    return f'<span class="number">{text}</span>'


@pytest.mark.parametrize(
    ("cell", "markup"),
    [
        (Cell(1.5, std=0.25), number("1.50 ± 0.25")),
        (Cell(1.5, footnote=1), number("1.50 [1]")),
        (
            Cell(1.5, std=0.25, published=2.0),
            f'{number("1.50 ± 0.25")}<span class="interval"> (2.00)</span>',
        ),
        (
            Cell(1.5, low=-1.0, high=2.0),
            f'{number("1.50")}<span class="interval"> (-1.00 to 2.00)</span>',
        ),
        (
            Cell(1.5, low=1.0, high=2.0, p_value=0.01, decided=True),
            f'{number("1.50")}<span class="interval"> (1.00 to 2.00)</span>'
            '<span class="hidden">,</span><span class="interval"> p = 0.010 †</span>',
        ),
        (
            Cell(1.5, p_value=0.5),
            f'{number("1.50")}<span class="hidden">,</span>'
            '<span class="interval"> p = 0.500</span>',
        ),
        (Cell(word="a, p (b)"), "a, p (b)"),
    ],
)
def test_intervals_and_chances_have_lines_of_their_own(cell, markup):
    table = Table("t", "A caption.", ("x",), (Line("m", "", (cell,)),))
    part = Chapter("t", "T", tables=(table,))
    text = benchmark_page(Material((), (), COMMANDS), [part])
    assert re.sub(r"\s+(?=<)", "", text).partition("<td")[2].partition(">")[2].startswith(markup)


@pytest.mark.parametrize(
    ("caption", "head"),
    [
        ("Accuracy; mean", "Accuracy"),
        ("Cost, in all. Peak", "Cost, in all"),
        ("Under 0.5% (edges)", "Under 0.5%"),
        ("How far: difference", "How far"),
        ("Plain", "Plain"),
        ("", ""),
    ],
)
def test_a_caption_is_cut_at_its_first_pause_and_nothing_is_lost(caption, head):
    assert headline(caption)[0] == head
    assert "".join(headline(caption)) == caption
