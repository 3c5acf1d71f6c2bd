"""What attacks share: budgets, flips applied to a graph, and the labels that an attacker sees."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aspect.attacks.base import Target, apply_flips, flips_within, least_budget
from aspect.data.graph import UNLABELLED, Graph
from aspect.data.splits import make_splits
from aspect.errors import GraphError, SettingsError
from attacks.attempts import labelled_graph
from attacks.graphs import build, edge_set, shapes
from reference.graphs import random_graph

GRAPH = random_graph(10, 20)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, -1])


@pytest.fixture
def ring():
    nodes = torch.arange(20)
    return Graph.build(torch.rand(20, 3), torch.stack([nodes, nodes.roll(1)]))


@pytest.mark.parametrize(("share", "count"), [(0.05, 1), (0.12, 2), (1.0, 20)])
def test_a_budget_counts_undirected_edges(ring, share, count):
    assert ring.num_edges == 20
    assert flips_within(share, ring) == count


@pytest.mark.parametrize("count", [1, 20, 198_353])
def test_the_budget_that_is_offered_allows_one_flip(count):
    share = least_budget(count)
    assert share == float(f"{share:g}") == float(f"{share:.2g}")
    assert round(share * count) == 1
    assert round((share - 10 ** math.floor(math.log10(share) - 1)) * count) == 0


@pytest.mark.parametrize("budget", [0.0, 1.2, float("nan")])
def test_what_is_no_ratio_is_refused(ring, budget):
    with pytest.raises(SettingsError, match=r"ratio in \(0, 1\]"):
        flips_within(budget, ring)


def test_a_budget_that_rounds_to_nothing_is_refused(ring):
    with pytest.raises(SettingsError, match=r"0\.01 allows no flip of 20 edges.*0\.026 or more"):
        flips_within(0.01, ring)
    assert flips_within(0.026, ring) == 1
    empty = Graph.build(torch.rand(3, 2), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match="the graph has none"):
        flips_within(0.5, empty)


@st.composite
def shapes_with_flips(draw):
    shape = draw(shapes(least_edges=0))
    pairs = [(a, b) for a in range(shape[0]) for b in range(shape[0]) if a != b]
    return shape, draw(st.lists(st.sampled_from(pairs), unique_by=frozenset))


@given(shapes_with_flips())
def test_flips_are_the_symmetric_difference(drawn):
    graph, flips = build(drawn[0]), torch.tensor(drawn[1], dtype=torch.long).reshape(-1, 2)
    flipped = apply_flips(graph, flips)
    pairs = {tuple(sorted(pair)) for pair in flips.tolist()}
    assert edge_set(flipped) == edge_set(graph) ^ pairs
    assert (flipped.ids, flipped.notices) == (graph.ids, graph.notices)
    assert flipped.features is graph.features
    built = Graph.build(flipped.features, flipped.edge_index)
    assert torch.equal(built.edge_index, flipped.edge_index)
    again = apply_flips(flipped, flips.flip(1))
    assert torch.equal(again.edge_index, graph.edge_index)


@pytest.mark.parametrize(
    ("flips", "words"),
    [
        ([[1, 1]], r"two different nodes from 0 to 29\. Got \(1, 1\)"),
        ([[-1, 3]], r"Got \(-1, 3\)"),
        ([[1, 2], [2, 1]], r"once\. Got twice: \(1, 2\)"),
    ],
)
def test_what_is_no_set_of_pairs_is_refused(small_graph, flips, words):
    with pytest.raises(GraphError, match=words):
        apply_flips(small_graph.graph, torch.tensor(flips))


def test_the_attacker_sees_training_labels_alone():
    labelled = labelled_graph()
    split = make_splits("class-balanced", labelled.labels, labelled.num_classes)[0]
    target = Target.of(labelled, split)
    seen = (target.labels != UNLABELLED).nonzero().flatten()
    assert torch.equal(seen, split.train)
    assert torch.equal(target.labels[seen], labelled.labels[seen])


def read(labels=LABELS, train=(4, 0, 7), num_classes=3):
    return Target(GRAPH, labels, torch.tensor(train, dtype=torch.long), num_classes).known


def test_nodes_come_in_order_with_their_classes():
    known = read()
    assert known.nodes.tolist() == [0, 4, 7]
    assert known.classes.tolist() == [0, 1, 1]
    assert known.targets.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert known.targets.dtype == GRAPH.dtype
    assert read(num_classes=None).targets.shape == (3, 2)  # as many as there are
    others = torch.full((10,), 999)
    others[[0, 4, 7]] = LABELS[[0, 4, 7]]
    assert torch.equal(read(others).targets, known.targets)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train": ()}, r"needs training nodes with labels\. Got none"),
        ({"train": (0, 10)}, r"from 0 to 9\. Got 10 \(1 in all\)"),
        ({"train": (0, 1, 0)}, r"different from each other\. Got twice: 0 \(1 in all\)"),
        ({"train": (0, 3)}, r"at least 2 classes\. Got 1 class"),
        ({"train": (0, 9)}, r"classes 0 to 2\. Got -1 \(1 in all\)"),
        ({"num_classes": 1}, r"classes 0 to 0\. Got 1 \(1 in all\)"),
        ({"labels": LABELS[:9]}, r"each of the 10 nodes\. Got 9"),
    ],
)
def test_what_teaches_nothing_is_refused(changes, words):
    with pytest.raises(GraphError, match=words):
        read(**changes)
