"""`aspect datasets`: the graphs that have a name, and where they are."""

from __future__ import annotations

from typing import Any

from aspect.cli.session import Session, command
from aspect.data.catalogue import DATASETS, Dataset
from aspect.data.source import MIXED

__all__ = ["datasets"]


@command(without=("seed", "device"))
def datasets(session: Session) -> None:
    """List the data sets: sizes, where each is found, and what to beware of."""
    with session.screen.activity("Looking for files"):
        from aspect.data.datasets import find

        entries = [_entry(entry, find(entry.name, session.data_dir)) for entry in DATASETS.values()]
        entries.insert(0, _embedded())
    session.screen.answer({"datasets": entries}, lambda: _show(session, entries))


def _entry(entry: Dataset, path: object) -> dict[str, Any]:
    return {
        "name": entry.name,
        "nodes": entry.num_nodes,
        "edges": entry.num_edges,
        "features": entry.num_features,
        "classes": entry.num_classes,
        "splits": entry.num_splits,
        "path": None if path is None else str(path),
        "downloadable": entry.pyg is not None,
        "source": entry.source,
        "licence": entry.licence,
        "note": entry.note,
    }


def _embedded() -> dict[str, Any]:
    from aspect.data.synthetic import embedded_graph

    labelled = embedded_graph()
    return {
        "name": MIXED,
        "nodes": labelled.graph.num_nodes,
        "edges": labelled.graph.num_edges,
        "features": labelled.graph.num_features,
        "classes": labelled.num_classes,
        "splits": 0,
        "path": None,
        "downloadable": False,
        "source": "part of aspect",
        "licence": "MIT",
        "note": "Half homophilic, half heterophilic: no one rule for all nodes can be right.",
    }


def _show(session: Session, entries: list[dict[str, Any]]) -> None:
    counts = ("nodes", "edges", "features", "classes")
    rows = [
        [entry["name"], *(f"{entry[key]:,}" for key in counts), _place(entry)] for entry in entries
    ]
    session.screen.table(["data set", *counts, "found"], rows)
    for entry in entries:
        session.screen.say(f"{entry['name']}: {entry['note']}")
    session.screen.say(
        "Files are looked for in --data-dir, else $ASPECT_DATA, else the cache; "
        "what is nowhere is downloaded by PyG."
    )


def _place(entry: dict[str, Any]) -> str:
    if entry["name"] == MIXED:
        return "embedded"
    return entry["path"] or ("to download" if entry["downloadable"] else "not found")
