"""What a store is built from: edges in parts and nodes in blocks, from arrays or from tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aspect.data.columns import edge_weights, label_cells
from aspect.data.features import COLUMNS, SEED
from aspect.data.graph import UNLABELLED, encode_labels
from aspect.data.table_files import TableFile
from aspect.data.tables import edge_columns, node_columns
from aspect.errors import FileError, GraphError, SettingsError, shown
from aspect.randomness import seed_for
from aspect.scale.blocks import row_ranges
from aspect.scale.chunks import (
    TablePieces,
    as_ids,
    encode_piece,
    file_identity,
    fit_pieces,
    mapped_array,
)

ENDS = 2  # of an edge
MOST_CLASSES = 2**20  # each has a name, in memory
FIT_ROWS = 65_536  # of a table that are parsed at a time while its columns are measured
DEGREE_BINS = 32  # powers of two: no degree has more

Numbers = NDArray[Any]
Columns = dict[str, Numbers]  # features, and perhaps labels and split, of a block of rows


class Edges(NamedTuple):
    """Some edges: the ids or numbers of their ends, and their weights."""

    source: Numbers
    target: Numbers
    weights: Numbers | None


@dataclass(frozen=True)
class EdgeSource:
    """Edges that are read in parts, the same at every call."""

    identity: list[Any]
    parts: Callable[[int], Iterator[Edges]]  # so many edges at a time
    is_weighted: bool = False
    header: tuple[str, ...] = ()  # the first line of a text, which may be a row
    check_header: Callable[[Sequence[str]], object] = lambda known: known  # refuses known ids


# What the ends of edges are: numbers of rows, ids of the nodes, or ids that edges alone know.
NamedBy = Literal["rows", "ids", "edges"]


class NodeSource(ABC):
    """Nodes that are read in blocks of rows."""

    identity: list[Any]
    named_by: NamedBy
    num_features: int
    num_nodes: int | None = None  # None: those that the edges name
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] = ()

    def ids(self, rows: int) -> Iterator[Numbers]:  # noqa: ARG002
        """The ids of so many nodes at a time, where they have any."""
        return iter(())

    @abstractmethod
    def blocks(self, rows: int, degrees: Callable[[int], Numbers]) -> Iterator[Columns]:
        """So many nodes at a time.

        Args:
            rows: How many.
            degrees: Those of the nodes of a block.
        """


def edges_of_array(array: Numbers, identity: list[Any]) -> EdgeSource:
    """Integers of shape [2, edges] or [edges, 2], memory-mapped."""
    if array.ndim != ENDS or ENDS not in array.shape or array.dtype.kind not in "iu":
        raise FileError(
            "Edges as an array must be integers of shape [2, edges] or [edges, 2]. "
            f"Got {array.dtype} of shape {list(array.shape)} in {identity[0]!r}."
        )
    ends = array if array.shape[0] == ENDS else array.T

    def parts(rows: int) -> Iterator[Edges]:
        for start, end in row_ranges(ends.shape[1], rows):
            some = ends[:, start:end]
            if some.dtype == np.uint64 and some.max() > np.iinfo(np.int64).max:
                raise GraphError(f"Node ids must be below 2**63. {identity[0]!r} has others.")
            source, target = np.array(some, np.int64)
            yield Edges(source, target, None)

    return EdgeSource(identity, parts)


def edges_of_file(path: Path) -> EdgeSource:
    """Those of a NumPy file."""
    return edges_of_array(mapped_array(path, ENDS), file_identity(path))


def edges_of_table(table: TablePieces, *, as_integers: bool) -> EdgeSource:
    """Those of a table; without `as_integers` their ids are texts."""
    first, second, weight = edge_columns(table.header, table.reading)
    ends = [first, second]
    names = ends if weight is None else [*ends, weight]
    unweighted = table.reading.unweighted

    def parts(rows: int) -> Iterator[Edges]:
        for piece in table.pieces(names, rows):
            source, target = (as_ids(piece, name, as_integers=as_integers) for name in ends)
            # Zero is no edge, of an unweighted graph either.
            weights = None if weight is None else edge_weights(piece, weight, unweighted).numpy()
            yield Edges(source, target, weights)

    return EdgeSource(
        table.identity,
        parts,
        is_weighted=weight is not None and not unweighted,
        header=tuple(table.header.names) if table.is_text else (),
        check_header=partial(edge_columns, table.header, table.reading),
    )


def have_integer_ids(edges: TablePieces | None, nodes: TablePieces | None) -> bool:
    """Whether all columns of ids in these tables are of an integer type."""
    named = []
    if edges is not None:
        source, target, _ = edge_columns(edges.header, edges.reading)
        named += [(edges, source), (edges, target)]
    if nodes is not None:
        named.append((nodes, node_columns(nodes.header, nodes.reading)[0]))
    return all(table.header.has_integers(name) for table, name in named)


def array_rows(array: Numbers) -> Callable[[int], Iterator[Numbers]]:
    """A function that reads so many rows of a mapped array at a time."""
    return lambda rows: (np.array(array[start:end]) for start, end in row_ranges(len(array), rows))


class NodeArrays(NodeSource):
    """Features as a matrix that is read so many rows at a time; nodes are called by their rows."""

    named_by: NamedBy = "rows"

    def __init__(
        self,
        features: Callable[[int], Iterator[Numbers]],
        shape: tuple[int, ...],
        identity: list[Any],
        *,
        labels: Numbers | None = None,  # NaN or -1 where unknown
        split: Numbers | None = None,
    ) -> None:
        self.identity, self._features = identity, features
        self.num_nodes, self.num_features = self._shape = shape
        self._beside = {} if split is None else {"split": split}
        if labels is not None:
            self._beside["labels"] = _class_numbers(labels, shape[0])
            classes = int(self._beside["labels"].max(initial=UNLABELLED)) + 1
            self.class_names = tuple(map(str, range(classes)))

    @override
    def blocks(self, rows: int, degrees: Callable[[int], Numbers]) -> Iterator[Columns]:
        features, nodes = self._features(rows), self._shape[0]
        for start, end in row_ranges(nodes, rows):
            block = next(features, np.empty(0))
            is_last = end == nodes
            if len(block) != end - start or (is_last and next(features, None) is not None):
                raise GraphError(f"{self.identity[0]!r} must have a row for each of {nodes} nodes.")
            beside = {name: values[start:end] for name, values in self._beside.items()}
            yield {"features": block, **beside}


def _class_numbers(labels: Numbers, num_nodes: int) -> NDArray[np.int32]:
    flat = np.asarray(labels).reshape(-1)
    if len(flat) != num_nodes:
        raise GraphError(f"Labels must be one per node, {num_nodes} in all. Got {len(flat)}.")
    if flat.dtype.kind == "f":
        flat = np.where(np.isnan(flat), UNLABELLED, flat)
    classes = flat.astype(np.int32)
    is_class = (classes == flat) & (classes >= UNLABELLED) & (classes < MOST_CLASSES)
    wrong = np.flatnonzero(~is_class)
    if len(wrong):
        raise GraphError(
            f"Labels must be class numbers from 0, at most {MOST_CLASSES - 1}, or {UNLABELLED} "
            "where unknown. "
            f"Got {shown(flat[wrong].tolist())}."
        )
    return classes


class NodePieces(NodeSource):
    """Nodes of a table with ids, columns of features and perhaps labels."""

    named_by: NamedBy = "ids"

    def __init__(self, table: TablePieces, *, as_integers: bool) -> None:
        self.identity = table.identity
        self._table, self._as_integers = table, as_integers
        self._id, self._label, self._columns = node_columns(table.header, table.reading)
        if not self._columns:
            raise GraphError(
                f"{str(table.path)!r} must have columns of features besides ids and labels."
            )
        if table.reading.categorical:
            raise SettingsError(
                "A store takes no categories: --categorical needs all values of a column at once."
            )
        self._read = [*self._columns, *([] if self._label is None else [self._label])]
        self._fit()

    def _fit(self) -> None:
        """The encoder, the number of nodes and the classes, by one pass through the table."""
        counted, classes = 0, dict[str | None, None]()

        def pieces() -> Iterator[TableFile]:
            nonlocal counted
            for piece in self._table.pieces(self._read, FIT_ROWS):
                counted += piece.table.num_rows
                if self._label is not None:
                    classes.update(dict.fromkeys(label_cells(piece, self._label)))
                yield piece

        reading = self._table.reading
        self._encoder = fit_pieces(
            pieces(), self._columns, scaling=reading.feature_scaling, impute=reading.impute
        )
        self.num_nodes = counted
        if classes:
            self.class_names = encode_labels([*classes])[1]
        self.feature_names = self._encoder.feature_names
        self.num_features = len(self.feature_names)

    @override
    def ids(self, rows: int) -> Iterator[Numbers]:
        """The ids of so many nodes at a time."""
        for piece in self._table.pieces([self._id], rows):
            yield as_ids(piece, self._id, as_integers=self._as_integers)

    @override
    def blocks(self, rows: int, degrees: Callable[[int], Numbers]) -> Iterator[Columns]:
        number = {name: k for k, name in enumerate(self.class_names)}
        for piece in self._table.pieces(self._read, rows):
            columns: Columns = {"features": encode_piece(piece, self._encoder)}
            if self._label is not None:
                cells = label_cells(piece, self._label)
                numbers = [number.get(str(cell), UNLABELLED) for cell in cells]
                columns["labels"] = np.array(numbers, np.int32)
            yield columns


class StructuralNodes(NodeSource):
    """Nodes that the edges alone name, with random features or those of their degrees."""

    named_by: NamedBy = "edges"

    def __init__(self, kind: str | None) -> None:
        if kind not in ("degree", "random"):
            raise SettingsError(
                "A store needs features: give --nodes with a table or a .npy matrix, or "
                f"--features degree or random. Got --features {kind}."
            )
        self.identity, self._kind = [kind], kind
        self.num_features = DEGREE_BINS if kind == "degree" else COLUMNS

    @override
    def blocks(self, rows: int, degrees: Callable[[int], Numbers]) -> Iterator[Columns]:
        """Block by block, without end: as in `with_structural_features`."""
        block = 0
        while True:
            counts = degrees(block)
            if self._kind == "degree":
                bins = np.floor(np.log2(counts + 1)).astype(int)
                features = np.eye(DEGREE_BINS, dtype=np.float32)[bins]
            else:
                drawn = np.random.default_rng(seed_for(SEED, "features", block))
                features = drawn.standard_normal((len(counts), COLUMNS), dtype=np.float32)
                features *= np.float32(COLUMNS**-0.5)
            yield {"features": features}
            block += 1
