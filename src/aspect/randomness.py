"""Randomness by name: every draw has a seed derived from the run's seed and from what it is for.

No generator outlives its purpose, so nothing about randomness has to be saved: a resumed run
derives epoch 41's generator exactly as the uninterrupted one does.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SEED_BITS = 63
_SEEDED = threading.RLock()  # torch has one generator for all threads


def seed_for(seed: int, *purpose: str | int) -> int:
    """Mix the run's seed with a purpose, such as `("epoch", 41)`; the same on every machine.

    >>> seed_for(0, "epoch", 41) == seed_for(0, "epoch", 41) != seed_for(1, "epoch", 41)
    True
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)


def generator_for(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A fresh generator for one purpose; CPU and CUDA generators draw different numbers."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed_for(seed, *purpose))
    return generator


@contextmanager
def isolated_seed(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator, from which layers draw their first weights, then restore it.

    Meanwhile torch's default type is float32: another one would draw other numbers.
    `torch.manual_seed` would seed the generators of all GPUs as well, which nobody restores.
    """
    with _SEEDED:
        before, dtype = torch.get_rng_state(), torch.get_default_dtype()
        torch.default_generator.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_rng_state(before)
