"""A study of stability: numbers against a plain reference, and labels where they may be read."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from torch.nn.functional import cosine_similarity, pdist

from aspect import Embedder, mixed_graph
from aspect.attacks.file import PerturbationFile
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.pr_bcd import PRBCD, PRBCDConfig
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.graph import UNLABELLED, Graph
from aspect.data.splits import make_splits
from aspect.errors import GraphError, SettingsError, UnknownNameError
from aspect.evaluation.linear_probe import evasion_probe
from aspect.evaluation.stability import SplitAccuracy, study_stability
from aspect.evaluation.stability_request import DEFAULT_KINDS, StabilityRequest
from aspect.methods.controls import RawFeatures

QUICK = {"width": 16, "gate_width": 8, "device": "cpu"}
ALL = ["random", "feature", "gradient", "metattack (implicit)"]


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=80, degree=6.0, num_features=8, seed=0)


@pytest.fixture(scope="module")
def model(labelled):
    return Embedder("aspect", epochs=15, **QUICK).fit(labelled)


@pytest.fixture(scope="module")
def found(model, labelled):
    request = StabilityRequest(budgets=[0.02, 0.2], num_splits=2, seed=3)
    return study_stability(model, labelled, request)


def row_of(found, title, budget):
    (row,) = (row for row in found.rows if (row.title, row.budget) == (title, budget))
    return row


def test_every_kind_has_a_row_for_every_budget(found, labelled):
    expected = [(title, budget) for title in ALL for budget in (0.02, 0.2)]
    assert [(row.title, row.budget) for row in found.rows] == expected
    assert [row.kind for row in found.rows[::2]] == list(DEFAULT_KINDS)
    assert found.split_numbers == (0, 1)
    assert (found.nodes, found.edges) == (80, labelled.graph.num_edges)
    assert found.notices == ()
    # One change for each split; a search without labels serves them all.
    assert [len(row.measurements) for row in found.rows[::2]] == [2, 2, 1, 2]
    assert all(row.clean == found.clean for row in found.rows)


@pytest.mark.parametrize("title", ALL)
def test_a_larger_budget_moves_more(found, title):
    small, large = row_of(found, title, 0.02), row_of(found, title, 0.2)
    assert 0 < small.flips + small.masked_entries < large.flips + large.masked_entries
    assert 0 < small.shift.mean < large.shift.mean
    assert small.relative_shift.mean < large.relative_shift.mean
    assert 0 < small.gate_shift < large.gate_shift
    for band in ("low", "high"):
        assert small.band_shift[band].mean < large.band_shift[band].mean
    if title == "gradient":  # what is searched for moves more than what is drawn
        drawn = row_of(found, "random", 0.2)
        assert large.flips == drawn.flips
        most = max(measured.shift.mean for measured in drawn.measurements)
        assert large.shift.mean > most


@pytest.mark.parametrize("title", ["random", "feature"])
def test_numbers_are_those_of_a_plain_count(found, model, labelled, title):
    row = row_of(found, title, 0.2)
    splits = make_splits("random", labelled.labels, 2, count=2)
    before = model.embed(labelled.graph).double()
    alone = Perturbation(kind=title, budget=0.2, features=title == "feature")
    accuracies = []
    for number, (measured, split) in enumerate(zip(row.measurements, splits, strict=True)):
        perturbed = alone.apply(labelled, 3 + number)  # the seed of the study is 3
        after = model.embed(perturbed).double()
        centre = before.mean(dim=0)
        turns = 1 - cosine_similarity(before - centre, after - centre)
        assert measured.shift.mean == pytest.approx(turns.mean().item(), rel=1e-6)
        assert measured.shift.median == pytest.approx(turns.median().item(), rel=0.1)
        relative = (after - before).norm(dim=1) / pdist(before).mean()
        assert measured.relative_shift.mean == pytest.approx(relative.mean().item())
        gates = model.policy(perturbed) - model.policy(labelled.graph)
        assert measured.gate_shift == pytest.approx(gates.abs().mean().item(), rel=1e-5)
        score = evasion_probe(
            before.float(), [after.float()], labelled.labels, [split], num_classes=2
        )
        accuracies.append(score.splits[0].strict)
    assert [score for each in row.measurements for score in each.strict] == [
        SplitAccuracy(*pair) for pair in enumerate(accuracies)
    ]
    assert row.perturbed.mean == pytest.approx(sum(accuracies) / 2)
    clean = sum(score["strict"] for score in found.clean_scores) / 2
    assert row.clean.mean == found.clean.mean == pytest.approx(clean)
    assert row.drop == pytest.approx(100 * (clean - row.perturbed.mean) / clean)
    assert row.shift.mean == pytest.approx(sum(each.shift.mean for each in row.measurements) / 2)


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(found, model, labelled):
    request = StabilityRequest(budgets=[0.02, 0.2], num_splits=2, seed=3)
    again = study_stability(model, labelled, request)
    assert again == found
    request = StabilityRequest(["random", "feature", "gradient"], [0.2], num_splits=2, seed=4)
    other = study_stability(model, labelled, request)
    assert other.clean_scores == found.clean_scores  # splits have seeds of their own
    for row in other.rows:
        assert row.measurements != row_of(found, row.title, 0.2).measurements


def test_all_of_it_is_plain_json(found):
    content = json.loads(json.dumps(asdict(found), allow_nan=False))
    assert content["split_numbers"] == [0, 1]
    assert [score["split"] for score in content["clean_scores"]] == [0, 1]
    row = content["rows"][0]
    assert row["flips"] == found.rows[0].measurements[0].changed
    assert row["masked_entries"] == 0
    assert set(row["shift"]) == set(row["relative_shift"]) == {"mean", "median", "p95"}
    assert set(row["band_shift"]) == {"low", "high"}
    assert row["clean"]["mean"] == content["clean"]["mean"]
    assert row["measurements"][1]["split"] == 1
    assert row["measurements"][1]["strict"] == [
        {"split": 1, "strict": found.rows[0].measurements[1].strict[0].strict}
    ]
    mask = content["rows"][2]
    assert mask["flips"] == 0 < mask["masked_entries"]


def with_masks(labelled, labels=None):
    """One published split, whose nodes do not depend on the labels."""
    nodes = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    parts = dict(zip(("train", "validation", "test"), nodes.split([48, 16, 16]), strict=True))
    masks = {}
    for name, own in parts.items():
        masks[name] = torch.zeros(1, 80, dtype=torch.bool)
        masks[name][0, own] = True
    return replace(labelled, labels=labelled.labels if labels is None else labels, masks=masks)


def test_labels_of_test_nodes_enter_the_last_score_alone(model, labelled):
    clean = with_masks(labelled)
    poisoned = labelled.labels.clone()
    test = clean.masks["test"][0]
    poisoned[test] = 1 - poisoned[test]
    request = StabilityRequest(budgets=[0.1], splits="published")
    honest, other = (
        study_stability(model, each, request) for each in (clean, with_masks(labelled, poisoned))
    )
    for own, their in zip(honest.rows, other.rows, strict=True):
        assert [replace(each, strict=()) for each in own.measurements] == [
            replace(each, strict=()) for each in their.measurements
        ]
        # With two classes, what was right is wrong now: the answers are the same.
        assert own.perturbed.mean == pytest.approx(100 - their.perturbed.mean)
    for name in ("choice", "step", "validation"):
        assert honest.clean_scores[0][name] == other.clean_scores[0][name]


@pytest.mark.parametrize("name", ["raw", "low"])
def test_methods_of_every_kind_can_be_studied(name, labelled, monkeypatch):
    monkeypatch.setattr("aspect.evaluation.stability.STAND_IN", {"width": 8, "epochs": 2})
    settings = {"device": "cpu"} if name == "raw" else {"epochs": 2, **QUICK}
    model = Embedder(name, **settings).fit(labelled)
    request = StabilityRequest(budgets=[0.1], num_splits=1)
    rows = {row.kind: row for row in study_stability(model, labelled, request).rows}
    assert list(rows) == list(DEFAULT_KINDS)
    assert rows["feature"].shift.mean > 0
    if name == "raw":  # no edge is looked at
        assert rows["gradient"].title == "gradient (transferred)"
        assert [rows[kind].shift.mean for kind in ("random", "gradient", "metattack")] == [0] * 3
        assert rows["gradient"].drop == 0
    else:
        assert rows["gradient"].title == "gradient"
        assert rows["gradient"].shift.mean > 0
    assert rows["random"].gate_shift is None


def test_without_labels_shifts_are_left(model, labelled):
    blind = replace(labelled, labels=torch.full_like(labelled.labels, UNLABELLED))
    request = StabilityRequest(budgets=[0.1], num_splits=2)
    found = study_stability(model, blind, request)
    assert [row.kind for row in found.rows] == ["random", "feature", "gradient"]
    assert [len(row.measurements) for row in found.rows] == [2, 2, 1]
    assert all(row.perturbed is row.drop is None for row in found.rows)
    assert found.splits is None
    assert found.clean is None
    assert found.clean_scores == found.split_numbers == ()
    first, second = found.notices
    assert first.startswith("Only the shifts are measured, since no probe can be trained.")
    assert second == "metattack is left out: it needs the classes of training nodes."
    with pytest.raises(GraphError, match="no metattack perturbation: it needs the classes"):
        study_stability(model, blind, StabilityRequest(["metattack"]))
    with pytest.raises(GraphError, match="no node has one"):
        study_stability(model, blind, StabilityRequest(splits="random"))


def test_without_edges_features_are_left(labelled):
    alone = replace(
        labelled, graph=Graph.build(labelled.graph.features, torch.empty(2, 0, dtype=torch.long))
    )
    model = Embedder("raw", device="cpu").fit(alone)
    found = study_stability(model, alone, StabilityRequest(num_splits=1))
    assert {row.kind for row in found.rows} == {"feature"}
    assert "random is left out: the graph has no edges." in found.notices
    with pytest.raises(GraphError, match="no random perturbation: the graph has no edges"):
        study_stability(model, alone, StabilityRequest(["random", "feature"]))


def test_where_nothing_can_change_it_says_so(labelled):
    empty = Graph.build(torch.zeros(80, 3), torch.empty(2, 0, dtype=torch.long))
    model = Embedder("raw", device="cpu").fit(empty)
    with pytest.raises(GraphError, match="Nothing of this graph can be perturbed"):
        study_stability(model, replace(labelled, graph=empty))


def test_budgets_that_allow_nothing():
    tiny = mixed_graph(num_nodes=20, degree=3.0, num_features=4, seed=0)
    edges = tiny.graph.num_edges
    assert edges < 50
    model = Embedder("raw", device="cpu").fit(tiny)
    found = study_stability(model, tiny, StabilityRequest(["random"], num_splits=1))
    assert [row.budget for row in found.rows] == [0.05, 0.1]
    assert f"No budget of 0.01 is tried: it allows no change of {edges} edges." in found.notices
    with pytest.raises(SettingsError, match=f"Budget of 0.01 allows no change of {edges} edges"):
        study_stability(model, tiny, StabilityRequest(["random"], [0.01]))


def test_a_method_that_knows_one_graph_is_refused(labelled, monkeypatch):
    model = Embedder("raw", device="cpu").fit(labelled)
    monkeypatch.setattr(RawFeatures, "inductive", False)
    with pytest.raises(SettingsError, match="raw cannot embed a graph that it was not trained on"):
        study_stability(model, labelled)


def test_steps_are_told_to_the_end(model, labelled):
    told = []
    request = StabilityRequest(["random", "metattack"], [0.1], num_splits=2)
    study_stability(model, labelled, request, on_step=lambda *step: told.append(step))
    done, totals, words = zip(*told, strict=True)
    assert set(totals) == {1 + 1 + 2 + 2}
    assert list(done) == sorted(done)
    assert done[-1] == totals[0]
    assert any(word.startswith("metattack on split 1, ") for word in words)


@pytest.mark.parametrize("share", [0.0, 1.2, float("nan")])
def test_budgets_are_shares(share):
    with pytest.raises(SettingsError, match=r"Budget must be a ratio in \(0, 1\]"):
        StabilityRequest(budgets=[0.1, share])


def test_wishes_are_put_in_order():
    request = StabilityRequest(["metattack", "random", "random"], [0.2, 0.1, 0.2])
    assert request.kinds == ("random", "metattack")
    assert request.budgets == (0.1, 0.2)
    with pytest.raises(UnknownNameError, match="Did you mean 'gradient'"):
        StabilityRequest(["gradiant"])
    with pytest.raises(SettingsError, match="Number of splits must be 1 or more"):
        StabilityRequest(num_splits=0)


@pytest.mark.parametrize("kind", ["dice", "pr-bcd"])
def test_every_registered_attack_can_be_tried(model, labelled, kind, monkeypatch):
    short = PRBCDConfig(block_size=500, epochs=8, resampled_epochs=6)
    monkeypatch.setattr(PRBCD, "settle", lambda *_: short)
    request = StabilityRequest([kind], [0.05, 0.1], num_splits=1)
    result = study_stability(model, labelled, request)
    assert [row.kind for row in result.rows] == [kind, kind]
    assert all(row.flips > 0 for row in result.rows)


def test_files_stand_in_for_the_attack_that_would_be_made(model, labelled):
    request = AttackRequest("dice", budget=0.2, splits="random", seed=5)
    planned = plan_attacks(labelled, "mixed", request, [0, 2], torch.device("cpu"))
    files = [run_attack(attack, PerturbationFile(attack.facts)) for attack in planned]
    result = study_stability(
        model,
        labelled,
        StabilityRequest(["metattack"], [0.05, 0.2], splits="random"),
        files={"dice": files},
        split_numbers=(0, 2),
    )
    assert [(row.title, row.budget) for row in result.rows] == [("dice", 0.05), ("dice", 0.2)]
    assert [measured.split for measured in result.rows[1].measurements] == [0, 2]
    assert result.rows[1].flips == round(0.2 * labelled.graph.num_edges)
