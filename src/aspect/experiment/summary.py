"""Records in a few lines, for a terminal; reports say more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from aspect.experiment.perturbation import Perturbation
from aspect.experiment.record import Record

__all__ = ["Line", "Score", "strict_scores"]


@dataclass(frozen=True)
class Line:
    """A line of the table; entries may share a title, but no line."""

    entry: str
    title: str
    perturbation: Perturbation | None

    def __str__(self) -> str:
        if self.perturbation is None:
            return self.title
        alone = "" if self.perturbation.features else ", edges alone"
        return f"{self.title}, {self.perturbation.label} {self.perturbation.mode}{alone}"


@dataclass(frozen=True)
class Score:
    """Test accuracy in percent."""

    mean: float  # over seeds and splits
    std: float | None  # over the splits of one seed, averaged over the seeds; None for one split

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


def strict_scores(records: Iterable[Record]) -> dict[Line, dict[str, Score]]:
    """Strict scores of done records by line, such as `ASPECT, random 10% poison`, and by graph."""
    values: dict[tuple[Line, str], dict[int, list[float]]] = {}
    for record in records:
        if record.status == "done":
            cell = record.cell
            line = Line(cell.entry, cell.title, cell.work.perturbation)
            own = values.setdefault((line, cell.graph), {}).setdefault(cell.work.seed, [])
            own += [score.strict for score in record.scores]
    table: dict[Line, dict[str, Score]] = {}
    for (line, graph), seeds in values.items():
        table.setdefault(line, {})[graph] = _score(list(seeds.values()))
    return table


def _score(seeds: list[list[float]]) -> Score:
    spreads = [stdev(splits) for splits in seeds if len(splits) > 1]
    every = [value for splits in seeds for value in splits]
    return Score(fmean(every), fmean(spreads) if spreads else None)
