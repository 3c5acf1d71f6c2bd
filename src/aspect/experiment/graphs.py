"""The graphs of a worker, which meets the same few again and again: read once, and unchanged."""

from __future__ import annotations

from functools import lru_cache

from aspect.data.archives import content_sha256
from aspect.data.graph import LabelledGraph
from aspect.data.source import GraphSource, Reading
from aspect.data.splits import Split, make_splits
from aspect.errors import GraphError
from aspect.evaluation.baselines import MOST_TWIN_NODES, twin_probe
from aspect.experiment.record import SplitName

__all__ = ["draw_splits", "forget_graphs", "read_unchanged", "twin_accuracies"]

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
    twin_accuracies.cache_clear()


def draw_splits(labelled: LabelledGraph, kind: SplitName, numbers: tuple[int, ...]) -> list[Split]:
    """Some of a graph's splits by their numbers."""
    drawn = make_splits(
        kind,
        labelled.labels,
        labelled.num_classes,
        count=max(numbers) + 1,
        masks=labelled.masks,
    )
    return [drawn[number] for number in numbers]


@lru_cache(maxsize=GRAPHS_KEPT)
def twin_accuracies(
    graph: str,
    reading: Reading,
    data_dir: str | None,
    sha256: str,
    splits: SplitName,
    numbers: tuple[int, ...],
) -> tuple[float | None, ...]:
    """Test accuracy, split by split, of the nearest neighbour by neighbour sets on a clean graph.

    None for every split of a graph that is too large. The rule knows no method, so a worker
    computes it once.
    """
    labelled = read_unchanged(graph, reading, data_dir, sha256)
    if labelled.graph.num_nodes > MOST_TWIN_NODES:
        return (None,) * len(numbers)
    drawn = draw_splits(labelled, splits, numbers)
    result = twin_probe(labelled.graph, labelled.labels, drawn, num_classes=labelled.num_classes)
    return tuple(score.strict for score in result.splits)


@lru_cache(maxsize=GRAPHS_KEPT)
def _read(graph: str, reading: Reading, data_dir: str | None) -> tuple[LabelledGraph, str]:
    """A graph and the checksum of its content."""
    labelled = GraphSource(graph=graph, reading=reading).read(data_dir)
    return labelled, content_sha256(labelled)
