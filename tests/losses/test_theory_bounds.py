"""What the paper proves of its objective, checked on random and on hardest cases in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect.examples.theorems import Draw, mix_risks
from aspect.losses.info_nce import info_nce
from aspect.losses.policy_target import policy_target
from aspect.nn.gate import fuse

ROUNDING = 1e-12
few = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 10_000)
temperatures = st.floats(0.05, 3.0)


def normal(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def loss(query, keys, temperature):
    """The risk that `aspect theory` measures, of one node: the first key is its positive."""
    bands, mix = torch.stack([query, query])[:, None], torch.ones(1, dtype=torch.float64)
    return mix_risks(bands, [Draw(keys, keys[:1])], temperature, mix)[0, 0]


def gradient(query, keys, temperature):
    query = query.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(query, keys, temperature), query)
    return found


def unit_keys(count, seed):
    return normalize(normal(count, 5, seed=seed), dim=1)


# --- Appendix B.5, Lipschitzness of InfoNCE: the gradient is at most 2 / tau ----------------------


@few
@given(seeds, temperatures, st.floats(0.0, 5.0))
def test_the_gradient_is_at_most_two_over_the_temperature(seed, temperature, length):
    query = length * normalize(normal(5, seed=seed), dim=0)
    keys = unit_keys(7, seed + 1)
    found = gradient(query, keys, temperature)
    assert float(found.norm()) <= 2 / temperature + ROUNDING
    weights = (keys @ query / temperature).softmax(0)
    assert_close(found, (weights @ keys - keys[0]) / temperature, rtol=0, atol=1e-11)


@pytest.mark.parametrize("temperature", [0.02, 0.05, 0.1])
def test_the_constant_is_needed(temperature):
    """The query at the negative that is opposite to the positive: no smaller constant would do."""
    positive = normalize(normal(5, seed=0), dim=0)
    keys = torch.stack([positive, -positive])
    found = float(gradient(-positive, keys, temperature).norm())
    assert 2 / temperature * (1 - 1e-8) <= found <= 2 / temperature + ROUNDING


@few
@given(seeds, st.floats(0.05, 2.0), st.floats(0.01, 20.0))
def test_a_query_that_is_normalised_divides_it_by_its_length(seed, temperature, length):
    """Our `info_nce` brings queries to length one: through that the gradient gains 1 / |z|."""
    queries = (length * normalize(normal(6, 5, seed=seed), dim=1)).requires_grad_()
    losses = info_nce(queries, unit_keys(6, seed + 1), temperature).rows
    (found,) = torch.autograd.grad(losses.sum(), queries)
    assert float(found.norm(dim=1).max()) <= 2 / (temperature * length) * (1 + ROUNDING)
    along = (found * queries.detach()).sum(1).abs()  # a longer query is the same query
    assert float(along.max()) <= 1e-9 / temperature


def test_on_the_sphere_ours_is_the_paper_s():
    queries, keys = unit_keys(6, 0), unit_keys(6, 1)
    ours = info_nce(queries, keys, 0.3).rows
    for node in range(6):
        order = [node, *(other for other in range(6) if other != node)]
        assert_close(ours[node], loss(queries[node], keys[order], 0.3))


@few
@given(seeds, temperatures)
def test_the_loss_is_lipschitz_and_convex_in_the_query(seed, temperature):
    first, second = normal(5, seed=seed), normal(5, seed=seed + 1)
    keys = unit_keys(7, seed + 2)
    ends = [float(loss(query, keys, temperature)) for query in (first, second)]
    limit = 2 / temperature * float((first - second).norm())
    assert abs(ends[0] - ends[1]) <= limit + ROUNDING
    middle = float(loss((first + second) / 2, keys, temperature))
    assert middle <= sum(ends) / 2 + ROUNDING


# --- Theorem 2.2, risk upper bound, and Appendix B.7, DRO surrogate -------------------------------


def risks_under(bands, draws, temperature, mix):
    """Expected loss over the draws of T, of every perturbation's bands at one mix."""
    given = [Draw(keys, keys[:1].expand(bands.shape[1], -1)) for keys in draws]
    mixes = torch.tensor([mix], dtype=torch.float64)
    return mix_risks(bands, given, temperature, mixes)[:, 0]


