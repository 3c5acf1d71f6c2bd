"""Adversarial views: pairs flipped by fractions, steps up a slope, and the two searches."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from aspect.attacks.projected_ascent import EdgeCandidates, project_to_budget
from aspect.attacks.view_search import (
    AllPairs,
    SearchReach,
    SomePairs,
    WideSearchReach,
    added_smoothing,
    best_on_the_way,
    find_at_once,
    find_in_turn,
    flippable_pairs,
    slopes_of,
    within_budget,
    worst_features,
    worst_flips,
)
from aspect.data.features import dense, mean_size
from aspect.data.graph import Graph, edge_index_of, edge_keys, flip_pairs
from aspect.data.operators import Propagation
from aspect.methods.ariel import ARIELConfig
from aspect.methods.rdgi import RDGIConfig
from aspect.nn.augmentations import ViewSource
from aspect.nn.propagation import SymmetricPropagation
from reference.graphs import random_graph
from reference.metattack import dense_adjacency, normalised

FEW, NODES = 12, 14


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def sparse_graph():
    return random_graph(FEW, 20, 5, isolated=1)


def diagonal_form(adjacency):
    """With the degrees as diagonal matrices, as the formula reads."""
    looped = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    root = torch.diag(looped.sum(0) ** -0.5)
    return root @ looped @ root


def flipped_by(adjacency, shares):
    """A + S o C, for C = 11' - 2A - I."""
    nodes = len(adjacency)
    direction = torch.ones(nodes, nodes, dtype=torch.float64) - 2 * adjacency - torch.eye(nodes)
    return adjacency + (shares.triu(1) + shares.triu(1).t()) * direction


def every_pair(graph):
    """All pairs as candidates: the other form of the same."""
    low, high = torch.triu_indices(FEW, FEW, 1)
    keys = low * FEW + high
    whole = Graph(graph.features, edge_index_of(keys, FEW))
    present = dense_adjacency(graph)[low, high]
    return SomePairs(EdgeCandidates(keys, present, Propagation(whole, self_loops=True)))


def random_shares(seed=0):
    return torch.rand(FEW, FEW, dtype=torch.float64, generator=generator(seed)).triu(1)


def drawn_flips():
    return torch.bernoulli(0.5 * random_shares(), generator=generator(9))


def as_vector(shares):
    return shares[tuple(torch.triu_indices(FEW, FEW, 1))]


class TestPairs:
    def test_nothing_is_the_graph_s_own_convolution(self, sparse_graph):
        x = torch.eye(FEW, dtype=torch.float64)
        expected = SymmetricPropagation(sparse_graph).smoothing().matrix.dense()
        assert_close(expected, diagonal_form(dense_adjacency(sparse_graph)))
        for pairs in (AllPairs.of(sparse_graph), every_pair(sparse_graph)):
            assert_close(pairs.smoothing(pairs.nothing())(x), expected)

    def test_shares_flip_as_the_formula_says(self, sparse_graph):
        shares, x = random_shares(), torch.eye(FEW, dtype=torch.float64)
        expected = diagonal_form(flipped_by(dense_adjacency(sparse_graph), shares))
        assert_close(AllPairs.of(sparse_graph).smoothing(shares)(x), expected)
        assert_close(every_pair(sparse_graph).smoothing(as_vector(shares))(x), expected)

    def test_slopes_are_those_of_the_formula_the_degrees_included(self, sparse_graph):
        x = torch.randn(FEW, 3, dtype=torch.float64, generator=generator(1))
        shares = random_shares().requires_grad_()
        vector = as_vector(shares.detach()).requires_grad_()

        def slope(matrix, at):
            (found,) = torch.autograd.grad((matrix**2).sum(), at)
            return found

        expected = slope(
            diagonal_form(flipped_by(dense_adjacency(sparse_graph), shares)) @ x, shares
        )
        found = slope(AllPairs.of(sparse_graph).smoothing(shares)(x), shares)
        assert_close(found, expected)
        assert bool((found.tril() == 0).all()), "a pair has one share"
        assert_close(
            slope(every_pair(sparse_graph).smoothing(vector)(x), vector), as_vector(expected)
        )

    def test_what_is_below_the_diagonal_counts_nothing(self, sparse_graph):
        pairs, shares, x = AllPairs.of(sparse_graph), random_shares(), torch.eye(FEW).double()
        noisy = shares + torch.rand(FEW, FEW, generator=generator(2)).double().tril()
        assert_close(pairs.smoothing(noisy)(x), pairs.smoothing(shares)(x))
        assert torch.equal(pairs.keys(noisy), pairs.keys(shares))

    def test_keys_name_the_flipped_pairs(self, sparse_graph):
        flips = drawn_flips()
        low, high = flips.nonzero().t()
        expected = (low * FEW + high).tolist()
        assert expected
        assert AllPairs.of(sparse_graph).keys(flips).tolist() == expected
        assert every_pair(sparse_graph).keys(as_vector(flips)).tolist() == expected


