"""EMA of a network (BGRL's momentum encoder) and cosine schedules."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["falling_cosine", "follow", "momentum_at"]


def falling_cosine(step: int | float, steps: int | float) -> float:
    """`(1 + cos(pi step / steps)) / 2`: from 1 at step 0 to 0 at the last (BGRL, GBT)."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def momentum_at(step: int, steps: int, first: float) -> float:
    """`1 - (1 - first) (1 + cos(pi step / steps)) / 2`: rises from `first` at step 0 to 1."""
    return 1 - (1 - first) * falling_cosine(step, steps)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, momentum: float) -> None:
    """`target <- momentum * target + (1 - momentum) * online`, parameters alone.

    Those of norms and activations are among them, running statistics are not.
    """
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, 1 - momentum)
