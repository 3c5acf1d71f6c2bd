"""Tables of a benchmark: every number where it belongs, and missing ones explained."""

import pytest

from aspect.experiment.plan import Entry
from aspect.report import benchmark_tables as tables
from aspect.report.results import collect
from aspect.settings import find_experiment
from report.benchmark_records import ABLATION, evade, make_records, metattack, poison

LEVEL = {"aspect": 80.0, "low": 70.0, "raw": 60.0}
LOSS = {"aspect": 0.1, "low": 0.05, "raw": 0.5}
PAPERS_GRAPHS = ["cora", "citeseer", "pubmed", "actor", "chameleon", "squirrel"]


def level(entry, graph, perturbation, split, **_):
    clean = LEVEL[entry] + (10 if graph == "cora" else 0) + split
    return clean if perturbation is None else clean * (1 - LOSS[entry])


def clean_tables(records, **options):
    return tables.clean_tables(collect(records), **options)


def perturbed_tables(records, **options):
    return tables.perturbed_tables(collect(records), **options)


def sweep_tables(results):
    return [sweep.table for sweep in tables.sweeps(results)]


def values(table, column):
    return [line.cells[column].value for line in table.lines]


def published(method, graph, table="clean"):
    figures = tables.published_figures().set_index(["method", "graph", "table"])["mean"]
    return figures[method, graph, table]


def test_strict_optimistic_and_macro_f1_of_clean_graphs():
    strict, optimistic, macro = clean_tables(make_records(splits=3, score=level))
    names = [table.name for table in (strict, optimistic, macro)]
    assert names == ["clean", "clean-optimistic", "clean-macro-f1"]
    assert strict.columns == ("cora", "texas")
    assert [line.title for line in strict.lines] == ["aspect", "low", "raw"]
    assert values(strict, 0) == [91.0, 81.0, 71.0]
    assert values(strict, 1) == [81.0, 71.0, 61.0]
    assert [line.cells[0].std for line in strict.lines] == [1.0, 1.0, 1.0]
    assert [line.cells[0].mark for line in strict.lines] == ["best", "second", ""]
    assert values(optimistic, 0) == [91.5, 81.5, 71.5]
    assert values(macro, 0) == [86.0, 76.0, 66.0]
    assert "looks at the test set; only for comparison" in optimistic.caption
    assert "3 class-balanced splits, 2 pre-training seeds each" in strict.caption
    (other, *_) = clean_tables(make_records(["aspect", Entry(name="raw", seeds=1)]))
    assert "1 to 2 pre-training seeds each" in other.caption


def test_every_kind_of_splits_has_its_tables_and_none_is_empty():
    assert clean_tables([]) == clean_tables(make_records(perturbations=[poison()])) == []
    assert perturbed_tables(make_records(["aspect"])) == []
    found = clean_tables([*make_records(), *make_records(split_kind="random")])
    assert [table.name for table in found][::3] == ["clean", "clean-class-balanced"]
    assert "random splits" in found[0].caption


def test_a_cell_explains_its_number():
    scores = {(0, 0): 60.0, (0, 1): 70.0, (1, 0): 64.0, (1, 1): 74.0}
    records = make_records(
        ["aspect"], ["cora"], seeds=2, splits=2, score=lambda seed, split, **_: scores[seed, split]
    )
    (table, _, macro) = clean_tables(records)
    tip = table.lines[0].cells[0].tip.splitlines()
    assert tip[:2] == ["strict accuracy: 67.00%", "2 seeds, 2 splits: 4 scores"]
    assert tip[2].startswith("95% interval over seeds: ")
    assert tip[3:] == [
        "standard deviation over splits: 7.07",
        "standard deviation over seeds: 2.83",
        "by the optimistic rule: 67.50%",
    ]
    assert "optimistic" not in macro.lines[0].cells[0].tip


def test_the_interval_of_a_score_ends_at_a_hundred_percent():
    scores = [100.0, 95.0, 100.0]
    records = make_records(
        ["aspect"], ["cora"], seeds=1, splits=3, score=lambda split, **_: scores[split]
    )
    (table, *_) = clean_tables(records)
    assert "95% interval over splits: 91.16 to 100.00" in table.lines[0].cells[0].tip


