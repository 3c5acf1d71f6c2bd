"""Perturbed graphs: decided by split and kind alone, nested over budgets."""

import torch

from aspect.benchmark.perturbation import Perturbation
from aspect.benchmark.perturbed import perturb
from aspect.graph.features import dense


def edges(graph):
    return {tuple(pair) for pair in graph.edge_index.t().tolist()}


def same(first, second):
    equal = torch.equal(dense(first.features), dense(second.features))
    return equal and torch.equal(first.edge_index, second.edge_index)


def test_the_budget_counts_edges_and_masks_features(small_graph):
    graph = small_graph.graph
    perturbed = perturb(graph, Perturbation(kind="random", budget=0.2), 0)
    assert len(edges(graph) ^ edges(perturbed)) == 2 * round(0.2 * graph.num_edges)
    lost = (dense(graph.features) != 0) & (dense(perturbed.features) == 0)
    assert 0 < int(lost.sum()) < lost.numel() / 2


def test_edges_alone(small_graph):
    graph = small_graph.graph
    perturbed = perturb(graph, Perturbation(kind="random", features=False), 0)
    assert perturbed.features is graph.features


def test_the_mode_changes_nothing_and_the_split_everything(small_graph):
    graph = small_graph.graph
    first, again, other = (
        perturb(graph, Perturbation(kind="random", mode=mode), split)
        for mode, split in (("poison", 0), ("evade", 0), ("poison", 1))
    )
    assert same(first, again)
    assert not same(first, other)
    assert edges(first) != edges(other)


def test_smaller_budgets_are_parts_of_larger_ones(small_graph):
    graph = small_graph.graph
    less, more = (
        perturb(graph, Perturbation(kind="random", budget=budget), 3) for budget in (0.1, 0.3)
    )
    assert (edges(graph) ^ edges(less)) < (edges(graph) ^ edges(more))
    gone = dense(less.features) == 0
    assert bool((dense(more.features)[gone] == 0).all())
