"""EMA / momentum encoder, and the cosine schedules that go with it (BGRL, GBT)."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["cosine_decay", "ema_momentum", "update_ema"]


def cosine_decay(step: int | float, steps: int | float) -> float:
    """`(1 + cos(pi step / steps)) / 2`: from 1 at step 0 to 0 at the last (BGRL, GBT)."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def ema_momentum(step: int, steps: int, first: float) -> float:
    """`1 - (1 - first) (1 + cos(pi step / steps)) / 2`: rises from `first` at step 0 to 1."""
    return 1 - (1 - first) * cosine_decay(step, steps)


@torch.no_grad()
def update_ema(target: nn.Module, online: nn.Module, momentum: float) -> None:
    """`target <- momentum * target + (1 - momentum) * online`, parameters alone.

    Those of norms and activations are among them, running statistics are not.
    """
    for average, newest in zip(target.parameters(), online.parameters(), strict=True):
        average.lerp_(newest, 1 - momentum)