def test_failed_runs_are_gaps_with_a_note_and_missing_ones_plain_gaps():
    def fails(record):
        return (record.cell.entry, record.cell.graph) == ("aspect", "cora")

    (table, *_) = clean_tables(make_records(failed=[fails], score=level))
    assert table.lines[0].cells[0].text == "- [1]"
    assert table.lines[0].cells[1].value == 81.5
    assert [line.cells[0].mark for line in table.lines] == ["", "best", "second"]
    assert table.notes[0] == "[1] 2 runs failed (The loss is no longer a number after epoch 3)."
    (table, *_) = clean_tables([*make_records(["aspect"]), *make_records(["low"], ["texas"])])
    assert table.lines[1].cells[0].text == "-"
    assert table.notes == ()


def test_a_missing_score_is_noted():
    records = make_records(
        ["aspect", "low"],
        ["cora"],
        [poison()],
        seeds=1,
        missing=[lambda record: (record.cell.entry, record.scores[0].split) == ("low", 3)],
    )
    (table,) = perturbed_tables(records)
    assert table.lines[1].cells[0].text.endswith("[1]")
    assert table.notes[0] == "[1] 3 of 4 splits."
    assert table.lines[1].cells[0].footnote == 1


def test_a_missing_seed_of_a_split_is_noted():
    records = make_records(
        ["aspect", "low"],
        ["cora"],
        [poison()],
        missing=[
            lambda record: (
                (record.cell.entry, record.spec.seed, record.scores[0].split) == ("low", 1, 3)
            )
        ],
    )
    (table,) = perturbed_tables(records)
    assert table.notes[0] == "[1] 7 of 8 scores are there."


def fewer_splits_records():
    """DGI has three splits, the others eight."""
    graphs, perturbations = ["cora", "texas"], [None, poison()]
    few = make_records([Entry(name="dgi", title="DGI")], graphs, perturbations, splits=3)
    return [*make_records(["aspect", "raw"], graphs, perturbations, splits=8), *few]


def test_means_and_drops_over_fewer_splits_are_marked():
    records = fewer_splits_records()
    (perturbed,), (clean, *_) = perturbed_tables(records), clean_tables(records)
    for table in (perturbed, clean):
        *others, dgi = table.lines
        assert {cell.footnote for cell in dgi.cells} == {1}, "the average drop as well"
        assert not any(cell.footnote for line in others for cell in line.cells)
        assert table.notes == ("[1] 3 of 8 splits.",)
        assert "3 to 8 class-balanced splits" in table.caption
    (ranks,) = tables.rank_tables(collect(records))
    assert ranks.notes == ("On fewer splits than the others: DGI.",)


def test_a_drop_over_fewer_splits_than_its_score_is_marked():
    clean = make_records(["aspect", "low"], ["cora"])
    few = [record for record in clean if record.cell.entry == "aspect"]
    few += make_records(["low"], ["cora"], splits=2)
    (table,) = perturbed_tables([*few, *make_records(["aspect", "low"], ["cora"], [poison()])])
    score, drop = table.lines[1].cells
    assert (score.footnote, drop.footnote) == (0, 1)
    assert table.notes == ("[1] 2 of 4 splits.",)


def test_differences_over_fewer_splits_are_marked():
    head, variant, other = ABLATION
    records = [
        *make_records([head, variant], ["cora"], splits=8),
        *make_records([other], ["cora"], splits=3),
    ]
    _, differences = tables.ablation_tables(collect(records))
    assert [line.cells[0].footnote for line in differences.lines] == [0, 1]
    assert differences.notes == ("[1] Over the 3 splits that both have.",)
    (table, _), _ = tables.significance_tables(collect(fewer_splits_records()))
    assert table.notes == ("Too few splits for a test: DGI.",)
    assert "DGI" not in [line.title for line in table.lines]


