"""InfoNCE by kernels of ours on a GPU: the same losses and gradients as in plain torch."""

import pytest
import torch
from torch.testing import assert_close

from aspect.losses import info_nce as plain
from aspect.losses.info_nce import info_nce

pytestmark = pytest.mark.gpu


def losses_and_gradients(queries, keys, temperature, block=None, kept_bytes=None):
    views = [view.clone().requires_grad_() for view in (queries, keys)]
    losses = info_nce(*views, temperature, block=block, kept_bytes=kept_bytes)
    weights = torch.linspace(0.5, 1.5, len(queries), dtype=queries.dtype, device=queries.device)
    total = (losses.rows * weights).mean() + (losses.columns * weights.flip(0)).mean() / 3
    return [losses.rows, losses.columns, *torch.autograd.grad(total, views)]


def two_views(nodes, dim, dtype=torch.float64):
    generator = torch.Generator(device="cuda").manual_seed(0)
    first = torch.randn(nodes, dim, generator=generator, dtype=dtype, device="cuda")
    return first, first + torch.randn(first.shape, generator=generator, dtype=dtype, device="cuda")


@pytest.mark.parametrize(("nodes", "dim"), [(1, 3), (7, 16), (130, 33), (301, 512)])
@pytest.mark.parametrize("block", [None, 50])
@pytest.mark.parametrize("kept_bytes", [None, 0])
def test_the_same_as_in_plain_torch(nodes, dim, block, kept_bytes, monkeypatch):
    views = two_views(nodes, dim)
    views[0][0] = 0  # a row without a direction
    fused = losses_and_gradients(*views, 0.3, block, kept_bytes)
    monkeypatch.setattr(plain, "has_triton", lambda: False)
    # Numbers that are given to a kernel are float32.
    assert_close(fused, losses_and_gradients(*views, 0.3), rtol=1e-5, atol=1e-6)


def test_a_lack_of_memory_goes_on_in_smaller_blocks(monkeypatch):
    kernels = pytest.importorskip("aspect.losses.kernels", reason="needs Triton")
    views, sizes, compute = two_views(60, 8), [], kernels.fused_log_sums

    def small_memory(queries, keys, temperature, block, keep):
        sizes.append((block, keep))
        if block > 20:
            raise torch.OutOfMemoryError("full")
        return compute(queries, keys, temperature, block, keep)

    expected = losses_and_gradients(*views, 0.3)
    monkeypatch.setattr(kernels, "fused_log_sums", small_memory)
    assert_close(losses_and_gradients(*views, 0.3), expected)
    assert sizes == [(60, True), (30, False), (15, False)]


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_close_where_products_may_be_in_tf32(temperature):
    exact = losses_and_gradients(*two_views(1000, 256), temperature)
    torch.set_float32_matmul_precision("high")
    try:
        fused = losses_and_gradients(*two_views(1000, 256, torch.float64), temperature)
        quick = losses_and_gradients(*(view.float() for view in two_views(1000, 256)), temperature)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert_close(fused, exact, rtol=1e-5, atol=1e-6)
    for one, other in zip(quick[:2], exact[:2], strict=True):
        assert_close(one.double(), other, rtol=2e-3, atol=2e-3)
    for one, other in zip(quick[2:], exact[2:], strict=True):
        assert float((one - other).norm() / other.norm()) < 5e-3
