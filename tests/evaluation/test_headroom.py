"""Headroom: seven readings of two bands, against the probe itself and bands made by hand."""

import json
from dataclasses import replace

import pytest
import torch

from aspect import Embedder, mixed_graph
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.splits import make_splits
from aspect.errors import GraphError, SettingsError
from aspect.evaluation import headroom as module
from aspect.evaluation.headroom import (
    FUSIONS,
    MIXES,
    SKIP_NOTICE,
    Gain,
    headroom,
    probe_bands,
    supervised_gate,
)
from aspect.evaluation.linear_probe import linear_probe

QUICK = {"width": 8, "epochs": 3, "gate_width": 4, "device": "cpu"}


def without_edges(labels):
    graph = Graph.build(torch.zeros(len(labels), 1), torch.empty(2, 0, dtype=torch.long))
    return LabelledGraph(graph, labels, ("a", "b"))


def two_regions(nodes=200, dim=6, seed=0):
    """Bands of two regions: each band tells the classes in one of them, and is loud in the other.

    The last column of both bands tells the region, so that a gate can be learned.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (nodes,), generator=generator)
    in_low = torch.arange(nodes) % 2 == 0
    noise = torch.randn(2, nodes, dim, generator=generator)
    signal = (2 * labels - 1).float().unsqueeze(1) + 0.5 * noise
    is_clear = torch.stack([in_low, ~in_low]).unsqueeze(2)
    bands = torch.where(is_clear, signal, 4 * noise)
    bands[..., -1] = torch.where(in_low, 1.0, -1.0)
    weights = torch.stack([in_low, ~in_low], dim=1).float()
    return bands - bands.mean(dim=1, keepdim=True), weights, without_edges(labels)


@pytest.fixture
def hasty(monkeypatch):
    """Few mixes and short trainings, where the numbers do not matter."""
    monkeypatch.setattr(module, "MIXES", (0.0, 0.5, 1.0))
    monkeypatch.setattr(module, "GATE_EPOCHS", 5)


@pytest.fixture(scope="module")
def case():
    bands, weights, labelled = two_regions()
    splits = make_splits("random", labelled.labels, 2, count=2)
    return bands, weights, labelled, splits


def read(bands, weights, labelled, splits, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return probe_bands(bands, weights, labelled, splits, generator=generator)


@pytest.fixture(scope="module")
def results(case):
    return read(*case)


def means(results):
    return {name: result.strict.mean for name, result in results.items()}


def test_a_gate_that_knows_the_regions_wins_and_a_shuffled_one_does_not(results):
    accuracy = means(results)
    assert list(accuracy) == list(FUSIONS)
    assert accuracy["gate"] > accuracy["one-mix"] + 5
    assert accuracy["shuffled-gate"] < accuracy["gate"] - 5
    assert accuracy["supervised-gate"] > accuracy["one-mix"] + 3
    assert accuracy["supervised-gate"] > accuracy["concatenated"] + 3
    assert accuracy["supervised-gate"] <= accuracy["gate"] + 2


def test_readings_are_those_of_the_probe_itself(case, results):
    bands, weights, labelled, splits = case
    scaled = torch.cat([bands[0] * weights[:, :1], bands[1] * weights[:, 1:]], dim=1)
    expected = {
        "low": bands[0],
        "high": bands[1],
        "concatenated": torch.cat(list(bands), dim=1),
        "gate": scaled,
    }
    for name, embeddings in expected.items():
        probed = linear_probe(embeddings, labelled.labels, splits, num_classes=2)
        assert results[name].strict.mean == pytest.approx(probed.strict.mean, abs=1e-9)


def test_one_mix_is_the_one_that_validation_prefers(case, results):
    bands, _, labelled, splits = case
    probed = [
        linear_probe(
            torch.cat([mix * bands[0], (1 - mix) * bands[1]], dim=1),
            labelled.labels,
            splits,
            num_classes=2,
        )
        for mix in MIXES
    ]
    for number, score in enumerate(results["one-mix"].splits):
        best = max(result.splits[number].validation for result in probed)
        assert score.validation == best
        tied = {r.splits[number].strict for r in probed if r.splits[number].validation == best}
        assert score.strict in tied


@pytest.mark.usefixtures("hasty")
def test_labels_of_test_nodes_enter_the_scores_alone_and_unlabelled_nodes_nothing(case):
    bands, weights, labelled, splits = case
    split = splits[0]
    other = labelled.labels.clone()
    other[split.test] = 1 - other[split.test]
    honest = read(bands, weights, labelled, [split])
    loud = 100 * torch.randn(2, 5, bands.shape[2], generator=torch.Generator().manual_seed(1))
    labels = torch.cat([other, torch.full((5,), UNLABELLED)])
    both = torch.cat([bands, loud], dim=1), torch.cat([weights, weights[:5]])
    flipped = read(*both, without_edges(labels), [split])
    for name in set(FUSIONS) - {"shuffled-gate"}:  # another number of nodes is shuffled otherwise
        # With two classes, what was right is wrong now: the answers are the same.
        assert honest[name].strict.mean == pytest.approx(100 - flipped[name].strict.mean)


def test_a_supervised_gate_weighs_the_band_that_tells_the_classes(case):
    bands, weights, labelled, splits = case
    known = labelled.labels.clone()
    known[splits[0].test] = UNLABELLED
    gate = supervised_gate(bands, known, splits[0], 2)
    torch.testing.assert_close(gate.sum(dim=1), torch.ones(len(gate)))
    in_low = weights[:, 0] == 1
    assert float(gate[in_low, 0].mean()) > float(gate[~in_low, 0].mean()) + 0.1
    scaled = supervised_gate(1e-6 * bands, known, splits[0], 2)  # a common scale changes nothing
    torch.testing.assert_close(scaled, gate, rtol=1e-3, atol=1e-3)
    constant = supervised_gate(torch.zeros_like(bands), known, splits[0], 2)
    torch.testing.assert_close(constant, torch.full_like(constant, 0.5))


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=60, degree=5.0, num_features=6, seed=0)


@pytest.mark.usefixtures("hasty")
def test_models_are_seeds_and_all_of_it_is_plain_json(labelled):
    models = [Embedder("aspect", seed=seed, **QUICK).fit(labelled) for seed in (0, 1)]
    told = []
    result = headroom(models, labelled, num_splits=2, on_step=lambda *step: told.append(step))
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["splits"] == "random"
    assert [row["name"] for row in content["rows"]] == list(FUSIONS)
    for row in content["rows"]:
        assert {"mean", "std", "low", "high"} <= set(row["accuracy"])
        assert (row["accuracy"]["seeds"], row["accuracy"]["splits"]) == (2, 2)
        others = [base for base in ("one-mix", "concatenated") if base != row["name"]]
        assert [gain["over"] for gain in row["gains"]] == others
    done, totals, _ = zip(*told, strict=True)
    assert list(done) == list(range(totals[0]))
    gates = torch.cat([model.policy(labelled.graph) for model in models])
    assert content["gate"]["mean"] == pytest.approx(float(gates.mean()))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_a_skip_connection_that_is_left_out_is_told(labelled, weight):
    model = Embedder("aspect", **{**QUICK, "skip_weight": weight}).fit(labelled)
    assert (SKIP_NOTICE in headroom(model, labelled, num_splits=2).notices) == (weight > 0)


@pytest.mark.usefixtures("hasty")
def test_the_supervised_gate_is_trained_on_few_splits_and_compared_on_them(labelled, monkeypatch):
    monkeypatch.setattr(module, "SUPERVISED_SPLITS", 2)
    model = Embedder("aspect-s", **QUICK).fit(labelled)
    result = headroom(model, labelled, num_splits=3)
    supervised = result.row("supervised-gate")
    assert supervised.accuracy.splits == supervised.gains["one-mix"].splits == 2
    assert result.row("gate").gains["one-mix"].splits == 3
    own = make_splits("random", labelled.labels, 2, count=1)
    single = headroom(model, labelled, own)
    assert single.splits == "own"
    assert single.row("gate").gains["one-mix"].low is None
    assert "show no gain" in single.conclusion


@pytest.mark.parametrize("name", ["raw", "low"])
def test_a_method_without_a_gate_is_refused(labelled, name):
    model = Embedder(name, **({"device": "cpu"} if name == "raw" else QUICK)).fit(labelled)
    with pytest.raises(SettingsError, match=f"two bands and a gate: .* Got {name}"):
        headroom(model, labelled)


def test_wrong_input_is_one_sentence(labelled):
    with pytest.raises(SettingsError, match="Headroom needs one or more trained models"):
        headroom([], labelled)
    model = Embedder("aspect", **QUICK).fit(labelled)
    blind = replace(labelled, labels=torch.full_like(labelled.labels, UNLABELLED))
    with pytest.raises(GraphError, match="no node has one"):
        headroom(model, blind)
    with pytest.raises(SettingsError, match="Number of random splits must be from 1 to 10"):
        headroom(model, labelled, num_splits=11)


def test_a_gain_is_paired():
    base = torch.tensor([[80.0, 90.0, 85.0], [82.0, 88.0, 85.0]], dtype=torch.float64)
    gain = Gain.of(base + 2, base, 1 / 3)
    assert (gain.mean, gain.low, gain.high, gain.splits) == (2, 2, 2, 3)
    assert Gain.of(base[:, :1] - 1, base, 1 / 3) == Gain(-1.0, None, None, 1)
    assert Gain(0.4, 0.1, 0.7, 5).in_words == "gains 0.4 ± 0.3"
    assert Gain(-1.0, None, None, 1).in_words == "loses 1.0"


@pytest.mark.parametrize(
    ("possible", "reached", "words"),
    [
        (Gain(0.4, 0.1, 0.7, 5), Gain(0.1, -0.2, 0.4, 10), "can pay here"),
        (Gain(0.2, -0.3, 0.7, 5), Gain(-0.4, -0.9, 0.1, 10), "has little to win here"),
        (Gain(0.2, -0.3, 0.7, 5), Gain(3.0, 2.0, 4.0, 10), "pays here"),
        (Gain(1.0, -0.8, 2.8, 5), Gain(0.1, -0.2, 0.4, 10), "show no gain of node-wise fusion"),
        (Gain(0.1, None, None, 1), Gain(0.1, None, None, 1), "show no gain of node-wise fusion"),
    ],
)
def test_what_follows_is_what_the_intervals_allow(possible, reached, words):
    assert words in module._verdict(possible, reached)
