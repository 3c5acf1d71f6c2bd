import pytest
import torch
from torch.testing import assert_close

from aspect.blocks.augmentations import column_mask, edge_weights


@pytest.mark.parametrize("draw", [edge_weights, column_mask])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_weighs_one(draw, rate):
    weights = draw(20_000, rate, torch.Generator().manual_seed(0), torch.float64)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    deviation = (rate * (1 - rate) / 20_000) ** 0.5
    assert abs(float((weights == 0).double().mean()) - rate) < 5 * deviation


@pytest.mark.parametrize("draw", [edge_weights, column_mask])
def test_rate_zero_draws_nothing(draw):
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert draw(10, 0.0, generator, torch.float32) is None
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("draw", [edge_weights, column_mask])
def test_type_and_repetition(draw):
    one, again = (draw(99, 0.3, torch.Generator().manual_seed(4), torch.float32) for _ in range(2))
    assert one.dtype == torch.float32
    assert_close(one, again, rtol=0, atol=0)
