import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.testing import assert_close

from aspect.losses.mutual_information import squashed_divergence, two_group_loss


def logits(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class TestTwoGroups:
    @pytest.mark.parametrize("shape", [(7,), (2, 7)])
    def test_it_is_binary_cross_entropy_over_both_groups(self, shape):
        real, corrupted = logits(*shape), 3 * logits(*shape).flip(-1)
        targets = torch.cat([torch.ones(real.numel()), torch.zeros(real.numel())]).double()
        together = torch.cat([real.flatten(), corrupted.flatten()])
        expected = binary_cross_entropy_with_logits(together, targets)
        assert_close(two_group_loss(real, corrupted), expected)

    def test_large_logits_stay_finite(self):
        loss = two_group_loss(torch.tensor([-1e4]), torch.tensor([1e4]))
        assert loss.item() == pytest.approx(1e4)


class TestSquashedDivergence:
    def test_bounds_are_reached_at_the_ends(self):
        far = torch.full((3,), 1e3)
        assert squashed_divergence(far, -far).item() == pytest.approx(1.0064, abs=1e-4)
        assert squashed_divergence(-far, far).item() == pytest.approx(2.0064, abs=1e-4)
