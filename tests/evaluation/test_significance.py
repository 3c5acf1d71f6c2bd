import itertools

import numpy as np
import pytest
import scipy.stats
import torch

from aspect.errors import SettingsError
from aspect.evaluation.significance import paired_test

DIFFERENCES = np.array([1.5, -0.5, 2.0, 0.0, 3.25, 1.0, -0.25, 0.75])


def test_p_value_is_the_share_of_sign_assignments():
    sums = [abs(np.dot(signs, DIFFERENCES)) for signs in itertools.product([1, -1], repeat=8)]
    expected = np.mean(np.array(sums) >= abs(DIFFERENCES.sum()) - 1e-12)
    result = paired_test(80 + DIFFERENCES, np.full(8, 80.0))
    assert result.p_value == pytest.approx(expected)
    assert result.difference == pytest.approx(DIFFERENCES.mean())
    assert (result.wins, result.losses, result.count) == (5, 2, 8)
    back = paired_test(np.full(8, 80.0), 80 + DIFFERENCES)
    assert (back.p_value, back.difference, back.wins) == (result.p_value, -result.difference, 2)


def test_p_value_agrees_with_scipy_beyond_the_exact_limit():
    generator = np.random.default_rng(0)
    differences = generator.normal(0.4, 1, 40)
    expected = scipy.stats.permutation_test(
        (differences, np.zeros(40)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=50_000,
        rng=generator,
    ).pvalue
    result = paired_test(differences, np.zeros(40))
    assert result.p_value == pytest.approx(expected, abs=0.005)
    assert result == paired_test(differences, np.zeros(40))


def test_without_overlap_the_correction_is_the_plain_t_test():
    result = paired_test(DIFFERENCES, np.zeros(8), test_to_train=0.0)
    expected = scipy.stats.ttest_1samp(DIFFERENCES, 0)
    assert result.corrected_p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (result.low, result.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    corrected = paired_test(DIFFERENCES, np.zeros(8))
    assert corrected.corrected_p_value > result.corrected_p_value
    assert corrected.high - corrected.low > result.high - result.low


def test_seeds_are_averaged_and_may_differ_in_number():
    generator = torch.Generator().manual_seed(1)
    first, second = torch.rand(5, 10, generator=generator), torch.rand(3, 10, generator=generator)
    result = paired_test(first, second)
    expected = paired_test(first.double().mean(0), second.double().mean(0))
    assert result.count == 10
    assert result.p_value == expected.p_value
    assert result.difference == pytest.approx(expected.difference)


def test_equal_methods_are_never_significant():
    result = paired_test(DIFFERENCES, DIFFERENCES)
    assert (result.p_value, result.corrected_p_value, result.difference) == (1, 1, 0)
    assert not result.is_significant


def test_a_constant_lead_is_significant():
    result = paired_test(np.full(10, 81.0), np.full(10, 80.0))
    assert (result.p_value, result.corrected_p_value) == (2 / 2**10, 0)
    assert result.is_significant


def test_false_alarms_are_rare():
    draws = np.random.default_rng(2).normal(size=(400, 8))
    alarms = np.mean([paired_test(row, np.zeros(8)).p_value <= 0.05 for row in draws])
    assert 0.02 < alarms < 0.08


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ([1.0], [2.0], "same 2 or more splits. Got 1 and 1"),
        ([1.0, 2.0], [2.0, 1.0, 3.0], "Got 2 and 3"),
        ([1.0, np.nan], [2.0, 1.0], "must be finite"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), r"Got shape \[2, 2, 2\]"),
    ],
)
def test_what_cannot_be_paired_is_refused(a, b, sentence):
    with pytest.raises(SettingsError, match=sentence):
        paired_test(a, b)


def test_negative_ratio_is_refused():
    with pytest.raises(SettingsError, match=r"test to training nodes must be >= 0. Got -1.0"):
        paired_test([1.0, 2.0], [2.0, 1.0], test_to_train=-1.0)


def test_a_difference_by_rounding_is_none():
    test = paired_test([0.1 + 0.2] * 4, [0.3] * 4)
    assert (test.wins, test.corrected_p_value, test.p_value) == (0, 1.0, 1.0)
    assert paired_test([2.0] * 4, [1.0] * 4).corrected_p_value == 0.0
