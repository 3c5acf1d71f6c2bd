"""Numbers that change from step to step, whatever they are multiplied with."""

from __future__ import annotations

import math

__all__ = ["falling_cosine"]


def falling_cosine(step: int | float, steps: int | float) -> float:
    """`(1 + cos(pi step / steps)) / 2`: from 1 at step 0 to 0 at the last (BGRL, GBT)."""
    return (1 + math.cos(math.pi * step / steps)) / 2