def test_published_figures_stand_beside_ours_on_the_old_cornell():
    records = make_records(["aspect", "low"], ["cora", "cornell", "cornell_old"])
    strict, optimistic, macro = clean_tables(records, with_published=True)
    for table in (strict, optimistic):
        ours, low = table.lines
        assert [cell.published for cell in ours.cells] == [88.94, None, 89.18]
        assert ours.cells[0].text.endswith(" (88.94)")
        assert not any(cell.published for cell in low.cells)
        assert "In brackets: the figures of Li, Yang and Chen, 2026, Table 4." in table.caption
        assert any("cornell_old" in note for note in table.notes)
    other = clean_tables(make_records(["aspect"], split_kind="random"), with_published=True)
    for table in (macro, *other, *clean_tables(records)):
        assert not any(cell.published for line in table.lines for cell in line.cells)
        assert "brackets" not in table.caption
    records = [*make_records(["aspect"], ["cora"]), *make_records(["dgi"], ["texas"])]
    (table, *_) = clean_tables(records, with_published=True)
    assert table.lines[1].cells[0].text == "- (85.88)"  # where ours is missing


def with_baselines(records, **baselines):
    """The same records; each split has the values at its place."""
    return [
        record.model_copy(
            update={
                "scores": tuple(
                    scores.model_copy(
                        update={name: numbers[scores.split] for name, numbers in baselines.items()}
                    )
                    for scores in record.scores
                )
            }
        )
        for record in records
    ]


TWINS, MAJORITY = "Nearest neighbour by neighbour sets", "Majority class"


def test_baselines_are_the_last_rows_where_any_record_has_them():
    def neutral(graph):
        return make_records(["aspect", "low"], [graph], splits=2, probe="neutral")

    texas = neutral("texas")
    texas = [*with_baselines(texas[:1], majority=[70.0, 81.0], twins=[99.5] * 2), *texas[1:]]
    (table, *others) = clean_tables([*neutral("cora"), *texas])
    assert [line.title for line in table.lines] == ["aspect", "low", TWINS, MAJORITY]
    *_, twins, majority = table.lines
    assert [cell.text for cell in twins.cells] == ["-", "99.50 ± 0.00"]
    assert [cell.text for cell in majority.cells] == ["-", "75.50 ± 7.78"]
    assert twins.cells[1].mark == "best"
    assert not any(line.title == MAJORITY for other in others for line in other.lines)
    records = make_records(["aspect"], ["cora"], [None, poison()], splits=2, probe="neutral")
    (table,) = perturbed_tables(with_baselines(records, majority=[50.0, 52.0]))
    assert [cell.text for cell in table.lines[-1].cells] == ["51.00 ± 1.41", "-"]


def test_missing_classes_are_named_by_part_and_graph():
    records = [
        *make_records(["aspect"], ["cora"]),
        *make_records(["aspect"], ["texas"], [None, poison(), evade()], missing_in_test=(1, 3)),
    ]
    (record,) = make_records(["aspect"], ["actor"], seeds=1, splits=2)
    first, second = record.scores
    scores = (
        first.model_copy(update={"missing_in_test": (1, 3), "missing_in_train": (0,)}),
        second.model_copy(update={"missing_in_test": (1,)}),
    )
    results = collect([*records, record.model_copy(update={"scores": scores})])
    (table, *_) = tables.clean_tables(results)
    assert table.notes == (
        "Class-balanced test sets lack classes: texas 1, 3; actor 1 and in some splits 3.",
        "Class-balanced training sets lack classes: actor in some splits 0.",
    )


def test_average_drop_is_the_mean_relative_loss_and_the_lowest_is_best():
    (table,) = perturbed_tables(make_records(perturbations=[None, poison()], score=level))
    assert table.columns == ("cora", "texas", "average drop")
    assert values(table, 2) == pytest.approx([10.0, 5.0, 50.0])
    assert [line.cells[2].mark for line in table.lines] == ["second", "best", ""]
    assert values(table, 1)[0] == pytest.approx(81.5 * 0.9)
    assert "trained and probed on the perturbed graph" in table.caption
    records = [
        *make_records(["aspect"], ["cora"], splits=10, score=level),
        *make_records(["aspect"], ["cora"], [poison()], splits=3, score=level),
    ]
    (table,) = perturbed_tables(records)  # over the splits that both have
    assert values(table, 1) == pytest.approx([10.0])


