"""Changes to try a model with: nested, within their budgets, and as other commands find them."""

import pytest
import torch

from aspect import Embedder, mixed_graph
from aspect.attacks.run import AttackRequest, find_flips, plan_attacks
from aspect.data.features import num_entries
from aspect.data.graph import edge_keys
from aspect.evaluation.perturbing import (
    draw_flips,
    draw_masks,
    follow_traces,
    is_searchable,
    search_flips,
)
from aspect.evaluation.shifts import look_at, movement

BUDGETS = (0.05, 0.2)
QUICK = {"width": 16, "gate_width": 8, "device": "cpu"}


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=80, degree=6.0, num_features=8, seed=0)


@pytest.fixture(scope="module")
def graph(labelled):
    return labelled.graph


@pytest.fixture(scope="module")
def model(graph):
    return Embedder("aspect", epochs=30, **QUICK).fit(graph)


def flipped(before, after):
    """The pairs that differ."""
    return set(edge_keys(before).tolist()) ^ set(edge_keys(after).tolist())


def planned(labelled, kind, budget=0.2, numbers=(0, 2)):
    request = AttackRequest(kind=kind, budget=budget, seed=5)
    return plan_attacks(labelled, "mixed", request, list(numbers), torch.device("cpu"))


def test_random_flips_are_those_of_the_attack_of_this_name(labelled, graph):
    found = {(each.split, each.budget): each for each in draw_flips(graph, BUDGETS, (0, 2), 5)}
    assert list(found) == [(0, 0.05), (0, 0.2), (2, 0.05), (2, 0.2)]
    for attack in planned(labelled, "random"):
        trace = find_flips(attack)
        for budget in BUDGETS:
            own = found[attack.facts.split, budget]
            pairs = trace.flips(budget)
            keys = set((pairs[:, 0] * graph.num_nodes + pairs[:, 1]).tolist())
            assert flipped(graph, own.graph) == keys
            assert own.changed == len(keys) == round(budget * graph.num_edges)
            assert own.graph.features is graph.features


def test_masks_nest_and_leave_the_edges_alone(graph):
    small, large, other, _ = draw_masks(graph, BUDGETS, (0, 1), 5)
    for each in (small, large):
        assert each.graph.edge_index is graph.edge_index
        assert each.changed == num_entries(graph.features) - num_entries(each.graph.features)
        assert each.changed == pytest.approx(each.budget * num_entries(graph.features), rel=0.35)
    kept = large.graph.features != 0
    assert torch.equal(large.graph.features[kept], small.graph.features[kept])
    assert int((small.graph.features != 0).sum()) > int(kept.sum())
    assert not torch.equal(other.graph.features, small.graph.features)


def test_a_search_keeps_to_its_budgets_and_they_nest(graph, model):
    small, large = search_flips(model, graph, BUDGETS, seed=0)
    first, second = (flipped(graph, each.graph) for each in (small, large))
    assert first < second
    assert (len(first), len(second)) == (small.changed, large.changed)
    assert large.changed <= round(0.2 * graph.num_edges)
    assert small.split is large.split is None
    assert int(large.graph.degrees().min()) >= 1


def test_what_is_searched_for_moves_more_than_what_is_drawn(graph, model):
    before = look_at(model, graph)

    def shift(perturbed):
        return movement(before, look_at(model, perturbed.graph)).turn.mean

    drawn = [shift(each) for each in draw_flips(graph, (0.1,), range(10), 0)]
    (found,) = search_flips(model, graph, (0.1,), seed=0)
    assert found.changed == round(0.1 * graph.num_edges)
    assert shift(found) > max(drawn)


def test_a_search_leaves_the_model_as_it_was(graph, model, tmp_path):
    own = Embedder.load(saved(model, tmp_path), device="cpu")  # without gradients of its training
    before = {name: value.clone() for name, value in own.method.state_dict().items()}
    list(search_flips(own, graph, BUDGETS, seed=0))
    after = own.method.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in own.method.parameters())


def saved(model, folder):
    model.save(folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.mark.parametrize("name", ["random", "low", "high", "aspect-s"])
def test_all_that_see_through_filters_can_be_searched(graph, name):
    model = Embedder(name, epochs=2, **QUICK).fit(graph)
    assert is_searchable(model)
    (found,) = search_flips(model, graph, (0.1,), seed=0)
    assert 0 < found.changed <= round(0.1 * graph.num_edges)


def test_others_are_searched_by_a_stand_in_that_the_seed_decides(graph, monkeypatch):
    monkeypatch.setattr("aspect.evaluation.perturbing.STAND_IN", {"width": 8, "epochs": 2})
    model = Embedder("raw", device="cpu").fit(graph)
    assert not is_searchable(model)
    first, again, other = (
        [flipped(graph, each.graph) for each in search_flips(model, graph, BUDGETS, seed)]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert first[0] < first[1]


def test_traces_are_followed_split_by_split_without_their_masks(labelled, graph):
    traces = {each.facts.split: find_flips(each) for each in planned(labelled, "metattack")}
    found = list(follow_traces(graph, BUDGETS, traces))
    assert [(each.split, each.budget) for each in found] == [
        (0, 0.05),
        (0, 0.2),
        (2, 0.05),
        (2, 0.2),
    ]
    assert flipped(graph, found[0].graph) < flipped(graph, found[1].graph)
    assert found[1].changed == round(0.2 * graph.num_edges)
    assert found[1].graph.features is graph.features
