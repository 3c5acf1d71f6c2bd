"""Early stopping: by the loss, after too long without a lower one; or by a collapse."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CHECK_EVERY", "CollapseStopping", "EarlyStopping"]

CHECK_EVERY = 10  # epochs between two looks at the embedding; a look takes about as long as one


@dataclass
class EarlyStopping:
    """Counts epochs since the watched loss was last below its best; no patience: never stops."""

    patience: int | None
    best: float = math.inf
    best_epoch: int = 0

    def observe(self, epoch: int, watched: float) -> bool:
        """Take note of an epoch's loss; true if it is the best so far and worth keeping."""
        if self.patience is None or not watched < self.best:
            return False
        self.best, self.best_epoch = watched, epoch
        return True

    def is_over(self, epoch: int) -> bool:
        """Whether patience ran out."""
        return self.patience is not None and epoch - self.best_epoch >= self.patience


@dataclass
class CollapseStopping:
    """Watches the embedding's health; over when one that was healthy is close to collapse.

    An embedding that was never healthy stops nothing: many start near a common direction, and
    training may still lead them away from it.
    """

    is_on: bool
    healthy_epoch: int | None = None  # of the last healthy look
    is_over: bool = False

    def is_due(self, epoch: int) -> bool:
        """Whether to look at the embedding after this epoch."""
        return self.is_on and epoch % CHECK_EVERY == 0

    def observe(self, epoch: int, *, is_collapsed: bool) -> bool:
        """Take note of a look; true if the state is healthy and worth keeping."""
        if is_collapsed:
            self.is_over = self.healthy_epoch is not None
            return False
        self.healthy_epoch = epoch
        return True
