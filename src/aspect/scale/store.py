"""A graph on disk: undirected and simple, in blocks of rows that are read one at a time.

```text
job.json              what the store was made of
pointers-00000.npy    row pointers of block 0, from 0 on (int64)
neighbours-00000.npy  neighbours of its rows, ascending (int32); every edge stands in both its rows
weights-00000.npy     their weights (float32), in a weighted graph
features-00000.npy    [rows, features] (float32 or float16)
labels-00000.npy      class numbers, -1 where unknown; likewise region, split and ids
store.json            sizes, names
manifest.json         the SHA-256 of every file, written last
```
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from aspect.data.features import dense, take_rows
from aspect.data.files import file_bytes, is_file
from aspect.data.graph import Graph, LabelledGraph, values_of
from aspect.data.sparse import LARGEST_INT32
from aspect.errors import GraphError, RunError
from aspect.scale.blocks import (
    JOB,
    BlockedRows,
    BlockFolder,
    block_name,
    converted,
    mapped,
    row_ranges,
)
from aspect.scale.options import ROWS_PER_BLOCK, FeatureType
from aspect.workspace import MANIFEST, FolderKind, Workspace, read_json

FACTS = "store.json"
FIX = "Make the store anew."
NODES_PER_SEED = 256  # of a sampled neighbourhood
FULL_DISK = "Free some space, take float16, or fewer features, nodes or edges."

STORE = FolderKind(
    foreign="holds no graph store",
    owns=lambda names: bool(names & {FACTS, JOB}),
)


class StoreFacts(BaseModel):
    """What a store holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    num_nodes: int
    num_edges: int  # undirected, each counted once
    num_features: int
    rows_per_block: int
    weight_scale: float | None = None  # what stored weights are multiplied by; None: no weights
    columns: tuple[str, ...] = ()  # of labels, region, split and ids, those that are there
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    notices: tuple[str, ...] = ()  # what was cleaned, one sentence each


class AdjacencyBlock(NamedTuple):
    """Rows of the adjacency matrix in compressed form, as SciPy and torch take them."""

    pointers: NDArray[np.int64]  # [rows + 1], from 0 on
    neighbours: NDArray[np.int32]  # [entries], ascending in each row
    weights: NDArray[np.float32] | None  # [entries]; none: every edge weighs one


def is_store(path: Path) -> bool:
    """Whether a store lies there, complete or begun."""
    return is_file(path / FACTS) or is_file(path / JOB)


def check_neighbours(neighbours: NDArray[np.int32], num_nodes: int) -> None:
    """Refuse a damaged block before its numbers are used as places in memory."""
    # As unsigned numbers, of which negative ones are the largest.
    if neighbours.view(np.uint32).max(initial=0) >= num_nodes:
        raise RunError(
            f"The store is damaged: neighbours must be nodes 0 to {num_nodes - 1}. Got others. "
            "`aspect store STORE` names the block."
        )


def check_size(num_nodes: int, rows_per_block: int) -> None:
    """Refuse what a store cannot number."""
    if not 2 <= num_nodes <= LARGEST_INT32:  # noqa: PLR2004 - two nodes can be contrasted
        raise GraphError(f"A store must have 2 to {LARGEST_INT32} nodes. Got {num_nodes}.")
    if rows_per_block < 1:
        raise GraphError(f"A block must have at least one row. Got {rows_per_block}.")


def store_bytes(num_nodes: int, num_edges: int, num_features: int, dtype: FeatureType) -> int:
    """What a store takes on disk; sorting its edges takes twice as much for them meanwhile."""
    return 8 * num_edges + num_nodes * (8 + num_features * np.dtype(dtype).itemsize)


