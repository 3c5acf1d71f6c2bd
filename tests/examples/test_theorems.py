"""Risks against plain loops, the regret's bound against every choice, moves of perturbed bands."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect import mixed_graph
from aspect.data.features import dense
from aspect.examples import theorems as module
from aspect.examples.theorems import (
    BandMoves,
    Draw,
    PerturbationRisk,
    largest_bound,
    mix_risks,
    perturb,
    perturbation_risk,
    regret,
)
from aspect.losses.info_nce import info_nce

ROUNDING = 1e-12
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 10_000)


def growth_bound(growth, prefers_high, prefers_low, gap):
    """The right side of Eq. (5), regret bound, for one growth and two groups."""
    if prefers_high == 0 or prefers_low == 0:
        return 0.0
    return growth / 2 * prefers_high * prefers_low / (prefers_high + prefers_low) * gap**2


def unit(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1)


def grid(count):
    return torch.linspace(0, 1, count, dtype=torch.float64)


def plain_risk(query, keys, positive, temperature):
    """The loss of one query, written out."""
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) / temperature for key in keys]
    hit = sum(a * b for a, b in zip(query, positive, strict=True)) / temperature
    return math.log(sum(math.exp(score) for score in scores)) - hit


@pytest.fixture
def bands():
    return unit(2, 6, 4, seed=0)


@pytest.fixture
def draws():
    return [Draw(keys, keys) for keys in (unit(6, 4, seed=1), unit(6, 4, seed=2))]


def test_risks_equal_the_loop(bands, draws):
    mixes, temperature = grid(5), 0.1
    risks = mix_risks(bands, draws, temperature, mixes)
    for node, place in itertools.product(range(6), range(5)):
        mix = float(mixes[place])
        query = (mix * bands[0, node] + (1 - mix) * bands[1, node]).tolist()
        expected = [
            plain_risk(query, draw.keys.tolist(), draw.positives[node].tolist(), temperature)
            for draw in draws
        ]
        assert float(risks[node, place]) == pytest.approx(sum(expected) / 2, rel=1e-12)


def test_a_single_band_has_the_loss_of_training(bands, draws):
    """At both ends the query has length one, as InfoNCE makes it."""
    risks = mix_risks(bands, draws[:1], 0.3, grid(2))
    keys = draws[0].keys
    assert_close(risks[:, 1], info_nce(bands[0], keys, 0.3).rows)
    assert_close(risks[:, 0], info_nce(bands[1], keys, 0.3).rows)


def test_the_mean_of_the_positives_gives_the_expectation(bands, draws):
    keys = draws[0].keys
    drawn = [Draw(keys, keys[torch.full((6,), which)]) for which in (1, 4)]
    mean = Draw(keys, keys[[1, 4]].mean(0).expand(6, 4))
    assert_close(mix_risks(bands, drawn, 0.5, grid(7)), mix_risks(bands, [mean], 0.5, grid(7)))


def test_blocks_do_not_show(bands, draws, monkeypatch):
    mixes = grid(9)
    whole = mix_risks(bands, draws, 0.2, mixes)
    bound = largest_bound(whole, mixes)
    monkeypatch.setattr(module, "ROWS", 4)
    monkeypatch.setattr(module, "THRESHOLDS", 4)
    assert_close(mix_risks(bands, draws, 0.2, mixes), whole, rtol=0, atol=1e-14)
    assert largest_bound(whole, mixes) == bound


@few
@given(seeds, st.floats(0.05, 2.0))
def test_the_risk_is_convex_in_the_mix(seed, temperature):
    keys = unit(12, 5, seed=seed)
    risks = mix_risks(unit(2, 12, 5, seed=seed + 1), [Draw(keys, keys)], temperature, grid(21))
    bends = risks[:, 2:] - 2 * risks[:, 1:-1] + risks[:, :-2]
    assert float(bends.min()) >= -ROUNDING / temperature


@few
@given(seeds, st.floats(0.2, 2.0))
def test_a_finer_grid_moves_the_regret_by_no_more_than_said(seed, temperature):
    keys, bands = unit(10, 4, seed=seed), unit(2, 10, 4, seed=seed + 1)
    draws, step = [Draw(keys, keys)], 1 / 10
    coarse = regret(mix_risks(bands, draws, temperature, grid(11)))
    fine = regret(mix_risks(bands, draws, temperature, grid(401)))
    assert abs(coarse - fine) <= step**2 / (2 * temperature**2)


def test_regret_is_global_less_node_wise():
    risks = torch.tensor([[0.0, 1.0, 4.0], [4.0, 1.0, 0.0]], dtype=torch.float64)
    assert regret(risks) == 1.0
    assert regret(risks[:1]) == 0.0
    assert regret(risks + torch.tensor([[3.0], [7.0]])) == 1.0


def every_bound(risks, mixes):
    """All growths and gaps, one after the other, as the theorem reads."""
    nodes, best = [], 0.0
    for row in risks.tolist():
        lowest = [m for m, risk in zip(mixes, row, strict=True) if risk == min(row)]
        growths = [
            2 * (risk - min(row)) / min(abs(m - b) for b in lowest) ** 2
            for m, risk in zip(mixes, row, strict=True)
            if m not in lowest and not lowest[0] < m < lowest[-1]
        ]
        nodes.append((min(growths, default=0.0), lowest[0], lowest[-1]))
    for (mu, _, _), start, end in itertools.product(nodes, mixes, mixes):
        if start < end:
            minus = sum(growth >= mu and last <= start for growth, _, last in nodes)
            plus = sum(growth >= mu and first >= end for growth, first, _ in nodes)
            shares = (minus / len(nodes), plus / len(nodes))
            best = max(best, growth_bound(mu, *shares, end - start))
    return best


@few
@given(seeds)
def test_the_bound_is_the_largest_of_all_choices_and_below_the_regret(seed):
    generator = torch.Generator().manual_seed(seed)
    mixes = grid(6)
    wells = torch.rand(7, 1, dtype=torch.float64, generator=generator)
    steepness = torch.rand(7, 1, dtype=torch.float64, generator=generator)
    risks = steepness * (mixes - wells).abs() ** 1.5
    found = largest_bound(risks, mixes)
    assert found.value == pytest.approx(every_bound(risks, mixes.tolist()), rel=1e-12)
    parts = (found.growth, found.prefers_high, found.prefers_low, found.gap)
    assert found.value == pytest.approx(growth_bound(*parts), rel=1e-12)
    assert regret(risks) >= found.value - ROUNDING


@few
@given(seeds)
def test_the_bound_holds_for_any_risks_at_all(seed):
    """The proof asks for growth, not for convexity; here many mixes are equally good."""
    generator = torch.Generator().manual_seed(seed)
    risks = torch.randint(4, (9, 5), generator=generator).double()
    mixes = grid(5)
    found = largest_bound(risks, mixes)
    assert found.value == pytest.approx(every_bound(risks, mixes.tolist()), rel=1e-12)
    assert regret(risks) >= found.value - ROUNDING


@pytest.mark.parametrize(("minus", "plus"), [(5, 5), (1, 9)])
def test_the_bound_is_exact_where_risks_are_quadratic(minus, plus):
    """Two groups, a- = 0.2 and a+ = 0.7: the best mix for all is their mean, on the grid."""
    mixes, growth = grid(101), 3.0
    wells = torch.tensor([0.2] * minus + [0.7] * plus, dtype=torch.float64)[:, None]
    risks = growth / 2 * (mixes - wells).square()
    found, share = largest_bound(risks, mixes), plus / (minus + plus)
    assert found.value == pytest.approx(regret(risks), rel=1e-9)
    assert found.value == pytest.approx(growth / 2 * share * (1 - share) * 0.5**2, rel=1e-9)
    assert found.growth == pytest.approx(growth)
    assert (found.gap_start, found.gap_end) == pytest.approx((0.2, 0.7))
    assert (found.prefers_high, found.prefers_low) == pytest.approx((1 - share, share))


def test_nodes_outside_both_groups_only_add_regret():
    mixes = grid(101)
    wells = torch.tensor([0.2] * 4 + [0.7] * 4, dtype=torch.float64)[:, None]
    two = (mixes - wells).square()
    third = torch.full((2, 101), 5.0, dtype=torch.float64)  # to whom all mixes are equal
    more = torch.cat([two, third])
    assert regret(more) == pytest.approx(0.8 * regret(two))
    found = largest_bound(more, mixes)
    assert found.value == pytest.approx(regret(more), rel=1e-9)
    assert found.prefers_high == found.prefers_low == pytest.approx(0.4)
    agreeing = grid(11).square().expand(5, 11)
    none = largest_bound(agreeing, grid(11))
    assert (none.value, none.gap, regret(agreeing)) == (0.0, 0.0, 0.0)


@few
@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.floats(0.0, 0.5), st.floats(0.01, 0.5))
def test_the_proof_s_inner_minimum_is_what_a_search_finds(p_minus, p_plus, start, gap):
    """min over alpha of p- (alpha - a-)+^2 + p+ (a+ - alpha)+^2 = p- p+ / (p- + p+) Delta^2."""
    end = start + gap
    alpha = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    below, above = (alpha - start).clamp(min=0), (end - alpha).clamp(min=0)
    values = p_minus * below.square() + p_plus * above.square()
    expected = growth_bound(2.0, p_minus, p_plus, gap)
    assert float(values.min()) == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert float(values.min()) >= expected - ROUNDING
    best = (p_minus * start + p_plus * end) / (p_minus + p_plus)
    assert float(alpha[values.argmin()]) == pytest.approx(best, abs=1e-4)


MIXES = torch.linspace(0, 1, 5, dtype=torch.float64)


def some_moves(seed, *, size=0.3, count=3):
    """Bands of length one, and copies of them that were pushed and brought back to length one."""
    clean = unit(2, 8, 4, seed=seed)
    pushes = [unit(2, 8, 4, seed=seed + 1 + number) for number in range(count)]
    return BandMoves(clean, [normalize(clean + size * push, dim=-1) for push in pushes])


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
    found = perturbation_risk(some_moves(seed, size=size), some_draws(seed), temperature, MIXES)
    assert bool((found.rise <= found.shift + ROUNDING).all())
    assert bool((found.shift <= found.bound + ROUNDING).all())
    assert not bool(found.broken(ROUNDING).any())
    assert found.tightest <= 1


@few
@given(st.integers(0, 5000))
def test_no_mixture_of_perturbations_is_worse_than_the_worst(seed):
    """Proposition B.6, worst-case surrogate, for random distributions on the set."""
    moves, draws = some_moves(seed, count=4), some_draws(seed)
    chances = torch.rand(4, dtype=torch.float64, generator=generator(seed)).softmax(0)
    each = torch.stack([mix_risks(bands, draws, 0.5, MIXES) for bands in moves.perturbed])
    found = perturbation_risk(moves, draws, 0.5, MIXES)
    assert bool(((chances[:, None, None] * each).sum(0) <= found.worst + ROUNDING).all())
    assert_close(found.worst, each.max(dim=0).values)
    assert_close(found.clean, mix_risks(moves.clean, draws, 0.5, MIXES))
    low, high = moves.distances()
    assert_close(found.shift, 4 * moves.shifts(MIXES))
    for place, mix in enumerate(MIXES.tolist()):
        assert_close(found.bound[:, place], 4 * (mix * low + (1 - mix) * high))


def test_a_broken_bound_is_noticed():
    ones = torch.ones(1, 1, dtype=torch.float64)
    assert bool(PerturbationRisk(0 * ones, 2 * ones, ones, 3 * ones).broken(ROUNDING).all())
    assert bool(PerturbationRisk(0 * ones, ones, 3 * ones, 2 * ones).broken(ROUNDING).all())
    assert not bool(PerturbationRisk(0 * ones, ones, 2 * ones, 3 * ones).broken(ROUNDING).any())


def test_a_graph_that_holds_still_costs_nothing():
    clean = unit(2, 8, 4, seed=0)
    found = perturbation_risk(BandMoves(clean, [clean]), some_draws(0), 0.5, MIXES)
    assert float(found.rise.abs().max()) == float(found.bound.abs().max()) == found.tightest == 0


def two_mixes(clean, other, bound, other_bound):
    """One node that has two mixes to choose from."""
    risks = torch.tensor([[clean, other]], dtype=torch.float64)
    bounds = torch.tensor([[bound, other_bound]], dtype=torch.float64)
    return PerturbationRisk(risks, risks, bounds, bounds)


@few
@given(*[st.floats(0.0, 5.0)] * 3, st.floats(0.1, 10.0))
def test_a_steadier_mix_wins_if_it_gains_more_than_it_costs(cost, shift, other_shift, lipschitz):
    """Proposition B.5, standard risk against stability: E(m~) - E(m_c) < L (S(m_c) - S(m~))."""
    found = two_mixes(0.0, cost + 1e-3, lipschitz * shift, lipschitz * other_shift)
    premise = cost + 1e-3 - lipschitz * (shift - other_shift)
    if abs(premise) > 1e-9:
        assert found.moved.tolist() == [premise < 0]