def test_drops_have_intervals_and_ranks_under_the_perturbation():
    records = make_records(perturbations=[None, poison()], score=level)
    (table,) = tables.drop_tables(collect(records))
    assert table.columns == ("cora", "texas", "average drop", "mean rank")
    assert values(table, 2) == pytest.approx([10.0, 5.0, 50.0])
    (accuracy,) = perturbed_tables(records)
    scores = [[line.cells[place].value for line in accuracy.lines] for place in (0, 1)]
    ranks = [[sorted(of_graph)[::-1].index(score) + 1 for score in of_graph] for of_graph in scores]
    expected = [sum(places) / 2 for places in zip(*ranks, strict=True)]
    assert values(table, 3) == pytest.approx(expected)
    for line in table.lines:
        for cell in line.cells[:3]:
            assert cell.low <= cell.value <= cell.high
    gap = [
        record for record in records if record.cell.entry != "raw" or record.cell.graph == "cora"
    ]
    (table,) = tables.drop_tables(collect(gap))
    assert table.lines[2].cells[0].value is not None
    assert [cell.value for cell in table.lines[2].cells[1:]] == [None, None, None]


@pytest.mark.parametrize("clean", [[], make_records(split_kind="random")])
def test_a_perturbation_without_clean_scores_has_no_table_of_drops(clean):
    """A run on a perturbed graph alone, or beside a clean one on other splits."""
    results = collect([*clean, *make_records(perturbations=[poison()])])
    assert tables.drop_tables(results) == []
    (table,) = tables.perturbed_tables(results)
    assert "no clean or no perturbed figure" in table.notes[-1]


def test_a_method_that_lacks_a_graph_has_no_average_drop_and_the_graph_is_named():
    """Its mean would be over other graphs than those that it is compared with."""

    def lacks(record):
        cell = record.cell
        return (cell.entry, cell.graph) == ("raw", "cora") and not cell.spec.perturbation

    def fails(record):
        return record.cell.entry == "low" and record.cell.spec.perturbation is not None

    records = make_records(
        perturbations=[None, poison()], missing=[lacks], failed=[fails], score=level
    )
    (table,) = perturbed_tables(records)
    aspect, low, raw = (line.cells[-1] for line in table.lines)
    assert (aspect.footnote, low.value, raw.value) == (0, None, None)
    notes = {note[:3]: note for note in table.notes}
    assert notes[f"[{raw.footnote}]"] == "[3] Without cora: no clean or no perturbed figure."
    assert "Without cora, texas" in notes[f"[{low.footnote}]"]


def test_every_perturbation_has_a_table_of_its_own():
    attacks = [evade(0.1), poison(0.1), poison(0.05), poison(0.1, features=False)]
    attacks += [metattack(solver=solver) for solver in ("implicit", "unrolled")]
    found = perturbed_tables(make_records(["aspect"], ["cora"], [None, *attacks], splits=2))
    assert [table.name for table in found] == [
        "perturbed-metattack-unrolled-poison-10",
        "perturbed-metattack-implicit-poison-10",
        "perturbed-random-poison-5",
        "perturbed-random-poison-10",
        "perturbed-random-poison-edges-10",
        "perturbed-random-evade-10",
    ]
    assert ["masked" in table.caption for table in found[3:5]] == [True, False]
    assert "trained on the clean graph" in found[5].caption
    heads = [table.headline[0].rpartition(" under ")[2] for table in found[:2]]
    assert heads == [
        "metattack 10%, unrolled solver, poison",
        "metattack 10%, implicit solver, poison",
    ]


def test_published_figures_of_the_papers_attack():
    records = make_records(["aspect-s", "raw"], PAPERS_GRAPHS, [None, metattack()], splits=1)
    (table,) = perturbed_tables(records, with_published=True)
    assert "In brackets: the figures of Li, Yang and Chen, 2026, Table 5." in table.caption
    found = [[cell.published for cell in line.cells] for line in table.lines]
    assert found == [[85.3, 78.86, 84.93, 39.2, 66.97, 50.17, 6.51], [None] * 7]
    part = make_records(["aspect-s"], ["cora"], [metattack()])
    (table,) = perturbed_tables(part, with_published=True)
    assert [cell.published for cell in table.lines[0].cells] == [85.3, None]


@pytest.mark.parametrize(
    "attack",
    [
        metattack(solver="implicit"),
        metattack(features=False),
        metattack(budget=0.2),
    ],
    ids=str,
)
def test_no_other_attack_stands_beside_the_papers_figures(attack):
    (table,) = perturbed_tables(make_records(["aspect-s"], ["cora"], [attack]), with_published=True)
    assert not any(cell.published for line in table.lines for cell in line.cells)


