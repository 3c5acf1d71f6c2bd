"""The scores of one place of the grid, seeds by splits, and what is missing there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from aspect.attacks.perturbation import Perturbation
from aspect.evaluation.protocol import Spread
from aspect.experiment.record import Record, SplitScores
from aspect.experiment.spec import Cell, SplitName
from aspect.report.tables import counted

__all__ = ["Metric", "Place", "Scores"]

Metric = Literal["strict", "optimistic", "macro_f1", "roc_auc"]


@dataclass(frozen=True)
class Place:
    """Where a number stands: all that tables tell apart but seed and split."""

    entry: str
    graph: str
    splits: SplitName
    perturbation: Perturbation | None = None

    @classmethod
    def of(cls, cell: Cell) -> Place:
        """That of a cell's record."""
        return cls(cell.entry, cell.graph, cell.spec.splits, cell.spec.perturbation)


@dataclass(frozen=True)
class Scores:
    """What is known of one place; records that failed are kept, to be shown as gaps."""

    place: Place
    done: tuple[Record, ...]
    failed: tuple[Record, ...]  # those whose seeds and splits no other record fills
    expected_splits: frozenset[int] = frozenset()  # that any entry has here

    @cached_property
    def by_seed_and_split(self) -> dict[tuple[int, int], SplitScores]:
        """The scores of every pre-training seed and split."""
        # A plan with fewer splits repeats some scores of another: the first are kept.
        return {
            (record.cell.spec.seed, scores.split): scores
            for record in reversed(self.done)
            for scores in record.scores
        }

    @property
    def seeds(self) -> list[int]:
        """Those that have scores."""
        return sorted({seed for seed, _ in self.by_seed_and_split})

    @property
    def splits(self) -> list[int]:
        """Those that have scores."""
        return sorted({split for _, split in self.by_seed_and_split})

    def values(self, metric: Metric) -> dict[tuple[int, int], float]:
        """One number per seed and split; none at all where any lacks this metric."""
        found = {key: getattr(each, metric) for key, each in self.by_seed_and_split.items()}
        return {} if None in found.values() else found

    def spread(self, metric: Metric = "strict") -> Spread | None:
        """Mean and spreads as `Spread.of` gives them, over what is there if some is missing."""
        values = self.values(metric)
        if not values:
            return None
        rows = [list(_of_seed(values, seed).values()) for seed in self.seeds]
        return Spread.of_rows(rows, len(self.splits))

    def over(self, splits: frozenset[int]) -> Scores:
        """The same of these splits alone."""
        done = [
            record.model_copy(
                update={"scores": tuple(each for each in record.scores if each.split in splits)}
            )
            for record in self.done
        ]
        kept = tuple(record for record in done if record.scores)
        return replace(self, done=kept, expected_splits=self.expected_splits & splits)

    def by_split(self, metric: Metric = "strict") -> dict[int, float]:
        """One number per split, averaged over its seeds: what pairs are formed of."""
        values = self.values(metric)
        gathered: dict[int, list[float]] = {}
        for (_, split), value in sorted(values.items()):
            gathered.setdefault(split, []).append(value)
        return {split: math.fsum(each) / len(each) for split, each in gathered.items()}

    @property
    def complaint(self) -> str:
        """What is missing, in words; empty where nothing is."""
        parts = []
        there = len(self.by_seed_and_split)
        whole = len(self.seeds) * len(self.expected_splits.union(self.splits))
        if self.failed:
            why = self.failed[0].error or "no reason was recorded"
            parts.append(f"{counted(len(self.failed), 'cell')} failed ({why.rstrip('.')})")
        if there < whole:
            parts.append(f"{there} of {whole} scores are there")
        return "; ".join(parts)


def _of_seed(values: Mapping[tuple[int, int], float], seed: int) -> dict[int, float]:
    return {split: value for (own, split), value in sorted(values.items()) if own == seed}
