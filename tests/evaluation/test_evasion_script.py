"""The evasion experiment: what its attack does, what chooses, and how variants are compared."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from aspect import mixed_graph
from aspect.attacks.base import apply_flips, flips_within
from aspect.attacks.drawn import random_flips
from aspect.data.splits import make_splits
from aspect.evaluation.linear_probe import TrainedProbe
from scripts import load_script

script = load_script("evasion")

QUICK = "width=16 epochs=5 order=2 gate_width=8 skip_weight=1 skip_dim=4"


@pytest.fixture
def labelled(monkeypatch):
    graph = mixed_graph(num_nodes=150, degree=6.0, num_features=12, seed=0)
    monkeypatch.setattr(script, "load_named", lambda _: graph)
    return graph


def training(variant="aspect", choose=True):
    return script.Training("mixed", variant, 0, 2, choose, QUICK, "cpu")


@pytest.fixture
def probed(labelled):
    """A trained model, its probe, and the validation nodes of a split."""
    model = training().model().fit(labelled.graph, progress=False)
    splits = dict(enumerate(make_splits("search", labelled.labels, labelled.num_classes, 1)))
    clean = model.embed(labelled.graph, normalise="none")
    probe = TrainedProbe.fit(clean, labelled.labels, splits, num_classes=labelled.num_classes)
    return model, probe, splits[0].validation


def answers(model, probe, graph, nodes):
    rows = probe.probe.inputs(model.embed(graph, normalise="none")[nodes])
    return (rows.to(probe.weights[0].dtype) @ probe.weights[0].t()).argmax(1)


def test_the_attack_on_model_and_probe_turns_more_answers_than_random_flips(labelled, probed):
    model, probe, nodes = probed
    graph, budget = labelled.graph, flips_within(script.BUDGET, labelled.graph)
    seen = model.as_seen(graph)
    flips = script.white_box_flips(model, seen, probe.weights[0], nodes, seed=0)
    assert 0 < len(flips) <= budget
    assert len(torch.unique(flips[:, 0] * graph.num_nodes + flips[:, 1])) == len(flips)
    before = answers(model, probe, graph, nodes)
    turned = int((answers(model, probe, apply_flips(graph, flips), nodes) != before).sum())
    draws = [torch.Generator().manual_seed(seed) for seed in range(3)]
    drawn = [random_flips(graph, len(flips), draw) for draw in draws]
    others = [
        int((answers(model, probe, apply_flips(graph, each), nodes) != before).sum())
        for each in drawn
    ]
    assert turned > max(others)


def test_the_attack_sees_the_embedding_that_the_probe_reads(labelled, probed):
    model, probe, nodes = probed
    seen = model.as_seen(labelled.graph)
    problem = script.probed_problem(model, seen, probe.weights[0], nodes, seed=0)
    found = problem.logits(*problem.embed(problem.nothing()))
    rows = probe.probe.inputs(model.embed(labelled.graph, normalise="none")[nodes])
    expected = rows.to(probe.weights[0].dtype) @ probe.weights[0].t()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    # Nobody told it more than the clean answers.
    assert torch.equal(problem.answers, expected.argmax(1))


def test_searches_get_the_graph_where_the_model_is(labelled, probed, monkeypatch):
    """On a GPU the graph as read lies elsewhere, and a generator of another device is refused."""
    model, probe, nodes = probed
    labelled = script.replace(labelled, graph=labelled.graph.to(torch.float64))  # as if elsewhere
    given, begin = [], script.find_attack("gradient").begin
    monkeypatch.setattr(
        script.find_attack("gradient"),
        "begin",
        lambda target, **more: given.append(target.graph) or begin(target, **more),
    )
    list(script.perturbed_graphs(training(), labelled, model, probe, {0: nodes}))
    assert [graph.dtype for graph in given] == [torch.float32]  # the model's, not the given one's


def test_what_chooses_sees_no_test_label(labelled, monkeypatch):
    before = script.scores_of(training("aspect-s warm_up=1 interval=2"))
    assert {line["attack"] for line in before} == {"random", "gradient", "white-box"}
    assert {line["part"] for line in before} == {"validation"}
    assert list(pd.read_csv(script.RESULTS).columns) == list(before[0])  # lines can be appended
    other = script.scores_of(training("aspect-s warm_up=1 interval=3"))
    assert len({line["settings"] for line in (*before, *other)}) == 2
    splits = make_splits("search", labelled.labels, labelled.num_classes, 2)
    never = torch.ones(labelled.graph.num_nodes, dtype=torch.bool)
    for split in splits:
        never[torch.cat([split.train, split.validation])] = False
    assert never.any()
    labels = labelled.labels.clone()
    labels[never] = (labels[never] + 1) % labelled.num_classes
    monkeypatch.setattr(script, "make_splits", lambda *_: splits)
    monkeypatch.setattr(script, "load_named", lambda _: script.replace(labelled, labels=labels))
    after = script.scores_of(training("aspect-s warm_up=1 interval=2"))
    for line, other in zip(before, after, strict=True):
        assert {**line, "seconds": 0} == {**other, "seconds": 0}


def test_the_reported_scores_are_those_of_test_nodes(labelled, monkeypatch):
    monkeypatch.setattr(script, "ATTACKED_BY_FILE", ())
    lines = script.scores_of(training(choose=False))
    assert {line["part"] for line in lines} == {"test"}
    splits = make_splits("class-balanced", labelled.labels, labelled.num_classes, 2)
    model = training().model().fit(labelled.graph, progress=False)
    rows = model.embed(labelled.graph, normalise="none")
    probe = TrainedProbe.fit(
        rows, labelled.labels, dict(enumerate(splits)), num_classes=labelled.num_classes
    )
    for number, score in enumerate(probe.clean.splits):
        found = {line["clean"] for line in lines if line["split"] == number}
        assert found == {round(score.strict, 3)}


def scores(difference):
    generator = np.random.default_rng(0)
    lines = []
    for seed in range(2):
        for split in range(10):
            base = 70 + generator.normal()
            for variant, more in (("aspect", 0.0), ("aspect-s", difference)):
                line = {"graph": "cora", "variant": variant, "seed": seed, "attack": "random"}
                line |= {"split": split, "part": "test", "clean": 80.0, "shift": 0.5}
                lines.append({**line, "perturbed": base + more + 0.1 * generator.normal()})
    return pd.DataFrame(lines)


def test_variants_are_compared_with_aspect_on_the_same_splits_and_seeds():
    table = script.compared(scores(1.0)).set_index("attack")
    assert table.loc["random", "difference"] == pytest.approx(1.0, abs=0.1)
    assert table.loc["random", "decided"]
    assert table.loc["clean", "difference"] == 0
    assert not script.compared(scores(0.0)).decided.any()
    assert "aspect-s" in script.shown(scores(1.0), brief=True)
    only = scores(1.0)
    assert "No variant" in script.shown(only[only.variant == "aspect-s"])
    turned = script.compared(scores(1.0), "aspect-s").set_index("attack")
    assert turned.loc["random", "difference"] == pytest.approx(-1.0, abs=0.1)


def test_many_claims_are_corrected():
    many = pd.concat([scores(0.0).assign(graph=name) for name in "abcdefgh"])
    one = scores(0.12)  # decided were it the only claim
    alone = script.compared(one).set_index("attack").loc["random"]
    among = script.compared(pd.concat([one, many])).query("attack == 'random'").iloc[0]
    assert alone.decided
    assert among.p == alone.p
    assert among.holm > alone.holm
    assert not among.decided


def test_a_second_call_goes_on_with_what_is_missing(tmp_path, monkeypatch, capsys):
    asked = []

    def note(trainings, *_):
        asked.append([(one.graph, one.variant, one.seed) for one in trainings])

    monkeypatch.setattr(script, "train_all", note)
    path = tmp_path / "evasion.csv"
    scores(1.0).query("seed == 0").to_csv(path, index=False)
    assert script.main(["aspect-s", "--graph", "cora", "--seeds", "2", "--out", str(path)]) == 0
    assert asked == [[("cora", "aspect", 1), ("cora", "aspect-s", 1)]]
    assert script.main(["--choose", "--out", str(path)]) == 2  # these are of test nodes
    assert script.main(["--tables", "--out", str(path)]) == 0
    assert len(asked) == 1
    assert "mean over graphs" in capsys.readouterr().out


ATTACKS = ["clean", "metattack", "random", "gradient", "white-box"]


def rows_of_the_guide():
    """Differences to ASPECT that docs/robustness.md shows, by the first cell of their rows."""
    page = (script.ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    signed = [row for row in rows if re.match(r"[+-]\d", row[-1])]
    return {name.lower(): list(map(float, cells)) for name, *cells in signed}


def test_the_table_of_the_guide_is_that_of_the_stored_scores():
    table = script.compared(pd.read_csv(script.RESULTS)).query("variant == 'aspect-s'")
    found = table.set_index(["graph", "attack"]).difference
    told = rows_of_the_guide()
    assert set(table.graph) <= set(told)
    for graph in set(table.graph):
        expected = [found[graph, attack] for attack in ATTACKS]
        assert told[graph] == pytest.approx(expected, abs=0.0501), graph
    assert not table.decided.any()
    assert (table[table.attack != "clean"].p < script.LEVEL).sum() == 2


def test_the_table_without_edge_drop_is_that_of_the_stored_scores():
    stored = script.RESULTS.with_name("evasion_without_edge_drop.csv")
    table = script.compared(pd.read_csv(stored))
    means = table.groupby(["variant", "attack"]).difference.mean()
    names = {
        "aspect-s": "aspect-s",
        "random flips in place of the search": "aspect-s perturbation_steps=0",
    }
    told = rows_of_the_guide()
    for name, variant in names.items():
        expected = [means[variant, attack] for attack in ATTACKS]
        assert told[name] == pytest.approx(expected, abs=0.0501), name
    assert not table.decided.any()