def test_every_line_of_the_paper_is_whole():
    figures = tables.published_figures()
    assert len(figures) == len(figures.drop_duplicates()) == 345
    by_place = figures.set_index(["method", "graph", "table"])
    assert tuple(by_place.loc["dgi", "cora", "clean"]) == (85.88, 0.95)
    assert tuple(by_place.loc["gbt", "pubmed", "perturbed"]) == (75.60, 1.30)
    assert tuple(by_place.loc["aspect-global", "actor", "ablation-perturbed"]) == (37.07, 1.51)
    assert figures[figures["table"] == "clean"]["method"].nunique() == 19
    assert figures[figures["table"] == "perturbed"]["method"].nunique() == 18
    sizes = figures.groupby(["table", "method"]).size().groupby("table").agg(["min", "max"])
    assert sizes["min"].equals(sizes["max"])
    assert sizes["min"].to_dict() == {
        "ablation-clean": 4,
        "ablation-perturbed": 4,
        "average-drop": 1,
        "clean": 9,
        "perturbed": 6,
    }
    repeated = figures[
        figures["table"].str.startswith("ablation") & figures["method"].isin(["aspect", "aspect-s"])
    ]
    for row in repeated.itertuples():
        assert published(row.method, row.graph, row.table.removeprefix("ablation-")) == row.mean
    for graph in ("cora", "cornell_old", "squirrel"):
        experiment, _ = find_experiment("aspect", graph, "published")
        assert experiment.reported["mean"] == published("aspect", graph)


ABLATION_LEVEL = {"aspect": 80.0, "aspect-global": 78.0, "aspect-no-policy": 81.0, "raw": 99.0}


def test_an_ablation_shows_variants_beside_their_head():
    def score(entry, perturbation, split, **_):
        return ABLATION_LEVEL[entry] + split - (10 if perturbation else 0)

    records = make_records([*ABLATION, "raw"], perturbations=[None, poison()], score=score)
    accuracy, difference = tables.ablation_tables(collect(records))
    assert (accuracy.name, difference.name) == ("ablation-aspect", "ablation-aspect-difference")
    assert accuracy.columns == difference.columns
    assert accuracy.columns[:2] == ("cora, clean", "cora, random 10%")
    assert accuracy.caption.endswith("over 4 class-balanced splits, 2 pre-training seeds each.")
    titles = ["ASPECT", "Global fusion", "Without policy loss"]
    assert [line.title for line in accuracy.lines] == titles
    assert values(accuracy, 0) == [81.5, 79.5, 82.5]
    assert [line.cells[0].mark for line in accuracy.lines] == ["second", "", "best"]
    assert values(accuracy, 1) == [71.5, 69.5, 72.5]
    assert [line.title for line in difference.lines] == titles[1:]
    assert values(difference, 0) == pytest.approx([-2.0, 1.0])
    others = [
        Entry(name="low-wide", method="low", group="low", set={"width": 9}),
        Entry(name="low", group="low"),
    ]
    found = tables.ablation_tables(collect(make_records([*ABLATION, *others])))
    assert [table.name for table in found][::2] == ["ablation-aspect", "ablation-low"]
    assert [line.title for line in found[2].lines] == ["low", "low-wide"]
    assert found[0].columns == ("cora", "texas")  # clean graphs alone go by their names
    assert tables.ablation_tables(collect(make_records())) == []
    assert tables.ablation_tables(collect(make_records(ABLATION[1:]))) == []


def test_an_ablation_has_gaps_and_published_figures():
    records = make_records(
        ABLATION, ["cora"], failed=[lambda record: record.cell.entry == "aspect-global"]
    )
    accuracy, difference = tables.ablation_tables(collect(records))
    assert accuracy.lines[1].cells[0].text == "- [1]"
    assert difference.lines[0].cells[0].text == "-"
    attacks = [metattack(), metattack(solver="implicit")]
    records = make_records(ABLATION, ["cora"], [None, poison(), *attacks])
    accuracy, _ = tables.ablation_tables(collect(records), with_published=True)
    figures = {line.title: [cell.published for cell in line.cells] for line in accuracy.lines}
    assert accuracy.columns[1] == "cora, metattack (unrolled) 10%"
    assert figures["Global fusion"] == [87.49, 83.2, None, None]
    assert "Li, Yang and Chen, 2026, Table 3" in accuracy.caption
    entries = [  # the head is the method itself, whatever its name
        Entry(name="aspect-fused", method="aspect", title="Ours", group="aspect-fused"),
        Entry(name="aspect-half", method="aspect", group="aspect-fused"),
    ]
    results = collect(make_records(entries, ["cora"]))
    accuracy, _ = tables.ablation_tables(results, with_published=True)
    assert [line.cells[0].published for line in accuracy.lines] == [88.94, None]


