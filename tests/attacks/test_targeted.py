"""The script on targeted attacks: which nodes, which graphs, which answers."""

from dataclasses import replace

import torch

from aspect import mixed_graph
from aspect.data.splits import make_splits
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import evasion_probe
from attacks.graphs import edge_set
from scripts import load_script

script = load_script("targeted")

LABELLED = mixed_graph(num_nodes=150, degree=6.0, num_features=12, seed=0)
SPLIT = make_splits("class-balanced", LABELLED.labels, LABELLED.num_classes)[0]


def test_targets_are_test_nodes_and_each_is_attacked_alone():
    nodes = script.drawn_targets(LABELLED.graph, SPLIT, 5, seed=0)
    assert len(nodes) == 5
    assert bool(torch.isin(nodes, SPLIT.test).all())
    graphs = script.attacked_graphs(LABELLED, SPLIT, nodes, 2)
    clean = edge_set(LABELLED.graph)
    for node, graph in zip(nodes.tolist(), graphs, strict=True):
        flipped = edge_set(graph) ^ clean
        assert len(flipped) == 2
        assert all(node in pair for pair in flipped)
    labels = LABELLED.labels.clone()
    labels[SPLIT.test] = (labels[SPLIT.test] + 1) % LABELLED.num_classes
    again = script.attacked_graphs(replace(LABELLED, labels=labels), SPLIT, nodes, 2)
    assert [edge_set(graph) for graph in again] == [edge_set(graph) for graph in graphs]


def test_answers_are_those_of_the_evasion_probe():
    nodes = script.drawn_targets(LABELLED.graph, SPLIT, 6, seed=1)
    graphs = script.attacked_graphs(LABELLED, SPLIT, nodes, 3)
    model = Embedder("propagated").fit(LABELLED.graph)
    before, after = script.right_answers(model, LABELLED, SPLIT, nodes, graphs)
    clean = model.embed(LABELLED.graph, normalise="none")
    for graph_of, count in ((lambda _: LABELLED.graph, before), (graphs.__getitem__, after)):
        right = 0.0
        for place, node in enumerate(nodes):
            alone = replace(SPLIT, test=node.reshape(1))
            other = model.embed(graph_of(place), normalise="none")
            classes = LABELLED.num_classes
            probed = evasion_probe(clean, [other], LABELLED.labels, [alone], num_classes=classes)
            right += probed.splits[0].strict / 100
        assert count == right


def test_a_line_for_each_method_and_raw_features_do_not_move(monkeypatch, capsys):
    monkeypatch.setattr(script, "load_named", lambda _: LABELLED)
    words = ["raw", "propagated", "--targets", "4", "--flips", "2", "--set", "epochs=3"]
    assert script.main(words) == 0
    title, _, raw, propagated = capsys.readouterr().out.splitlines()
    assert "% of 4 targets" in title
    assert raw.split()[0] == "raw"
    clean, attacked = raw.replace("raw", "").split(")")[:2]
    assert clean.strip() == attacked.strip()
    assert propagated.split()[0] == "propagated"
    assert script.main(["raw", "--target", "4000"]) == 2
    assert "Targets must be nodes from 0 to 149" in capsys.readouterr().err
    assert script.shown(5, 10) == "50.0 (24 to 76)"
