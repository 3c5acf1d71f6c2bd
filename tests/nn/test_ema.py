import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.nn.ema import cosine_decay, ema_momentum, update_ema
from aspect.nn.normalisation import BatchNorm


def network(seed):
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(3, 4), BatchNorm(4), nn.PReLU()).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
        made[1].running_mean.normal_()
    return made


def test_the_decay_is_the_square_of_a_quarter_wave():
    decays = [cosine_decay(step, 40) for step in range(41)]
    assert decays == pytest.approx([math.cos(math.pi * step / 80) ** 2 for step in range(41)])
    assert decays[0] == 1
    assert cosine_decay(1.5, 7) == pytest.approx(math.cos(math.pi * 1.5 / 14) ** 2)


def test_momentum_rises_from_the_first_to_one():
    assert [ema_momentum(step, 100, 0.99) for step in (0, 50, 100)] == pytest.approx(
        [0.99, 0.995, 1.0]
    )
    rising = [ema_momentum(step, 100, 0.9) for step in range(101)]
    assert rising == sorted(rising)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 1.0])
def test_parameters_are_averaged_and_statistics_are_not(momentum):
    target, online = network(0), network(1)
    before = [parameter.clone() for parameter in target.parameters()]
    statistics = target[1].running_mean.clone()
    update_ema(target, online, momentum)
    for old, now, new in zip(before, target.parameters(), online.parameters(), strict=True):
        assert_close(now, momentum * old + (1 - momentum) * new)
        assert now.grad_fn is None
    assert torch.equal(target[1].running_mean, statistics)


def test_other_architectures_are_refused():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        update_ema(network(0), nn.Linear(3, 4).double(), 0.5)
