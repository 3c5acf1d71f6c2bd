"""How far a search moves the bands of a trained model, against the search itself."""

import pytest
import torch
from torch.testing import assert_close

from aspect import Embedder, mixed_graph
from aspect.attacks.projected_ascent import Ascent, SearchScope, ascend
from aspect.evaluation import node_sensitivity
from aspect.evaluation.node_sensitivity import search_model
from aspect.methods.aspect_s import AspectSConfig
from aspect.randomness import generator_for

TINY = {"epochs": 3, "width": 4, "order": 2, "gate_width": 4}
OWN = {"warm_up": 0, "interval": 1, "perturbation_steps": 2, "perturbation_budget": 0.1, "draws": 1}


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=60, degree=5.0, num_features=6, seed=0).graph


def fitted(graph, method, **settings):
    return Embedder(method, device="cpu", seed=3, **TINY, **settings).fit(graph)


def found_by_hand(model, seen, config):
    """The same search, put together from its parts."""
    generator = generator_for(0, "search to look at")
    scope = SearchScope(
        config.candidates, config.feature_budget, config.stability_target, config.rayleigh_weight
    )
    problem = model.method.eval().search_problem(seen, scope, generator)
    how = Ascent(
        steps=config.perturbation_steps,
        budget=round(config.perturbation_budget * seen.num_edges),
        edge_step=config.edge_step,
        step_rule=config.step_rule,
        feature_step=config.feature_step,
        feature_box=config.feature_box,
        discretisation=config.discretisation,
        draws=config.draws,
    )
    return ascend(problem, how, generator)


@pytest.mark.parametrize(("method", "changes"), [("aspect", {}), ("aspect-s", OWN)])
def test_aspect_is_searched_by_default_and_aspect_s_as_its_settings_say(graph, method, changes):
    model = fitted(graph, method, **changes)
    seen = model.as_seen(graph)
    expected = found_by_hand(model, seen, AspectSConfig(**TINY | changes))
    moved = search_model(model, seen)
    assert moved.flips == int(expected.change.flips.sum()) > 0
    assert moved.moves == int(expected.change.moves.count_nonzero()) > 0
    assert list(moved.distances) == ["low", "high"]
    distances = (expected.seen.views - expected.before.views).norm(dim=2)
    assert_close(torch.stack(list(moved.distances.values())), distances)
    assert float(distances.max()) > 0


def test_looking_changes_nothing_and_repeats(graph):
    model = fitted(graph, "aspect")
    seen = model.as_seen(graph)
    before = {name: value.clone() for name, value in model.method.state_dict().items()}
    state = torch.get_rng_state()
    first, again = search_model(model, seen), search_model(model, seen)
    assert torch.equal(torch.get_rng_state(), state)
    assert_close(dict(model.method.state_dict()), before, rtol=0, atol=0)
    assert_close(first.distances, again.distances, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["raw", "low", "high"])
def test_without_a_choice_of_bands_there_is_nothing_to_hold_against_the_gate(graph, method):
    settings = {} if method == "raw" else TINY
    model = Embedder(method, device="cpu", **settings).fit(graph)
    assert search_model(model, model.as_seen(graph)) is None


def test_a_graph_whose_search_would_take_too_long_is_not_searched(graph, monkeypatch):
    model = fitted(graph, "aspect")
    monkeypatch.setattr(node_sensitivity, "MOST_SEARCHED_NODES", graph.num_nodes - 1)
    assert search_model(model, model.as_seen(graph)) is None