class TestWholeFlips:
    def test_whole_flips_are_a_simple_graph(self, sparse_graph):
        flips = drawn_flips()
        keys = AllPairs.of(sparse_graph).keys(flips)
        found = dense_adjacency(flip_pairs(sparse_graph, keys))
        assert torch.equal(found, flipped_by(dense_adjacency(sparse_graph), flips))
        assert torch.equal(found, found.t())
        assert bool((found.diagonal() == 0).all())
        edges, others = dense_adjacency(sparse_graph) == 1, dense_adjacency(sparse_graph) == 0
        assert bool((found[edges] == 0).any())
        assert bool((found[others] == 1).any())

    def test_additions_keep_every_edge_and_double_those_that_are_named(self, sparse_graph):
        flips = drawn_flips()
        summed = dense_adjacency(sparse_graph) + flips + flips.t()
        assert set(summed.unique().tolist()) == {0.0, 1.0, 2.0}
        found = added_smoothing(sparse_graph, AllPairs.of(sparse_graph).keys(flips))
        assert_close(found.matrix.dense(), diagonal_form(summed))


class TestBudget:
    @given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.floats(0, 12))
    def test_it_is_the_projection(self, values, budget):
        point = torch.tensor(values, dtype=torch.float64)
        assert_close(within_budget(point, budget), project_to_budget(point, budget))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("outlier", [None, 1e7])
    def test_where_it_binds_it_is_met(self, dtype, outlier):
        """Also where one share is so far ahead that the shift is hard to find beside it."""
        shares = torch.randn(90, 90, dtype=dtype, generator=generator()).triu(1)
        if outlier is not None:
            shares = torch.full((400, 400), 0.5, dtype=dtype).triu(1)
            shares[3, 7] = outlier
        found = within_budget(shares, 31.5)
        assert found.shape == shares.shape
        assert bool(((found >= 0) & (found <= 1)).all())
        assert bool((found.tril() == 0).all())
        assert float(found.double().sum()) == pytest.approx(31.5, rel=1e-4)
        assert_close(within_budget(found, 31.5), found, rtol=1e-4, atol=1e-6)
        # Larger stays larger.
        order = shares.flatten().argsort()
        assert bool((found.flatten()[order].diff() >= 0).all())

    def test_what_is_allowed_stays(self):
        shares = torch.rand(6, 6, generator=generator())
        assert torch.equal(within_budget(shares, 36), shares)
        assert torch.equal(within_budget(shares, 0), torch.zeros(6, 6))


# Steps up a slope


def loss_on(x):
    """How far propagation leaves the features apart from what they were."""
    return lambda operator: ((operator(x) - x) ** 2).mean()


class TestBest:
    def test_a_step_too_far_is_not_taken(self):
        found = best_on_the_way(
            torch.zeros(()), lambda x: -((x - 1) ** 2), lambda x, slope: x + 0.4 * slope, 6
        )
        # From 0 by way of 0.8 to 0.96, and nearer to 1 with each step.
        assert 0.99 < float(found) < 1
        leaps = best_on_the_way(
            torch.zeros(()), lambda x: -((x - 1) ** 2), lambda x, slope: x + 2 * slope, 6
        )
        assert float(leaps) == 0

    def test_the_last_point_is_judged_by_what_is_made_of_it_and_kept_as_it_is(self):
        def climb(x, slope):
            return x + slope

        good = best_on_the_way(torch.zeros(()), lambda x: x.sum(), climb, 3, lambda x: x + 10)
        bad = best_on_the_way(torch.zeros(()), lambda x: x.sum(), climb, 3, lambda x: x - 10)
        assert (float(good), float(bad)) == (3, 2)

    def test_parameters_get_no_gradient(self):
        layer = nn.Linear(3, 2)
        points = torch.randn(4, 3, generator=generator()), torch.zeros(2)
        value, (slope, other) = slopes_of(
            lambda x, shift: (layer(x) + shift).square().mean(), *points
        )
        assert not value.requires_grad
        assert_close(slope, 2 * layer(points[0]) @ layer.weight / 8)
        assert_close(other, 2 * layer(points[0]).sum(0) / 8)
        assert all(p.grad is None and p.requires_grad for p in layer.parameters())
        assert not any(point.requires_grad for point in points)


