"""Adversarial views: pairs flipped by fractions, and the two searches against plain forms."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from aspect.attacks import view_search
from aspect.attacks.projected_ascent import EdgeCandidates, project_to_budget
from aspect.attacks.view_search import (
    AllPairs,
    find_at_once,
    find_in_turn,
    flippable_pairs,
)
from aspect.data.features import dense, mean_size
from aspect.data.graph import Graph, edge_index_of, edge_keys
from aspect.data.operators import Propagation
from aspect.nn.augmentations import ViewSource
from reference.graphs import random_graph
from reference.metattack import dense_adjacency, normalised

NODES = 14


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def graph():
    return random_graph(NODES, 25, 4)


def flipped_by(adjacency, shares):
    """A + S o C, for C = 11' - 2A - I."""
    direction = 1 - 2 * adjacency - torch.eye(NODES, dtype=torch.float64)
    return adjacency + (shares.triu(1) + shares.triu(1).t()) * direction


def every_pair(graph):
    """All pairs as candidates: the other form of the same."""
    low, high = torch.triu_indices(NODES, NODES, 1)
    keys = low * NODES + high
    whole = Graph(graph.features, edge_index_of(keys, NODES))
    present = dense_adjacency(graph)[low, high]
    return EdgeCandidates(keys, present, Propagation(whole, self_loops=True))


def as_vector(shares):
    return shares[tuple(torch.triu_indices(NODES, NODES, 1))]


def slope(matrix, at):
    (found,) = torch.autograd.grad((matrix**2).sum(), at, retain_graph=True)
    return found


def test_second_derivatives_by_shares_are_refused_rather_than_wrong(graph):
    shares = AllPairs.of(graph).nothing().requires_grad_()
    value = AllPairs.of(graph).smoothing(shares)(dense(graph.features)).sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(value, shares, create_graph=True)


def test_shares_flip_as_the_formula_says_the_degrees_included():
    graph = random_graph(NODES, 20, 5, isolated=1)
    x = torch.randn(NODES, 3, dtype=torch.float64, generator=generator(1))
    for size in (0.0, 1.0):
        drawn = torch.rand(NODES, NODES, dtype=torch.float64, generator=generator())
        upper = (size * drawn).triu(1).requires_grad_()
        shares = (upper + upper.t()).detach().requires_grad_()
        vector = as_vector(upper.detach()).requires_grad_()
        expected = normalised(flipped_by(dense_adjacency(graph), upper)) @ x
        matrix = AllPairs.of(graph).smoothing(shares)(x)
        listed = every_pair(graph).smoothing(vector)(x)
        assert_close(matrix, expected)
        assert_close(listed, expected)
        of_pairs = slope(expected, upper).triu(1)
        assert_close(slope(matrix, shares), of_pairs + of_pairs.t())
        assert_close(slope(listed, vector), as_vector(of_pairs))
        keys = AllPairs.of(graph).flipped(shares.detach().round())
        assert (len(keys) > 0) is (size > 0)
        assert torch.equal(keys, every_pair(graph).flipped(vector.detach().round()))


def test_larger_graphs_offer_their_edges_and_some_other_pairs(graph):
    assert isinstance(flippable_pairs(graph, Wide(), generator()), AllPairs)
    some = flippable_pairs(graph, Wide(exact_up_to=NODES - 1), generator())
    assert isinstance(some, EdgeCandidates)
    keys = some.keys
    assert bool(torch.isin(edge_keys(graph), keys).all())
    assert graph.num_edges < len(keys) <= 3 * graph.num_edges


