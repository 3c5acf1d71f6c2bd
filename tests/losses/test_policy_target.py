import pytest
import torch
from torch.testing import assert_close

from aspect.losses.policy_target import channel_costs, policy_loss, policy_target
from reference import losses


@pytest.fixture(params=[2, 3])
def evidence(request):
    generator = torch.Generator().manual_seed(request.param)
    return torch.rand(request.param, 11, dtype=torch.float64, generator=generator) * 5 + 1


def test_costs_are_z_scores_over_the_union(evidence):
    costs = channel_costs(evidence)
    assert_close(costs, torch.tensor(losses.channel_costs(evidence.tolist()), dtype=torch.float64))
    assert float(costs.mean()) == pytest.approx(0, abs=1e-12)
    assert float(costs.std(correction=0)) == pytest.approx(1)


def test_the_difference_between_bands_survives(evidence):
    """Normalising each band alone would erase that one is worse everywhere."""
    worse = torch.cat([evidence, evidence[-1:] + 10])
    costs = channel_costs(worse)
    assert bool((costs[-1] > costs[-2]).all())


def test_evidence_without_spread_costs_nothing():
    costs = channel_costs(torch.full((2, 5), 3.0))
    assert_close(costs, torch.zeros(2, 5), rtol=0, atol=0)
    assert_close(policy_target(costs, 0.3), torch.full((5, 2), 0.5), rtol=0, atol=0)


@pytest.mark.parametrize("gate_temperature", [0.1, 0.3, 1.0, 5.0])
def test_target_equals_the_loop(evidence, gate_temperature):
    costs = channel_costs(evidence)
    expected = losses.policy_target(costs.tolist(), gate_temperature)
    assert_close(
        policy_target(costs, gate_temperature), torch.tensor(expected, dtype=torch.float64)
    )


def test_loss_of_two_bands_is_binary_cross_entropy():
    generator = torch.Generator().manual_seed(4)
    gate = torch.rand(13, dtype=torch.float64, generator=generator)
    target = torch.rand(13, dtype=torch.float64, generator=generator)
    loss = policy_loss(
        torch.stack([gate, 1 - gate], dim=1).log(), torch.stack([target, 1 - target], dim=1)
    )
    expected = losses.binary_cross_entropy(gate.tolist(), target.tolist())
    assert float(loss) == pytest.approx(expected, rel=1e-12)