class GraphStore:
    """A complete store, read-only; open it with `GraphStore.open`."""

    def __init__(self, path: Path, facts: StoreFacts) -> None:
        self.path, self.facts = path, facts

    @classmethod
    def open(cls, path: Path) -> GraphStore:
        """The store in a folder; it is not read through: see `verify`."""
        if not is_store(path):
            raise RunError(f"{path} holds no graph store. Make one with: aspect store.")
        if not is_file(path / MANIFEST):
            raise RunError(
                f"The store in {path} is not complete. Run the command that makes it again."
            )
        return cls(path, read_json(path / FACTS, StoreFacts, fix=FIX, newest=1))

    def verify(self) -> None:
        """Read every file and refuse one that is cut off, changed or missing, by its SHA-256."""
        Workspace(self.path, STORE).verify(FIX)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the manifest, and so of every byte of the store."""
        return hashlib.sha256(file_bytes(self.path / MANIFEST)).hexdigest()

    @property
    def num_nodes(self) -> int:
        """Nodes, isolated ones included."""
        return self.facts.num_nodes

    @property
    def num_edges(self) -> int:
        """Undirected edges, each counted once."""
        return self.facts.num_edges

    @property
    def num_features(self) -> int:
        """Columns of the feature matrix."""
        return self.facts.num_features

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First row and end of every block."""
        return row_ranges(self.num_nodes, self.facts.rows_per_block)

    def adjacency(self, block: int) -> AdjacencyBlock:
        """The rows of a block, memory-mapped; weights are copied where they must be scaled."""
        read = self._block
        weights, scale = None, self.facts.weight_scale
        if scale is not None:
            weights = read("weights", block)
            weights = weights if scale == 1 else weights * np.float32(scale)
        return AdjacencyBlock(read("pointers", block), read("neighbours", block), weights)

    @cached_property
    def features(self) -> BlockedRows:
        """[nodes, features]."""
        return BlockedRows(self.path, "features", self.blocks)

    @property
    def labels(self) -> BlockedRows | None:
        """Class numbers, -1 where unknown."""
        return self._column("labels")

    @property
    def region(self) -> BlockedRows | None:
        """Which region a node was generated in, see `aspect.data.synthetic`."""
        return self._column("region")

    @property
    def split(self) -> BlockedRows | None:
        """The published part of a node: 0 none, 1 train, 2 validation, 3 test."""
        return self._column("split")

    @property
    def ids(self) -> BlockedRows | None:
        """The user's integer ids, or texts as bytes; none: they are the row numbers."""
        return self._column("ids")

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbours of every node."""
        counts = [np.diff(self._block("pointers", k)) for k in range(len(self.blocks))]
        return np.concatenate(counts)

    def _column(self, name: str) -> BlockedRows | None:
        return BlockedRows(self.path, name, self.blocks) if name in self.facts.columns else None

    def _block(self, part: str, block: int) -> NDArray[Any]:
        return mapped(self.path / block_name(part, block))

    @classmethod
    def from_graph(
        cls,
        graph: Graph | LabelledGraph,
        path: Path,
        rows_per_block: int = ROWS_PER_BLOCK,
        *,
        dtype: FeatureType = "float32",
    ) -> GraphStore:
        """A graph in memory as a store; with its labels if it has them."""
        labelled = graph if isinstance(graph, LabelledGraph) else None
        plain = labelled.graph if labelled else graph
        assert isinstance(plain, Graph)
        check_size(plain.num_nodes, rows_per_block)
        job = {
            "graph": _digest(plain),
            "labels": None if labelled is None else _sha256(labelled.labels.numpy()),
            "rows_per_block": rows_per_block,
            "dtype": dtype,
        }
        with BlockFolder.open(path, STORE, job, FULL_DISK) as folder:
            if not folder.is_complete:
                for block, (start, end) in enumerate(row_ranges(plain.num_nodes, rows_per_block)):
                    for part, rows in _parts_of(plain, labelled, start, end, dtype):
                        folder.write(block_name(part, block), rows)
                facts = StoreFacts(
                    num_nodes=plain.num_nodes,
                    num_edges=plain.num_edges,
                    num_features=plain.num_features,
                    rows_per_block=rows_per_block,
                    weight_scale=None if plain.weights is None else 1.0,
                    columns=() if labelled is None else ("labels",),
                    class_names=() if labelled is None else labelled.class_names,
                    feature_names=plain.feature_names,
                    notices=plain.notices,
                )
                folder.finish(FACTS, facts)
        return cls.open(path)


def _parts_of(
    graph: Graph, labelled: LabelledGraph | None, start: int, end: int, dtype: FeatureType
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The blocks of some rows, each under its name."""
    rows, columns = graph.edge_index.numpy()
    low, high = np.searchsorted(rows, [start, end])
    pointers = np.searchsorted(rows[low:high], np.arange(start, end + 1))
    yield "pointers", pointers.astype(np.int64)
    yield "neighbours", columns[low:high].astype(np.int32)
    if graph.weights is not None:
        yield "weights", graph.weights[low:high].numpy().astype(np.float32)
    features = dense(take_rows(graph.features, torch.arange(start, end)))
    yield "features", converted(features.numpy(), dtype)
    if labelled is not None:
        yield "labels", labelled.labels[start:end].numpy().astype(np.int32)


