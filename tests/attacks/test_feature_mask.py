"""Masked features: nested over rates, the same however the matrix is stored."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aspect.attacks.feature_mask import mask_features
from aspect.data.features import dense
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError

rates = st.floats(0, 1)


def matrix(seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(12, 7, generator=generator)
    return drawn * (torch.rand(12, 7, generator=generator) < 0.6)


def mask(features, rate, seed=0):
    return mask_features(features, rate, torch.Generator().manual_seed(seed))


@given(st.integers(0, 5), rates)
def test_dense_and_compressed_matrices_lose_the_same(seed, rate):
    features = matrix(seed)
    compressed = mask(SparseMatrix.from_dense(features), rate, seed)
    assert isinstance(compressed, SparseMatrix)
    assert torch.equal(dense(compressed), mask(features, rate, seed))


@given(st.integers(0, 5), rates, rates)
def test_masks_nest_over_rates(seed, first, second):
    features = matrix(seed)
    less, more = (mask(features, rate, seed) != 0 for rate in sorted((first, second)))
    assert bool((more <= less).all())


@given(st.integers(0, 5), rates)
def test_what_is_left_is_as_it_was(seed, rate):
    features = matrix(seed)
    left = mask(features, rate, seed)
    assert bool(((left == features) | (left == 0)).all())


def test_stored_zeros_are_no_entries():
    features = matrix(1)
    values = torch.cat([torch.zeros(2), SparseMatrix.from_dense(features).values])
    rows, columns = features.nonzero(as_tuple=True)
    zeros = (features == 0).nonzero()[:2]
    stored = SparseMatrix.from_entries(
        torch.cat([zeros[:, 0], rows]), torch.cat([zeros[:, 1], columns]), values, (12, 7)
    )
    assert torch.equal(dense(mask(stored, 0.5)), mask(features, 0.5))


def test_nothing_and_everything():
    features = matrix(2)
    assert torch.equal(mask(features, 0.0), features)
    assert not bool(mask(features, 1.0).any())


def test_about_the_rate_is_masked():
    features = torch.ones(200, 100)
    kept = float(mask(features, 0.25).mean())
    assert abs(kept - 0.75) < 4 * (0.25 * 0.75 / features.numel()) ** 0.5


def test_the_matrix_given_is_not_changed():
    features = matrix(3)
    before = features.clone()
    mask(features, 0.5)
    assert torch.equal(features, before)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(SettingsError, match=r"lie in \[0, 1\]"):
        mask(matrix(0), rate)
