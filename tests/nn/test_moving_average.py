import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.nn.ema import follow, momentum_at
from aspect.nn.normalisation import BatchNorm


def network(seed):
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(3, 4), BatchNorm(4), nn.PReLU()).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
        made[1].running_mean.normal_()
    return made


def test_momentum_rises_from_the_first_to_one():
    found = [momentum_at(step, 100, 0.99) for step in (0, 50, 100)]
    assert found == pytest.approx([0.99, 0.995, 1.0])
    every = [momentum_at(step, 100, 0.9) for step in range(101)]
    assert every == sorted(every)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.99, 1.0])
def test_parameters_follow_and_statistics_do_not(momentum):
    target, online = network(0), network(1)
    before = [parameter.clone() for parameter in target.parameters()]
    statistics = target[1].running_mean.clone()
    follow(target, online, momentum)
    for old, now, new in zip(before, target.parameters(), online.parameters(), strict=True):
        assert_close(now, momentum * old + (1 - momentum) * new)
        assert now.grad_fn is None
    assert torch.equal(target[1].running_mean, statistics)


def test_other_architectures_are_refused():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        follow(network(0), nn.Linear(3, 4).double(), 0.5)
