"""From files of any size to a store: ids mapped, edges sorted and features encoded out of core.

Every step writes blocks and notes them, so that a killed call goes on behind the last one. What
only served to make others is removed in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from aspect.data.graph import edge_notices
from aspect.data.source import NO_READING, Reading
from aspect.errors import GraphError
from aspect.scale.blocks import SCRATCH, BlockFolder, block_name, converted, row_ranges
from aspect.scale.chunks import TablePieces, file_identity, mapped_array
from aspect.scale.ids import IdTable, merge_id_runs, shown_ids, write_id_run
from aspect.scale.options import ROWS_PER_BLOCK, FeatureType, StoreLayout
from aspect.scale.sorting import EdgeCounts, merge_runs, write_run
from aspect.scale.sources import (
    Edges,
    EdgeSource,
    NodeArrays,
    NodePieces,
    NodeSource,
    StructuralNodes,
    array_rows,
    edges_of_file,
    edges_of_table,
    have_integer_ids,
)
from aspect.scale.store import (
    FACTS,
    FULL_DISK,
    STORE,
    GraphStore,
    StoreFacts,
    check_size,
)

NPY = ".npy"
MEMORY_BYTES = 2**30
PART_BYTES = 256  # of an edge with its ids while a part of the edges is mapped and sorted

Part = TypeVar("Part")


def build_store(
    edges: Path,
    path: Path,
    reading: Reading = NO_READING,
    *,
    labels: Path | None = None,
    **layout: Unpack[StoreLayout],
) -> GraphStore:
    """A store of files: edges as Parquet, delimited text or .npy; nodes likewise.

    Args:
        edges: The edge table, or integers of shape [2, edges] or [edges, 2].
        path: The store's folder.
        reading: Options of the tables. With a matrix of features as `nodes` the ends of edges are
            the numbers of its rows; with a table they are its ids. Without either the edges name
            the nodes, numbered by the order of their ids, and `features` must be degree or random.
        labels: Class numbers as .npy, beside a matrix of features.
        layout: Fields of `StoreLayout`.
    """
    nodes = None if reading.nodes is None else Path(reading.nodes)
    table = None if edges.suffix.lower() == NPY else TablePieces(edges, reading)
    node_table = None
    if nodes is not None and nodes.suffix.lower() != NPY:
        node_table = TablePieces(nodes, reading)
    if labels is not None and (nodes is None or node_table is not None):
        raise GraphError("Labels as an array need the features as a matrix: --nodes FILE.npy.")
    as_integers = have_integer_ids(table, node_table)
    source: NodeSource
    if node_table is not None:
        source = NodePieces(node_table, as_integers=as_integers)
    elif nodes is not None:
        identity = [file_identity(file) for file in (nodes, labels) if file is not None]
        given = None if labels is None else mapped_array(labels, 1)
        matrix = mapped_array(nodes, 2)
        source = NodeArrays(array_rows(matrix), matrix.shape, identity, labels=given)
    else:
        source = StructuralNodes(reading.features)
    return write_store(
        edges_of_file(edges) if table is None else edges_of_table(table, as_integers=as_integers),
        source,
        path,
        directed_is_error=reading.directed == "error",
        **layout,
    )


def write_store(
    edges: EdgeSource,
    nodes: NodeSource,
    path: Path,
    *,
    rows_per_block: int = ROWS_PER_BLOCK,
    dtype: FeatureType = "float32",
    memory_bytes: int = MEMORY_BYTES,
    directed_is_error: bool = False,
) -> GraphStore:
    """A store of these edges and nodes; a killed call goes on."""
    job = {
        "edges": edges.identity,
        "nodes": nodes.identity,
        "rows_per_block": rows_per_block,
        "dtype": dtype,
    }
    with BlockFolder.open(path, STORE, job, FULL_DISK) as folder:
        if not folder.is_complete:
            builder = _Builder(folder, edges, nodes, rows_per_block, memory_bytes)
            facts = builder.write(dtype, directed_is_error=directed_is_error)
            folder.finish(FACTS, facts)
    return GraphStore.open(path)


@dataclass(frozen=True)
class _Builder:
    """The steps from sources to a store, each of which keeps what it finished before."""

    folder: BlockFolder
    edges: EdgeSource
    nodes: NodeSource
    rows_per_block: int
    memory_bytes: int

    @property
    def part_rows(self) -> int:
        """Of a part; with another bound parts are others, so it is in the names of their files."""
        return max(1, self.memory_bytes // PART_BYTES)

    def write(self, dtype: FeatureType, *, directed_is_error: bool) -> StoreFacts:
        """Everything but the seal; returns what the store holds."""
        table = None if self.nodes.named_by == "rows" else self._id_table()
        num_nodes = self.nodes.num_nodes or len(table or ())
        check_size(num_nodes, self.rows_per_block)
        counts = self._write_rows(table, num_nodes)
        notices = edge_notices(
            counts.loops, counts.duplicates, counts.missing, directed_is_error=directed_is_error
        )
        self._write_nodes(num_nodes, dtype)
        if table is not None:
            self._write_ids(table, num_nodes)
        columns = {
            name: self.folder.has(block_name(name, 0)) for name in ("labels", "split", "ids")
        }
        return StoreFacts(
            num_nodes=num_nodes,
            num_edges=counts.num_edges,
            num_features=self.nodes.num_features,
            rows_per_block=self.rows_per_block,
            weight_scale=counts.weight_scale,
            columns=tuple(name for name, is_there in columns.items() if is_there),
            class_names=self.nodes.class_names,
            feature_names=self.nodes.feature_names,
            notices=tuple(notices),
        )

    def _runs(
        self, kind: str, parts: Iterable[Part], last: str, write: Callable[[str, Part], None]
    ) -> list[str]:
        """Names of the runs, one for each part; those that are not there yet are written.

        Args:
            kind: Of the runs, for their names.
            parts: What they are made of; not read again once all runs are there.
            last: How the file ends that a run writes last.
            write: Makes a run of a part.
        """
        name = f"{SCRATCH}{kind}-{self.part_rows}"
        total = f"{name}.count.npy"
        if not self.folder.has(total):
            number = -1
            for number, part in enumerate(parts):
                if not self.folder.has(f"{name}-{number:05d}{last}"):
                    write(f"{name}-{number:05d}", part)
            self.folder.write(total, np.array([number + 1]))
        return [f"{name}-{number:05d}" for number in range(int(self.folder.read(total)[0]))]

    def _id_table(self) -> IdTable:
        has_numbers = self.nodes.named_by == "ids"
        edges = self.edges.parts(self.part_rows)
        named = (np.concatenate([part.source, part.target]) for part in edges)

        def write(name: str, ids: NDArray[Any]) -> None:
            first = int(name.rpartition("-")[2]) * self.part_rows
            numbers = np.arange(first, first + len(ids)) if has_numbers else None
            write_id_run(self.folder, name, ids, numbers)

        parts = self.nodes.ids(self.part_rows) if has_numbers else named
        runs = self._runs("ids", parts, ".ids.npy", write)
        known = f"{SCRATCH}known-{self.memory_bytes}"
        table = merge_id_runs(
            self.folder, runs, known, has_numbers=has_numbers, memory_bytes=self.memory_bytes
        )
        if self.edges.header:  # a row without a header would be lost
            names = np.array([name.encode() for name in self.edges.header])
            is_known = table.numbers(names) >= 0
            if is_known.all() or (is_known.any() and not has_numbers):
                self.edges.check_header(self.edges.header)
        return table

    def _write_rows(self, table: IdTable | None, num_nodes: int) -> EdgeCounts:
        def write(name: str, part: Edges) -> None:
            source, target = part.source, part.target
            if table is not None:
                source, target = (_numbers(table, ends) for ends in (source, target))
            write_run(self.folder, name, source, target, num_nodes, part.weights)

        runs = self._runs("edges", self.edges.parts(self.part_rows), ".keys.npy", write)
        return merge_runs(
            self.folder,
            runs,
            num_nodes,
            self.rows_per_block,
            is_weighted=self.edges.is_weighted,
            memory_bytes=self.memory_bytes,
        )

    def _write_nodes(self, num_nodes: int, dtype: FeatureType) -> None:
        """The blocks of features, labels and split; the features come last."""

        def degrees(block: int) -> NDArray[Any]:
            return np.diff(self.folder.read(block_name("pointers", block)))

        ranges = row_ranges(num_nodes, self.rows_per_block)
        names = [block_name("features", block) for block in range(len(ranges))]
        if all(map(self.folder.has, names)):
            return
        blocks = self.nodes.blocks(self.rows_per_block, degrees)
        for block, (start, _) in enumerate(ranges):
            columns = next(blocks)
            if self.folder.has(names[block]):
                continue
            features = columns.pop("features")
            for column, values in columns.items():
                self.folder.write(block_name(column, block), values)
            _check_finite(features, start)
            self.folder.write(names[block], converted(features, dtype))

    def _write_ids(self, table: IdTable, num_nodes: int) -> None:
        given = self.nodes.ids(self.rows_per_block) if self.nodes.named_by == "ids" else None
        for block, (start, end) in enumerate(row_ranges(num_nodes, self.rows_per_block)):
            ids = table.between(start, end) if given is None else next(given)
            if not self.folder.has(block_name("ids", block)):
                self.folder.write(block_name("ids", block), ids)


def _numbers(table: IdTable, ids: NDArray[Any]) -> NDArray[np.int64]:
    numbers = table.numbers(ids)
    unknown = ids[numbers < 0]
    if len(unknown):
        raise GraphError(f"Edges must join nodes of the node table. Got {shown_ids(unknown)}.")
    return numbers


def _check_finite(features: NDArray[Any], start: int) -> None:
    rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(rows):
        raise GraphError(
            "Features must be finite numbers. Missing, NaN or infinite in row "
            f"{start + int(rows[0])} and {len(rows) - 1} others of its block."
        )
