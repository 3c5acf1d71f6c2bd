"""The nearest neighbour by neighbour sets against a loop over pairs of sets."""

import math
import os
from collections import Counter
from fractions import Fraction

import pytest
import torch

from aspect.data.datasets import load_named
from aspect.data.graph import Graph
from aspect.data.splits import Split, make_splits
from aspect.data.synthetic import mixed_graph
from aspect.errors import GraphError
from aspect.evaluation import baselines as twins
from aspect.evaluation.baselines import twin_probe

DATA = os.environ.get("ASPECT_DATA", "")


def joined(num_nodes, pairs):
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return Graph.build(torch.ones(num_nodes, 1), edges)


def neighbour_sets(graph):
    sets = [set() for _ in range(graph.num_nodes)]
    for node, other in graph.edge_index.t().tolist():
        sets[node].add(other)
    return sets


def answer(sets, labels, train, node):
    """The rule as it is written, with exact fractions: the cosine, squared."""
    similar = {
        other: Fraction(len(sets[node] & sets[other]) ** 2, len(sets[node]) * len(sets[other]))
        for other in train
        if sets[node] & sets[other]
    }
    most = max(similar.values(), default=None)
    nearest = [other for other in train if similar.get(other) == most] if similar else train
    votes = Counter(labels[other] for other in nearest)
    return min(votes, key=lambda label: (-votes[label], label))


@pytest.mark.parametrize("degree", [1.0, 4.0, 12.0])
@pytest.mark.parametrize("entries", [twins.BLOCK_ENTRIES, 200, 1])
def test_it_is_the_rule_as_written(degree, entries, monkeypatch):
    monkeypatch.setattr(twins, "TWIN_BLOCK_ENTRIES", entries)
    labelled = mixed_graph(num_nodes=90, degree=degree, num_classes=3, num_features=4, seed=5)
    graph, labels = labelled.graph, labelled.labels
    splits = make_splits("random", labels, 3, count=3)
    result = twin_probe(graph, labels, splits, num_classes=3)
    sets, known = neighbour_sets(graph), labels.tolist()
    for split, score, predictions in zip(splits, result.splits, result.predictions, strict=True):
        train = split.train.tolist()
        expected = [answer(sets, known, train, node) for node in split.test.tolist()]
        assert predictions.tolist() == expected
        hits = [answer(sets, known, train, node) == known[node] for node in split.validation]
        assert score.validation == pytest.approx(100 * sum(hits) / len(hits))
    assert (result.probe, result.choice_name) == ("twins", "neighbours")
    assert {(score.choice, score.step, score.optimistic) for score in result.splits} == {
        (1, None, None)
    }


def test_the_labels_of_test_nodes_change_no_answer():
    labelled = mixed_graph(num_nodes=60, num_features=4, seed=1)
    (split,) = make_splits("random", labelled.labels, 2, count=1)
    changed = labelled.labels.clone()
    changed[split.test] = 1 - changed[split.test]
    first = twin_probe(labelled.graph, labelled.labels, [split])
    second = twin_probe(labelled.graph, changed, [split])
    torch.testing.assert_close(first.predictions, second.predictions)
    assert first.strict.mean + second.strict.mean == pytest.approx(100)


def test_a_twin_is_found_among_nodes_that_only_overlap():
    # Nodes 2 and 3 share both neighbours; 4 shares one of them with either.
    graph = joined(7, [(0, 2), (1, 2), (0, 3), (1, 3), (1, 4), (5, 6)])
    labels = torch.tensor([0, 1, 1, 1, 0, 0, 0])
    split = Split(torch.tensor([0, 2, 4]), torch.tensor([5]), torch.tensor([3]))
    assert twin_probe(graph, labels, [split]).predictions[0].tolist() == [1]


def test_without_overlap_the_most_frequent_training_class_is_the_answer():
    graph = joined(6, [(0, 1), (2, 3)])  # 4 and 5 have no neighbours
    labels = torch.tensor([1, 0, 1, 0, 0, 1])
    split = Split(torch.tensor([0, 2, 3]), torch.tensor([4]), torch.tensor([5]))
    result = twin_probe(graph, labels, [split])
    assert result.predictions[0].tolist() == [1]
    assert result.splits[0].validation == 0


def test_equal_votes_go_to_the_lower_class():
    graph = joined(5, [(0, 1), (0, 2), (0, 3), (0, 4)])  # four leaves with the same neighbour
    labels = torch.tensor([2, 2, 1, 1, 0])
    split = Split(torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4]))
    result = twin_probe(graph, labels, [split])
    assert result.predictions[0].tolist() == [1]
    assert result.splits[0].validation == 100


def test_a_graph_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(twins, "MOST_TWIN_NODES", 40)
    labelled = mixed_graph(num_nodes=50, num_features=4)
    with pytest.raises(GraphError, match=r"a graph of at most 40 nodes\. Got 50\."):
        twin_probe(labelled.graph, labelled.labels)


@pytest.mark.skipif(not DATA, reason="needs the data sets' files: set ASPECT_DATA")
@pytest.mark.parametrize(
    ("name", "least"),
    [("chameleon", 74), ("squirrel", 68), ("chameleon_filtered", 44), ("squirrel_filtered", 36)],
)
def test_twins_decide_the_unfiltered_wikipedia_graphs(name, least):
    labelled = load_named(name)
    result = twin_probe(labelled.graph, labelled.labels, "class-balanced")
    assert math.floor(result.strict.mean) in range(least, least + 3)
