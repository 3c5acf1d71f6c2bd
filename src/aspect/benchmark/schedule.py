"""Which cell comes first, and how long the rest will take: guesses that decide no number."""

from __future__ import annotations

from collections.abc import Iterable

from aspect.benchmark.plan import ReadFacts
from aspect.benchmark.record import Cell, Record
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
    """Time left, from what like cells took: those of the same method and graph, if there are."""

    def __init__(self, costs: dict[str, float]) -> None:
        self.costs = costs  # by the cell's key
        self.taken: dict[tuple[str, ...], tuple[float, float]] = {}  # seconds and cost, by likeness

    def note(self, record: Record) -> None:
        """Learn from a cell that is done."""
        seconds, units = sum(record.seconds.values()), self.costs[record.key]
        for likeness in _likenesses(record.cell):
            before = self.taken.get(likeness, (0.0, 0.0))
            self.taken[likeness] = (before[0] + seconds, before[1] + units)

    def left(self, cells: Iterable[Cell], workers: int) -> float | None:
        """Seconds for these cells; None as long as nothing is known."""
        if not self.taken:
            return None
        return sum(self._expected(cell) for cell in cells) / workers

    def _expected(self, cell: Cell) -> float:
        near = next(each for each in _likenesses(cell) if each in self.taken)
        seconds, units = self.taken[near]
        return self.costs[cell.key] * seconds / units


def _likenesses(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """From the closest to the loosest, which all cells share."""
    return (cell.work.method, cell.graph), (cell.work.method,), ()