@pytest.fixture(params=["asked", "unasked"])
def asked(request, monkeypatch):
    """As on a CPU, and as on a GPU."""
    if request.param == "unasked":
        monkeypatch.setattr(view_search, "UNASKED", ("cpu",))
    return request.param == "asked"


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("outlier", [None, 1e7])
def test_the_budget_of_a_whole_graph_is_the_projection(outlier):
    """Also where one share is so far ahead that the shift is hard to find beside it."""
    shares = torch.randn(90, 90, generator=generator()).triu(1)
    if outlier is not None:
        shares = torch.full((400, 400), 0.5).triu(1)
        shares[3, 7] = outlier
    expected = project_to_budget(shares.flatten(), 31.5).view_as(shares)
    found = view_search._within_budget(shares + shares.t(), 31.5)
    assert_close(found, expected + expected.t(), rtol=1e-3, atol=1e-5)
    assert bool(((found >= 0) & (found <= 1)).all())
    assert float(found.double().sum()) == pytest.approx(2 * 31.5, rel=1e-4)
    assert_close(view_search._within_budget(shares.flatten(), 31.5), expected.flatten())
    inside = torch.rand(6, 6, generator=generator())
    inside = (inside + inside.t()).fill_diagonal_(0) / 2
    assert torch.equal(view_search._within_budget(inside, 15), inside)


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("budget", [0.3, 7, 61.5])
def test_newton_s_steps_find_the_shift(size, budget):
    values = size * torch.rand(500, dtype=torch.float64, generator=generator()) ** 3
    values = torch.cat([values, values[:50], 1 + values[50:90]])  # some of them equal
    expected = project_to_budget(values, budget)
    if float(values.clamp(0, 1).sum()) > budget:
        shift = view_search._newton_shift(values, budget)
        assert_close((values - shift).clamp(0, 1), expected, rtol=1e-12, atol=1e-12)
        assert float((values - shift).clamp(0, 1).sum()) == pytest.approx(budget, rel=1e-14)


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


def roughness(x, operator):
    """How far propagation leaves features apart from what they were."""
    return ((operator(x) - x) ** 2).mean()


def in_turn(graph, seed=0, project=dense, **changes):
    clean = ViewSource(graph, normalise_rows=False).clean
    return find_in_turn(graph, clean, project, roughness, Wide(**changes), generator(seed))


def at_once(graph, seed=0, **changes):
    def loss(view):
        return roughness(view.features, view.operator)

    clean = ViewSource(graph, normalise_rows=False).clean
    return find_at_once(graph, clean, loss, Wide(**changes), generator(seed))


def matrix_of(operator):
    return operator(torch.eye(NODES, dtype=torch.float64))


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("search", [in_turn, at_once])
def test_the_view_is_the_flipped_graph_and_does_harm(graph, search):
    features, edges = graph.features.clone(), graph.edge_index.clone()
    found, again = search(graph), search(graph)
    assert len(found.flips) > 0
    shares = torch.zeros(NODES * NODES, dtype=torch.float64)
    shares[found.flips] = 1
    expected = flipped_by(dense_adjacency(graph), shares.reshape(NODES, NODES))
    assert_close(matrix_of(found.view.operator), normalised(expected))
    clean = ViewSource(graph, normalise_rows=False).clean
    before, after = (roughness(view.features, view.operator) for view in (clean, found.view))
    assert float(after) > float(before)
    assert not found.view.features.requires_grad
    assert torch.equal(graph.features, features)
    assert torch.equal(graph.edge_index, edges)
    assert torch.equal(found.flips, again.flips)
    assert torch.equal(found.view.features, again.view.features)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("search", [in_turn, at_once])
def test_flips_are_within_the_budget_on_average(graph, search):
    counts = [len(search(graph, seed, perturbation_budget=0.2).flips) for seed in range(15)]
    budget = 0.2 * graph.num_edges
    assert 0 < sum(counts) / 15 <= budget + 3 * (budget / 15) ** 0.5
    assert search(graph, perturbation_budget=0.0).flips.tolist() == []


@pytest.mark.usefixtures("asked")
def test_flips_in_turn_are_those_of_plain_steps(graph):
    """A step along half of what a pair's share would have, mirrored; the best point is kept."""
    x, budget, step = dense(graph.features), 4, 30.0
    best, highest, shares = None, -1.0, torch.zeros(NODES, NODES, dtype=torch.float64)
    draws = generator()

    def loss(matrix):
        direction = 1 - 2 * dense_adjacency(graph) - torch.eye(NODES)
        return ((normalised(dense_adjacency(graph) + matrix * direction) @ x - x) ** 2).mean()

    for _ in range(3):
        held = shares.clone().requires_grad_()
        value = loss(held)
        (slope,) = torch.autograd.grad(value, held)
        if float(value.detach()) > highest:
            best, highest = shares, float(value.detach())
        shares = plain_projection(shares + step * (slope + slope.t()) / 2, 2 * budget)
    flips = torch.bernoulli(shares.triu(1), generator=draws)
    if float(loss(flips + flips.t())) > highest:
        best = shares
    low, high = torch.bernoulli(best.triu(1), generator=draws).nonzero().t()
    changes = {"perturbation_steps": 3, "edge_step": step, "feature_step": 0.0}
    found = in_turn(graph, perturbation_budget=(budget + 0.1) / graph.num_edges, **changes)
    assert found.flips.tolist() == (low * NODES + high).tolist() != []


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


