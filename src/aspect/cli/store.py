"""`aspect store`: a graph of any size as a store on disk, or what a store holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from aspect.cli.session import Session, command
from aspect.config import Config, Count, Positive
from aspect.data.source import Reading
from aspect.errors import FileError, counted
from aspect.scale.options import ROWS_PER_BLOCK, FeatureType, StoreLayout

if TYPE_CHECKING:
    from aspect.scale.store import GraphStore

GIB = 2**30


class StoreOptions(Config):
    """How a store is written."""

    rows_per_block: Count = ROWS_PER_BLOCK
    """Nodes of a block."""
    dtype: FeatureType = "float32"
    """Type of the features on disk."""
    memory: Annotated[Positive, typer.Option(metavar="GIB")] = 1.0
    """Memory for sorting and mapping, in GiB."""

    @property
    def layout(self) -> StoreLayout:
        """The same for the library."""
        return {
            "rows_per_block": self.rows_per_block,
            "dtype": self.dtype,
            "memory_bytes": int(self.memory * GIB),
        }


class LabelOptions(Config):
    """Labels that are no column of the node table."""

    labels: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """Class numbers as .npy, beside features as .npy."""
    classes: Literal["19", "2K"] = "19"
    """Which labels of a data set of IGB."""


@command(without=("seed", "device", "data_dir"))
def store(
    session: Session,
    reading: Reading,
    options: StoreOptions,
    labels: LabelOptions,
    graph: Annotated[
        Path,
        typer.Argument(
            help="Edges as .parquet (or a folder of such), .csv, .tsv or .npy; OGB; IGB; a store.",
            metavar="GRAPH",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the store to make.", metavar="DIR")
    ] = None,
) -> None:
    """Make a store of a graph that may be larger than the memory; or check one.

    Nodes come from --nodes: a table with ids and columns of numbers, or features as .npy, by whose
    rows the edges then name their ends. Without it, --features degree or random. `aspect store
    STORE` alone verifies the checksum of every block. The same command goes on after an interrupt.
    """
    from aspect.scale.store import GraphStore, is_store

    if out is None:
        if not is_store(graph):
            raise FileError(f"Give the folder of the store to make, with --out. Got {graph} alone.")
        with session.screen.activity("Checking every block"):
            made = GraphStore.open(graph)
            made.verify()
    else:
        with session.screen.activity("Making the store"):
            made = _made(graph, out, reading, options, labels)
    show_store(session, made)


def _made(
    source: Path, out: Path, reading: Reading, options: StoreOptions, labels: LabelOptions
) -> GraphStore:
    from aspect.scale.build import build_store
    from aspect.scale.formats import import_igb, import_ogb, layout_of

    format_name = layout_of(source)
    if format_name == "ogb":
        return import_ogb(source, out, **options.layout)
    if format_name == "igb":
        return import_igb(source, out, labels=labels.classes, **options.layout)
    return build_store(source, out, reading, labels=labels.labels, **options.layout)


def show_store(session: Session, made: GraphStore) -> None:
    """Say what a store holds."""
    from aspect.scale.blocks import size_text

    facts = made.facts
    num_bytes = sum(file.stat().st_size for file in made.path.iterdir())
    content = {
        "path": str(made.path),
        "nodes": facts.num_nodes,
        "edges": facts.num_edges,
        "features": facts.num_features,
        "classes": len(facts.class_names),
        "weighted": facts.weight_scale is not None,
        "blocks": len(made.blocks),
        "bytes": num_bytes,
        "notices": list(facts.notices),
    }

    def show() -> None:
        session.screen.notices(facts.notices)
        session.screen.say(
            f"{made.path}: {counted(facts.num_nodes, 'node')}, "
            f"{counted(facts.num_edges, 'edge')}, {counted(facts.num_features, 'feature')}, "
            f"{len(facts.class_names):,} classes in {counted(len(made.blocks), 'block')}, "
            f"{size_text(num_bytes)}."
        )

    session.screen.answer(content, show)
