"""What a training leaves beside its scores: runtime, memory, and the embedding's health."""

from __future__ import annotations

from collections.abc import Sequence

from aspect.evaluation.metrics import PERCENT, Summary
from aspect.experiment.record import Record
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.tables import Cell, Line, Table

__all__ = ["cost_table", "health_table"]

MEBIBYTE = 2**20


def cost_table(records: Sequence[Record] | Collection) -> Table:
    """One line per entry and graph, over the records of clean graphs if there are any."""
    collection = collect(records)
    lines = [
        _line(collection, entry, graph, own)
        for graph in collection.graphs
        for entry in collection.methods
        if (own := _trainings(collection, entry, graph))
    ]
    return Table(
        "cost",
        "What one pre-training costs, mean ± standard deviation over pre-trainings. Peak memory is "
        "that of the worker process, or of the device on a GPU: an upper bound.",
        ("graph", "training, s", "peak memory, MiB", "epochs", "parameters", "device"),
        tuple(lines),
    )


def health_table(records: Sequence[Record] | Collection) -> Table:
    """One line per entry and graph whose records tell of it."""
    collection = collect(records)
    lines = [
        _health_line(collection, entry, graph, told)
        for graph in collection.graphs
        for entry in collection.methods
        if (told := _health(_trainings(collection, entry, graph)))
    ]
    return Table(
        "health",
        "Embedding health before any centring, mean ± standard deviation over pre-trainings. A "
        "mean cosine near 1, or an effective rank far below the width, is a collapse.",
        ("graph", "mean cosine", "variance outside the mean, %", "effective rank", "width"),
        tuple(lines),
    )


def _health(records: Sequence[Record]) -> list[dict[str, float]]:
    return [record.health for record in records if record.health is not None]


def _health_line(
    collection: Collection, entry: str, graph: str, told: Sequence[dict[str, float]]
) -> Line:
    return Line(
        collection.title(entry),
        collection.entries[entry].note,
        (
            Cell(word=collection.graphs[graph]),
            _mean([health["mean_cosine"] for health in told], digits=3),
            _mean([PERCENT * health["variance_share"] for health in told], digits=1),
            _mean([health["effective_rank"] for health in told], digits=1),
            _mean([health["dim"] for health in told], digits=0, with_std=False),
        ),
    )


def _trainings(collection: Collection, entry: str, graph: str) -> list[Record]:
    """The records of clean graphs, else of all."""
    found = [
        record
        for place, scores in collection.scores.items()
        if (place.entry, place.graph) == (entry, graph)
        for record in scores.done
    ]
    return [record for record in found if record.cell.spec.perturbation is None] or found


def _line(collection: Collection, entry: str, graph: str, records: Sequence[Record]) -> Line:
    memory = [each.peak_memory_bytes for each in records if each.peak_memory_bytes is not None]
    devices = dict.fromkeys(record.device or record.cell.spec.device for record in records)
    return Line(
        collection.title(entry),
        collection.entries[entry].note,
        (
            Cell(word=collection.graphs[graph]),
            _mean([record.seconds["train"] for record in records if "train" in record.seconds]),
            Cell(max(memory) / MEBIBYTE, digits=0) if memory else Cell(),
            _mean([float(record.epochs) for record in records], digits=0),
            _mean([float(record.parameters) for record in records], digits=0, with_std=False),
            Cell(word=", ".join(devices)),
        ),
    )


def _mean(values: Sequence[float], digits: int = 2, *, with_std: bool = True) -> Cell:
    if not values:
        return Cell()
    summary = Summary.of(values)
    return Cell(summary.mean, std=summary.std if with_std else None, digits=digits)