class TestFlips:
    def search(self, graph, seed=0, **changes):
        settings = {"budget": 5, "step": 20.0, "steps": 8} | changes
        return worst_flips(
            AllPairs.of(graph),
            loss_on(dense(graph.features)),
            generator=generator(seed),
            **settings,
        )

    def test_what_is_found_does_harm(self, graph):
        loss = loss_on(dense(graph.features))
        before, after = (
            loss(AllPairs.of(each).smoothing(torch.zeros(NODES, NODES, dtype=torch.float64)))
            for each in (graph, flip_pairs(graph, self.search(graph)))
        )
        assert float(after) > float(before)

    def test_flips_are_as_many_as_the_budget_on_average(self, graph):
        counts = [len(self.search(graph, seed)) for seed in range(60)]
        assert 0 < sum(counts) / len(counts) <= 5 + 3 * (5 / 60) ** 0.5

    def test_no_step_flips_nothing(self, graph):
        assert self.search(graph, step=0.0).tolist() == []
        assert self.search(graph, budget=0).tolist() == []

    def test_steps_are_of_the_matrix_s_own_entries(self, graph):
        """A step along half of what a pair's share would have, mirrored: a plain form of it."""
        x, steps, budget, step = dense(graph.features), 3, 4, 30.0
        clean = dense_adjacency(graph)
        direction = 1 - 2 * clean - torch.eye(NODES)
        best, highest, shares = None, -1.0, torch.zeros(NODES, NODES, dtype=torch.float64)
        draws = generator()

        def loss(matrix):
            return ((normalised(clean + matrix * direction) @ x - x) ** 2).mean()

        for _ in range(steps):
            held = shares.clone().requires_grad_()
            value = loss(held)
            (slope,) = torch.autograd.grad(value, held)
            if float(value.detach()) > highest:
                best, highest = shares, float(value.detach())
            shares = plain_projection(shares + step * (slope + slope.t()) / 2, 2 * budget)
        flips = torch.bernoulli(shares.triu(1), generator=draws)
        if float(loss(flips + flips.t())) > highest:
            best = shares
        drawn = torch.bernoulli(best.triu(1), generator=draws)
        found = self.search(graph, budget=budget, step=step, steps=steps)
        low, high = drawn.nonzero().t()
        assert found.tolist() == (low * NODES + high).tolist() != []


def plain_projection(matrix, total):
    """Bisection over the whole matrix, both triangles counted; the diagonal stays empty."""
    matrix = matrix.clone().fill_diagonal_(0)
    if matrix.clamp(0, 1).sum() <= total:
        return matrix.clamp(0, 1)
    low, high = float(matrix.min()) - 1, float(matrix.max())
    for _ in range(200):
        middle = (low + high) / 2
        above = (matrix - middle).clamp(0, 1).fill_diagonal_(0).sum() > total
        low, high = (middle, high) if above else (low, middle)
    return (matrix - high).clamp(0, 1).fill_diagonal_(0)


class TestFeatures:
    @pytest.mark.parametrize(("box", "step"), [(0.1, 1e-5), (0.02, 0.01)])
    def test_entries_move_no_further_than_allowed_and_stay_in_range(self, box, step):
        x = torch.rand(9, 5, dtype=torch.float64, generator=generator())
        x[0, :2] = torch.tensor([0.0, 1.0])
        target = torch.randn(9, 5, dtype=torch.float64, generator=generator(1))

        def loss(x):
            return ((x - target) ** 2).mean()

        found = worst_features(x, loss, box=box, step=step, steps=10)
        assert float((found - x).abs().max()) <= min(box, 10 * step) + 1e-12
        assert float((found - x).abs().max()) > 0
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        assert float(loss(found)) > float(loss(x))

    def test_a_wider_range_is_kept(self):
        x = 5 * torch.randn(9, 5, dtype=torch.float64, generator=generator())
        found = worst_features(x, lambda x: (x**2).mean(), box=0.1, step=0.05, steps=4)
        inside = (x > x.min()) & (x < x.max())
        assert_close(found[inside], (x + 0.1 * x.sign())[inside])
        assert float(found.min()) == float(x.min())
        assert float(found.max()) == float(x.max())


# The two searches


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
    assert isinstance(ARIELConfig(), SearchReach)
    assert not isinstance(ARIELConfig(), WideSearchReach)
    assert isinstance(RDGIConfig(), WideSearchReach)
