"""`aspect check`: everything that is wrong or surprising in a graph, before a training."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.cli.completion import graph_argument
from aspect.cli.session import USER_ERROR, Session, command
from aspect.data.source import GraphSource, Reading
from aspect.errors import AspectError, counted, sentence_of

if TYPE_CHECKING:
    from aspect.data.graph import LabelledGraph
    from aspect.data.tables import TablesRead

OF_COLUMN = ("kind", "missing", "encoding", "features")
MOST_ALIKE = 3  # neighbours that have a line each


@command(without=("seed", "device"))
def check(
    session: Session,
    graph: Annotated[str, graph_argument("Edge table, .npz, saved Data or data set.")],
    reading: Reading,
) -> None:
    """Say all that is wrong or surprising in a graph at once, and what would be done with it.

    The exit code is 0 if a training would be accepted, else 2.
    """
    source = GraphSource.named(graph, reading)
    with session.screen.activity("Checking"):
        result = _read(source, session.data_dir)
        content = _content(source, result)
    session.screen.answer(content, lambda: _show(session, content))
    if not content["accepted"]:
        raise typer.Exit(USER_ERROR)


def _read(source: GraphSource, data_dir: str | None) -> TablesRead:
    from aspect.data.tables import TablesRead, read_all

    if source.is_tables:
        return read_all(source.graph, source.reading)
    try:
        labelled = source.read(data_dir)
    except AspectError as error:
        return TablesRead(errors=[error])
    return TablesRead(labelled, structure=labelled)


def _content(source: GraphSource, result: TablesRead) -> dict[str, Any]:
    from aspect.data.encoder import Caution

    known = result.labelled or result.structure
    notices = list(result.notices if known is None else known.graph.notices)
    if result.labelled is None and result.nodes and result.nodes.encoder:
        notices += result.nodes.encoder.described()
    return {
        "graph": source.name,
        "accepted": result.labelled is not None,
        "errors": [sentence_of(error) for error in result.errors],
        "warnings": [notice for notice in notices if isinstance(notice, Caution)],
        "notes": [notice for notice in notices if not isinstance(notice, Caution)],
        "summary": None if known is None else _summary(known, has_features=bool(result.labelled)),
        "columns": _columns(result),
    }


def _summary(labelled: LabelledGraph, *, has_features: bool) -> dict[str, Any]:
    from aspect.data.graph import UNLABELLED

    graph, labels = labelled.graph, labelled.labels
    components, largest = graph.components()
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "components": components,
        "largest_component": largest,
        "isolated_nodes": int((graph.degrees() == 0).sum()),
        "features": graph.num_features if has_features else None,
        "classes": labelled.num_classes,
        "labelled_nodes": int((labels != UNLABELLED).sum()),
        "homophily": labelled.homophily,
    }


def _columns(result: TablesRead) -> list[dict[str, Any]]:
    """Every column of the node table: what it holds, and what becomes of it."""
    table = result.nodes
    if table is None:
        return []
    fitted = {column.name: column for column in table.encoder.columns} if table.encoder else {}
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "missing": int(column.missing.sum()),
            "encoding": fitted[column.name].title if column.name in fitted else "left out",
            "features": len(fitted[column.name].feature_names) if column.name in fitted else 0,
        }
        for column in table.columns
    ]


def _show(session: Session, content: dict[str, Any]) -> None:
    screen, summary = session.screen, content["summary"]
    if summary is not None:
        rows = [
            [name.replace("_", " "), f"{value:.3g}" if name == "homophily" else f"{value:,}"]
            for name, value in summary.items()
            if value is not None
        ]
        screen.table([content["graph"], ""], rows)
    if content["columns"]:
        screen.table(["column", *OF_COLUMN], list(_rows(content["columns"])))
    for word, key in (("Error", "errors"), ("Warning", "warnings"), ("Note", "notes")):
        for sentence in content[key]:
            screen.say(f"{word}: {sentence}")
    count = len(content["errors"])
    screen.say(
        "A training would be accepted."
        if content["accepted"]
        else f"A training would be refused: fix {counted(count, 'error')}."
    )


def _rows(columns: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """A line for each column; one line for many neighbours that are treated alike."""
    for values, group in groupby(columns, key=lambda column: [column[key] for key in OF_COLUMN]):
        names = [column["name"] for column in group]
        if len(names) > MOST_ALIKE:
            names = [f"{names[0]} ... {names[-1]} ({len(names)} columns)"]
        yield from ([name, *values] for name in names)
