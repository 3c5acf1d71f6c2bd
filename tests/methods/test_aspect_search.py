"""The inner problem of any model of ASPECT's kind: that of ASPECT-S, without its settings."""

import pytest
import torch
from torch.testing import assert_close

from aspect.attacks.projected_ascent import Change
from aspect.methods.aspect import AspectMethod
from aspect.methods.aspect_config import AspectConfig
from aspect.methods.aspect_search import SearchScope, inner_problem, known_by
from aspect.methods.registry import find_method
from attacks.searches import BASE, generator, make, problem_of, small_graph

OWN = {name: value for name, value in BASE.items() if name in AspectConfig.model_fields}


@pytest.mark.parametrize("target", ["fused", "band"])
def test_a_plain_model_has_the_problem_of_a_stable_one(target):
    graph = small_graph()
    stable = make(graph, stability_target=target).eval()
    plain = AspectMethod(AspectConfig(**OWN), graph.num_features).to(graph.dtype).eval()
    plain.load_state_dict(stable.state_dict())
    scope = SearchScope(1.0, 0.2, target, 0.7)
    first, second = problem_of(stable, graph), inner_problem(plain, graph, scope, generator())
    flips = torch.rand(len(first.edges.keys), generator=generator(1), dtype=graph.dtype)
    moves = torch.randn(first.entries.count, generator=generator(2), dtype=graph.dtype)
    change = Change(flips, moves)
    assert torch.equal(first.see(change).objective, second.see(change).objective)


def test_the_scope_decides_what_may_change_and_what_is_climbed():
    graph = small_graph()
    method = make(graph).eval()
    wide, narrow = (
        inner_problem(method, graph, SearchScope(candidates, entries, "band", 0.0), generator())
        for candidates, entries in ((0.5, 0.1), (0.0, 0.0))
    )
    assert len(narrow.edges.keys) == graph.num_edges
    assert len(wide.edges.keys) == graph.num_edges + round(0.5 * graph.num_edges)
    assert (narrow.entries.count, wide.rayleigh_weight) == (0, 0.0)
    assert wide.entries.count > 0
    with torch.no_grad():
        assert_close(wide.keys, method.see(graph).views)
        assert torch.equal(known_by(method.see(graph), "band"), method.see(graph).views)


@pytest.mark.parametrize("name", ["low", "high", "random"])
def test_nothing_of_the_model_is_asked_for_a_gradient(name):
    graph, entry = small_graph(), find_method(name)
    method = entry.method(AspectConfig(**OWN), graph.num_features).to(graph.dtype)
    problem = inner_problem(method, graph, SearchScope(1.0, 0.0, "band", 0.0), generator())
    flips = torch.zeros(len(problem.edges.keys), dtype=graph.dtype, requires_grad=True)
    problem.see(Change(flips, problem.nothing().moves)).objective.backward()
    assert flips.grad is not None
    assert all(parameter.grad is None for parameter in method.parameters())
