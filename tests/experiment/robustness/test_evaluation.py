"""Runs on perturbed graphs are probed as the protocol says, and as the bench does it."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from aspect import __version__
from aspect.attacks.file import PerturbationFile
from aspect.attacks.pruning import prune_edges
from aspect.data.splits import make_splits
from aspect.errors import RunError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation import pruning as readings
from aspect.evaluation.baselines import twin_probe
from aspect.evaluation.evasion import evasion_probe
from aspect.evaluation.linear_probe import PaperProbe, linear_probe
from aspect.experiment.comparison import evaluate_runs
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.record import Cell, Work
from aspect.experiment.robustness.evaluation import evaluate_evaded, evaluate_poisoned
from aspect.experiment.robustness.files import read_perturbations
from aspect.experiment.run import Task, run_cell
from aspect.experiment.runs import load_run, open_run
from aspect.methods.aspect import AspectMethod
from aspect.methods.controls import RawFeatures
from aspect.perturbation import FilePerturbation
from aspect.settings import PerturbedBy, PublishedProbe
from experiment.robustness.poisoned import Place

# A probe of few steps, for there are many of them.
QUICK = PublishedProbe(learning_rate=0.05, weight_decay=0.001, steps=20)
PROBE = PaperProbe(QUICK.learning_rate, QUICK.steps, (QUICK.weight_decay,))

NAMES = ["aspect", "random", "raw", "propagated", "spectral", "neighbour sets", "majority class"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place.make(tmp_path_factory.mktemp("place"), probe=QUICK)


@pytest.fixture(scope="module")
def clean(place):
    return place.train("clean")


@pytest.fixture(scope="module")
def poisoned(place):
    """Splits 1 and 0, in this order, at a budget of 0.1, and split 1 at 0.15."""
    return [
        place.train("one", split=1),
        place.train("none", split=0),
        place.train("more", split=1, budget=0.15),
    ]


@pytest.fixture(scope="module")
def found(clean, poisoned):
    return judge([*poisoned, clean])


def judge(folders, **options):
    return evaluate_poisoned(folders, probe="published", device="cpu", **options)


def splits_of(place):
    labelled = place.labelled
    return make_splits("random", labelled.labels, labelled.num_classes)


def computed(folder):
    """What a run's model makes of the graph that it was trained on, as a probe sees it."""
    run = load_run(folder, device="cpu")
    return run.model.embed(run.read_trained_graph(), normalise="none")


def probed(place, embeddings, splits):
    labelled = place.labelled
    rows = torch.as_tensor(np.asarray(embeddings))
    classes = labelled.num_classes
    return linear_probe(rows, labelled.labels, splits, num_classes=classes, probe=PROBE).splits


def row_of(found, name, budget):
    (row,) = [row for row in found.rows if (row.name, row.budget) == (name, budget)]
    return row


def test_a_row_for_every_method_and_budget(found):
    assert [(row.name, row.budget) for row in found.rows] == [
        (name, budget) for name in NAMES for budget in (0.1, 0.15)
    ]
    assert [row.splits for row in found.rows] == [(0, 1), (1,)] * len(NAMES)
    assert found.mode == "poison"


def test_each_poisoned_model_is_judged_on_its_own_split_alone(place, poisoned, found):
    splits = splits_of(place)
    row = row_of(found, "aspect", 0.1)
    for folder, number in zip(poisoned, (1, 0), strict=False):
        (expected,) = probed(place, computed(folder), [splits[number]])
        assert row.perturbed[0].splits[row.splits.index(number)] == expected


def test_no_other_split_of_a_poisoned_model_is_ever_looked_at(place, poisoned, monkeypatch):
    seen = Mock(side_effect=linear_probe)
    monkeypatch.setattr(readings, "linear_probe", seen)
    judge(poisoned[:1])
    test = splits_of(place)[1].test
    assert len(seen.mock_calls) == 2 * 4 + 1  # four controls, clean and poisoned; the method
    for call in seen.mock_calls:
        (split,) = call.args[2]
        assert torch.equal(split.test, test)


def test_a_doubting_row_is_read_with_the_share_that_validation_prefers(place, clean, poisoned):
    found = judge([poisoned[0], clean], doubt=[0.3, 0.1])
    assert [row.name for row in found.rows] == ["aspect", "aspect, pruned", *NAMES[1:]]
    row, split = row_of(found, "aspect, pruned", 0.1), splits_of(place)[1]
    told = []
    graph = PerturbationFile.read(place.flips(1)).apply(place.labelled, 0.1)
    for folder, seen, scores in (
        (poisoned[0], graph, row.perturbed),
        (clean, place.labelled.graph, row.clean),
    ):
        model = load_run(folder, device="cpu").model
        tried = [
            probed(place, model.embed(prune_edges(seen, share), normalise="none"), [split])[0]
            for share in (0.0, 0.1, 0.3)
        ]
        best = max(range(3), key=lambda place: tried[place].validation)
        assert scores[0].splits == (tried[best],)
        told.append(f"{(0, 10, 30)[best]}% of the edges in 1 split.")
    assert f"for aspect, pruned at a budget of 0.1: {told[0]}" in found.notices[-1]
    assert f"for aspect, pruned clean: {told[1]}" in found.notices[-2]


