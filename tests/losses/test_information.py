"""ARIEL's hinge, written out node by node."""

import math

import torch
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from aspect.losses.information import information_hinge


def views(nodes=9):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(nodes, 4, dtype=torch.float64, generator=generator).requires_grad_()
        for _ in range(3)
    ]


def plain(first, second, original, temperature):
    def known(a, b):
        return math.exp(float(cosine_similarity(a, b, dim=0).detach()) / temperature)

    total = 0.0
    for a, b, o in zip(first, second, original, strict=True):
        between = (cosine_similarity(a, b, dim=0) / temperature).exp()
        total = total + torch.relu(2 * between - known(a, o) - known(b, o))
    return total / len(first)


def test_value_and_gradients_are_those_of_the_formula():
    first, second, original = views()
    found = information_hinge(first, second, original, 0.4)
    expected = plain(first, second, original, 0.4)
    assert float(found.detach()) > 0
    assert_close(found, expected)
    assert_close(
        torch.autograd.grad(found, (first, second)), torch.autograd.grad(expected, (first, second))
    )


def test_the_original_is_a_bound_and_learns_nothing():
    first, second, original = views()
    information_hinge(first, second, original, 0.4).backward()
    assert original.grad is None


def test_views_that_are_the_original_pay_nothing():
    first, _, _ = views()
    assert float(information_hinge(first, first, first, 0.4).detach()) == 0
    assert float(information_hinge(first, -first, first, 0.4).detach()) == 0
