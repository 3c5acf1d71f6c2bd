"""Runs on perturbed graphs are probed as the protocol says, and as the bench does it."""

import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.purification import prune_edges, used_score
from aspect.data.splits import Split, make_splits
from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.baselines import knn_probe, twin_probe
from aspect.evaluation.linear_probe import PaperProbe, evasion_probe, linear_probe
from aspect.evaluation.result import SplitScore
from aspect.evaluation.significance import paired_test
from aspect.experiment import run as run_module
from aspect.experiment.evaluate import (
    EvaluationTable,
    check_same_method,
    evaluate_runs,
    group_poisoned,
)
from aspect.experiment.run import PerturbedGraph
from aspect.experiment.trained import RunOptions, open_run, read_runs, train_run
from aspect.methods.aspect import AspectMethod
from aspect.methods.controls import RawFeatures
from aspect.settings import PerturbedBy, PublishedProbe
from attacks.attempts import plan
from attacks.attempts import run as attack
from experiment.poisoned import Place, changed

# A probe of few steps, for there are many of them.
QUICK = PublishedProbe(learning_rate=0.05, weight_decay=0.001, steps=20)
PROBE = PaperProbe(QUICK.learning_rate, QUICK.steps, (QUICK.weight_decay,))

NAMES = ["aspect", "random", "raw", "propagated", "spectral", "neighbour sets", "majority class"]
FIELDS = list(SplitScore.__dataclass_fields__)


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
    return evaluate_runs(folders, probe="published", device="cpu", **options)


def splits_of(place):
    labelled = place.labelled
    return make_splits("random", labelled.labels, labelled.num_classes)


def computed(folder):
    """What a run's model makes of the graph that it was trained on, as a probe sees it."""
    run = open_run(folder)
    return run.load_model("cpu").embed(run.read_trained_graph(), normalise="none")


def probed(place, embeddings, splits):
    labelled = place.labelled
    rows = torch.as_tensor(np.asarray(embeddings))
    classes = labelled.num_classes
    return linear_probe(rows, labelled.labels, splits, num_classes=classes, probe=PROBE).splits


def row_of(found, name, budget):
    (row,) = [row for row in found.rows if (row["name"], row["budget"]) == (name, budget)]
    return row


def scores_of(found, name, budget=0.0, seed=0):
    """The scores of a seed by split."""
    keys = found.scores[["name", "budget", "seed"]]
    lines = found.scores[(keys == [name, budget, seed]).all(axis="columns")]
    values = lines[FIELDS].to_dict("records")
    return dict(zip(lines["split"], [SplitScore(**each) for each in values], strict=True))


def seeds_of(row, scores="scores"):
    return sorted({score["seed"] for score in row[scores]})


def test_a_row_for_every_method_and_budget(found):
    assert [(row["name"], row["budget"]) for row in found.rows] == [
        (name, budget) for name in NAMES for budget in (0.1, 0.15)
    ]
    assert [row["splits"] for row in found.rows] == [[0, 1], [1]] * len(NAMES)
    assert found.to_dict()["mode"] == "poison"


def test_each_poisoned_model_is_judged_on_its_own_split_alone(place, poisoned, found):
    splits, scores = splits_of(place), scores_of(found, "aspect", 0.1)
    for folder, number in zip(poisoned, (1, 0), strict=False):
        (expected,) = probed(place, computed(folder), [splits[number]])
        assert scores[number] == expected


def test_no_other_split_of_a_poisoned_model_is_ever_looked_at(place, poisoned, monkeypatch):
    seen = Mock(side_effect=linear_probe)
    monkeypatch.setattr(run_module, "linear_probe", seen)
    judge(poisoned[:1])
    test = splits_of(place)[1].test
    assert len(seen.mock_calls) == 2 * 4 + 1  # four controls, clean and poisoned; the method
    for call in seen.mock_calls:
        (split,) = call.args[2]
        assert torch.equal(split.test, test)


