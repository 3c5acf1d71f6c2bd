"""Which cell comes first, and how long the rest will take: guesses that decide no number."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from aspect.experiment.facts import ReadFacts
from aspect.experiment.record import Cell
from aspect.methods.registry import find_method

__all__ = ["Clock", "cost"]

EPOCHS_PER_PROBE = 2.0  # what probing one split takes, in epochs of linear cost


def cost(cell: Cell, facts: ReadFacts) -> float:
    """Work of a cell in arbitrary units: by epochs, and by nodes (squared, or with edges)."""
    method = find_method(cell.work.method).method
    epochs = cell.work.settings["epochs"] if method.trainable else 1
    linear = facts.nodes + facts.edges
    size = facts.nodes**2 if method.cost == "quadratic" else linear
    probing = EPOCHS_PER_PROBE * linear * len(cell.work.split_numbers)
    return float(epochs * size + probing)


class Clock:
    """Time left, from what the most alike of the cells that are done took."""

    def __init__(self, costs: dict[str, float]) -> None:
        self.costs = costs  # by the cell's key
        self.taken: dict[tuple[str, ...], tuple[float, float]] = {}  # seconds and cost, by likeness

    def note(self, cell: Cell, seconds: float) -> None:
        """Learn from a cell that is done."""
        for likeness in _likenesses(cell):
            before = self.taken.get(likeness, (0.0, 0.0))
            self.taken[likeness] = (before[0] + seconds, before[1] + self.costs[cell.key])

    def left(
        self, waiting: Iterable[Cell], running: Sequence[tuple[Cell, float]], workers: int
    ) -> float | None:
        """Seconds until the last cell ends; None as long as nothing is known.

        Args:
            waiting: In the order in which they will be taken.
            running: Each with the seconds that it has taken so far.
            workers: Cells at a time.
        """
        if not self.taken:
            return None
        # One that takes longer than expected may be late by as much again.
        ends = [abs(self._expected(cell) - seconds) for cell, seconds in running]
        ends += [0.0] * (workers - len(ends))
        heapq.heapify(ends)
        for cell in waiting:
            heapq.heapreplace(ends, ends[0] + max(self._expected(cell), self._least(cell, running)))
        return max(ends)

    def _expected(self, cell: Cell) -> float:
        near = next(each for each in _likenesses(cell) if each in self.taken)
        seconds, units = self.taken[near]
        return self.costs[cell.key] * seconds / units

    def _least(self, cell: Cell, running: Sequence[tuple[Cell, float]]) -> float:
        """What cells of the same method and graph take at least, judged by those under way."""
        closest = _likenesses(cell)[0]
        rates = (
            seconds / self.costs[other.key]
            for other, seconds in running
            if _likenesses(other)[0] == closest
        )
        return self.costs[cell.key] * max(rates, default=0.0)


def _likenesses(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """From the closest to the loosest, which all cells share.

    Units of linear and of quadratic work differ by orders of magnitude: one kind says little of the
    other, and is asked last.
    """
    method = cell.work.method
    kind = find_method(method).method.cost
    return (method, cell.graph), (method,), ("every method", "of cost", kind), ()
