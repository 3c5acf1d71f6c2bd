"""Searches that go on: budgets nest, the objective keeps rising, and no node is left alone."""

from dataclasses import replace

import pytest
import torch

from adversarial.searches import generator, make, problem_of, small_graph
from aspect.adversarial.ascent import Ascent, ascend
from aspect.adversarial.candidates import draw_entries
from aspect.adversarial.nested import HeldCandidates, nested_searches
from aspect.adversarial.problem import Change
from aspect.attacks.flips import apply_flips
from aspect.data.graph import Graph

HOW = Ascent(
    steps=4,
    budget=0,
    edge_step=1.0,
    step_rule="normalised",
    feature_step=0.25,
    feature_box=1.0,
    discretisation="largest",
    draws=1,
)
BUDGETS = [3, 9, 20]


def searched(graph, budgets=BUDGETS, seed=0, how=HOW, **changes):
    problem = problem_of(make(graph, **changes).eval(), graph, seed)
    return problem, list(nested_searches(problem, budgets, how, generator(seed)))


def keys_of(flips, graph):
    return set((flips[:, 0] * graph.num_nodes + flips[:, 1]).tolist())


def objective(problem, flips, graph):
    shares = torch.isin(problem.edges.keys, flips[:, 0] * graph.num_nodes + flips[:, 1])
    change = Change(shares.to(graph.dtype), problem.nothing().moves)
    with torch.no_grad():
        return float(problem.see(change).objective)


@pytest.mark.parametrize("seed", range(3))
def test_every_budget_holds_the_one_before_and_does_more_harm(seed):
    graph = small_graph(seed)
    problem, found = searched(graph, seed=seed)
    assert [len(flips) for flips in found] == BUDGETS
    sets = [keys_of(flips, graph) for flips in found]
    assert sets[0] < sets[1] < sets[2] <= set(problem.edges.keys.tolist())
    assert all(bool((flips[:, 0] < flips[:, 1]).all()) for flips in found)
    with torch.no_grad():
        clean = float(problem.see(problem.nothing()).objective)
    values = [objective(problem, flips, graph) for flips in found]
    assert clean < values[0] < values[1] < values[2]


def test_the_first_search_is_the_plain_one():
    graph = small_graph(1)
    assert int(graph.degrees().min()) > 3  # five flips leave every node an edge
    problem, (flips,) = searched(graph, [5], feature_budget=0.0)
    plain = Ascent(**{**vars(HOW), "budget": 5})
    found = ascend(problem_of(make(graph, feature_budget=0.0).eval(), graph), plain, generator())
    chosen = problem.edges.keys[found.change.flips > 0]
    assert keys_of(flips, graph) == set(chosen.tolist())


def test_pairs_that_are_held_have_no_slope_and_no_effect():
    graph = small_graph()
    problem = problem_of(make(graph).eval(), graph)
    edges = problem.edges
    held = torch.zeros(len(edges.keys), dtype=torch.bool)
    held[::2] = True
    shares = torch.rand(len(held), generator=generator(), dtype=graph.dtype).requires_grad_()
    x = torch.randn(graph.num_nodes, 3, generator=generator(), dtype=graph.dtype)
    own = HeldCandidates(edges.keys, edges.present, edges.propagation, held)
    answer = own.operator(shares)(x)
    plain = edges.operator(torch.where(held, 0, shares.detach()))(x)
    torch.testing.assert_close(answer, plain)
    (slope,) = torch.autograd.grad((answer * x).sum(), shares)
    assert bool((slope[held] == 0).all())
    assert float(slope[~held].abs().min()) > 0


@pytest.mark.parametrize("seed", range(3))
def test_no_node_loses_its_last_edge(seed):
    # A ring with a few chords: most nodes have two edges, some one.
    nodes = torch.arange(30)
    ring = torch.stack([nodes[:-1], nodes[1:]])
    chords = torch.randint(30, (2, 6), generator=generator(seed))
    features = torch.randn(30, 6, generator=generator(seed), dtype=torch.float64)
    graph = Graph.build(features, torch.cat([ring, chords], dim=1))
    assert int(graph.degrees().min()) == 1
    problem, found = searched(graph, [5, 15, 30], seed=seed, candidates=0.2)
    for flips in found:
        assert len(flips) > 0
        assert int(apply_flips(graph, flips).degrees().min()) >= 1
    careless = ascend(problem, replace(HOW, budget=30), generator(seed)).change.flips > 0
    keys = problem.edges.keys[careless]
    alone = apply_flips(graph, torch.stack([keys // 30, keys % 30], dim=1)).degrees()
    assert int(alone.min()) == 0  # there was something to be careful about


def test_a_budget_that_is_used_up_changes_nothing():
    graph = small_graph()
    _, found = searched(graph, [4, 4])
    assert torch.equal(*found)


def test_features_are_left_alone():
    graph = small_graph()
    problem, found = searched(graph, feature_budget=0.2)
    assert problem.entries.count > 0
    none = replace(problem, entries=draw_entries(graph.features, 0.0, generator()))
    without = nested_searches(none, BUDGETS, HOW, generator())
    assert all(torch.equal(*pair) for pair in zip(found, without, strict=True))


def test_the_same_generator_gives_the_same_flips():
    graph = small_graph()
    first, again = searched(graph)[1], searched(graph)[1]
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
