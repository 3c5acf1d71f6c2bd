"""Baselines that stand in records beside every score: they answer without any embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aspect.attacks.perturbation import Perturbation
from aspect.evaluation.metrics import Summary
from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.collection import Collection
from aspect.report.tables import Cell, Line

__all__ = ["baseline_lines", "majority_notes"]


@dataclass(frozen=True)
class Baseline:
    """A line of its own in every table of accuracies."""

    field: Literal["majority", "twins"]  # of `SplitScores`
    title: str
    note: str


BASELINES = (
    Baseline("twins", "Nearest neighbour by neighbour sets", "no features, no training"),
    Baseline("majority", "Majority class", "of the validation nodes"),
)


def baseline_lines(
    collection: Collection,
    splits: SplitName,
    perturbation: Perturbation | None,
    graphs: Sequence[str],
) -> list[Line]:
    """A line per baseline that any record tells of; mean and standard deviation over splits."""
    records = {graph: _records(collection, graph, splits, perturbation) for graph in graphs}
    lines = [
        Line(
            baseline.title,
            baseline.note,
            tuple(_cell(_by_split(records[graph], baseline.field)) for graph in graphs),
        )
        for baseline in BASELINES
    ]
    return [line for line in lines if any(cell.value is not None for cell in line.cells)]


def majority_notes(collection: Collection, splits: SplitName, graphs: Sequence[str]) -> list[str]:
    """The majority class of records of version 0.1, which had no line for it: a sentence."""
    shares = [
        f"{collection.graphs[graph]} {math.fsum(values) / len(values):.2f}"
        for graph in graphs
        if (
            values := _by_split(
                _records(collection, graph, splits, None, of_first_version=True), "majority"
            )
        )
    ]
    if not shares:
        return []
    return [f"One answer for every node, validation's most frequent class: {', '.join(shares)}."]


def _records(
    collection: Collection,
    graph: str,
    splits: SplitName,
    perturbation: Perturbation | None,
    *,
    of_first_version: bool = False,
) -> list[Record]:
    """Those of any entry; version 0.1 named no probe."""
    return [
        record
        for place, scores in collection.scores.items()
        if (place.graph, place.splits, place.perturbation) == (graph, splits, perturbation)
        for record in scores.done
        if (record.cell.spec.probe is None) == of_first_version
    ]


def _by_split(records: Sequence[Record], field: str) -> list[float]:
    """One number per split: a property of graph and split, so that any record's will do."""
    values = {
        scores.split: value
        for record in records
        for scores in record.scores
        if (value := getattr(scores, field)) is not None
    }
    return [values[split] for split in sorted(values)]


def _cell(values: Sequence[float]) -> Cell:
    if not values:
        return Cell()
    summary = Summary.of(values)
    return Cell(summary.mean, std=summary.std)
