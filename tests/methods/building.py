"""What tests of single methods share: a method with fixed weights, a step with fixed draws."""

import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from aspect.attacks import view_search
from aspect.methods.base import Step
from aspect.randomness import seed_for
from aspect.training import gradients
from aspect.training.gradients import Gradients


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


# What hands numbers of a device to the host, which a CUDA graph cannot, or takes them from there.
ASKING = ("item", "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "lift_fresh")


class Unasked(TorchDispatchMode):
    """Fails where a device would be asked for a number, or given one."""

    @override
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        # An index by a mask is a nonzero in disguise.
        masks = [t for t in args[1] if t is not None] if name in ("index", "index_put_") else []
        if name in ASKING or any(mask.dtype == torch.bool for mask in masks):
            raise AssertionError(f"A device is asked by {name}.")
        return func(*args, **(kwargs or {}))


def terms_and_gradients(method, graph, generator, held=None):
    """Of a step, with what it monitors."""
    terms = method.loss_terms(graph, Step(1, generator, held=held or {}))
    loss = torch.stack(list(terms.values())).sum()
    return terms, torch.autograd.grad(loss, list(method.parameters())), method.monitors()


def assert_unasked_is_the_same(method, graph, monkeypatch):
    """As on a GPU: no number is asked for, and all of them are those of a CPU's way."""
    method.prepare(graph)
    expected = terms_and_gradients(method, graph, generator())
    monkeypatch.setattr(view_search, "UNASKED", ("cpu",))
    terms_and_gradients(method, graph, generator())  # patterns are found at a first pass
    draws, apart = generator(), {name: step().apart(name) for name in method.draws_apart}
    with Unasked():
        found = terms_and_gradients(method, graph, draws, apart)
    assert_close(found, expected)
    assert float(expected[2]["search_flips"]) > 0


def assert_captured_is_the_same(method, graph, monkeypatch, epochs=6):
    """On a GPU: the losses, monitors and gradients of captured steps are those of others."""
    monkeypatch.setattr(gradients, "PRECISION", "highest")
    parameters, draws = list(method.parameters()), torch.Generator(device=graph.device)
    captured, plain = (Gradients(method, graph, parameters) for _ in range(2))
    plain.may_capture = False
    for epoch in range(1, epochs + 1):
        results = []
        for way in (captured, plain):
            draws.manual_seed(seed_for(0, "epoch", epoch))
            numbers = way.compute(Step(epoch, draws)).read.values
            results.append((numbers, [parameter.grad.clone() for parameter in parameters]))
        assert_close(*results, rtol=1e-4, atol=1e-5)
    (kind,) = captured.kinds.values()
    assert kind.captured is not None
    assert list(kind.captured.apart) == list(method.draws_apart)
