"""Early stopping: watch a number, remember the best, give up after too long without a better."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["EarlyStopping"]


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
