"""The page: everything is on it, nothing comes from outside, every name is text."""

import csv
import io
import re

import pytest

from aspect.experiment.plan import Entry
from aspect.report.html import PALETTE
from aspect.report.page import findings, grids, render_page, sections
from aspect.report.plots import Plot
from aspect.report.results import collect
from aspect.report.sources import Material
from aspect.report.tables import Table
from report.benchmark_records import ABLATION, NASTY, evade, fail, make_records, metattack, poison
from report.node_details import NASTY as NASTY_ID
from report.node_details import make_details, plain_details
from report.parsed_page import ParsedPage

COMMANDS = ("aspect bench plan", "aspect report runs/plan")


def material_of(records, details=()):
    return Material(collect(records), tuple(details), COMMANDS)


def sections_of(records, details=(), **options):
    return sections(material_of(records, details), **options)


def section(records, name, **options):
    (found,) = [part for part in sections_of(records, **options) if part.name == name]
    return found


def failing(record):
    return record.cell.entry == "low" and record.cell.graph == "texas"


@pytest.fixture(scope="module")
def material():
    entries = (*ABLATION, "low", Entry(name="raw", title="Raw features", note="as they are"))
    records = make_records(entries, perturbations=(None, poison(0.1), poison(0.2)))
    failed = [fail(record) if failing(record) else record for record in records]
    return material_of(failed, (make_details(), plain_details()))


@pytest.fixture(scope="module")
def parts(material):
    return sections(material)


@pytest.fixture(scope="module")
def page_text(material, parts):
    return render_page(material, parts)


@pytest.fixture(scope="module")
def page(page_text):
    return ParsedPage(page_text)


def test_sections_in_reading_order_without_empty_ones():
    attacks = [None, poison(0.1), poison(0.2)]
    full = sections_of(make_records([*ABLATION, "raw"], perturbations=attacks, splits=6))
    names = ["accuracy", "clean", "perturbed", "ablation", "sweep", "significance", "runtime"]
    assert [part.name for part in full] == [*names, "again"]
    assert all(part.all_tables or part.plots for part in full[:-1])
    tables = [table.name for part in full for table in part.all_tables]
    assert len(set(tables)) == len(tables)
    for part in full:  # variants stand in the ablation alone
        titles = {line.title for table in part.all_tables for line in table.lines}
        assert ("Global fusion" in titles) == (part.name == "ablation"), part.name
    alone = sections_of(make_records(["aspect"]))
    assert [part.name for part in alone] == ["accuracy", "clean", "runtime", "again"]
    assert [part.name for part in sections_of([])] == ["again"]
    failures = sections_of([fail(record) for record in make_records()])
    assert [part.name for part in failures] == ["failed", "again"]


def test_models_are_shown_between_scores_and_runtime():
    parts = sections_of(make_records(["aspect"]), [make_details()])
    gates = ["gate", "evidence", "sensitivity", "homophily"]
    seen = [*gates, "filters", "attacked", "training", "nodes"]
    assert [part.name for part in parts] == ["accuracy", "clean", *seen, "runtime", "again"]
    assert all(part.plots for part in parts[2:9])
    bare = sections_of([], [plain_details()])
    assert [part.name for part in bare] == ["nodes", "again"]


def test_trainings_beyond_three_are_folded_and_none_is_lost():
    details = [make_details(graph=f"g{number}") for number in range(5)]
    training = next(part for part in sections_of([], details) if part.name == "training")
    assert len(training.plots) == 3 + 3 + 3
    assert len(training.more_plots) == 2 + 2 + 4 * 3
    assert training.more_title == "16 more figures"


def test_correlations_are_printed_by_graph_or_by_model():
    def told(details, name="evidence"):
        return next(part.remark for part in sections_of([], details) if part.name == name)

    up = make_details()  # the gate is the cost gap, moved
    down = make_details(graph="down", gate=tuple(reversed(up.gate)))
    assert told([up, down]).endswith("of gate and cost gap: ring 1.00; down -1.00.")
    other = make_details(title="Other")
    assert told([up, other]).endswith("ASPECT on ring 1.00; Other on ring 1.00.")
    many = [make_details(6, graph=f"g{k}") for k in range(13)]
    assert told(many).endswith("g9 1.00; and 3 more.")
    assert "gate and local homophily:" in told([up], "homophily")
    assert "Spearman" not in told([make_details(gate=(0.5,) * 24)])