def test_a_clean_run_has_a_doubting_row_too(clean, place):
    options = {"splits": "random", "probe": "published", "device": "cpu"}
    plain, found = evaluate_runs([clean], **options), evaluate_runs([clean], doubt=[0.2], **options)
    assert [row.name for row in found.rows] == ["aspect", "aspect, pruned", *NAMES[1:]]
    assert found.rows[0] == plain.rows[0]
    model, graph = load_run(clean, device="cpu").model, place.labelled.graph
    tried = [
        probed(place, model.embed(prune_edges(graph, share), normalise="none"), splits_of(place))
        for share in (0.0, 0.2)
    ]
    best = [max(pair, key=lambda score: score.validation) for pair in zip(*tried, strict=True)]
    assert list(found.rows[1].linear.results[0].splits) == best
    assert found.rows[1].neighbours is None
    shares = [
        0.2 if chosen is pair[1] else 0.0
        for chosen, pair in zip(best, zip(*tried, strict=True), strict=True)
    ]
    assert found.rows[1].to_dict()["doubt"] == shares
    assert "Pruned for aspect, pruned: " in found.notices[-1]


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_to_doubt_is_checked(clean, poisoned, share):
    for judged in (
        lambda: judge(poisoned[:1], doubt=[share]),
        lambda: evaluate_runs([clean], doubt=[share]),
    ):
        with pytest.raises(SettingsError, match="at least 0 and below 1"):
            judged()


def test_a_method_bound_to_its_graph_doubts_nothing(clean, monkeypatch):
    monkeypatch.setattr(AspectMethod, "inductive", False)
    with pytest.raises(SettingsError, match="its edges cannot be pruned"):
        evaluate_runs([clean], doubt=[0.1])


def test_the_clean_side_is_on_the_same_splits(place, clean, found):
    splits = splits_of(place)
    expected = probed(place, computed(clean), splits[:2])
    assert row_of(found, "aspect", 0.1).clean[0].splits == expected
    assert row_of(found, "aspect", 0.15).clean[0].splits == expected[1:]
    table = evaluate_runs([clean], splits="random", probe="published", device="cpu")
    assert table.rows[0].linear.results[0].splits[:2] == expected


def test_controls_meet_the_same_perturbed_graph(place, poisoned, found):
    labelled, splits = place.labelled, splits_of(place)
    graph = PerturbationFile.read(place.flips(0)).apply(labelled, 0.1)
    settings = open_run(poisoned[0]).record["settings"]
    for name, own in (("random", settings), ("raw", {}), ("propagated", {}), ("spectral", {})):
        model = Embedder(name, seed=0, device="cpu", **own).fit(graph)
        (expected,) = probed(place, model.embed(graph, normalise="none"), splits[:1])
        assert row_of(found, name, 0.1).perturbed[0].splits[0] == expected
    rule = twin_probe(graph, labelled.labels, splits[:1], num_classes=labelled.num_classes)
    assert row_of(found, "neighbour sets", 0.1).perturbed[0].splits[0] == rule.splits[0]
    majority = row_of(found, "majority class", 0.1)
    assert majority.clean == majority.perturbed
    assert majority.drop == 0


def test_without_a_clean_run_there_is_no_drop(poisoned):
    found = judge(poisoned[:1])
    assert found.rows[0].drop is None
    assert found.rows[1].drop is not None  # of random weights, which need no run
    assert "give its run on the clean graph as well" in found.notices[-1]


def test_several_seeds_of_a_split(place, poisoned, clean):
    second = place.train("seed1", split=1, seed=1)
    found = judge([second, poisoned[0], clean])
    row = found.rows[0]
    assert list(row.perturbed) == [0, 1]
    assert list(row.clean) == [0]
    expected = (
        "At a budget of 0.1 the perturbed scores are of the seeds 0, 1, the clean ones of the "
        "seeds 0."
    )
    assert found.notices[-1] == expected
    assert list(row_of(found, "random", 0.1).perturbed) == [0, 1]
    assert list(row_of(found, "raw", 0.1).perturbed) == [0]


def test_seeds_are_compared_at_every_budget(place):
    """The first budget has the clean run's seed, the second has not."""
    names = {0.1: "raw-less", 0.15: "raw-more"}
    runs = [
        place.train(name, split=1, budget=budget, seed=seed, method="raw")
        for seed, (budget, name) in enumerate(names.items())
    ]
    found = judge([*runs, place.train("raw-clean", method="raw")])
    assert [list(row.perturbed) for row in found.rows[:2]] == [[0], [1]]
    told = [each for each in found.notices if "seeds" in each]
    assert len(told) == 1
    assert told[0].startswith("At a budget of 0.15 the perturbed scores are of the seeds 1, ")


