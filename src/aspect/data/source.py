"""Which graph, and how it is read: all that is needed to read the same graph again later.

Nothing heavy is imported before `read`, so that the command line can answer a wrong name at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aspect.config import Config
from aspect.data.catalogue import DATASETS
from aspect.errors import SettingsError, UnknownNameError

if TYPE_CHECKING:
    from aspect.data.graph import LabelledGraph

__all__ = ["MIXED", "NO_READING", "GraphSource", "Reading", "check_graph_name"]

MIXED = "mixed"  # the embedded graph, which needs no file


def check_graph_name(graph: str) -> str:
    """The name or path itself; what can be neither is answered with the nearest name."""
    is_path = Path(graph).suffix or len(Path(graph).parts) > 1
    if graph not in (*DATASETS, MIXED) and not is_path:
        raise UnknownNameError("data set or file", graph, [*DATASETS, MIXED])
    return graph


class Reading(Config):
    """How the graph's files are read; see `aspect.data.reading.read_graph`."""

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
        return self.graph in DATASETS or self.graph == MIXED

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
        if self.graph == MIXED:
            return self._read_mixed()
        from aspect.data.reading import read_graph

        check_graph_name(self.graph)
        return read_graph(self.graph, data_dir=data_dir, **self.reading.model_dump())

    def _read_mixed(self) -> LabelledGraph:
        from dataclasses import replace

        from aspect.data.structural import with_structural_features
        from aspect.data.synthetic import embedded_graph

        labelled, features = embedded_graph(), self.reading.features
        if features is None:
            return labelled
        return replace(labelled, graph=with_structural_features(labelled.graph, features))