BUDGETS = (0.05, 0.1, 0.25)


def test_a_sweep_begins_with_the_clean_graph():
    def falling(perturbation, split, **_):
        return 80 + split - (100 * perturbation.budget if perturbation else 0)

    def fails(record):
        return record.cell.spec.perturbation == poison(0.1) and record.cell.entry == "raw"

    attacks = [None, *(poison(budget) for budget in BUDGETS[::-1]), evade(0.1)]
    records = make_records(
        ["aspect", "raw"], perturbations=attacks, splits=3, score=falling, failed=[fails]
    )
    cora, texas = sweep_tables(collect(records))
    assert (cora.name, texas.name) == ("sweep-random-poison-cora", "sweep-random-poison-texas")
    assert "as the budget of random (poison) grows" in cora.caption
    assert cora.columns == ("clean", "5%", "10%", "25%")
    assert [cell.value for cell in cora.lines[0].cells] == pytest.approx([81, 76, 71, 56])
    assert cora.lines[1].cells[2].text == "- [1]"
    one = make_records(perturbations=[None, poison(), evade(0.2)])
    assert sweep_tables(collect(one)) == []
    edges = [poison(budget, features=False) for budget in BUDGETS]
    (table,) = sweep_tables(collect(make_records(["aspect"], ["cora"], [*edges, poison()])))
    assert "random (poison, edges alone)" in table.caption


def test_all_points_of_a_sweep_are_over_the_same_splits():
    """Split k scores k points more: over other splits a curve would rise or fall by itself."""

    def score(split, **_):
        return 70.0 + split

    few = make_records(
        ["aspect"], ["cora"], [None, poison(0.1), poison(0.2)], splits=2, score=score
    )
    more = make_records(["aspect", "low"], ["cora"], [None, poison(0.1)], splits=5, score=score)
    (table,) = sweep_tables(collect([*few, *more]))
    assert [cell.value for cell in table.lines[0].cells] == [70.5] * 3
    assert [cell.value for cell in table.lines[1].cells] == [70.5, 70.5, None]
    assert table.caption.endswith("over 2 class-balanced splits, 2 pre-training seeds each.")
    assert not table.notes

    def only(number):
        return lambda record: record.cell.spec.split_numbers != (number,)

    first = make_records(["aspect"], ["cora"], [poison(0.1)], splits=2, missing=[only(0)])
    second = make_records(["aspect"], ["cora"], [poison(0.2)], splits=2, missing=[only(1)])
    (table,) = sweep_tables(collect([*first, *second]))  # none in common: all of them
    assert [cell.value is None for cell in table.lines[0].cells] == [True, False, False]


def test_shortfalls_are_further_below_than_the_tolerance():
    def records(differences, **options):
        def score(graph, **_):
            return published("aspect", graph) + differences[graph]

        return collect(make_records(["aspect", "raw"], ["cora", "texas"], score=score, **options))

    (table,) = tables.shortfall_tables(records({"cora": -1.9, "texas": -2.1}))
    (line,) = table.lines
    assert (table.name, line.title) == ("clean-below", "aspect, texas")
    strict, optimistic, paper, difference = (cell.value for cell in line.cells)
    assert (strict, paper) == (pytest.approx(paper - 2.1), published("aspect", "texas"))
    assert (optimistic - strict, difference) == pytest.approx((0.5, -2.1))
    assert tables.shortfall_tables(records({"cora": -1.9, "texas": 3.0})) == []
    below = {"cora": -9.0, "texas": -9.0}
    assert tables.shortfall_tables(records(below, split_kind="random")) == []
    failed = [lambda record: record.cell.graph == "texas"]
    (table,) = tables.shortfall_tables(records(below, failed=failed))
    assert [line.title for line in table.lines] == ["aspect, cora"]
    assert table.notes == ()