def test_of_several_budgets_one_is_shown_and_the_others_are_folded():
    few = make_records(perturbations=[None, poison(0.05), poison(0.1), poison(0.2)], splits=2)
    part = section(few, "perturbed")
    assert [table.name for table in part.tables] == ["perturbed-random-poison-10"]
    names = [table.name for table in part.more_tables]
    drops = [f"drop-random-poison-{budget}" for budget in (5, 10, 20)]
    assert names == [*drops, "perturbed-random-poison-5", "perturbed-random-poison-20"]
    assert "unrolled solver" not in part.remark
    more = make_records(
        perturbations=[poison(0.2), evade(0.3), metattack()], splits=3, plan="other"
    )
    part = section([*few, *more], "perturbed")
    assert [table.name for table in part.tables] == [
        "perturbed-metattack-unrolled-poison-10",
        "perturbed-random-poison-20",
        "perturbed-random-evade-30",
    ]
    assert "unrolled solver is that of the original" in part.remark


def test_too_few_splits_are_said_rather_than_shown():
    few = make_records(perturbations=[None, poison(0.1)], splits=5)
    part = section(few, "significance")
    assert part.tables == ()
    assert part.remark.startswith("Left out: clean graphs, random 10% (poison); with fewer")
    part = section([*few, *make_records(splits=6, plan="other")], "significance")
    assert [table.name for table in part.tables] == ["significance"]
    assert "Left out: random 10% (poison); " in part.remark


LEVELS = {
    ("aspect", "cora"): 80.0,
    ("aspect", "texas"): 70.0,
    ("low", "cora"): 70.0,
    ("low", "texas"): 75.0,
    ("raw", "cora"): 60.0,
    ("raw", "texas"): 60.0,
}


def test_findings_name_ranks_best_methods_significance_and_drops():
    def score(entry, graph, perturbation, split, **_):
        return LEVELS[entry, graph] * (0.9 if perturbation and entry == "aspect" else 1) + split

    attacks = [None, poison()]
    results = collect(make_records(perturbations=attacks, splits=6, score=score))
    where = "2 clean graphs (class-balanced splits)"
    assert findings(results) == [
        "3 methods on 2 graphs, clean and under 1 perturbation, with 2 pre-training seeds and "
        "6 class-balanced splits: 84 of 84 runs are done.",
        f"Best average ranks over {where}: aspect 1.5, low 1.5, raw 3.0.",
        f"Highest accuracy on {where}: aspect on 1, low on 1.",
        f"aspect against the others on {where}: significantly better in 3 of 4 comparisons, "
        "significantly worse in 1, not significant in 0 (5%, Holm's correction).",
        "Smallest average drop under random 10%, poison (class-balanced splits): low 0.0%, "
        "raw 0.0%, aspect 9.7%.",
    ]
    assert (
        f"low against the others on {where}: significantly better in 3"
        in findings(results, "low")[3]
    )


def test_what_looks_equal_is_a_tie():
    levels = {**LEVELS, ("aspect", "texas"): 75.001}
    results = collect(make_records(score=lambda entry, graph, **_: levels[entry, graph]))
    assert findings(results)[2].endswith("aspect on 2, low on 1 (ties count for each).")


def test_findings_rank_without_graphs_whose_nodes_are_there_twice():
    graphs = ("texas", "wisconsin", "cornell_old")
    sentences = findings(collect(make_records(["aspect", "raw"], graphs)))
    assert any(each.startswith("Best average ranks over 2 clean graphs") for each in sentences)
    assert any(each.startswith("Highest accuracy on 3 clean graphs") for each in sentences)


def test_findings_count_failures_and_variants():
    records = make_records([*ABLATION, "low"], failed=[lambda each: each.cell.entry == "low"])
    first, second, *_ = findings(collect(records))
    assert first.startswith("2 methods and 2 variants on 2 graphs, clean, with")
    assert second.startswith("4 runs failed and left a gap in the tables;")
    single = make_records(("aspect",), ("cora",), (poison(0.1),), seeds=1, splits=1)
    assert findings(collect(single)) == [
        "1 method on 1 graph, under 1 perturbation, with 1 pre-training seed and "
        "1 class-balanced split: 1 of 1 run is done."
    ]
    warned = [
        record.model_copy(update={"warnings": ("representation collapse.",)})
        for record in make_records(["aspect"], ["cora"], seeds=2)
    ]
    assert findings(collect(warned))[-1].startswith("2 runs ended with a warning")
    assert findings(collect([])) == [
        "Nothing was scored: the graphs have no labels, or no run was."
    ]


def test_all_sections_are_on_the_page(parts, page, page_text):
    tables = [table for part in parts for table in part.all_tables]
    plots = [plot for part in parts for plot in part.all_plots]
    ids = set(page.ids)
    assert len(tables) >= 8
    assert {f"table-{table.name}" for table in tables} <= ids
    assert {plot.name for plot in plots} <= ids
    for table in tables:
        for line in table.lines:
            for cell in line.cells:
                assert " ".join(cell.text.split()) in page.text
    assert page_text.count("<svg ") == len(plots)
    pictures = "".join(re.findall(r"<svg.*?</svg>", page_text, flags=re.DOTALL))
    assert not any(colour in pictures for colour in PALETTE.values())


