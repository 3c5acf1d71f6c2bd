"""The graphs of a worker, which meets the same few again and again: read once, and unchanged."""

from __future__ import annotations

from functools import lru_cache

from aspect.errors import GraphError
from aspect.graph.data import LabelledGraph
from aspect.graph.npz import content_sha256
from aspect.graph.source import GraphSource, Reading

__all__ = ["forget_graphs", "read_unchanged"]

GRAPHS_KEPT = 4  # in the memory of a worker


def read_unchanged(
    graph: str, reading: Reading, data_dir: str | None, sha256: str
) -> LabelledGraph:
    """The graph, if its content is still that which the bench began with.

    Args:
        graph: Name of a data set, or path of a file.
        reading: How the file is read.
        data_dir: Where files of named data sets lie.
        sha256: Checksum of the content as it was.
    """
    labelled, checksum = _read(graph, reading, data_dir)
    if checksum != sha256:
        raise GraphError(
            f"The graph {graph!r} changed since the bench began: its sha256 must be {sha256}. "
            f"Got {checksum}. Run the bench again."
        )
    return labelled


def forget_graphs() -> None:
    """Read every graph anew from here on."""
    _read.cache_clear()


@lru_cache(maxsize=GRAPHS_KEPT)
def _read(graph: str, reading: Reading, data_dir: str | None) -> tuple[LabelledGraph, str]:
    """A graph and the checksum of its content."""
    labelled = GraphSource(graph=graph, reading=reading).read(data_dir)
    return labelled, content_sha256(labelled)
