"""Ascent that keeps the best point, over flips and over features."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.adversarial.climb import best_on_the_way, slopes_of, worst_features, worst_flips
from aspect.adversarial.flippable import AllPairs
from aspect.data.features import dense
from aspect.data.graph import flip_pairs
from reference.graphs import random_graph
from reference.metattack import dense_adjacency, normalised

NODES = 14


@pytest.fixture
def graph():
    return random_graph(NODES, 25, 4)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


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
