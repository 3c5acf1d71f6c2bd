"""What attacks, their files and their uses are called.

Nothing heavy is imported, so that plans and the command line can answer a wrong name at once.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["SUFFIX", "AttackKind", "Mode", "Solver", "attack_title"]

AttackKind = Literal["metattack", "random", "dice"]

Solver = Literal["implicit", "unrolled"]  # of metattack

# Poisoned graphs are trained and probed on; evasion perturbs what a trained model then embeds.
Mode = Literal["poison", "evade"]

SUFFIX = ".safetensors"  # of perturbation files


def attack_title(kind: str, solver: str) -> str:
    """How flips were chosen, in words: `metattack (implicit)`, or the kind where it is the only."""
    return f"{kind} ({solver})" if solver else kind
