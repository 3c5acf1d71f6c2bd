"""What is asked of a study of stability.

Nothing heavy is imported, so that the command line can answer a wrong wish at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from aspect.errors import SettingsError, UnknownNameError

if TYPE_CHECKING:
    from aspect.data.splits import SplitKind

__all__ = [
    "DEFAULT_BUDGETS",
    "DEFAULT_SPLITS",
    "DEFAULT_SPLIT_KIND",
    "KINDS",
    "TRANSFERRED",
    "Kind",
    "StabilityRequest",
]

Kind = Literal["random", "feature", "gradient", "metattack"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TRANSFERRED = "gradient (transferred)"  # what `gradient` is called where a stand-in is searched

DEFAULT_BUDGETS = (0.01, 0.05, 0.1)
DEFAULT_SPLITS = 3
DEFAULT_SPLIT_KIND: SplitKind = "random"


@dataclass(frozen=True)
class StabilityRequest:
    """Kinds of perturbations, how large they are, and on which nodes a probe is judged."""

    kinds: tuple[Kind, ...] = ()  # none: all that can be done on the graph
    budgets: tuple[float, ...] = ()  # shares, rising; none: `DEFAULT_BUDGETS`
    splits: SplitKind | None = None  # none: `DEFAULT_SPLIT_KIND`
    num_splits: int | None = None  # and draws of what is random; none: `DEFAULT_SPLITS`
    seed: int = 0  # of every draw

    @classmethod
    def of(
        cls,
        kinds: Iterable[str] = (),
        budgets: Iterable[float] = (),
        *,
        splits: SplitKind | None = None,
        num_splits: int | None = None,
        seed: int = 0,
    ) -> StabilityRequest:
        """Check what is wrong for every graph, and put kinds and budgets into their order."""
        wanted = set(kinds)
        for kind in sorted(wanted - set(KINDS)):
            raise UnknownNameError("kind of perturbation", kind, KINDS)
        shares = list(budgets)
        for share in shares:
            if not 0 < share <= 1:
                raise SettingsError(f"Budget must be a share in (0, 1]. Got {share:g}.")
        if num_splits is not None and num_splits < 1:
            raise SettingsError(f"Number of splits must be 1 or more. Got {num_splits}.")
        ordered = tuple(kind for kind in KINDS if kind in wanted)
        return cls(ordered, tuple(sorted(set(shares))), splits, num_splits, seed)
