"""The gradient search: budgets nest, the objective keeps rising, and no node is left alone."""

from dataclasses import replace

import pytest
import torch

from aspect import Embedder, mixed_graph
from aspect.attacks.base import Target, apply_flips, flips_within
from aspect.attacks.drawn import random_flips
from aspect.attacks.projected_ascent import (
    Ascent,
    Change,
    GradientConfig,
    GradientSearch,
    ascend,
)
from aspect.data.graph import Graph
from aspect.evaluation.stability import look_at, movement, searched
from attacks.searches import generator, make, problem_of, small_graph

HOW = Ascent(
    steps=4,
    budget=0,
    edge_step=1.0,
    step_rule="normalised",
    feature_step=0.0,
    feature_box=0.0,
    discretisation="largest",
    draws=1,
)
QUICK = {"width": 16, "gate_width": 8, "device": "cpu"}


def found_on(graph, budgets=None, seed=0, **changes):
    problem = problem_of(make(graph, **changes).eval(), graph, seed)
    target = Target(graph, search_problem=lambda *_: problem)
    search = GradientSearch(target, GradientConfig(steps=4), seed=seed)
    return problem, list(search.find_each(budgets or BUDGETS))


BUDGETS = [3, 9, 20]


def keys_of(flips, graph):
    return set((flips[:, 0] * graph.num_nodes + flips[:, 1]).tolist())


def objective(problem, flips, graph):
    shares = torch.isin(problem.edges.keys, flips[:, 0] * graph.num_nodes + flips[:, 1])
    change = Change(shares.to(graph.dtype), problem.nothing().moves)
    with torch.no_grad():
        return float(problem.see(change).objective)


def test_every_budget_holds_the_one_before_and_does_more_harm():
    graph = small_graph()
    problem, found = found_on(graph)
    assert [len(flips) for flips in found] == BUDGETS
    sets = [keys_of(flips, graph) for flips in found]
    assert sets[0] < sets[1] < sets[2] <= set(problem.edges.keys.tolist())
    assert all(bool((flips[:, 0] < flips[:, 1]).all()) for flips in found)
    with torch.no_grad():
        clean = float(problem.see(problem.nothing()).objective)
    values = [objective(problem, flips, graph) for flips in found]
    assert clean < values[0] < values[1] < values[2]
    assert all(torch.equal(*pair) for pair in zip(found, found_on(graph)[1], strict=True))
    _, used_up = found_on(graph, [4, 4])
    assert torch.equal(*used_up)


def test_pairs_that_are_held_have_no_slope_and_no_effect():
    graph = small_graph()
    problem = problem_of(make(graph).eval(), graph)
    edges = problem.edges
    held = torch.zeros(len(edges.keys), dtype=torch.bool)
    held[::2] = True
    shares = torch.rand(len(held), generator=generator(), dtype=graph.dtype).requires_grad_()
    x = torch.randn(graph.num_nodes, 3, generator=generator(), dtype=graph.dtype)
    answer = replace(edges, held=held).operator(shares)(x)
    plain = edges.operator(torch.where(held, 0, shares.detach()))(x)
    torch.testing.assert_close(answer, plain)
    (slope,) = torch.autograd.grad((answer * x).sum(), shares)
    assert bool((slope[held] == 0).all())
    assert float(slope[~held].abs().min()) > 0


def test_no_node_loses_its_last_edge():
    # A ring with a few chords: most nodes have two edges, some one.
    nodes = torch.arange(30)
    ring = torch.stack([nodes[:-1], nodes[1:]])
    chords = torch.randint(30, (2, 6), generator=generator())
    features = torch.randn(30, 6, generator=generator(), dtype=torch.float64)
    graph = Graph.build(features, torch.cat([ring, chords], dim=1))
    assert int(graph.degrees().min()) == 1
    problem, found = found_on(graph, [5, 15, 30], candidates=0.2)
    for flips in found:
        assert len(flips) > 0
        assert int(apply_flips(graph, flips).degrees().min()) >= 1
    careless = ascend(problem, replace(HOW, budget=30), generator()).change.flips > 0
    keys = problem.edges.keys[careless]
    alone = apply_flips(graph, torch.stack([keys // 30, keys % 30], dim=1)).degrees()
    assert int(alone.min()) == 0  # there was something to be careful about


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=80, degree=6.0, num_features=8, seed=0).graph


@pytest.fixture(scope="module")
def model(graph):
    return Embedder("aspect", epochs=15, **QUICK).fit(graph)


def search_on(model, graph, seed=0):
    return GradientSearch.begin(Target(graph, search_problem=searched(model)), seed=seed)


def test_a_search_moves_a_model_more_than_random_flips(graph, model):
    before, count = look_at(model, graph), flips_within(0.1, graph)

    def shift(flips):
        return movement(before, look_at(model, apply_flips(graph, flips))).shift.mean

    drawn = [shift(random_flips(graph, count, generator(seed))) for seed in range(10)]
    flips = search_on(model, graph).find(count)
    assert len(flips) == count
    assert shift(flips) > max(drawn)


def test_a_search_leaves_the_model_as_it_was(graph, model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    own = Embedder.load(tmp_path / "model.safetensors", device="cpu")
    before = {name: value.clone() for name, value in own.method.state_dict().items()}
    search_on(own, graph).find(12)
    after = own.method.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in own.method.parameters())


@pytest.mark.parametrize("name", ["low", "aspect-s"])
def test_all_that_see_through_filters_can_be_searched(graph, name):
    model = Embedder(name, epochs=2, **QUICK).fit(graph)
    assert model.method.searchable
    assert 0 < len(search_on(model, graph).find(20)) <= 20
