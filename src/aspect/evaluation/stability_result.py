"""What a study of stability found: a row for every kind of change and budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aspect.data.splits import SplitKind
from aspect.evaluation.metrics import PERCENT, Summary
from aspect.evaluation.result import SplitScore
from aspect.evaluation.shifts import Movement, Shift

__all__ = ["Measurement", "Stability", "StabilityRow"]


@dataclass(frozen=True)
class Measurement:
    """One perturbed graph, as a model answers to it."""

    split: int | None  # the split that it is for; None: for all of them
    changed: int  # pairs flipped, or entries masked
    movement: Movement
    strict: Mapping[int, float]  # accuracy by split, in percent; nothing without a probe

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "split": self.split,
            "changed": self.changed,
            **self.movement.to_dict(),
            "strict": [{"split": split, "strict": value} for split, value in self.strict.items()],
        }


@dataclass(frozen=True)
class StabilityRow:
    """One line of the table: a kind of change at a budget, over all of its draws."""

    kind: str
    title: str  # the kind, with a word on how it was done
    budget: float
    measurements: tuple[Measurement, ...]
    clean: Mapping[int, float]  # accuracy on the graph as it was, on the splits of the row

    @property
    def changed(self) -> float:
        """Pairs flipped, or entries masked; a mean over the draws."""
        return _mean(each.changed for each in self.measurements)

    @property
    def turn(self) -> Shift:
        """1 - cosine of centred rows; its three numbers are means over the draws."""
        return _mean_shift([each.movement.turn for each in self.measurements])

    @property
    def relative(self) -> Shift:
        """The same of the distance, divided by the mean distance of two nodes before."""
        return _mean_shift([each.movement.relative for each in self.measurements])

    @property
    def gate(self) -> float | None:
        """Mean absolute change of the gate weight; None without a gate."""
        moves = [each.movement.gate for each in self.measurements]
        known = [move for move in moves if move is not None]
        return _mean(known) if known else None

    @property
    def bands(self) -> dict[str, Shift]:
        """1 - cosine of centred rows, band by band."""
        names = self.measurements[0].movement.bands
        return {
            band: _mean_shift([each.movement.bands[band] for each in self.measurements])
            for band in names
        }

    @property
    def strict(self) -> Summary | None:
        """Accuracy on the perturbed graphs, over the splits."""
        scores = [each.strict for each in self.measurements]
        return _summary({split: value for own in scores for split, value in own.items()})

    @property
    def drop(self) -> float | None:
        """What the change takes: (clean - perturbed) / clean of the means, in percent."""
        before, after = _summary(self.clean), self.strict
        if before is None or after is None or before.mean == 0:
            return None
        return PERCENT * (before.mean - after.mean) / before.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; accuracies and the drop in percent."""
        clean, strict, is_mask = _summary(self.clean), self.strict, self.kind == "feature"
        return {
            "kind": self.kind,
            "title": self.title,
            "budget": self.budget,
            "flips": 0 if is_mask else self.changed,
            "masked_entries": self.changed if is_mask else 0,
            "shift": self.turn.to_dict(),
            "relative_shift": self.relative.to_dict(),
            "gate_shift": self.gate,
            "band_shift": {band: shift.to_dict() for band, shift in self.bands.items()},
            "clean": clean and clean.to_dict(),
            "perturbed": strict and strict.to_dict(),
            "drop": self.drop,
            "measurements": [each.to_dict() for each in self.measurements],
        }


@dataclass(frozen=True)
class Stability:
    """How a model answers to small changes of the graph that it is used on."""

    method: str
    nodes: int
    edges: int
    entries: int  # features that are not zero
    seed: int  # of every draw
    splits: SplitKind | None  # None without a probe
    clean: Mapping[int, SplitScore]  # by split, on the graph as it is
    rows: tuple[StabilityRow, ...]
    notices: tuple[str, ...]  # what a reader must know beside the numbers

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        clean = _summary({number: score.strict for number, score in self.clean.items()})
        return {
            "method": self.method,
            "nodes": self.nodes,
            "edges": self.edges,
            "feature_entries": self.entries,
            "seed": self.seed,
            "splits": self.splits,
            "split_numbers": list(self.clean),
            "clean": clean and clean.to_dict(),
            "clean_scores": [
                {"split": number, **asdict(score)} for number, score in self.clean.items()
            ],
            "rows": [row.to_dict() for row in self.rows],
            "notices": list(self.notices),
        }


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return math.fsum(every) / len(every)


def _mean_shift(shifts: Sequence[Shift]) -> Shift:
    return Shift(
        _mean(each.mean for each in shifts),
        _mean(each.median for each in shifts),
        _mean(each.p95 for each in shifts),
    )


def _summary(values: Mapping[int, float]) -> Summary | None:
    return Summary.of(list(values.values())) if values else None
