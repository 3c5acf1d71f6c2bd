"""Records in a few lines, for a terminal; reports say more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from aspect.benchmark.record import Record

__all__ = ["Score", "strict_scores"]


@dataclass(frozen=True)
class Score:
    """Test accuracy in percent."""

    mean: float  # over seeds and splits
    std: float | None  # over the splits of one seed, averaged over the seeds; None for one split

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


def strict_scores(records: Iterable[Record]) -> dict[str, dict[str, Score]]:
    """Strict scores of done records by line, such as `ASPECT, random 10%`, and by graph."""
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in records:
        if record.graph is not None and record.status == "done":
            seeds = values.setdefault((_line(record), record.graph.name), {})
            own = seeds.setdefault(record.cell.work.seed, [])
            own += [score.strict for score in record.scores]
    table: dict[str, dict[str, Score]] = {}
    for (line, graph), seeds in values.items():
        table.setdefault(line, {})[graph] = _score(list(seeds.values()))
    return table


def _line(record: Record) -> str:
    perturbation = record.cell.work.perturbation
    if perturbation is None:
        return record.cell.title
    return f"{record.cell.title}, {perturbation.label} {perturbation.mode}"


def _score(seeds: list[list[float]]) -> Score:
    spreads = [stdev(splits) for splits in seeds if len(splits) > 1]
    every = [value for splits in seeds for value in splits]
    return Score(fmean(every), fmean(spreads) if spreads else None)
