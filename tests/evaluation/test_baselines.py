"""k-NN, the majority class, and the nearest neighbour by neighbour sets, against plain loops."""

import math
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from aspect.data.graph import Graph
from aspect.data.source import load_named
from aspect.data.splits import Split, make_splits
from aspect.data.synthetic import mixed_graph
from aspect.errors import GraphError, SettingsError
from aspect.evaluation import baselines
from aspect.evaluation.baselines import knn_probe, majority_probe, twin_probe

DATA = os.environ.get("ASPECT_DATA", "")


def blurred(num_classes=3, num_nodes=200, seed=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (num_nodes,), generator=generator)
    centres = torch.randn(num_classes, 8, generator=generator)
    return centres[labels] + torch.randn(num_nodes, 8, generator=generator), labels


def test_two_classes_and_odd_counts_agree_with_scikit_learn():
    count = 3
    embeddings, labels = blurred(num_classes=2)  # an odd vote of two classes has no ties
    splits = make_splits("random", labels, 2, count=3)
    result = knn_probe(embeddings, labels, splits, neighbours=[count])
    for split, found in zip(splits, result.splits, strict=True):
        reference = KNeighborsClassifier(count, metric="cosine", algorithm="brute")
        reference.fit(embeddings[split.train].numpy(), labels[split.train].numpy())
        for nodes, value in ((split.validation, found.validation), (split.test, found.strict)):
            expected = reference.score(embeddings[nodes].numpy(), labels[nodes].numpy())
            assert value == pytest.approx(100 * expected)


def test_equal_votes_go_to_the_more_similar_class():
    angles = torch.tensor([0.0, 0.3, -0.2, 0.05, -0.4, 0.02])
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = torch.tensor([0, 0, 1, 1, 0, 1])  # nodes 1 and 2 vote for node 0: node 2 is nearer
    split = Split(torch.tensor([1, 2]), torch.tensor([0, 3, 5]), torch.tensor([4]))
    result = knn_probe(embeddings, labels, [split], neighbours=[2])
    assert result.splits[0].validation == pytest.approx(100 / 3)  # 0 and 5 to class 1, 3 to 0


def test_validation_chooses_the_number_of_neighbours():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, 3, count=3)
    for split, found in zip(splits, knn_probe(embeddings, labels, splits).splits, strict=True):
        alone = {
            count: knn_probe(embeddings, labels, [split], neighbours=[count]).splits[0]
            for count in baselines.NEIGHBOURS
        }
        best = max(each.validation for each in alone.values())
        first = min(count for count, each in alone.items() if each.validation == best)
        assert (found.choice, found.validation, found.strict) == (first, best, alone[first].strict)


def test_blocks_change_nothing(monkeypatch):
    expected = knn_probe(*blurred())
    assert (expected.optimistic, expected.splits[0].step) == (None, None)
    monkeypatch.setattr(baselines, "BLOCK_ENTRIES", 500)
    assert knn_probe(*blurred()) == expected


def test_test_labels_change_no_choice():
    embeddings, labels = blurred()
    split = make_splits("random", labels, 3, count=1)[0]
    changed = labels.clone()
    changed[split.test] = labels[split.test.flip(0)]
    honest, shuffled = (knn_probe(embeddings, known, [split]) for known in (labels, changed))
    assert honest.splits[0].choice == shuffled.splits[0].choice
    assert honest.strict.mean != shuffled.strict.mean


def test_small_training_sets_drop_the_larger_counts():
    embeddings, labels = blurred(num_nodes=40)
    result = knn_probe(embeddings, labels)
    assert all(each.choice <= 24 for each in result.splits)


@pytest.mark.parametrize("given", [[0], [1, 121], []])
def test_more_neighbours_than_training_nodes_are_refused_with_both_numbers(given):
    named = ", ".join(map(str, given)) or "none"
    with pytest.raises(SettingsError, match=f"smallest training set, 120. Got {named}"):
        knn_probe(*blurred(), "random", neighbours=given)


def test_two_classes_have_a_roc_area():
    assert 50 < knn_probe(*blurred(num_classes=2)).roc_auc.mean <= 100
    labels = torch.arange(2).repeat(30)
    assert majority_probe(labels).roc_auc.mean == 50


def test_majority_answers_the_most_frequent_validation_class():
    labels = torch.tensor([0, 1, 2, 2, 2, 1, 1, 0])
    split = Split(torch.tensor([0, 1]), torch.tensor([2, 3, 5]), torch.tensor([4, 6, 7]))
    found = majority_probe(labels, [split]).splits[0]
    assert found.choice == 2
    assert found.validation == pytest.approx(200 / 3)
    assert found.strict == pytest.approx(100 / 3)


def test_majority_needs_two_classes():
    with pytest.raises(GraphError, match="at least 2 classes"):
        majority_probe(torch.zeros(30, dtype=torch.long))


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="ASPECT_DATA is not set")
@pytest.mark.parametrize(("name", "share"), [("texas", 80.3), ("wisconsin", 67.4), ("cora", 50.7)])
def test_majority_of_real_graphs(name, share):
    with np.load(Path(DATA) / f"{name}.npz", allow_pickle=False) as file:
        assert majority_probe(file["y"], "class-balanced").strict.mean == pytest.approx(
            share, abs=0.051
        )


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


@pytest.mark.parametrize(("degree", "entries"), [(1.0, 200), (4.0, 2**22), (12.0, 1)])
def test_it_is_the_rule_as_written(degree, entries, monkeypatch):
    monkeypatch.setattr(baselines, "TWIN_BLOCK_ENTRIES", entries)
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
    monkeypatch.setattr(baselines, "MOST_TWIN_NODES", 40)
    labelled = mixed_graph(num_nodes=50, num_features=4)
    with pytest.raises(GraphError, match=r"a graph of at most 40 nodes\. Got 50\."):
        twin_probe(labelled.graph, labelled.labels)


@pytest.mark.skipif(not DATA, reason="needs the data sets' files: set ASPECT_DATA")
@pytest.mark.parametrize(
    ("name", "least"),
    [("chameleon", 74), ("chameleon_filtered", 44)],
)
def test_twins_decide_the_unfiltered_wikipedia_graphs(name, least):
    labelled = load_named(name)
    result = twin_probe(labelled.graph, labelled.labels, "class-balanced")
    assert math.floor(result.strict.mean) in range(least, least + 3)
