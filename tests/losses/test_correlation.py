import pytest
import torch
from torch.testing import assert_close

from aspect.losses.correlation import barlow_loss, canonical_loss, standardise_columns

NODES, DIM = 40, 5


def views(seed=0, nodes=NODES, dim=DIM, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(nodes, dim, dtype=dtype, generator=generator).requires_grad_() for _ in range(2)
    )


def test_columns_are_standard():
    z = standardise_columns(views()[0])
    assert_close(z.mean(0), torch.zeros(DIM, dtype=torch.float64))
    assert_close((z.t() @ z / NODES).diagonal(), torch.full((DIM,), 39 / 40).double())


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_column_becomes_zeros_without_a_gradient(value, dtype):
    x = views(dtype=dtype)[0].detach().clone()
    x[:, 2] = value
    x.requires_grad_()
    z = standardise_columns(x)
    assert not bool(z[:, 2].any())
    (gradient,) = torch.autograd.grad((z * torch.arange(NODES)[:, None]).square().sum(), x)
    assert torch.isfinite(gradient).all()
    assert not bool(gradient[:, 2].any())
    others = [0, 1, 3, 4]
    assert_close(z[:, others], standardise_columns(x[:, others]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_column_that_is_constant_but_for_rounding_becomes_zeros(dtype):
    x = views(dtype=dtype)[0].detach().clone()
    x[:, 2] = 0.1
    x[::2, 2] = torch.nextafter(x[::2, 2], torch.ones(NODES // 2, dtype=dtype))
    z = standardise_columns(x)
    assert not bool(z[:, 2].any())
    assert bool(z[:, [0, 1, 3, 4]].any(0).all())


LOSSES = {"barlow": barlow_loss, "canonical": lambda one, other: canonical_loss(one, other, 0.1)}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
class TestBoth:
    def test_gradients_are_exact(self, loss):
        assert torch.autograd.gradcheck(loss, views(nodes=7, dim=3))
