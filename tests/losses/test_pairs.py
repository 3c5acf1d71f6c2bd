import pytest
import torch
from torch.testing import assert_close

from aspect.losses import pairs as module
from aspect.losses.pairs import pair_cosines, pair_products


def rows(nodes=7, dim=4):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(nodes, dim, dtype=torch.float64, generator=generator).requires_grad_()


def some_pairs(count=80, nodes=7):
    """More than there are different ones: some come twice, and some join a row to itself."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(nodes, (2, count), generator=generator)


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_products_and_gradients_are_those_of_gathered_rows(monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK", block)
    x, (one, other) = rows(), some_pairs()
    weights = torch.randn(80, dtype=torch.float64)
    found, expected = pair_products(x, one, other), (x[one] * x[other]).sum(1)
    assert_close(found, expected)
    assert_close(
        torch.autograd.grad((weights * found).sum(), x),
        torch.autograd.grad((weights * expected).sum(), x),
    )


def test_cosines_and_their_gradients():
    x, (one, other) = rows(), some_pairs()
    assert_close(pair_cosines(x, one, other), torch.cosine_similarity(x[one], x[other]))
    assert torch.autograd.gradcheck(lambda y: pair_cosines(y, one, other), x)


def test_no_pairs():
    x, none = rows(), torch.empty(0, dtype=torch.long)
    found = pair_products(x, none, none)
    assert found.shape == (0,)
    assert not bool(torch.autograd.grad(found.sum(), x)[0].any())
