"""Perturbed graphs, how far bands move, and what the moves allow."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect import mixed_graph
from aspect.data.features import dense
from aspect.evaluation.regret import Draw, mix_risks
from aspect.evaluation.sensitivity import Moves, Stability, perturb, stability

MIXES = torch.linspace(0, 1, 5, dtype=torch.float64)
ROUNDING = 1e-12
few = settings(max_examples=25, deadline=None)


def unit(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1)


def some_moves(seed, *, size=0.3, count=3):
    """Bands of length one, and copies of them that were pushed and brought back to length one."""
    clean = unit(2, 8, 4, seed=seed)
    pushes = [unit(2, 8, 4, seed=seed + 1 + number) for number in range(count)]
    return Moves(clean, [normalize(clean + size * push, dim=-1) for push in pushes])


def some_draws(seed):
    return [Draw(keys, keys) for keys in (unit(8, 4, seed=seed), unit(8, 4, seed=seed + 1))]


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(200, num_features=6, seed=0).graph


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def edges(graph):
    return {(a, b) for a, b in graph.edge_index.t().tolist() if a < b}


def test_flipped_edges_leave_the_features(graph):
    before = edges(graph)
    moved = perturb(graph, "edges", 0.1, generator())
    assert torch.equal(dense(moved.features), dense(graph.features))
    assert len(before ^ edges(moved)) == round(0.1 * len(before))
    assert edges(graph) == before


def test_masked_entries_leave_the_edges(graph):
    moved = perturb(graph, "features", 0.1, generator())
    assert torch.equal(moved.edge_index, graph.edge_index)
    changed = dense(moved.features) != dense(graph.features)
    assert float(changed.double().mean()) == pytest.approx(0.1, abs=0.03)
    assert not bool(dense(moved.features)[changed].any())


@pytest.mark.parametrize("kind", ["edges", "features"])
def test_the_generator_decides(graph, kind):
    first, again, other = (perturb(graph, kind, 0.2, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(dense(first.features), dense(again.features))
    same_edges = torch.equal(first.edge_index, other.edge_index)
    assert not (same_edges and torch.equal(dense(first.features), dense(other.features)))


def test_a_blend_of_one_band_moves_as_that_band():
    moves = some_moves(0)
    shifts, (low, high) = moves.shifts(MIXES), moves.distances()
    assert_close(shifts[:, -1], low)
    assert_close(shifts[:, 0], high)
    by_hand = max(float((each[0, 3] - moves.clean[0, 3]).norm()) for each in moves.perturbed)
    assert float(low[3]) == pytest.approx(by_hand)


@few
@given(st.integers(0, 5000), st.floats(0.05, 3.0), st.floats(0.1, 2.0))
def test_rise_shift_and_bound_stand_in_order(seed, size, temperature):
    found = stability(some_moves(seed, size=size), some_draws(seed), temperature, MIXES)
    assert bool((found.rise <= found.shift + ROUNDING).all())
    assert bool((found.shift <= found.bound + ROUNDING).all())
    assert not bool(found.broken(ROUNDING).any())
    assert found.tightest <= 1


def test_the_bounds_are_the_moves_times_two_over_the_temperature():
    moves = some_moves(5)
    found = stability(moves, some_draws(5), 0.25, MIXES)
    low, high = moves.distances()
    assert_close(found.shift, 8 * moves.shifts(MIXES))
    for place, mix in enumerate(MIXES.tolist()):
        assert_close(found.bound[:, place], 8 * (mix * low + (1 - mix) * high))


def test_the_worst_is_the_worst_of_the_set():
    moves, draws = some_moves(3), some_draws(3)
    found = stability(moves, draws, 0.5, MIXES)
    each = torch.stack([mix_risks(bands, draws, 0.5, MIXES) for bands in moves.perturbed])
    assert_close(found.worst, each.max(dim=0).values)
    assert_close(found.clean, mix_risks(moves.clean, draws, 0.5, MIXES))


@few
@given(st.integers(0, 5000))
def test_no_mixture_of_perturbations_is_worse_than_the_worst(seed):
    """`prop:dro_surrogate_appendix`, for random distributions on the set."""
    moves, draws = some_moves(seed, count=4), some_draws(seed)
    chances = torch.rand(4, dtype=torch.float64, generator=generator(seed)).softmax(0)
    each = torch.stack([mix_risks(bands, draws, 0.5, MIXES) for bands in moves.perturbed])
    expected = (chances[:, None, None] * each).sum(0)
    worst = stability(moves, draws, 0.5, MIXES).worst
    assert bool((expected <= worst + ROUNDING).all())


def test_a_broken_bound_is_noticed():
    ones = torch.ones(1, 1, dtype=torch.float64)
    assert bool(Stability(0 * ones, 2 * ones, ones, 3 * ones).broken(ROUNDING).all())
    assert bool(Stability(0 * ones, ones, 3 * ones, 2 * ones).broken(ROUNDING).all())
    assert not bool(Stability(0 * ones, ones, 2 * ones, 3 * ones).broken(ROUNDING).any())


def test_a_graph_that_holds_still_costs_nothing():
    clean = unit(2, 8, 4, seed=0)
    found = stability(Moves(clean, [clean]), some_draws(0), 0.5, MIXES)
    assert float(found.rise.abs().max()) == float(found.bound.abs().max()) == found.tightest == 0


def two_mixes(clean, other, bound, other_bound):
    """One node that has two mixes to choose from."""
    risks = torch.tensor([[clean, other]], dtype=torch.float64)
    bounds = torch.tensor([[bound, other_bound]], dtype=torch.float64)
    return Stability(risks, risks, bounds, bounds)


@few
@given(*[st.floats(0.0, 5.0)] * 3, st.floats(0.1, 10.0))
def test_a_steadier_mix_wins_if_it_gains_more_than_it_costs(cost, shift, other_shift, lipschitz):
    """`prop:clean_suboptimal_appendix`: E(m~) - E(m_c) < L (S(m_c) - S(m~))."""
    found = two_mixes(0.0, cost + 1e-3, lipschitz * shift, lipschitz * other_shift)
    premise = cost + 1e-3 - lipschitz * (shift - other_shift)
    if abs(premise) > 1e-9:
        assert found.moved.tolist() == [premise < 0]


@pytest.mark.parametrize("size", [0.01, 0.1, 100.0])
def test_the_gap_of_the_construction_is_as_said(size):
    """Clean risk 0 and sensitivity M against eps and none: the bounds differ by L M - eps."""
    lipschitz, cost = 4.0, 0.1
    found = two_mixes(0.0, cost, lipschitz * size, 0.0)
    first, second = (found.clean + found.bound)[0].tolist()
    assert first - second == pytest.approx(lipschitz * size - cost)
    assert found.moved.tolist() == [lipschitz * size > cost]
