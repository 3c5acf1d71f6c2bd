"""Searches as a whole, on losses that can be written down."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from aspect.adversarial.flippable import AllPairs, SomePairs
from aspect.adversarial.harm import (
    Reach,
    WideReach,
    find_at_once,
    find_in_turn,
    flippable_pairs,
)
from aspect.data.features import dense, mean_size
from aspect.data.graph import edge_keys
from aspect.methods.ariel import ARIELConfig
from aspect.methods.rdgi import RDGIConfig
from aspect.nn.two_views import ViewSource
from reference.graphs import random_graph
from reference.metattack import dense_adjacency, normalised

NODES = 14


@dataclass(frozen=True)
class Wide:
    """A reach that lets every search do something."""

    perturbation_budget: float = 0.3
    perturbation_steps: int = 6
    edge_step: float = 40.0
    feature_step: float = 0.01
    feature_box: float = 0.025
    exact_up_to: int = NODES
    candidates: int = 2
    official_additions: bool = False


@pytest.fixture
def graph():
    return random_graph(NODES, 25, 4)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def roughness(x, operator):
    """How far propagation leaves features apart from what they were."""
    return ((operator(x) - x) ** 2).mean()


def in_turn(graph, seed=0, **changes):
    clean = ViewSource(graph, normalise_rows=False).clean
    return find_in_turn(graph, clean, dense, roughness, Wide(**changes), generator(seed))


def at_once(graph, seed=0, **changes):
    def loss(view):
        return roughness(view.features, view.operator)

    return find_at_once(graph, graph.features, loss, Wide(**changes), generator(seed))


SEARCHES = [in_turn, at_once]


def flipped(graph, flips):
    matrix = dense_adjacency(graph)
    low, high = flips // NODES, flips % NODES
    for one, other in ((low, high), (high, low)):
        matrix[one, other] = 1 - matrix[one, other]
    return matrix


@pytest.mark.parametrize("search", SEARCHES)
class TestBoth:
    def test_the_view_is_the_flipped_graph_and_does_harm(self, graph, search):
        found = search(graph)
        assert len(found.flips) > 0
        assert_close(found.view.operator.matrix.dense(), normalised(flipped(graph, found.flips)))
        clean = ViewSource(graph, normalise_rows=False).clean
        before, after = (roughness(view.features, view.operator) for view in (clean, found.view))
        assert float(after) > float(before)

    def test_the_graph_is_left_as_it_is(self, graph, search):
        features, edges = graph.features.clone(), graph.edge_index.clone()
        assert not search(graph).view.features.requires_grad
        assert torch.equal(graph.features, features)
        assert torch.equal(graph.edge_index, edges)

    def test_the_same_draws_find_the_same(self, graph, search):
        one, other = search(graph), search(graph)
        assert torch.equal(one.flips, other.flips)
        assert torch.equal(one.view.features, other.view.features)

    def test_flips_are_within_the_budget_on_average(self, graph, search):
        counts = [len(search(graph, seed, perturbation_budget=0.2).flips) for seed in range(40)]
        budget = 0.2 * graph.num_edges
        assert 0 < sum(counts) / 40 <= budget + 3 * (budget / 40) ** 0.5

    def test_no_budget_flips_nothing(self, graph, search):
        assert search(graph, perturbation_budget=0.0).flips.tolist() == []


class TestInTurn:
    def test_features_move_within_the_box(self, graph):
        found = in_turn(graph).view.features
        assert_close(float((found - graph.features).abs().max()), 0.025)

    @pytest.mark.parametrize("changes", [{"feature_box": 0.0}, {"feature_step": 0.0}])
    def test_without_a_box_or_a_step_they_are_left_as_they_are(self, graph, changes):
        assert in_turn(graph, **changes).view.features is graph.features

    def test_without_a_budget_nothing_is_drawn_for_flips(self, graph):
        own = generator()
        before = own.get_state()
        clean = ViewSource(graph, normalise_rows=False).clean
        reach = Wide(perturbation_budget=0.0, exact_up_to=0)
        found = find_in_turn(graph, clean, dense, roughness, reach, own)
        assert torch.equal(own.get_state(), before)
        assert found.view.operator is clean.operator

    def test_features_are_projected_once_for_all_flips(self, graph):
        asked = []

        def project(features):
            asked.append(features)
            return dense(features)

        clean = ViewSource(graph, normalise_rows=False).clean
        find_in_turn(graph, clean, project, roughness, Wide(feature_step=0.0), generator())
        assert len(asked) == 1

    def test_additions_weigh_an_edge_twice(self, graph):
        found = in_turn(graph, official_additions=True)
        assert bool(torch.isin(found.flips, edge_keys(graph)).any())
        summed = dense_adjacency(graph)
        low, high = found.flips // NODES, found.flips % NODES
        summed[low, high] += 1
        summed[high, low] += 1
        assert_close(found.view.operator.matrix.dense(), normalised(summed))

    def test_larger_graphs_offer_their_edges_and_some_other_pairs(self, graph):
        assert isinstance(flippable_pairs(graph, Wide(), generator()), AllPairs)
        some = flippable_pairs(graph, Wide(exact_up_to=NODES - 1), generator())
        assert isinstance(some, SomePairs)
        keys = some.candidates.keys
        assert bool(torch.isin(edge_keys(graph), keys).all())
        assert graph.num_edges < len(keys) <= 3 * graph.num_edges


class TestAtOnce:
    def test_flips_are_drawn_from_the_shares(self, graph):
        found = at_once(graph, seed=3)
        assert float(found.shares.sum()) <= 0.3 * graph.num_edges + 1e-9
        drawn = torch.bernoulli(found.shares, generator=generator(3))
        assert torch.equal(found.flips, AllPairs.of(graph).keys(drawn))

    def test_moves_are_in_units_of_the_entries_mean_size(self, graph):
        moves = at_once(graph).view.features - graph.features
        assert_close(moves.abs().max(), 0.025 * mean_size(graph.features))

    def test_the_point_is_that_of_plain_steps(self, graph):
        """Two steps by dense matrices, the second shorter by the root of two; no budget binds."""
        clean, x, unit = dense_adjacency(graph), graph.features, mean_size(graph.features)
        direction = 1 - 2 * clean - torch.eye(NODES, dtype=torch.float64)
        shares, moves = torch.zeros(NODES, NODES, dtype=torch.float64), torch.zeros_like(x)
        for size in (2.0, 2.0 / 2**0.5):
            s, m = shares.clone().requires_grad_(), moves.clone().requires_grad_()
            matrix = normalised(clean + (s.triu(1) + s.triu(1).t()) * direction)
            loss = roughness(x + unit * m, matrix.matmul)
            to_shares, to_moves = torch.autograd.grad(loss, (s, m))
            shares = (shares + size * to_shares).clamp(0, 1)
            moves = (moves + 0.01 * to_moves.sign()).clamp(-0.025, 0.025)
        found = at_once(graph, edge_step=2.0, perturbation_steps=2)
        assert 0 < float(shares.sum()) < 0.3 * graph.num_edges
        assert_close(found.shares, shares)
        assert_close(found.view.features, x + unit * moves)


def test_the_settings_of_the_methods_are_reaches():
    assert isinstance(ARIELConfig(), Reach)
    assert not isinstance(ARIELConfig(), WideReach)
    assert isinstance(RDGIConfig(), WideReach)