def test_the_page_begins_with_findings_and_ends_with_what_was_run(page, material):
    failed = int((material.results.runs["status"] == "failed").sum())
    assert f"{failed} runs failed and left a gap" in page.text
    assert page.text.count("The loss is no longer a number after epoch 3.") >= failed
    lines = page.text[page.text.rindex("Failed runs") :]
    assert lines.count("random 20% (poison)") == 8  # two seeds, four splits
    assert page.text.index("Best average ranks") < page.text.index("Accuracy and ranks")
    assert "aspect bench plan aspect report runs/plan" in page.text
    assert "policy_weight" in page.text  # a setting of one variant alone
    assert "a processor" in page.text
    tips = [attributes["data-tip"] for _, attributes in page.tags if "data-tip" in attributes]
    assert any("2 seeds, 4 splits: 8 scores" in tip and "optimistic rule" in tip for tip in tips)


def test_the_title_is_the_users_or_the_plans(material):
    plain = Material(material.results, (), COMMANDS, title="Plan <1>")
    assert "<h1>Plan &lt;1&gt;</h1>" in render_page(plain, [])
    assert "<h1>Mine</h1>" in render_page(plain, [], title="Mine")
    assert "<h1>Node embeddings, compared</h1>" in render_page(material, [])


def test_nothing_comes_from_outside(page_text, page):
    addresses = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert all(each.startswith(("#", "data:text/plain;")) for each in addresses)
    assert not any("src" in attributes for _, attributes in page.tags)
    assert not re.search(r"https?:|@import", page_text)
    policy = next(tag["content"] for _, tag in page.tags if "Content-Sec" in str(tag))
    assert policy.startswith("default-src 'none';")


def test_ids_are_unique_and_anchors_find_them(page):
    page.check_names()


def test_the_same_material_gives_the_same_bytes(material, page_text):
    assert render_page(material) == page_text


@pytest.mark.filterwarnings("error")
def test_hostile_names_stay_text():
    entries = [
        Entry(name=name, title=name, note=name, group=NASTY[0], set={"n": number})
        for number, name in enumerate(NASTY)
    ]
    attacks = [None, poison(0.1, solver=NASTY[2]), poison(0.2, solver=NASTY[2])]
    records = make_records(entries, (NASTY[0], NASTY[2]), attacks, seeds=1, splits=6)
    records = [fail(records[0], NASTY[0]), *records[1:]]
    records[1] = records[1].model_copy(
        update={"device": NASTY[0], "notices": (NASTY[0],), "warnings": (NASTY[0],)}
    )
    details = make_details(
        title=NASTY[0], graph=NASTY[0], ids=(NASTY_ID,) * 24, class_names=(NASTY[0],) * 3
    )
    material = Material(collect(records), (details, details), (NASTY[0],))
    parts = sections(material)
    page = ParsedPage(render_page(material, parts, title=NASTY[0]))
    kinds = page.counts
    assert (kinds["img"], kinds["title"]) == (0, 1)
    assert kinds["script"] == 2  # the page's own, and the data of the nodes
    assert page.text.count(NASTY[0]) > 10
    page.check_names()
    tables = [table for part in parts for table in part.all_tables]
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert re.fullmatch(r"[a-z0-9-]+", table.name), table.name
        check_cells(table)


def check_cells(table):
    """No name adds a column, a formula or markup to any form of the table."""
    width = len(table.columns) + 1
    for line in table.to_markdown_with_caption().splitlines():
        assert not re.search(r"(?<!\\)[<>`]", line)
    for line in table.to_markdown().splitlines():
        assert re.sub(r"\\.", "", line).count("|") == width + 1
    for row in csv.reader(io.StringIO(table.to_csv())):
        assert not any(text.startswith(("=", "@")) for text in row)
    rows = [line for line in table.to_latex().splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(table.lines) + 1
    for line in rows:
        assert line.replace(r"\&", "").count("&") == width - 1


def test_runs_without_labels_have_a_page_of_their_own():
    (record,) = make_records(("aspect",), ("mine.csv",), seeds=1)
    bare = record.model_copy(update={"scores": (), "notices": ("The graph has no labels.",)})
    page = ParsedPage(render_page(material_of([bare], [plain_details()])))
    assert "The graph has no labels." in page.text
    assert "Node by node" in page.text
    assert "Clean graphs" not in page.text


def test_captions_are_cut_at_their_first_pause_and_shared_ones_printed_once():
    for caption, head in (
        ("Cost, in all. Peak", "Cost, in all"),
        ("Under 0.5% (edges)", "Under 0.5%"),
        ("Plain", "Plain"),
    ):
        first, rest = Table("t", caption, (), ()).headline
        assert (first, first + rest) == (head, caption)
    plots = [Plot("p", "t", caption, "a", str) for caption in "aabbc"]
    found = [(caption, len(group)) for caption, group in grids(plots)]
    assert found == [("a", 2), ("b", 2), ("", 1)]
