"""Controls: features as they are, propagated, and beside a spectral embedding."""

import numpy as np
import pytest
import torch

from aspect.config import make_config
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.operators import normalised_adjacency
from aspect.data.synthetic import mixed_graph
from aspect.experiment.plan import load_plan, plan_names
from aspect.methods.registry import find_method, method_names
from aspect.randomness import generator_for


def embedded(name, graph, **settings):
    entry = find_method(name)
    config = make_config(entry.config, settings, owner=name)
    return entry.method(config, graph.num_features).embed(graph)


def small_graph(num_nodes=40, degree=3.0):
    graph = mixed_graph(num_nodes=num_nodes, degree=degree, num_features=5, seed=2).graph
    return graph.to(torch.float64)


def ring(num_nodes, num_features=3):
    features = torch.randn(num_nodes, num_features, generator=generator_for(0, "ring")).double()
    nodes = torch.arange(num_nodes)
    return Graph.build(features, torch.stack([nodes, (nodes + 1) % num_nodes]))


# Propagated features


@pytest.mark.parametrize("hops", [1, 3])
def test_propagated_features_are_powers_of_the_smoothed_adjacency(hops):
    graph = small_graph()
    looped = torch.eye(graph.num_nodes, dtype=torch.float64)
    looped[tuple(graph.edge_index)] = 1
    root = looped.sum(1).rsqrt()
    smooth = root[:, None] * looped * root[None, :]
    features = dense(graph.features)
    expected = [torch.linalg.matrix_power(smooth, hop) @ features for hop in range(hops + 1)]
    lengths = [block.norm(dim=1).mean() for block in expected]
    scaled = [block * lengths[0] / length for block, length in zip(expected, lengths, strict=True)]
    torch.testing.assert_close(embedded("propagated", graph, hops=hops), torch.cat(scaled, dim=1))


def test_without_edges_propagation_repeats_the_features():
    features = torch.randn(6, 2, generator=generator_for(0, "x"))
    graph = Graph.build(features, torch.zeros(2, 0, dtype=torch.long))
    torch.testing.assert_close(embedded("propagated", graph), features.repeat(1, 3))


# Spectral embedding


def structure_of(embedding, graph):
    return embedding[:, graph.num_features :]


@pytest.mark.parametrize("num_nodes", [40, 300])  # dense, and by iteration
def test_the_spectral_block_is_the_truncated_svd(num_nodes):
    graph = small_graph(num_nodes, degree=8.0)
    components = 10
    embedding = embedded("spectral", graph, components=components)
    mean_degree = 2 * graph.num_edges / graph.num_nodes
    matrix = normalised_adjacency(graph, mean_degree).toarray()
    left, values, _ = np.linalg.svd(matrix)
    block = left[:, :components] * values[:components]
    rows = dense(graph.features)
    block *= float(rows.norm(dim=1).mean()) / np.linalg.norm(block, axis=1).mean()
    found = structure_of(embedding, graph).numpy()
    np.testing.assert_allclose(found @ found.T, block @ block.T, atol=1e-4)
    torch.testing.assert_close(embedding[:, : graph.num_features], rows)


def test_the_number_of_components_is_bounded_by_the_nodes():
    graph = small_graph()
    assert embedded("spectral", graph, components=7).shape[1] == 5 + 7
    assert embedded("spectral", graph).shape[1] <= 5 + 40 - 2


@pytest.mark.parametrize("components", [2, 5])
def test_eigenspaces_are_kept_whole_or_left_out(components):
    # But for the first and last, the eigenvalues of a ring come in pairs, and in fours by size.
    graph = ring(12)
    order = torch.randperm(12, generator=generator_for(3, "order"))
    number = torch.empty_like(order)
    number[order] = torch.arange(12)
    other = Graph.build(dense(graph.features)[order], number[graph.edge_index])
    first = embedded("spectral", graph, components=components)[order]
    second = embedded("spectral", other, components=components)
    torch.testing.assert_close(first @ first.t(), second @ second.t(), rtol=1e-9, atol=1e-9)


def test_without_edges_only_the_features_are_left():
    features = torch.randn(6, 2, generator=generator_for(0, "x"))
    graph = Graph.build(features, torch.zeros(2, 0, dtype=torch.long))
    torch.testing.assert_close(embedded("spectral", graph), features)


def test_small_components_do_not_lead():
    # 20 pairs beside a clustered graph: without the added degree, pairs have the eigenvalue one.
    large = mixed_graph(num_nodes=60, degree=10.0, num_features=3, share=0.0, seed=4).graph
    pairs = torch.arange(60, 100).reshape(2, 20)
    features = torch.ones(100, 3)
    graph = Graph.build(features, torch.cat([large.edge_index, pairs], dim=1))
    found = structure_of(embedded("spectral", graph, components=4), graph)
    assert float(found[60:].norm()) < 1e-3 * float(found[:60].norm())


# Plans


@pytest.mark.parametrize("name", plan_names())
def test_every_shipped_plan_shows_the_controls(name):
    plan = load_plan(name)
    evades = any(each is not None and each.mode == "evade" for each in plan.perturbations)
    controls = {"random", "propagated", "raw"} | (set() if evades else {"spectral"})
    assert controls <= {entry.name for entry in plan.entries}


def test_clean_graphs_have_all_methods_and_kinds_of_splits_in_one_plan():
    plan = load_plan("clean")
    variants = {"aspect-s", "aspect-ensemble"}
    assert set(method_names()) - variants == {entry.registered for entry in plan.entries}
    kinds = [(each.splits, each.probe) for each in plan.evaluations("cora")]
    neutral = [("random", "neutral"), ("published", "neutral")]
    assert kinds == [*neutral, ("class-balanced", "paper")]
    assert plan.evaluations("amazon_photo") == plan.evaluations("cora")[:1]