def test_a_row_with_pruned_edges_has_the_ratio_that_validation_prefers(place, clean, poisoned):
    found = judge([poisoned[0], clean], prune=[0.3, 0.1])
    assert [row["name"] for row in found.rows] == ["aspect", "aspect, pruned", *NAMES[1:]]
    split = splits_of(place)[1]
    told = []
    graph = PerturbationFile.read(place.flips(1)).apply(place.labelled, 0.1)
    for folder, seen, budget in (
        (poisoned[0], graph, 0.1),
        (clean, place.labelled.graph, 0.0),
    ):
        model = open_run(folder).load_model("cpu")
        tried = [
            probed(place, model.embed(prune_edges(seen, share), normalise="none"), [split])[0]
            for share in (0.0, 0.1, 0.3)
        ]
        best = max(range(3), key=lambda place: tried[place].validation)
        assert scores_of(found, "aspect, pruned", budget) == {1: tried[best]}
        gone = 1 - prune_edges(seen, (0.0, 0.1, 0.3)[best]).num_edges / seen.num_edges
        some = f"{100 * gone:.1f}% of the edges in 1 split ({(0, 10, 30)[best]}% asked). Score: "
        told.append(some if best else "no edge in 1 split. Score: ")
    assert f"for aspect, pruned at a budget of 0.1: {told[0]}" in found.notices[-1]
    assert f"for aspect, pruned clean: {told[1]}" in found.notices[-2]


def test_a_clean_run_has_a_row_with_pruned_edges_too(clean, place):
    found = judge([clean], prune=[0.2])
    assert [row["name"] for row in found.rows] == ["aspect", "aspect, pruned", *NAMES[1:]]
    model, graph = open_run(clean).load_model("cpu"), place.labelled.graph
    tried = [
        probed(place, model.embed(prune_edges(graph, share), normalise="none"), splits_of(place))
        for share in (0.0, 0.2)
    ]
    best = [max(pair, key=lambda score: score.validation) for pair in zip(*tried, strict=True)]
    assert list(scores_of(found, "aspect, pruned").values()) == best
    assert found.rows[1]["knn"] is None
    shares = [
        0.2 if chosen is pair[1] else 0.0
        for chosen, pair in zip(best, zip(*tried, strict=True), strict=True)
    ]
    assert found.rows[1]["prune"] == shares
    left = prune_edges(graph, 0.2).num_edges
    gone = (graph.num_edges - left) / graph.num_edges
    assert found.rows[1]["pruned"] == [gone if share else 0.0 for share in shares]
    assert found.rows[1]["prune_score"] == used_score(graph)
    assert found.rows[0]["pruned"] is found.rows[0]["prune_score"] is None
    assert "Pruned for aspect, pruned: " in found.notices[-1]


@pytest.mark.parametrize("method", ["aspect", "raw"])
def test_nearest_neighbours_can_be_reproduced_from_the_stored_embeddings(place, method):
    folder = place.train(f"stored-{method}", method=method)
    rows, labelled = np.load(folder / "embeddings.npy"), place.labelled
    expected = knn_probe(rows, labelled.labels, splits_of(place), num_classes=labelled.num_classes)
    row = judge([folder]).rows[0]
    assert row["knn"]["mean"] == pytest.approx(expected.strict.mean)


@pytest.mark.parametrize("share", [-0.1, float("nan")])
def test_a_ratio_to_prune_is_checked(clean, share):
    with pytest.raises(SettingsError, match="at least 0 and below 1"):
        judge([clean], prune=[share])


def test_the_probe_of_published_tables_has_no_other_metric(clean):
    with pytest.raises(SettingsError, match="paper probe chooses by accuracy"):
        judge([clean], metric="roc-auc")


def test_a_method_bound_to_its_graph_prunes_nothing(clean, monkeypatch):
    monkeypatch.setattr(AspectMethod, "inductive", False)
    with pytest.raises(SettingsError, match="its edges cannot be pruned"):
        evaluate_runs([clean], prune=[0.1])


def test_the_clean_side_is_on_the_same_splits(place, clean, found):
    splits = splits_of(place)
    expected = probed(place, computed(clean), splits[:2])
    assert tuple(scores_of(found, "aspect").values()) == expected
    for budget, splits in ((0.1, expected), (0.15, expected[1:])):
        strict = [score["strict"] for score in row_of(found, "aspect", budget)["clean_scores"]]
        assert strict == [score.strict for score in splits]


def test_controls_meet_the_same_perturbed_graph(place, poisoned, found):
    labelled, splits = place.labelled, splits_of(place)
    graph = PerturbationFile.read(place.flips(0)).apply(labelled, 0.1)
    settings = open_run(poisoned[0]).record["settings"]
    for name, own in (("random", settings), ("raw", {}), ("propagated", {}), ("spectral", {})):
        model = Embedder(name, seed=0, device="cpu", **own).fit(graph)
        (expected,) = probed(place, model.embed(graph, normalise="none"), splits[:1])
        assert scores_of(found, name, 0.1)[0] == expected
    rule = twin_probe(graph, labelled.labels, splits[:1], num_classes=labelled.num_classes)
    assert scores_of(found, "neighbour sets", 0.1)[0] == rule.splits[0]
    majority = row_of(found, "majority class", 0.1)
    assert majority["clean"] == majority["perturbed"]
    assert majority["drop"] == 0