@few
@given(seeds, temperatures, st.floats(0.0, 1.0), st.floats(0.0, 2.0))
def test_the_worst_risk_is_at_most_clean_risk_plus_sensitivity(seed, temperature, mix, size):
    """Any finite set of perturbations, any fixed mix, L = 2 / tau."""
    low, high = normal(2, 5, seed=seed)
    moves = size * normal(6, 2, 5, seed=seed + 1)
    clean = mix * low + (1 - mix) * high
    perturbed = mix * (low + moves[:, 0]) + (1 - mix) * (high + moves[:, 1])
    draws = [unit_keys(7, seed + 2 + number) for number in range(3)]
    bands = torch.stack([low + moves[:, 0], high + moves[:, 1]])
    every = risks_under(bands, draws, temperature, mix)
    worst = every.max()
    (base,) = risks_under(torch.stack([low, high])[:, None], draws, temperature, mix)
    shift = (perturbed - clean).norm(dim=1).max()
    low_move, high_move = moves.norm(dim=2).amax(dim=0)
    limit = 2 / temperature
    assert float(worst) <= float(base + limit * shift) + 1e-9
    assert float(shift) <= float(mix * low_move + (1 - mix) * high_move) + ROUNDING
    # No distribution on the set expects more than its worst.
    chances = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert float((chances / chances.sum()) @ every) <= float(worst) + ROUNDING


# --- Appendix B.9, entropy: the softmax target is the only minimiser ------------------------------


def entropy_objective(weights, costs, temperature):
    """The objective of Appendix B.9 for one node; 0 log 0 is 0."""
    entropy = sum(weight * math.log(weight) for weight in weights if weight > 0)
    expected = sum(weight * cost for weight, cost in zip(weights, costs, strict=True))
    return expected + temperature * entropy


@few
@given(st.floats(-3.0, 3.0), st.floats(-3.0, 3.0), st.floats(0.2, 3.0))
def test_a_search_over_the_simplex_finds_the_target(low, high, temperature):
    target = policy_target(torch.tensor([[low], [high]], dtype=torch.float64), temperature)[0]
    found = minimize_scalar(
        lambda weight: entropy_objective((weight, 1 - weight), (low, high), temperature),
        bounds=(0, 1),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert float(target[0]) == pytest.approx(found.x, abs=1e-5)
    assert entropy_objective(target.tolist(), (low, high), temperature) <= found.fun + ROUNDING


@few
@given(st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=4), st.floats(0.1, 3.0), seeds)
def test_every_other_policy_costs_strictly_more(costs, temperature, seed):
    """By tau times the divergence from the target, which is 0 at the target alone."""
    target = policy_target(torch.tensor(costs, dtype=torch.float64)[:, None], temperature)[0]
    other = normal(len(costs), seed=seed).softmax(0)
    more = entropy_objective(other.tolist(), costs, temperature) - entropy_objective(
        target.tolist(), costs, temperature
    )
    divergence = float((other * (other.log() - target.log())).sum())
    assert more == pytest.approx(temperature * divergence, rel=1e-6, abs=1e-9)
    assert more > 0


# --- Appendix B.8, channel-wise tradeoff: what a gate computed anew would add ---------------------


@few
@given(seeds)
def test_a_gate_that_changes_adds_its_change_times_the_difference_of_bands(seed):
    clean, moved = normal(2, 2, 9, 4, seed=seed)
    gates = torch.rand(2, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    before, after = (torch.stack([gate, 1 - gate], dim=1) for gate in gates)
    change = fuse(moved, after) - fuse(clean, before)
    held = fuse(moved - clean, before)  # m (z_L' - z_L) + (1 - m) (z_H' - z_H)
    variation = (gates[1] - gates[0])[:, None] * (moved[0] - moved[1])
    assert_close(change, held + variation, rtol=0, atol=1e-12)
