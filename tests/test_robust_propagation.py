"""The variants of `benchmarks/robust_propagation.py`: edge weights, bands and filters."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph, edge_keys
from aspect.methods.aspect import AspectConfig, AspectMethod
from aspect.methods.registry import method_names
from aspect.nn.propagation import SymmetricPropagation
from methods.building import build, step
from reference.graphs import random_graph
from scripts import load_script

script = load_script("robust_propagation")
SETTINGS = {"width": 8, "order": 4, "row_normalise": False, "skip_dim": 4}


def weights_of(graph, penalty="mcp"):
    return script.robust_weights(SymmetricPropagation(graph), graph.features, penalty)


def median_weights_of(graph, temperature=0.1):
    return script.soft_median_weights(SymmetricPropagation(graph), graph.features, temperature)


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def plain_rows(graph):
    """A dense operator, the propagated rows, and the mean cosine of all their pairs."""
    nodes = graph.num_nodes
    looped = torch.eye(nodes, dtype=torch.float64)
    looped[tuple(graph.edge_index)] = 1.0
    root = looped.sum(1) ** -0.5
    smooth = root[:, None] * looped * root[None, :]
    unit = torch.nn.functional.normalize(graph.features, dim=1)
    rows = unit
    for _ in range(5):
        rows = 0.3 * unit + 0.7 * smooth @ rows
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    return smooth, rows, sum(cosine(rows[i], rows[j]) for i, j in pairs) / len(pairs)


def plain_weights(graph, penalty):
    """With a dense operator, and one pair after the other."""
    smooth, rows, mean = plain_rows(graph)
    slopes = []
    for key in edge_keys(graph).tolist():
        i, j = divmod(key, graph.num_nodes)
        part = 0.7 * smooth[i, j]
        apart = 1 - cosine(rows[i] - part * rows[j], rows[j] - part * rows[i])
        distance = max(0.05, (apart / (1 - mean)) ** 0.5)
        slopes.append(1 / distance if penalty == "l1" else max(0.0, 1 / distance - 1))
    found = torch.tensor(slopes, dtype=torch.float64)
    return (found / found.mean()).clamp(min=0.01)


def plain_median(values, weights):
    """One value after the other, until half of the weights are passed."""
    passed = 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        passed += weight
        if passed >= sum(weights) / 2 - 1e-9:
            return value
    raise AssertionError


def plain_median_weights(graph, temperature):
    """With dense matrices, node by node and dimension by dimension."""
    smooth, rows, mean = plain_rows(graph)
    rows = torch.stack([row / row.norm() for row in rows])
    factors = torch.zeros_like(smooth)
    for i in range(graph.num_nodes):
        around = smooth[i].nonzero().flatten().tolist()
        weights = smooth[i, around]
        columns = rows[around].t().tolist()
        median = torch.tensor(
            [plain_median(column, weights.tolist()) for column in columns], dtype=torch.float64
        )
        distances = torch.stack([(rows[j] - median).norm() for j in around]) / (2 - 2 * mean) ** 0.5
        soft = weights * torch.softmax(-distances / temperature, 0)
        factors[i, around] = soft / soft.sum() * weights.sum() / weights
    ends = [divmod(key, graph.num_nodes) for key in edge_keys(graph).tolist()]
    found = torch.stack([(factors[i, j] * factors[j, i]).sqrt() for i, j in ends])
    return found.clamp(min=0.01)


@pytest.mark.parametrize("penalty", ["mcp", "l1"])
@pytest.mark.parametrize("at_once", [7, 2**14])
def test_the_weights_are_the_formula(monkeypatch, at_once, penalty):
    monkeypatch.setattr(script, "EDGES_AT_ONCE", at_once)
    graph = random_graph(isolated=2)
    expected = plain_weights(graph, penalty)
    assert (expected > 1).any()
    assert (expected == 0.01).any() == (penalty == "mcp")
    assert_close(weights_of(graph, penalty), expected)


@pytest.mark.parametrize("temperature", [0.03, 0.3])
@pytest.mark.parametrize("at_once", [1, 60, 2**22])
def test_the_median_weights_are_the_formula(monkeypatch, at_once, temperature):
    monkeypatch.setattr(script, "VALUES_AT_ONCE", at_once)
    graph = random_graph(isolated=2)
    expected = plain_median_weights(graph, temperature)
    assert (expected > 1).any()
    assert (expected == 0.01).any() == (temperature == 0.03)
    assert_close(median_weights_of(graph, temperature), expected)


def test_a_median_of_unequal_weights():
    values = torch.tensor([[[3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [0.0, 0.0, 5.0]]])
    weights = torch.tensor([[0.6, 0.2, 0.2]])
    assert script.weighted_median(values, weights).tolist() == [[[3.0], [1.0], [0.0]]]
    tied = torch.tensor([[0.1, 0.2, 0.3]])  # the first two have half, up to rounding
    assert script.weighted_median(values, tied).tolist() == [[[2.0], [2.0], [0.0]]]


def test_neighbours_that_are_alike_weigh_one():
    graph = random_graph()
    alike = Graph.build(torch.ones_like(graph.features), graph.edge_index)
    assert_close(median_weights_of(alike), torch.ones(graph.num_edges, dtype=torch.float64))


def test_an_infinite_temperature_is_no_median():
    graph = random_graph(isolated=2)
    one = torch.ones(graph.num_edges, dtype=torch.float64)
    assert_close(median_weights_of(graph, float("inf")), one)
    assert_close(median_weights_of(graph, 1e6), one, rtol=1e-5, atol=0)


def test_an_outlier_among_equal_neighbours_weighs_next_to_nothing():
    """A clique of eight, and at one of its nodes an edge to another clique."""
    group = torch.arange(16) // 8
    pairs = [(i, j) for i in range(16) for j in range(i) if group[i] == group[j]]
    features = torch.eye(2, dtype=torch.float64)[group]
    graph = Graph.build(features, torch.tensor([*pairs, (0, 15)]).t())
    weights, between = median_weights_of(graph), edge_keys(graph) == 15
    assert (weights[between] == 0.01).all()
    assert (weights[~between] > 0.7).all()


@pytest.mark.parametrize("weigh", [weights_of, median_weights_of])
def test_relabelling_the_nodes_moves_the_weights_along(weigh):
    graph = random_graph(isolated=1)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(4))
    moved = Graph.build(graph.features[order], torch.argsort(order)[graph.edge_index])

    def matrix(graph):
        dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        both = SymmetricPropagation(graph).both_ways(weigh(graph))
        return dense.index_put(tuple(graph.edge_index), both)

    assert_close(matrix(moved), matrix(graph)[order][:, order])


def test_an_edge_between_unlike_nodes_weighs_least():
    """Two cliques of five nodes, each with a feature of its own, and one edge between them."""
    group = torch.arange(10) // 5
    pairs = [(i, j) for i in range(10) for j in range(i) if group[i] == group[j]]
    noise = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features = torch.eye(2, dtype=torch.float64)[group] + 0.1 * noise
    graph = Graph.build(features, torch.tensor([*pairs, (0, 9)]).t())
    weights, between = weights_of(graph), edge_keys(graph) == 9
    assert (weights[between] == 0.01).all()
    assert (weights[~between] > 0.3).all()


@pytest.mark.parametrize(
    ("kind", "weigh"), [("RobustWeights", weights_of), ("SoftMedian", median_weights_of)]
)
def test_robust_weights_are_those_of_a_weighted_graph(kind, weigh):
    graph = random_graph(num_nodes=24, num_edges=50, num_features=13)
    config = AspectConfig(**SETTINGS)
    both = SymmetricPropagation(graph).both_ways(weigh(graph))
    weighted = replace(graph, weights=both)
    robust = build(getattr(script, kind), config, graph, seed=1)
    plain = build(AspectMethod, config, weighted, seed=1)
    terms, expected = robust.loss_terms(graph, step()), plain.loss_terms(weighted, step())
    assert_close(terms, expected, rtol=0, atol=0)
    assert_close(robust.embed(graph), plain.embed(weighted), rtol=0, atol=0)


def test_no_edge_reaches_the_identity_band():
    graph = random_graph(num_nodes=24, num_edges=50, num_features=13)
    method = build(script.IdentityBand, AspectConfig(**SETTINGS), graph, seed=1)
    alone = Graph.build(graph.features, graph.edge_index[:, :0])
    low, _, identity = method.encode(graph).bands
    assert_close(identity, method.encode(alone).bands[2])
    assert not torch.allclose(low, method.encode(alone).bands[0])
    sum(method.loss_terms(graph, step()).values()).backward()
    assert method.encoder.filters[2].gain.grad.abs() > 0


def test_even_filters_are_the_same_at_both_ends_of_the_spectrum():
    graph = random_graph(num_nodes=24, num_edges=50, num_features=13)
    method = build(script.EvenOrders, AspectConfig(**SETTINGS), graph, seed=1)
    responses = method.encoder.responses(torch.linspace(0, 2, 9))
    assert_close(responses, responses.flip(1))


def test_importing_the_script_registers_nothing():
    names = {"RobustWeights", "SoftMedian", "IdentityBand", "EvenOrders"}
    assert not names & set(method_names())
