"""The parts of a page: what stands where, and tables under hostile names."""

import csv
import io
import re

import pytest

from aspect.experiment.plan import Entry
from aspect.report.benchmark.chapters import chapters
from aspect.report.benchmark.sources import Material
from report.benchmark_records import ABLATION, NASTY, evade, fail, make_records, metattack, poison
from report.node_details import make_details, plain_details


def chapters_of(records, details=(), **options):
    return chapters(Material(tuple(records), tuple(details), ()), **options)


def tables_of(records, name):
    (found,) = [part for part in chapters_of(records) if part.name == name]
    return found


def test_chapters_in_reading_order_without_empty_ones():
    attacks = [None, poison(0.1), poison(0.2)]
    full = chapters_of(make_records([*ABLATION, "raw"], perturbations=attacks, splits=6))
    names = ["clean", "perturbed", "ablation", "sweep", "significance", "cost", "again"]
    assert [part.name for part in full] == names
    assert all(part.text and part.all_tables for part in full[:-1])
    names = [table.name for part in full for table in part.all_tables]
    assert len(set(names)) == len(names)
    alone = chapters_of(make_records(["aspect"]))
    assert [part.name for part in alone] == ["clean", "cost", "again"]
    assert [part.name for part in chapters_of([])] == ["again"]


def test_models_are_shown_between_scores_and_cost():
    parts = chapters_of(make_records(["aspect"]), [make_details()])
    gates = ["gate", "evidence", "sensitivity", "homophily"]
    seen = [*gates, "filters", "attacked", "training", "nodes"]
    assert [part.name for part in parts] == ["clean", *seen, "cost", "again"]
    for part in parts[1:8]:
        assert part.text.endswith(".")
        assert part.drawings


def test_what_models_have_not_is_left_out():
    bare = chapters_of([], [plain_details()])
    assert [part.name for part in bare] == ["nodes", "again"]
    trained = chapters_of([], [plain_details(curves={"loss": (3.0, 2.0)})])
    assert [part.name for part in trained] == ["training", "nodes", "again"]


def test_trainings_beyond_three_are_folded_and_none_is_lost():
    details = [make_details(graph=f"g{number}") for number in range(5)]
    training = next(part for part in chapters_of([], details) if part.name == "training")
    names = [drawing.name for drawing in training.drawings]
    searches = [f"search-{what}-1-g0" for what in ("objective", "sensitivity", "rayleigh")]
    trainings = [
        f"training-{what}-{number}-g{number - 1}"
        for what in ("loss", "gate")
        for number in (1, 2, 3)
    ]
    assert names == [*trainings, *searches]
    assert len(training.more_drawings) == 2 + 2 + 4 * 3
    assert training.more_title == "16 more pictures"


def correlations_told(details, name):
    return next(part.text for part in chapters_of([], details) if part.name == name)


def test_correlations_are_told_by_graph_or_by_model():
    up = make_details()  # the gate is the cost gap, moved
    down = make_details(graph="down", gate=tuple(reversed(up.gate)))
    told = correlations_told([up, down], "evidence")
    assert told.endswith(" correlation of gate and cost gap: ring 1.00; down -1.00.")
    told = correlations_told([up, make_details(title="Other")], "evidence")
    assert told.endswith("ASPECT on ring 1.00; Other on ring 1.00.")
    told = correlations_told([make_details(graph=f"g{k}") for k in range(13)], "evidence")
    assert told.endswith("g9 1.00; and 3 more.")
    told = correlations_told([up, down], "sensitivity")
    assert told.endswith(" correlation of gate and sensitivity gap: ring 1.00; down -1.00.")
    flat = make_details(gate=(0.5,) * 24)
    assert "Spearman" not in correlations_told([flat], "evidence")


def test_variants_stand_in_the_ablation_alone():
    attacks = [None, poison(0.1), poison(0.2)]
    records = make_records([*ABLATION, "raw"], perturbations=attacks, splits=6)
    for part in chapters_of(records):
        titles = {line.title for table in part.all_tables for line in table.lines}
        assert ("Global fusion" in titles) == (part.name == "ablation"), part.name
        assert ("ASPECT" in titles) == (part.name not in ("significance", "again"))


def test_of_several_budgets_one_is_shown_and_the_others_are_folded():
    few = make_records(perturbations=[None, poison(0.05), poison(0.1), poison(0.2)], splits=2)
    part = tables_of(few, "perturbed")
    assert [table.name for table in part.tables] == ["perturbed-random-poison-10"]
    assert [table.name for table in part.more_tables] == [
        "perturbed-random-poison-5",
        "perturbed-random-poison-20",
    ]
    more = make_records(perturbations=[poison(0.2), evade(0.3)], splits=3, plan="other")
    part = tables_of([*few, *more], "perturbed")
    assert [table.name for table in part.tables] == [
        "perturbed-random-poison-20",
        "perturbed-random-evade-30",
    ]


def test_every_kind_of_splits_has_its_table_in_sight():
    records = [*make_records(), *make_records(split_kind="random")]
    part = tables_of(records, "clean")
    assert [table.name for table in part.tables] == ["clean", "clean-class-balanced"]
    assert len(part.more_tables) == 4


def test_the_solvers_are_explained_where_there_is_metattack():
    random = tables_of(make_records(perturbations=[None, poison()]), "perturbed")
    both = tables_of(make_records(perturbations=[None, poison(), metattack()]), "perturbed")
    assert "unrolled solver" not in random.text
    assert "unrolled solver is that of the original" in both.text
    assert [table.name for table in both.tables] == [
        "perturbed-metattack-unrolled-poison-10",
        "perturbed-random-poison-10",
    ]


def test_too_few_splits_to_decide_are_said_rather_than_shown():
    few = make_records(perturbations=[None, poison(0.1)], splits=5)
    part = tables_of(few, "significance")
    assert part.tables == ()
    assert part.text.startswith("Left out: clean graphs, random 10% (poison); with fewer")
    more = make_records(splits=6, plan="other")
    part = tables_of([*few, *more], "significance")
    assert [table.name for table in part.tables] == ["significance"]
    assert "Left out: random 10% (poison); " in part.text
    assert "Left out" not in tables_of(more, "significance").text


def test_nothing_but_failures_is_a_list_of_failures():
    parts = chapters_of([fail(record) for record in make_records()])
    assert [part.name for part in parts] == ["failed", "again"]


def test_published_figures_are_optional():
    records = make_records(["aspect"], ["cora"])
    for wanted in (True, False):
        parts = chapters_of(records, with_published=wanted)
        cells = [cell for line in parts[0].tables[0].lines for cell in line.cells]
        assert any(cell.published is not None for cell in cells) == wanted
        folded = [table.name for part in parts for table in part.more_tables]
        assert ("clean-below" in folded) == wanted  # the made-up scores are


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
        failed=[lambda record: record.cell.spec.seed == 1],
        splits=6,
    )
    parts = chapters_of([fail(records[0], NASTY[0]), *records[1:]])
    return [table for part in parts for table in part.all_tables]


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
