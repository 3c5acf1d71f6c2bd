"""One way in for every graph a user can name: a data set, an archive, tables, or a saved Data.

A `GraphSource` says which graph, and how it is read: all that is needed to read the same graph
again later. Nothing heavy is imported before a graph is read, so that the command line can answer a
wrong name at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aspect.config import Config
from aspect.data.datasets import MIXED, catalogue, is_dataset
from aspect.errors import FileError, SettingsError, UnknownNameError

if TYPE_CHECKING:
    from aspect.data.graph import LabelledGraph
    from aspect.data.graph_tables import TableOptions

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


def read_graph(  # noqa: PLR0913 - the options of the command line, each independent of the others
    source: str | Path,
    *,
    nodes: str | Path | None = None,
    data_dir: str | Path | None = None,
    features: str | None = None,
    impute: str | None = None,
    directed: str = "symmetrise",
    encoding: str = "utf-8",
    delimiter: str | None = None,
    label: str | None = None,
) -> LabelledGraph:
    """Read a data set by name, an `.npz`, an edge table (and its node table) or a saved PyG `Data`.

    Args:
        source: The name or the path; a name of the catalogue always means that data set.
        nodes: The node table of an edge table: ids, numeric features, perhaps a label.
        data_dir: Where files of named data sets lie; `$ASPECT_DATA` if not given.
        features: Structural features in place of any others: degree, identity, random, laplacian.
        impute: `zero` or `mean` in place of missing features; they are refused if not given.
        directed: `symmetrise` edges that lack their reverse, or take them for an `error`.
        encoding: Of the text tables.
        delimiter: Of the text tables; a comma, or a tab in `.tsv`, if not given.
        label: Column of the node table that holds the label, if not `label` or `y`.
    """
    from aspect.data.datasets import load_named
    from aspect.data.features import STRUCTURAL, check_impute, with_structural_features
    from aspect.data.graph_tables import TableOptions
    from aspect.data.synthetic import embedded_graph
    from aspect.data.tables import TextFormat

    if features is not None and features not in STRUCTURAL:
        raise SettingsError(f"--features must be one of {', '.join(STRUCTURAL)}. Got {features!r}.")
    if directed not in ("symmetrise", "error"):
        raise SettingsError(f"--directed must be symmetrise or error. Got {directed!r}.")
    check_impute(impute)
    if str(source) == MIXED:
        labelled = embedded_graph()
    elif is_dataset(str(source)):
        labelled = load_named(str(source), data_dir)
    else:
        options = TableOptions(
            label=label,
            impute=impute,
            text=TextFormat(encoding, delimiter),
            allow_no_features=features is not None,
            directed_is_error=directed == "error",
        )
        labelled = _read_file(Path(source), nodes, options)
    if features is None:
        return labelled
    return replace(labelled, graph=with_structural_features(labelled.graph, features))


def _read_file(path: Path, nodes: str | Path | None, options: TableOptions) -> LabelledGraph:
    from aspect.data.archives import read_npz, read_saved
    from aspect.data.graph_tables import read_tables

    suffix = path.suffix.lower()
    if suffix not in GRAPH_SUFFIXES:
        check_graph_name(str(path))
        raise FileError(
            f"A graph's file must end in {', '.join(GRAPH_SUFFIXES)}. Got {str(path)!r}."
        )
    if suffix in TABLE_SUFFIXES:
        return read_tables(path, nodes, options)
    if nodes is not None:
        raise SettingsError(
            f"--nodes belongs to an edge table ({', '.join(TABLE_SUFFIXES)}). "
            f"Got it with {str(path)!r}."
        )
    if suffix == ".npz":
        error = options.directed_is_error
        return read_npz(path, impute=options.impute, directed_is_error=error)
    return read_saved(
        path,
        impute=options.impute,
        allow_no_features=options.allow_no_features,
        directed_is_error=options.directed_is_error,
    )


class Reading(Config):
    """How the graph's files are read; see `read_graph`."""

    nodes: str | None = None
    """Node table that belongs to an edge table."""
    features: Literal["degree", "identity", "random", "laplacian"] | None = None
    """Structural features in place of the graph's own."""
    impute: Literal["zero", "mean"] | None = None
    """What stands in for missing features."""
    directed: Literal["symmetrise", "error"] = "symmetrise"
    """What happens to edges without their reverse."""
    encoding: str = "utf-8"
    """Encoding of text tables."""
    delimiter: str | None = None
    """Delimiter of text tables."""
    label: str | None = None
    """Column of the node table that holds the label."""


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
        check_graph_name(self.graph)
        return read_graph(self.graph, data_dir=data_dir, **self.reading.model_dump())
