"""`aspect datasets`: the graphs that have a name, where they are, and how to add one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from aspect.cli.options import Overwrite
from aspect.cli.session import Session, command
from aspect.config import Config
from aspect.data.source import (
    MIXED,
    NO_READING,
    Dataset,
    GraphSource,
    Reading,
    add_dataset,
    catalogue,
    embedded_entry,
    find,
)
from aspect.errors import SettingsError


class EntryOptions(Config):
    """What the catalogue says of a data set that is added."""

    name: Annotated[str | None, typer.Option(metavar="WORD")] = None
    """With add: what the data set will be called."""
    citation: Annotated[str, typer.Option(metavar="TEXT")] = ""
    """With add: who publishes it."""
    licence: Annotated[str, typer.Option(metavar="TEXT")] = "none stated"
    """With add: its licence."""
    note: Annotated[str, typer.Option(metavar="TEXT")] = ""
    """With add: what to beware of."""


@command(without=("seed", "device"))
def datasets(
    session: Session,
    entry: EntryOptions,
    reading: Reading,
    action: Annotated[
        Literal["add"] | None,
        typer.Argument(help="add makes a data set of GRAPH; else all are listed.", metavar="add"),
    ] = None,
    graph: Annotated[str | None, typer.Argument(help="Files of a graph.", metavar="GRAPH")] = None,
    overwrite: Overwrite = False,
) -> None:
    """List the data sets: sizes, where each is found, and what to beware of; or add one.

    `aspect datasets add GRAPH --name NAME` keeps a graph as NAME.npz and NAME.yaml in --data-dir,
    else in $ASPECT_DATA, else in your data folder; `aspect train NAME` finds it there.
    """
    if action is None:
        if (entry, reading, overwrite) != (EntryOptions(), NO_READING, False):
            raise SettingsError(
                "--name, --citation, --licence, --note, --overwrite and options of reading belong "
                "to `datasets add`."
            )
        with session.screen.activity("Looking for files"):
            known = [embedded_entry(), *catalogue(session.data_dir).values()]
            entries = [_facts(one, session.data_dir) for one in known]
        session.screen.answer({"datasets": entries}, lambda: _show(session, entries))
        return
    if graph is None or entry.name is None:
        raise SettingsError("Give a graph and its name: aspect datasets add GRAPH --name NAME.")
    with session.screen.activity("Reading the graph"):
        labelled = GraphSource.named(graph, reading).read(session.data_dir)
        added = add_dataset(
            entry.name,
            labelled,
            session.data_dir,
            overwrite=overwrite,
            source=entry.citation,
            licence=entry.licence,
            note=entry.note,
        )
    content = _facts(added, session.data_dir)
    hint = "" if session.data_dir is None else " Use it with the same --data-dir."
    sentence = f"{added.name} is now a data set: {content['path']}.{hint}"
    session.screen.answer(content, lambda: session.screen.say(sentence))


def _facts(entry: Dataset, data_dir: str | None) -> dict[str, Any]:
    path = None if entry.name == MIXED or entry.made_by else find(entry.name, data_dir)
    return {
        "name": entry.name,
        "nodes": entry.num_nodes,
        "edges": entry.num_edges,
        "features": entry.num_features,
        "classes": entry.num_classes,
        "splits": entry.num_splits,
        "path": None if path is None else str(path),
        "downloadable": entry.download is not None,
        "made_by": entry.made_by,
        "source": entry.source,
        "licence": entry.licence,
        "note": entry.note,
    }


def _show(session: Session, entries: list[dict[str, Any]]) -> None:
    counts = ("nodes", "edges", "features", "classes")
    rows = [
        [entry["name"], *(f"{entry[key]:,}" for key in counts), _found(entry)] for entry in entries
    ]
    session.screen.table(["data set", *counts, "found"], rows)
    for entry in filter(lambda entry: entry["note"], entries):
        session.screen.say(f"{entry['name']}: {entry['note']}")
    session.screen.say(
        "Files are looked for in --data-dir, else $ASPECT_DATA, then in your data folder and the "
        "cache; what is nowhere is downloaded from its source."
    )


def _found(entry: dict[str, Any]) -> str:
    if entry["name"] == MIXED:
        return "embedded"
    if entry["made_by"]:
        return str(entry["made_by"])
    return entry["path"] or ("to download" if entry["downloadable"] else "not found")