def _digest(graph: Graph) -> Mapping[str, str]:
    features = values_of(graph.features)
    parts = {"edges": graph.edge_index, "features": features, "weights": graph.weights}
    return {name: _sha256(part.numpy()) for name, part in parts.items() if part is not None}


def _sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


# A part of a store as a graph in memory


def sample_neighbourhood(store: GraphStore, nodes: int, drawn: np.random.Generator) -> Graph:
    """The graph of so many nodes around drawn ones, ring by ring; the last ring in part."""
    nodes = min(nodes, store.num_nodes)
    seeds = min(nodes, max(1, nodes // NODES_PER_SEED))
    ring: NDArray[np.int64] = drawn.choice(store.num_nodes, seeds, replace=False)
    taken = ring
    while len(taken) < nodes:
        near, *_ = _entries(store, np.sort(ring))
        ring = np.setdiff1d(near, taken)
        if len(ring) == 0:  # whole components are taken: go on elsewhere
            left = np.setdiff1d(
                drawn.choice(store.num_nodes, min(store.num_nodes, 2 * nodes)), taken
            )
            ring = left if len(left) else np.setdiff1d(np.arange(store.num_nodes), taken)
        room = nodes - len(taken)
        if len(ring) > room:
            ring = drawn.choice(ring, room, replace=False)
        taken = np.concatenate([taken, ring])
    return induced_graph(store, np.sort(taken))


def induced_graph(store: GraphStore, nodes: NDArray[np.int64]) -> Graph:
    """These nodes, ascending, numbered anew, with all edges between two of them."""
    neighbours, owners, weights = _entries(store, nodes)
    places = np.minimum(np.searchsorted(nodes, neighbours), len(nodes) - 1)
    kept = nodes[places] == neighbours
    edges = np.stack([owners[kept], places[kept]])
    return Graph(
        torch.from_numpy(store.features[nodes].astype(np.float32)),
        torch.from_numpy(edges),
        weights=None if weights is None else torch.from_numpy(weights[kept]),
    )


def _entries(
    store: GraphStore, nodes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32] | None]:
    """The neighbours of ascending nodes, one after the other, whose each is, and the weights."""
    found, owners, weights = [], [], []
    for block, (start, end) in enumerate(store.blocks):
        low, high = np.searchsorted(nodes, [start, end])
        adjacency = store.adjacency(block)
        first = adjacency.pointers[nodes[low:high] - start]
        counts = adjacency.pointers[nodes[low:high] - start + 1] - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(first, counts) + within
        found.append(adjacency.neighbours[places].astype(np.int64))
        owners.append(np.repeat(np.arange(low, high), counts))
        if adjacency.weights is not None:
            weights.append(np.asarray(adjacency.weights[places], np.float32))
    joined = np.concatenate(weights) if weights else None
    return np.concatenate(found), np.concatenate(owners), joined
