"""What tests of single methods share: a method with fixed weights, a step with fixed draws."""

import torch
from torch.testing import assert_close

from aspect.methods.base import Step


def build(kind, config, graph, seed=3):
    """The method for a graph, in training mode; its first weights are those of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config, graph.num_features).to(graph.dtype).train()


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def step(seed=5):
    """The first epoch's; its draws are those of `generator`."""
    return Step(1, generator(seed))


def assert_same_with_gradients(found, expected, method):
    """The same loss, and the same gradients of all that is trained."""
    assert_close(found, expected)
    trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
    assert_close(torch.autograd.grad(found, trained), torch.autograd.grad(expected, trained))