def test_without_a_clean_run_there_is_no_drop(poisoned):
    found = judge(poisoned[:1])
    assert found.rows[0]["drop"] is None
    assert found.rows[1]["drop"] is not None  # of random weights, which need no run
    assert "give its run on the clean graph as well" in found.notices[-1]


def test_several_seeds_of_a_split(place, poisoned, clean):
    second = place.train("seed1", split=1, seed=1)
    found = judge([second, poisoned[0], clean])
    row = found.rows[0]
    assert seeds_of(row) == [0, 1]
    assert seeds_of(row, "clean_scores") == [0]
    expected = (
        "At a budget of 0.1 the perturbed scores are of the seeds 0, 1, the clean ones of the "
        "seeds 0."
    )
    assert found.notices[-1] == expected
    assert seeds_of(row_of(found, "random", 0.1)) == [0, 1]
    assert seeds_of(row_of(found, "raw", 0.1)) == [0]


def test_seeds_are_compared_at_every_budget(place):
    """The first budget has the clean run's seed, the second has not."""
    names = {0.1: "raw-less", 0.15: "raw-more"}
    runs = [
        place.train(name, split=1, budget=budget, seed=seed, method="raw")
        for seed, (budget, name) in enumerate(names.items())
    ]
    found = judge([*runs, place.train("raw-clean", method="raw")])
    assert [seeds_of(row) for row in found.rows[:2]] == [[0], [1]]
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
    # Four graphs; of the runs there is none on the clean one, whose first step falls away.
    assert [done for done, *_ in steps] == list(range(1, 24))
    assert {total for _, total, _ in steps} == {24}
    assert steps[0][2] == "clean graph: random"
    assert "random split 1, 15%" in steps[-1][2]


def evaded(place, clean, budgets=(0.1, 0.15), kind="random", probe="published"):
    files = [PerturbationFile.read(place.flips(split, kind=kind)) for split in (0, 1)]
    return evaluate_runs([clean], evasion=evasion_by(files, budgets), probe=probe, device="cpu")


def evasion_by(files, budgets):
    return [
        PerturbedGraph.of(file, file.perturbation(budget, mode="evade"))
        for budget in budgets
        for file in files
    ]


def test_a_control_that_cannot_be_evaded_is_told(place, clean, found):
    told = "spectral has no row: it cannot embed a graph that it was not fitted to."
    table = evaded(place, clean, budgets=(0.1,))
    assert "spectral" not in {row["name"] for row in table.rows}
    assert told in table.notices
    assert told not in found.notices  # poisoned: every control is fitted to its graph


def test_evasion_learns_clean_and_tests_perturbed(place, clean):
    found = evaded(place, clean)
    labelled, model = place.labelled, open_run(clean).load_model("cpu")
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
        assert tuple(scores_of(found, "aspect", budget).values()) == expected.splits
        # The choice rests on the clean graph, so it is that of the clean row.
        assert [score.step for score in expected.splits] == [
            score.step for score in scores_of(found, "aspect").values()
        ]
    files = [PerturbationFile.read(place.flips(split)) for split in (0, 1)]
    with pytest.raises(SettingsError, match="would choose on the clean graph"):
        evaluate_runs([clean], evasion=evasion_by(files, [0.1]), prune=[0.2], device="cpu")
    # A spectral embedding is of one graph: there is no probe that has learned on its axes.
    assert [(row["name"], row["budget"]) for row in found.rows] == [
        (name, budget) for name in NAMES if name != "spectral" for budget in (0.1, 0.15)
    ]


def test_runs_that_do_not_go_together(place, clean, poisoned):
    with pytest.raises(RunError, match="needs one or more runs"):
        evaluate_runs([], device="cpu")
    path, run = clean, open_run(clean)
    edited = replace(run, record={**run.record, "source": "0" * 64})
    with pytest.raises(RunError, match=rf"has another source of the method than {path}"):
        check_same_method([run, edited])
    raw = place.train("raw", method="raw")
    with pytest.raises(RunError, match="another method"):
        evaluate_runs([poisoned[0], raw], device="cpu")
    with pytest.raises(RunError, match="must differ in the seed"):
        evaluate_runs([poisoned[0], clean, clean], device="cpu")
    files = [PerturbationFile.read(place.flips(0))]
    with pytest.raises(RunError, match="was trained on a perturbed graph"):
        evaluate_runs([poisoned[0]], evasion=evasion_by(files, [0.1]), device="cpu")


