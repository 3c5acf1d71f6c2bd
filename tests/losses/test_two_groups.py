import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.testing import assert_close

from aspect.losses.two_groups import two_group_loss


def logits(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(7,), (2, 7)])
def test_it_is_binary_cross_entropy_over_both_groups(shape):
    real, corrupted = logits(*shape), 3 * logits(*shape).flip(-1)
    targets = torch.cat([torch.ones(real.numel()), torch.zeros(real.numel())]).double()
    together = torch.cat([real.flatten(), corrupted.flatten()])
    expected = binary_cross_entropy_with_logits(together, targets)
    assert_close(two_group_loss(real, corrupted), expected)


def test_zeros_cost_the_logarithm_of_two():
    assert two_group_loss(torch.zeros(5), torch.zeros(5)).item() == pytest.approx(math.log(2))


def test_exchanged_groups_with_turned_signs_cost_the_same():
    real, corrupted = logits(5), logits(9)
    assert_close(two_group_loss(real, corrupted), two_group_loss(-corrupted, -real))


def test_large_logits_stay_finite():
    loss = two_group_loss(torch.tensor([-1e4]), torch.tensor([1e4]))
    assert loss.item() == pytest.approx(1e4)