def test_runtime_is_a_mean_over_pretrainings_on_clean_graphs():
    records = make_records(["aspect"], ["cora"], [None, poison()], seeds=3)
    (line,) = tables.run_table(collect(records), "runtime").lines
    texts = [cell.text for cell in line.cells]
    assert texts == ["cora", "3.00 ± 1.00", "300", "30 ± 0", "12345", "a processor"]
    poisoned = make_records(["aspect"], ["cora"], [poison()], seeds=1)
    assert tables.run_table(collect(poisoned), "runtime").lines[0].cells[1].value == 2.0
    (record,) = make_records(["aspect"], ["cora"], seeds=1)
    bare = record.model_copy(update={"seconds": {}, "peak_memory_bytes": None, "device": ""})
    (line,) = tables.run_table(collect([bare]), "runtime").lines
    assert [cell.text for cell in line.cells] == ["cora", "-", "-", "30", "12345", "cpu"]
    assert tables.run_table(collect(make_records(failed=[lambda _: True])), "runtime").lines == ()


def test_health_is_shown_where_records_have_it():
    def with_health(record, mean_cosine):
        health = {"variance_share": 0.25, "effective_rank": 12.3, "dim": 64.0}
        return record.model_copy(update={"health": {"mean_cosine": mean_cosine, **health}})

    first, second = make_records(["aspect"], ["cora"], seeds=2)
    records = [with_health(first, 0.1), with_health(second, 0.3), *make_records(["low"], ["cora"])]
    (line,) = tables.run_table(collect(records), "health").lines
    texts = [cell.text for cell in line.cells]
    assert texts == ["cora", "0.200 ± 0.141", "25.0 ± 0.0", "12.3 ± 0.0", "64"]
    assert tables.run_table(collect(make_records()), "health").lines == ()


def test_a_graph_is_one_line():
    table = tables.graph_table(collect(make_records()))
    assert [line.title for line in table.lines] == ["cora", "texas"]
    assert [cell.text for cell in table.lines[0].cells] == ["1000", "3000", "50", "5", "0.50"]


# The search by one rule, ROC AUC, and the short table


def chosen(records, words):
    """The records with who chose their settings, by entry."""
    return [
        record.model_copy(
            update={
                "cell": record.cell.model_copy(
                    update={"chosen_by": words.get(record.cell.entry, "")}
                )
            }
        )
        for record in records
    ]


@pytest.mark.parametrize(
    ("words", "note", "marks"),
    [
        ({"aspect": "searched", "grace": "searched"}, "All settings were searched", (0, 0, 0)),
        ({"aspect": "defaults", "grace": "defaults"}, "All settings are the methods' d", (0, 0, 0)),
        ({"aspect": "searched", "grace": "official"}, "settings of 1 of 2 results", (0, 1, 0)),
        ({"aspect": "earlier", "grace": "defaults"}, "settings of 0 of 2 results", (1, 2, 0)),
        ({"aspect": "earlier", "grace": "earlier"}, "another rule, or chosen by hand", (0, 0, 0)),
        ({"aspect": "by hand", "grace": "by hand"}, "All settings are changed by h", (0, 0, 0)),
        ({"aspect": "searched", "grace": "by hand"}, "settings of 1 of 2 results", (0, 1, 0)),
    ],
)
def test_settings_that_were_not_searched_are_marked(words, note, marks):
    records = chosen(make_records(["aspect", "grace", "raw"], ["cora"]), words)
    (table, *_) = clean_tables(records)
    assert note in table.notes[0]
    assert tuple(line.cells[0].footnote for line in table.lines) == marks
    assert len(table.notes) == 1 + max(marks)


@pytest.mark.parametrize(
    ("head", "variants", "notes"),
    [
        ("searched", "by hand", ["All settings were searched by one rule, 20 trials each."]),
        ("by hand", "by hand", ["All settings are changed by hand in the plan."]),
        ("defaults", "defaults", None),  # of records that are older than the word
    ],
)
def test_variants_start_from_the_settings_of_their_head(head, variants, notes):
    words = {entry.name: variants for entry in ABLATION} | {"aspect": head}
    (table, _) = tables.ablation_tables(collect(chosen(make_records(ABLATION, ["cora"]), words)))
    plain = ["All settings are the methods' defaults: nothing was searched."]
    assert list(table.notes) == ([*notes, tables.VARIED] if notes else plain)
    assert {line.cells[0].footnote for line in table.lines} == {0}