def test_a_method_that_embeds_its_own_graph_alone_cannot_be_evaded(place, monkeypatch):
    raw = place.train("bound", method="raw")
    monkeypatch.setattr(RawFeatures, "inductive", False)
    files = [PerturbationFile.read(place.flips(0))]
    with pytest.raises(SettingsError, match=r"raw cannot embed a graph .*mode poison"):
        evaluate_runs([raw], evasion=evasion_by(files, [0.1]), device="cpu")


# Which runs on poisoned graphs may be judged together


@pytest.fixture
def runs(place):
    """Runs that learn nothing, which takes no time; each is trained once."""

    def make(*wanted):
        folders = []
        for split, budget, seed, *features in wanted:
            name = f"raw-{split}-{budget}-{seed}-{features}"
            if not (place.folder / name).exists():
                masked = {"features": features[0]} if features else {}
                place.train(name, split=split, budget=budget, seed=seed, method="raw", **masked)
            folders.append(place.folder / name)
        return [open_run(folder) for folder in folders]

    return make


def test_groups_come_by_budget_and_split_with_seeds_in_order(runs):
    groups = group_poisoned(runs((1, 0.1, 1), (0, 0.1, 0), (1, 0.1, 0), (0, 0.1, 1), (1, 0.05, 0)))
    facts = [(poison.budget, poison.split) for poison, _ in groups]
    assert facts == [(0.05, 1), (0.1, 0), (0.1, 1)]
    seeds = [[stored.record["seed"] for stored in members] for _, members in groups]
    assert seeds == [[0], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([(0, 0.1, 0), (0, 0.1, 0)], "split 0 at a budget of 0.1 must differ in the seed.*have 0"),
        (
            [(0, 0.1, 0), (0, 0.1, 1), (1, 0.1, 1)],
            "same seeds. There are seeds 0, 1 on split 0 .*, seed 1 on split 1 at a budget of 0.1",
        ),
        ([(0, 0.1, 0), (1, 0.1, 0, False)], "perturbed alike.* flipped edges alone"),
    ],
)
def test_what_makes_no_whole(runs, wanted, words):
    with pytest.raises(RunError, match=words):
        group_poisoned(runs(*wanted))


def test_seeds_that_met_different_flips(tmp_path):
    own = Place.make(tmp_path)
    first = own.train("first", split=0, method="raw")
    second = own.train("second", split=0, seed=1, method="raw")
    other = tmp_path / "other.safetensors"
    shutil.copy(own.flips(0), other)
    changed(other, mask_seed=7)
    text = (second / "config.yaml").read_text()
    sha256 = open_run(second).record["perturbation"]["sha256"]
    lines = [line for line in text.splitlines() if sha256 not in line]
    (second / "config.yaml").write_text("\n".join(lines).replace(str(own.flips(0)), str(other)))
    (second / "manifest.json").unlink()  # as in a run of version 0.2
    with pytest.raises(RunError, match="must have met the same flips"):
        group_poisoned([open_run(first), open_run(second)])
    changed(other, kind="dice", mask_seed=7)
    third = own.train("third", split=1, method="raw")
    with pytest.raises(SettingsError, match="must be of one attack"):
        group_poisoned([open_run(third), open_run(second)])


# The arithmetic of the drop


def drop_row(place, clean, perturbed):
    """The row of a table with these accuracies, seed by seed, on splits 0 and 1."""
    lines = [
        {
            "name": "aspect",
            "budget": budget,
            "seed": seed,
            "split": split,
            **vars(SplitScore(0.0, 1, 50.0, value, value + 1, value / 2, None, (), (), 0.5)),
            **dict.fromkeys(("prune", "pruned", "prune_score")),
        }
        for budget, by_seed in ((0.0, clean), (0.1, perturbed))
        for seed, values in enumerate(by_seed)
        for split, value in enumerate(values)
    ]
    files = [PerturbationFile.read(place.flips(split)) for split in (0, 1)]
    scores = pd.DataFrame(lines, dtype=object)
    poisons = tuple(evasion_by(files, [0.1]))
    return EvaluationTable("graph", (), "random", "paper", scores, ("a", "b"), poisons).rows[0]


def test_the_drop_is_that_of_the_means(place):
    """Not the mean of drops: (90 + 50) / 2 = 70 falls to (60 + 45) / 2 = 52.5."""
    assert drop_row(place, [[90.0, 50.0]], [[60.0, 45.0]])["drop"] == pytest.approx(25.0)
    gain = drop_row(place, [[50.0, 50.0]], [[55.0, 55.0]])
    assert gain["drop"] == pytest.approx(-10.0)


