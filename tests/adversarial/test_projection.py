"""The projection onto the budget: the nearest point, and no other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from aspect.adversarial.projection import project_to_budget


def nearest(values, budget):
    """The shift from the list of all points at which the sum's slope changes, exactly."""
    if sum(min(1.0, max(0.0, v)) for v in values) <= budget:
        return [min(1.0, max(0.0, v)) for v in values]

    def total(shift):
        return sum(min(1.0, max(0.0, v - shift)) for v in values)

    corners = sorted({0.0, *(v for v in values if v > 0), *(v - 1 for v in values if v > 1)})
    after = next(corner for corner in corners if total(corner) <= budget)
    before = max(corner for corner in corners if corner < after)
    share = (total(before) - budget) / (total(before) - total(after))
    shift = before + share * (after - before)
    return [min(1.0, max(0.0, v - shift)) for v in values]


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.integers(0, 12))
def test_it_is_the_euclidean_one(values, budget):
    projected = project_to_budget(torch.tensor(values, dtype=torch.float64), budget)
    assert_close(projected.tolist(), nearest(values, budget), atol=1e-9, rtol=0)


@given(st.lists(st.floats(-2, 4, width=32), min_size=1, max_size=50), st.integers(1, 9))
def test_no_allowed_point_is_nearer(values, budget):
    point = torch.tensor(values, dtype=torch.float64)
    projected = project_to_budget(point, budget)
    generator = torch.Generator().manual_seed(len(values))
    for _ in range(20):
        other = torch.rand(len(values), dtype=torch.float64, generator=generator)
        other = other * min(1.0, budget / float(other.sum()))
        # The obtuse angle that marks the nearest point of a convex set.
        assert float((point - projected) @ (other - projected)) <= 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_budget_holds_in_every_precision(dtype):
    generator = torch.Generator().manual_seed(0)
    values = 5 * torch.randn(20_000, dtype=dtype, generator=generator)
    projected = project_to_budget(values, 321)
    assert float(projected.sum()) <= 321
    assert float(projected.double().sum()) == pytest.approx(321, rel=1e-4)
    assert float(projected.min()) >= 0
    assert float(projected.max()) <= 1


def test_what_is_allowed_stays_and_nothing_is_left_of_nothing():
    inside = torch.tensor([0.2, 0.0, 1.0, 0.4])
    assert torch.equal(project_to_budget(inside, 2), inside)
    assert torch.equal(project_to_budget(inside, 0), torch.zeros(4))
    assert project_to_budget(torch.zeros(0), 3).shape == (0,)
