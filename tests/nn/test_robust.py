"""Robust edge weights against their formula, pair by pair."""

import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import permute_rows
from aspect.data.graph import Graph, edge_keys
from aspect.nn import robust
from aspect.nn.propagation import SymmetricPropagation
from aspect.nn.robust import robust_weights, with_robust_weights
from reference.graphs import random_graph


def weights_of(graph):
    return robust_weights(SymmetricPropagation(graph), graph.features)


def plain_weights(graph):
    """With a dense operator, and one pair after the other."""
    nodes = graph.num_nodes
    looped = torch.eye(nodes, dtype=torch.float64)
    looped[tuple(graph.edge_index)] = 1.0 if graph.weights is None else graph.weights
    root = looped.sum(1) ** -0.5
    smooth = root[:, None] * looped * root[None, :]
    unit = torch.nn.functional.normalize(graph.features, dim=1)
    rows = unit
    for _ in range(5):
        rows = 0.3 * unit + 0.7 * smooth @ rows

    def cosine(one, other):
        return float(one @ other / (one.norm() * other.norm()))

    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    mean = sum(cosine(rows[i], rows[j]) for i, j in pairs) / len(pairs)
    slopes = []
    for key in edge_keys(graph).tolist():
        i, j = divmod(key, nodes)
        part = 0.7 * smooth[i, j]
        apart = 1 - cosine(rows[i] - part * rows[j], rows[j] - part * rows[i])
        distance = max(0.05, (apart / (1 - mean)) ** 0.5)
        slopes.append(max(0.0, 1 / distance - 1))
    found = torch.tensor(slopes, dtype=torch.float64)
    return (found / found.mean()).clamp(min=0.01)


@pytest.mark.parametrize("at_once", [7, 2**14])
def test_it_is_the_formula(monkeypatch, at_once):
    monkeypatch.setattr(robust, "EDGES_AT_ONCE", at_once)
    graph = random_graph(isolated=2)
    expected = plain_weights(graph)
    assert (expected == 0.01).any()
    assert (expected > 1).any()
    assert_close(weights_of(graph), expected)


def test_a_graph_keeps_its_own_weights_beside_them():
    graph = random_graph()
    both = SymmetricPropagation(graph).both_ways
    own = 1 + torch.arange(graph.num_edges, dtype=torch.float64)
    weighted = Graph.build(graph.features, graph.edge_index, weights=both(own))
    expected = both(own * plain_weights(weighted))
    assert_close(with_robust_weights(weighted, weighted.features).weights, expected)
    assert weighted.weights is not None
    assert_close(weighted.weights, both(own))


def test_relabelling_the_nodes_moves_the_weights_along():
    graph = random_graph(isolated=1)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(4))
    place = torch.argsort(order)
    moved = Graph.build(permute_rows(graph.features, order), place[graph.edge_index])

    def matrix(graph):
        dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        dense[tuple(graph.edge_index)] = with_robust_weights(graph, graph.features).weights
        return dense

    assert_close(matrix(moved), matrix(graph)[order][:, order])


def two_groups():
    """Two cliques of five nodes, each with a feature of its own, and one edge between them."""
    group = torch.arange(10) // 5
    pairs = [(i, j) for i in range(10) for j in range(i) if group[i] == group[j]]
    noise = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features = torch.eye(2, dtype=torch.float64)[group] + 0.1 * noise
    return Graph.build(features, torch.tensor([*pairs, (0, 9)]).t())


def test_an_edge_between_unlike_nodes_weighs_least():
    graph = two_groups()
    weights, between = weights_of(graph), edge_keys(graph) == 9
    assert (weights[between] == 0.01).all()
    assert (weights[~between] > 0.3).all()


def test_gradients_reach_the_features():
    graph = random_graph()
    x = graph.features.clone().requires_grad_()
    weights_of_x = robust_weights(SymmetricPropagation(graph), x)
    (gradient,) = torch.autograd.grad(weights_of_x.square().sum(), x)
    assert torch.isfinite(gradient).all()
    assert gradient.any()


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_features_that_are_all_the_same_give_finite_weights(value):
    graph = random_graph()
    same = torch.full_like(graph.features, value)
    weights = robust_weights(SymmetricPropagation(graph), same)
    assert torch.isfinite(weights).all()
    assert (weights > 0).all()


def test_a_graph_without_edges_stays_as_it_is():
    graph = Graph.build(torch.eye(3), torch.empty(2, 0, dtype=torch.long))
    assert with_robust_weights(graph, graph.features) is graph
