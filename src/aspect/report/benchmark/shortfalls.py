"""Where our figures stay below the published ones: a lead for whoever doubts either of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.names import table_name
from aspect.report.benchmark.published import Paper, citation
from aspect.report.benchmark.score_cells import Footnotes, score_cell
from aspect.report.benchmark.scores import Metric, Place
from aspect.report.tables import Cell, Line, Table

__all__ = ["TOLERANCE", "shortfall_tables"]

TOLERANCE = 2.0  # points; a figure further below asks for a reason

RULES: tuple[Metric, ...] = ("strict", "optimistic")
COLUMNS = (*RULES, "published", "strict less published")


def shortfall_tables(records: Sequence[Record] | Collection) -> list[Table]:
    """A line for every method and clean graph whose strict accuracy is below by more than that."""
    collection = collect(records)
    return [table for splits in collection.kinds if (table := _table(collection, splits)).lines]


def _table(collection: Collection, splits: SplitName) -> Table:
    footnotes = Footnotes()
    return Table(
        table_name(collection, "clean-below", splits),
        f"More than {TOLERANCE:g} points below the figures of {citation('clean')}, by the strict "
        "rule; accuracy in percent. The optimistic rule, which looks at the test set, may be the "
        "one of the published figures.",
        COLUMNS,
        tuple(_lines(collection, splits, footnotes)),
        head="method and graph",
        notes=footnotes.notes,
    )


def _lines(collection: Collection, splits: SplitName, footnotes: Footnotes) -> Iterator[Line]:
    paper, graphs = Paper(splits, None), collection.columns(splits, None)
    for entry in collection.rows(splits, None, graphs):
        for graph in graphs:
            scores = collection.find(Place(entry, graph, splits))
            figure = paper.accuracy(entry, collection.graphs[graph])
            spread = scores.spread("strict") if scores else None
            if figure is None or spread is None or spread.mean >= figure - TOLERANCE:
                continue
            own = [score_cell(scores, metric, footnotes) for metric in RULES]
            cells = (*own, Cell(figure), Cell(spread.mean - figure))
            yield Line(f"{collection.title(entry)}, {collection.graphs[graph]}", "", cells)