def test_records_that_do_not_tell_have_no_word_on_settings():
    (table, *_) = clean_tables(make_records(["aspect"], ["cora"]))
    assert not any("settings" in note for note in table.notes)


def by_roc_auc(records, area):
    """The records with a ROC AUC on every split."""
    return [
        record.model_copy(
            update={
                "scores": tuple(
                    score.model_copy(update={"roc_auc": area, "twins": 50.0, "majority": 60.0})
                    for score in record.scores
                )
            }
        )
        for record in records
    ]


def test_graphs_whose_authors_report_roc_auc_are_shown_so():
    plain = make_records(["aspect"], ["cora", "tolokers"], splits=3, probe="neutral")
    (table, *_) = clean_tables(by_roc_auc(plain, 77.0))
    assert table.columns == ("cora", "tolokers (ROC AUC)")
    cora, tolokers = table.lines[0].cells
    assert tolokers.value == 77.0
    assert tolokers.tip.startswith("ROC AUC: 77.00%")
    assert cora.value != 77.0
    twins, majority = table.lines[1:]
    assert [cell.value for cell in twins.cells] == [50.0, None]  # an accuracy is no ROC AUC
    assert [cell.value for cell in majority.cells] == [60.0, None]
    (lacking, *_) = clean_tables(plain)  # nothing else takes its place
    assert lacking.lines[0].cells[1].value is None


def test_the_short_table_has_the_best_baselines_by_mean_rank():
    level = {"aspect": 80, "raw": 50, "propagated": 60, "low": 99}
    level |= {"dgi": 61, "gca": 62, "grace": 63, "bgrl": 64}

    def score(entry, graph, split, **_):
        return float(
            level[entry] + (40 if (entry, graph) == ("bgrl", "cornell_old") else 0) + split
        )

    graphs = ["cora", "texas", "cornell_old"]
    records = make_records(list(level), graphs, split_kind="random", score=score)
    table = tables.short_table(collect(records))
    assert table.columns == ("cora", "texas", "mean rank")
    titles = [line.title for line in table.lines]
    assert titles == ["raw", "propagated", "aspect", "bgrl", "grace", "gca"]
    ranks = [line.cells[-1].value for line in table.lines]
    assert ranks == [8.0, 7.0, 2.0, 3.0, 4.0, 5.0]
    assert table.lines[0].cells[0].std is None
    assert tables.short_table(collect(make_records(split_kind="published"))) is None


def test_the_short_table_marks_the_best_of_all_and_not_of_its_rows():
    """As the full table does, with its digits: two rows may look equal here."""
    level = {"aspect": 80.0, "dgi": 79.99, "raw": 50.0, "high": 99.0}

    def marks(levels, **baselines):
        records = make_records(
            list(levels),
            ["cora", "texas"],
            split_kind="random",
            score=lambda entry, split, **_: levels[entry] + split / 10,
        )
        table = tables.short_table(collect(with_baselines(records, **baselines)))
        assert "of the full table" in table.caption
        return {line.title: [cell.mark for cell in line.cells] for line in table.lines}

    assert marks(level) == {"raw": [""] * 3, "aspect": ["second"] * 3, "dgi": [""] * 3}
    del level["high"]
    assert marks(level)["aspect"] == ["best"] * 3
    twins = marks(level, twins=[99.0] * 4)
    assert twins["aspect"] == ["second", "second", "best"]  # neighbour sets have no rank


def test_ranks_are_a_table_of_methods_without_a_gap():
    whole = make_records(["aspect", "raw", "grace"], ["cora", "texas"], split_kind="random")
    (table,) = tables.rank_tables(
        collect([*whole, *make_records(["dgi"], ["cora"], split_kind="random")])
    )
    assert len(table.lines) == 3
    values = [line.cells[0].value for line in table.lines]
    assert values == sorted(values)
    assert "Not ranked, since they lack a graph: dgi." in table.notes
    assert tables.rank_tables(collect(make_records(["aspect"], ["cora"]))) == []
