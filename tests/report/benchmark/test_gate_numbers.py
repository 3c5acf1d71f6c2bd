"""Densities, bins and correlations against values known by hand or from another formula."""

import numpy as np
import pytest
from scipy.stats import rankdata

from aspect.report.benchmark.gate_numbers import (
    density,
    equal_count_bins,
    equal_width_bins,
    known,
    quantile_bins,
    spearman,
)

POSITIONS = np.linspace(0, 1, 2001)


def area(heights):
    return float(np.trapezoid(heights, POSITIONS))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values",
    [
        [0.5],
        [0.5] * 100,
        [0.0] * 10,
        [1.0] * 10,
        [0.3, 0.3 + 1e-9],
        [0.0, 1.0],
        np.random.default_rng(0).random(500).tolist(),
        np.random.default_rng(0).beta(0.3, 0.3, 500).tolist(),
    ],
    ids=["one", "same", "zeros", "ones", "rounding", "two", "even", "both ends"],
)
def test_all_that_there_is_lies_between_zero_and_one(values):
    heights = density(values, POSITIONS)
    assert np.isfinite(heights).all()
    assert heights.min() >= 0
    assert area(heights) == pytest.approx(1, abs=0.02)


def test_a_density_peaks_where_the_values_are():
    values = np.concatenate([np.full(300, 0.2), np.full(100, 0.8)])
    values = values + 0.02 * np.random.default_rng(0).standard_normal(400)
    heights = density(values.tolist(), POSITIONS)
    left = POSITIONS < 0.5
    assert POSITIONS[heights.argmax()] == pytest.approx(0.2, abs=0.02)
    assert POSITIONS[~left][heights[~left].argmax()] == pytest.approx(0.8, abs=0.02)
    assert area(np.where(left, heights, 0)) == pytest.approx(0.75, abs=0.02)
    assert heights[1000] < 0.2 * heights.max()  # two hills, not one


def test_even_values_have_an_even_density():
    heights = density(np.linspace(0, 1, 4000).tolist(), POSITIONS)
    assert heights == pytest.approx(np.ones(2001), abs=0.05)


def test_bins_of_equal_count_hold_the_order():
    x = np.arange(100.0)[::-1]
    bins = equal_count_bins(x, 2 * x, 10)
    assert bins.counts.tolist() == [10] * 10
    assert bins.x.tolist() == [4.5 + 10 * k for k in range(10)]
    assert bins.means == pytest.approx(2 * bins.x)
    assert bins.stds == pytest.approx(np.full(10, 2 * np.arange(10).std()))


def test_few_values_make_few_bins():
    x = np.arange(7.0)
    assert equal_count_bins(x, x, 10).counts.tolist() == [7]
    assert equal_count_bins(np.arange(12.0), np.arange(12.0), 10).counts.tolist() == [6, 6]


def test_bins_of_equal_width_leave_out_what_says_nothing():
    x = np.array([0.0] * 5 + [0.05] * 5 + [0.55] * 4 + [0.95] * 3 + [1.0] * 2)
    y = np.arange(19.0)
    bins = equal_width_bins(x, y, 10)
    assert bins.counts.tolist() == [10, 5]
    assert bins.x == pytest.approx([0.025, 0.97])
    assert bins.means == pytest.approx([4.5, 16.0])


def test_quantiles_are_equal_groups_even_where_values_are_equal():
    x = np.array([0.0] * 10 + [1.0] * 90)
    y = np.arange(100.0)
    bins = quantile_bins(x, y, 5)
    assert bins.counts.tolist() == [20] * 5
    assert bins.x == pytest.approx([0.5, 1, 1, 1, 1])
    # By lot: no group of the equal ones is made of neighbours in the list alone.
    assert (bins.stds[1:] > 15).all()
    again = quantile_bins(x, y, 5)
    assert np.array_equal(bins.means, again.means)


def test_spearman_is_pearson_of_the_ranks():
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 5, 50).astype(float), generator.random(50)
    expected = np.corrcoef(rankdata(x), rankdata(y))[0, 1]
    assert spearman(x, y) == pytest.approx(expected)
    assert spearman(y, np.exp(9 * y)) == pytest.approx(1)


@pytest.mark.filterwarnings("error")
def test_nothing_to_rank_has_no_correlation():
    assert spearman(np.array([1.0]), np.array([1.0])) is None
    assert spearman(np.ones(5), np.arange(5.0)) is None
    assert spearman(np.arange(5.0), np.ones(5)) is None
    assert spearman(np.array([]), np.array([])) is None


def test_only_known_pairs_count():
    x, y = known((0.1, None, 0.3), (1.0, 2.0, 3.0))
    assert (x.tolist(), y.tolist()) == ([0.1, 0.3], [1.0, 3.0])
    assert [len(side) for side in known((), ())] == [0, 0]