def test_plain_values_hold_files_and_checksums(place, found, poisoned, clean):
    told = found.to_dict()
    assert told["runs"] == [str(path) for path in (*poisoned, clean)]
    assert [each["file"] for each in told["perturbations"]] == [
        str(place.flips(split)) for split in (0, 1, 1)
    ]
    assert told["perturbations"][0]["sha256"] == PerturbationFile.read(place.flips(0)).digest(0.1)
    first = told["rows"][0]
    assert [each["split"] for each in first["scores"]] == [0, 1]
    mean = sum(each["strict"] for each in first["scores"]) / 2
    assert first["perturbed"]["mean"] == pytest.approx(mean)
    before = first["clean"]["mean"]
    assert first["drop"] == pytest.approx(100 * (before - mean) / before)


def test_progress_is_told(poisoned):
    steps = []
    judge(poisoned, on_step=lambda *told: steps.append(told))
    assert [(done, total) for done, total, _ in steps] == [(k, 4) for k in range(4)]
    assert "random split 1, 15%" in steps[-1][2]


def evaded(place, clean, budgets=(0.1, 0.15), kind="random", probe="published"):
    places = [place.flips(split, kind=kind) for split in (0, 1)]
    perturbations = read_perturbations(places, place.labelled, budgets=budgets)
    return evaluate_evaded([clean], perturbations, probe=probe, device="cpu")


def test_evasion_learns_clean_and_tests_perturbed(place, clean):
    found = evaded(place, clean)
    labelled, model = place.labelled, load_run(clean, device="cpu").model
    for budget in (0.1, 0.15):
        expected = evasion_probe(
            model.embed(labelled.graph, normalise="none"),
            [
                model.embed(
                    PerturbationFile.read(place.flips(split)).apply(labelled, budget),
                    normalise="none",
                )
                for split in (0, 1)
            ],
            labelled.labels,
            splits_of(place)[:2],
            num_classes=labelled.num_classes,
            probe=PROBE,
        )
        row = row_of(found, "aspect", budget)
        assert row.perturbed[0].splits == expected.splits
        # The choice rests on the clean graph, so it is that of the clean row.
        assert [score.step for score in expected.splits] == [
            score.step for score in row.clean[0].splits
        ]
    # A spectral embedding is of one graph: there is no probe that has learned on its axes.
    assert [(row.name, row.budget) for row in found.rows] == [
        (name, budget) for name in NAMES if name != "spectral" for budget in (0.1, 0.15)
    ]


def cell_of(place, run, mode, numbers):
    told, files = open_run(run).record, [place.flips(split, kind="dice") for split in numbers]
    work = Work(
        method="aspect",
        settings=told["settings"],
        graph_sha256=told["graph"]["sha256"],
        splits="random",
        probe="neutral",
        split_numbers=numbers,
        perturbation=Perturbation(kind="dice", mode=mode, budget=0.1),
        perturbation_sha256=tuple(PerturbationFile.read(file).digest(0.1) for file in files),
        seed=0,
        version=__version__,
    )
    cell = Cell(plan="plan", entry="aspect", title="aspect", graph=place.graph, work=work)
    return run_cell(Task(cell, tuple(map(Path, files))), device="cpu").record


@pytest.mark.parametrize("mode", ["evade", "poison"])
def test_the_bench_finds_the_same(place, clean, tmp_path, mode):
    if mode == "evade":
        numbers, row = (0, 1), evaded(place, clean, [0.1], "dice", "neutral").rows[0]
    else:
        own = Place.make(tmp_path)
        own.flips(1).write_bytes(place.flips(1, kind="dice").read_bytes())
        numbers = (1,)
        row = evaluate_poisoned([own.train("run", split=1)], device="cpu").rows[0]
    record = cell_of(place, clean, mode, numbers)
    assert record.status == "done", record.error
    assert [score.strict for score in record.scores] == [
        score.strict for score in row.perturbed[0].splits
    ]
    assert [score.macro_f1 for score in record.scores] == [
        score.macro_f1 for score in row.perturbed[0].splits
    ]


def test_runs_that_do_not_go_together(place, clean, poisoned):
    with pytest.raises(RunError, match="None of these runs was trained on a perturbed graph"):
        evaluate_poisoned([clean], device="cpu")
    with pytest.raises(RunError, match=r"perturbed for one split.*evaluate_poisoned"):
        evaluate_runs([poisoned[0]], device="cpu")
    raw = place.train("raw", method="raw")
    with pytest.raises(RunError, match="another method"):
        evaluate_poisoned([poisoned[0], raw], device="cpu")
    with pytest.raises(RunError, match="must differ in the seed"):
        evaluate_poisoned([poisoned[0], clean, clean], device="cpu")
    perturbation = FilePerturbation.read(PerturbedBy(file=str(place.flips(0)), budget=0.1))
    with pytest.raises(RunError, match="was trained on a perturbed graph"):
        evaluate_evaded([poisoned[0]], [perturbation], device="cpu")


def test_a_method_that_embeds_its_own_graph_alone_cannot_be_evaded(place, monkeypatch):
    raw = place.train("bound", method="raw")
    monkeypatch.setattr(RawFeatures, "inductive", False)
    perturbation = FilePerturbation.read(PerturbedBy(file=str(place.flips(0)), budget=0.1))
    with pytest.raises(SettingsError, match=r"raw cannot embed a graph .*--mode poison"):
        evaluate_evaded([raw], [perturbation], device="cpu")