def test_the_interval_of_a_drop_is_that_of_the_paired_test_over_splits(place):
    """Where every clean score is 100, the drop in percent is the difference in points."""
    test = paired_test([100.0, 100.0], [75.0, 90.0], test_to_train=0.5)
    expected = {"low": pytest.approx(test.low), "high": pytest.approx(test.high)}
    assert drop_row(place, [[100.0, 100.0]], [[75.0, 90.0]])["drop_interval"] == expected
    seeds = drop_row(place, [[100.0, 100.0]] * 2, [[70.0, 88.0], [80.0, 92.0]])
    assert seeds["drop_interval"] == expected


def test_seeds_count_alike(place):
    row = drop_row(place, [[80.0, 60.0], [100.0, 80.0]], [[40.0, 40.0], [80.0, 80.0]])
    assert row["drop"] == pytest.approx(100 * (80 - 60) / 80)
    assert row["clean"]["mean"] == pytest.approx(80.0)
    assert row["perturbed"]["mean"] == pytest.approx(60.0)
    assert row["perturbed"]["seeds"] == 2
    assert row["macro_f1"]["mean"] == pytest.approx(30.0)
    assert [(score["seed"], score["split"], score["strict"]) for score in row["scores"]] == [
        (0, 0, 40.0),
        (0, 1, 40.0),
        (1, 0, 80.0),
        (1, 1, 80.0),
    ]
    assert len(row["clean_scores"]) == 4


def test_no_drop_without_something_to_drop_from(place):
    without = drop_row(place, [], [[60.0, 45.0]])
    assert (without["drop"], without["clean"]) == (None, None)
    assert drop_row(place, [[0.0, 0.0]], [[60.0, 45.0]])["drop"] is None


# Attacks on single nodes


@pytest.fixture(scope="module")
def targets(place):
    """Three test nodes of split 0 with edges, and one of its training nodes."""
    split, degrees = splits_of(place)[0], place.labelled.graph.degrees()
    test, train = (part[degrees[part] > 0] for part in (split.test, split.train))
    return (*test[:3].tolist(), int(train[0]))


@pytest.fixture(scope="module")
def targeted(place, targets):
    """A file of flips at the targets, for split 0."""
    path = place.folder / "targeted.safetensors"
    attack(plan(place.labelled, "nettack", flips=3, targets=targets), path)
    return PerturbationFile.read(path)


def test_a_targeted_attack_is_scored_at_its_targets(place, clean, targets, targeted):
    poison = PerturbedGraph.of(targeted, targeted.perturbation(mode="evade"))
    found = judge([clean], evasion=[poison])
    split = splits_of(place)[0]
    at_targets = Split(split.train, split.validation, torch.tensor(targets[:3]))
    (expected,) = probed(place, computed(clean), [at_targets])
    assert scores_of(found, "aspect")[0] == expected
    supports = found.scores["per_class"].map(lambda scores: sum(one.support for one in scores))
    assert set(supports) == {3}
    assert any("scored at its targets alone" in told for told in found.notices)
    assert any("3 of 4 on split 0" in told for told in found.notices)


def test_a_run_on_a_targeted_file_is_scored_at_the_targets(place, clean, targeted):
    described = PerturbedBy(file=str(targeted.path), features=False)
    experiment = open_run(clean).experiment.model_copy(update={"perturbation": described})
    train_run(experiment, place.folder / "at-targets", RunOptions(device="cpu"))
    found = judge([place.folder / "at-targets", clean])
    supports = found.scores["per_class"].map(lambda scores: sum(one.support for one in scores))
    assert set(supports) == {3}
    (record,), _ = read_runs([place.folder / "at-targets"], device="cpu")
    assert any("scored at its targets alone" in told for told in record.notices)


def test_targets_that_are_no_test_nodes_are_refused(place, clean, targets):
    path = place.folder / "train-target.safetensors"
    attack(plan(place.labelled, "nettack", flips=2, targets=targets[3:]), path)
    file = PerturbationFile.read(path)
    told = rf"none of its targets is a test node of the split. Got the targets {targets[3]}"
    with pytest.raises(GraphError, match=told):
        file.split_of(place.labelled)
    with pytest.raises(GraphError, match=told):
        judge([clean], evasion=[PerturbedGraph.of(file, file.perturbation(mode="evade"))])
