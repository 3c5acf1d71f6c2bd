"""Rows of zeros behind the last key change no loss and no gradient."""

import pytest
import torch
from torch.nn.functional import pad

from aspect.losses import info_nce as module
from aspect.losses.info_nce import (
    Positives,
    info_nce,
    intra_view_info_nce,
    several_positives_info_nce,
)

NODES = 13
POSITIVES = Positives.from_neighbours(
    torch.randint(NODES, (NODES, 2), generator=torch.Generator().manual_seed(1)), torch.float64
)
LOSSES = {
    "exact": info_nce,
    "intra-view": intra_view_info_nce,
    "several": lambda *views, **how: several_positives_info_nce(*views, POSITIVES, **how),
}


@pytest.mark.parametrize("kept_bytes", [0, 10**9])
@pytest.mark.parametrize("name", LOSSES)
def test_padded_keys_change_nothing(monkeypatch, name, kept_bytes):
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(NODES, 4, dtype=torch.float64, generator=generator) for _ in range(2)]

    def loss_and_gradients():
        fresh = [view.clone().requires_grad_() for view in views]
        losses = LOSSES[name](*fresh, 0.5, block=5, kept_bytes=kept_bytes)
        total = (losses.rows * torch.arange(NODES)).sum() + losses.columns.square().sum()
        return [total.detach(), *torch.autograd.grad(total, fresh)]

    plain = loss_and_gradients()
    padded = []

    def always(keys, dim):
        padded.append(dim)
        return pad(keys, (0, 0, 0, 3))

    monkeypatch.setattr(module, "aligned", always)
    for expected, actual in zip(plain, loss_and_gradients(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13)
    assert padded