def test_a_step_too_far_is_not_taken():
    def search(step, last=torch.Tensor.detach):
        return float(
            view_search._best_on_the_way(
                torch.zeros(()), lambda x: -((x - 1) ** 2), lambda x, up: x + step * up, 6, last
            )
        )

    assert 0.99 < search(0.4) < 1  # from 0 by way of 0.8 to 0.96, and nearer to 1 with each step
    assert search(2.0) == 0
    # The last point is judged by what is made of it, and kept as it is.
    assert search(0.4, lambda x: x - 10) < search(0.4)


def test_features_in_turn_move_within_the_box_and_keep_their_range(graph):
    moved = in_turn(graph).view.features
    assert_close(float((moved - graph.features).abs().max()), 0.025)
    inside = torch.rand(NODES, 4, dtype=torch.float64, generator=generator())
    found = in_turn(Graph(inside, graph.edge_index), feature_box=0.5, feature_step=0.2)
    assert float(found.view.features.min()) >= 0
    assert float(found.view.features.max()) <= 1
    wide = Graph(5 * graph.features, graph.edge_index)
    found = in_turn(wide, feature_box=0.5, feature_step=0.2).view.features
    assert float(found.min()) >= min(0.0, float(wide.features.min()))
    assert float(found.max()) <= max(1.0, float(wide.features.max()))
    for changes in ({"feature_box": 0.0}, {"feature_step": 0.0}):
        assert in_turn(graph, **changes).view.features is graph.features


def test_features_are_projected_once_for_all_flips(graph):
    projected = []
    in_turn(graph, project=lambda x: projected.append(x) or dense(x), feature_step=0.0)
    assert len(projected) == 1


def test_without_a_budget_nothing_is_drawn_for_flips(graph):
    own = generator()
    before = own.get_state()
    clean = ViewSource(graph, normalise_rows=False).clean
    reach = Wide(perturbation_budget=0.0, exact_up_to=0)
    found = find_in_turn(graph, clean, dense, roughness, reach, own)
    assert torch.equal(own.get_state(), before)
    assert found.view.operator is clean.operator


@pytest.mark.usefixtures("asked")
def test_official_additions_weigh_an_edge_twice(graph):
    found = in_turn(graph, official_additions=True)
    assert bool(torch.isin(found.flips, edge_keys(graph)).any())
    summed = dense_adjacency(graph)
    low, high = found.flips // NODES, found.flips % NODES
    summed[low, high] += 1
    summed[high, low] += 1
    assert_close(matrix_of(found.view.operator), normalised(summed))


@pytest.mark.usefixtures("asked")
def test_flips_at_once_are_drawn_from_the_point_of_plain_steps(graph):
    """Two steps by dense matrices, the second shorter by the root of two; no budget binds."""
    clean, x, unit = dense_adjacency(graph), graph.features, mean_size(graph.features)
    shares, moves = torch.zeros(NODES, NODES, dtype=torch.float64), torch.zeros_like(x)
    for size in (2.0, 2.0 / 2**0.5):
        s, m = shares.clone().requires_grad_(), moves.clone().requires_grad_()
        loss = roughness(x + unit * m, normalised(flipped_by(clean, s)).matmul)
        to_shares, to_moves = torch.autograd.grad(loss, (s, m))
        shares = (shares + size * to_shares).clamp(0, 1)
        moves = (moves + 0.01 * to_moves.sign()).clamp(-0.025, 0.025)
    found = at_once(graph, edge_step=2.0, perturbation_steps=2)
    assert 0 < float(shares.sum()) < 0.3 * graph.num_edges
    assert_close(found.shares, shares + shares.t())
    assert_close(found.view.features, x + unit * moves)
    bound = at_once(graph, seed=3)
    assert float(bound.shares.sum()) / 2 <= 0.3 * graph.num_edges + 1e-9
    drawn = torch.bernoulli(bound.shares, generator=generator(3))
    assert torch.equal(bound.flips, AllPairs.of(graph).flipped(drawn))
