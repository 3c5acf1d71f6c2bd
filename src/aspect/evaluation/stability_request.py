"""What is requested of a stability study; nothing heavy is imported for a wrong option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aspect.attacks.registry import attack_info, attack_names
from aspect.errors import SettingsError, UnknownNameError

if TYPE_CHECKING:
    from aspect.data.splits import SplitKind

DEFAULT_KINDS = ("random", "feature", "gradient", "metattack")
TRANSFERRED = "(transferred)"  # after the name of an attack whose model is a stand-in

DEFAULT_BUDGETS = (0.01, 0.05, 0.1)
DEFAULT_SPLITS = 3
DEFAULT_SPLIT_KIND: SplitKind = "random"


@dataclass(frozen=True)
class StabilityRequest:
    """Kinds of perturbations, how large they are, and on which splits a probe is evaluated."""

    kinds: Sequence[str] = ()  # attacks; none: those of `DEFAULT_KINDS` that the graph allows
    budgets: Sequence[float] = ()  # none: `DEFAULT_BUDGETS`
    splits: SplitKind | None = None  # none: `DEFAULT_SPLIT_KIND`
    num_splits: int | None = None  # and draws of what is random; none: `DEFAULT_SPLITS`
    seed: int = 0  # of every draw

    def __post_init__(self) -> None:
        """Refuse what is wrong for every graph; put kinds and budgets into order, each once."""
        named, ratios = set(self.kinds), sorted(set(self.budgets))
        for kind in sorted(named - set(attack_names())):
            raise UnknownNameError("kind of perturbation", kind, attack_names())
        for kind in sorted(named):
            check_untargeted(kind)
        for ratio in ratios:
            if not 0 < ratio <= 1:
                raise SettingsError(f"Budget must be a ratio in (0, 1]. Got {ratio:g}.")
        if self.num_splits is not None and self.num_splits < 1:
            raise SettingsError(f"Number of splits must be 1 or more. Got {self.num_splits}.")
        ordered = dict.fromkeys((*DEFAULT_KINDS, *attack_names()))
        object.__setattr__(self, "kinds", tuple(kind for kind in ordered if kind in named))
        object.__setattr__(self, "budgets", tuple(ratios))


def check_untargeted(kind: str) -> None:
    """Refuse an attack on single nodes, whether it is named or comes from a file."""
    if attack_info(kind).targeted:
        raise SettingsError(
            f"{kind} attacks single nodes, and stability is of whole graphs: leave it out."
        )
