"""One way in for every graph a user can name: a data set, an archive, tables, or a saved Data.

A `GraphSource` says which graph, and how it is read: all that is needed to read the same graph
again later. Nothing heavy is imported before a graph is read, so that the command line can answer a
wrong name at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aspect.config import Config, make_config
from aspect.data.datasets import MIXED, catalogue, is_dataset, load_named
from aspect.errors import FileError, SettingsError, UnknownNameError

if TYPE_CHECKING:
    from aspect.data.graph import LabelledGraph

__all__ = [
    "GRAPH_SUFFIXES",
    "MIXED",
    "NO_READING",
    "GraphSource",
    "Reading",
    "check_graph_name",
    "read_graph",
]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
GRAPH_SUFFIXES = (".npz", *TABLE_SUFFIXES, ".pt")


def check_graph_name(graph: str) -> str:
    """The name or path itself; what can be neither is answered with the nearest name."""
    is_path = Path(graph).suffix or len(Path(graph).parts) > 1
    if not is_path and graph != MIXED and not is_dataset(graph):
        raise UnknownNameError("data set or file", graph, [*catalogue(), MIXED])
    return graph


class Reading(Config):
    """How the graph's files are read."""

    nodes: str | None = None
    """Node table of an edge table: ids, numeric features, perhaps a label."""
    features: Literal["degree", "identity", "random", "laplacian"] | None = None
    """Structural features in place of the graph's own."""
    impute: Literal["zero", "mean"] | None = None
    """What stands in for missing features, which are refused otherwise."""
    directed: Literal["symmetrise", "error"] = "symmetrise"
    """What happens to edges without their reverse."""
    encoding: str = "utf-8"
    """Encoding of text tables."""
    delimiter: str | None = None
    """Delimiter of text tables; a comma, or a tab in `.tsv`, if not given."""
    label: str | None = None
    """Column of the node table that holds the label, if not `label` or `y`."""


NO_READING = Reading()


class GraphSource(Config):
    """A data set's name, `mixed`, or the path of a file, with the options to read it."""

    graph: str = MIXED
    """Name or path."""
    reading: Reading = NO_READING
    """Options."""

    @classmethod
    def named(cls, graph: str, reading: Reading = NO_READING) -> GraphSource:
        """Check the name, and that the options mean something for it."""
        source = cls(graph=check_graph_name(graph), reading=reading)
        given = set(reading.model_dump(exclude_defaults=True)) - {"features"}
        if source.is_named and given:
            raise SettingsError(
                f"--{min(given)} belongs to a graph in files of yours. Got it with {graph!r}."
            )
        return source

    @property
    def is_named(self) -> bool:
        """Whether it is a data set or the embedded graph, not a file of the user's."""
        return self.graph == MIXED or is_dataset(self.graph)

    @property
    def name(self) -> str:
        """A short name, for folders and titles."""
        return self.graph if self.is_named else Path(self.graph).stem

    def absolute(self) -> GraphSource:
        """The same from any working directory."""
        if self.is_named:
            return self
        nodes = self.reading.nodes and str(Path(self.reading.nodes).absolute())
        reading = self.reading.model_copy(update={"nodes": nodes})
        return GraphSource(graph=str(Path(self.graph).absolute()), reading=reading)

    def read(self, data_dir: str | Path | None = None) -> LabelledGraph:
        """The graph with its labels, if it has any."""
        from aspect.data.features import with_structural_features
        from aspect.data.synthetic import embedded_graph

        check_graph_name(self.graph)
        if self.graph == MIXED:
            labelled = embedded_graph()
        elif is_dataset(self.graph):
            labelled = load_named(self.graph, data_dir)
        else:
            labelled = self._read_file(Path(self.graph))
        kind = self.reading.features
        if kind is None:
            return labelled
        return replace(labelled, graph=with_structural_features(labelled.graph, kind))

    def _read_file(self, path: Path) -> LabelledGraph:
        from aspect.data.archives import read_npz, read_saved
        from aspect.data.graph_tables import read_tables

        suffix = path.suffix.lower()
        if suffix not in GRAPH_SUFFIXES:
            raise FileError(
                f"A graph's file must end in {', '.join(GRAPH_SUFFIXES)}. Got {self.graph!r}."
            )
        if suffix in TABLE_SUFFIXES:
            return read_tables(path, self.reading)
        if self.reading.nodes is not None:
            raise SettingsError(
                f"--nodes belongs to an edge table ({', '.join(TABLE_SUFFIXES)}). "
                f"Got it with {self.graph!r}."
            )
        return (read_npz if suffix == ".npz" else read_saved)(path, self.reading)


def read_graph(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    nodes: str | Path | None = None,
    **options: str | None,
) -> LabelledGraph:
    """Read a data set by name, an `.npz`, an edge table (and its node table) or a saved PyG `Data`.

    Args:
        source: The name or the path; a name of the catalogue always means that data set.
        data_dir: Where files of named data sets lie; `$ASPECT_DATA` if not given.
        nodes: The node table of an edge table.
        **options: `features`, `impute`, `directed`, `encoding`, `delimiter` and `label`, as the
            fields of `Reading` explain them.
    """
    values = {**options, "nodes": None if nodes is None else str(nodes)}
    reading = make_config(Reading, values, owner="the graph")
    return GraphSource(graph=str(source), reading=reading).read(data_dir)
