"""A network that follows another one slowly (BGRL's target)."""

from __future__ import annotations

import torch
from torch import nn

from aspect.nn.schedules import falling_cosine

__all__ = ["follow", "momentum_at"]


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
