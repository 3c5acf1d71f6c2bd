"""The test of degrees: constant-time updates give what all degrees give."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from aspect.attacks.unnoticeable import THRESHOLD, DegreeLaw, DegreeTest
from reference.graphs import random_graph


def slow_ratio(clean, now):
    """The ratio written out, from all degrees."""

    def likelihood(degrees):
        modelled = [d for d in degrees if d >= 2]
        n, logs = len(modelled), sum(math.log(d) for d in modelled)
        alpha = 1 + n / (logs - n * math.log(1.5))
        return n * math.log(alpha) + n * alpha * math.log(2) - (alpha + 1) * logs

    return -2 * likelihood(clean + now) + 2 * likelihood(clean) + 2 * likelihood(now)


def test_equal_degrees_have_ratio_zero():
    degrees = random_graph(100, 300).degrees()
    assert DegreeTest(degrees, degrees).ratio == pytest.approx(0.0, abs=1e-9)


def test_flips_are_refused_from_the_threshold_on_and_the_sums_stay_true():
    clean = random_graph(100, 200).degrees()
    test, now = DegreeTest(clean, clean), clean.clone()
    generator = torch.Generator().manual_seed(0)
    refused = 0
    for _ in range(200):
        pair = torch.randperm(100, generator=generator)[:2]
        after = now.clone()
        after[pair] += 1
        allowed = slow_ratio(clean.tolist(), after.tolist()) < THRESHOLD
        assert test.take(now[pair].tolist(), 1) is allowed
        now = after if allowed else now
        refused += not allowed
        assert test.ratio == pytest.approx(slow_ratio(clean.tolist(), now.tolist()), abs=1e-9)
        assert DegreeTest(clean, now).ratio == pytest.approx(test.ratio, abs=1e-9)
    assert refused > 0
    assert not torch.equal(now, clean)


def test_removing_edges_is_counted_as_well():
    clean = torch.tensor([1, 2, 2, 3, 5, 8])
    test = DegreeTest(clean, clean)
    taken = test.take([3, 2], -1)
    assert taken is (slow_ratio(clean.tolist(), [1, 1, 2, 2, 5, 8]) < THRESHOLD)


def test_a_graph_without_degrees_of_two_is_no_error():
    ones = torch.ones(4, dtype=torch.long)
    test = DegreeTest(ones, ones)
    assert test.ratio == 0
    assert test.take([0, 0], 1)


def test_the_exponent_is_the_likeliest_one():
    degrees = random_graph(300, 900).degrees()
    modelled = degrees[degrees >= 2].double()
    logs = float((modelled / 1.5).log().sum())
    best = minimize_scalar(
        lambda a: a * logs - len(modelled) * math.log(a - 1), bounds=(1.01, 20), method="bounded"
    )
    assert DegreeLaw.of(degrees.tolist()).exponent == pytest.approx(best.x, rel=1e-4)
