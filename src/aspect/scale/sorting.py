"""An external sort of edges: sorted runs on disk, merged into the rows of a store.

Each part of the edges becomes a run: both directions of every edge as one sorted array of keys. A
block of rows is the same range of keys in every run. A run is a file, a block is some files, and
each is noted when it is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aspect.data.graph import SAME_WEIGHT, check_weights
from aspect.errors import GraphError, shown
from aspect.scale.blocks import BlockFolder, block_name, row_ranges

# A key is row * 2^32 + column * 2 + (1 where the pair was given the other way round).
ROW_BITS, COLUMN_BITS = 32, 1
MERGED_BYTES, MOST_THREADS = 2**28, 64  # of a block that is merged beside others, at least
RUN_BYTES = 16  # of an edge in a sorted run, which lies on the disk until all is merged
EDGE_BYTES = 64  # of a pair while its run is sorted, and of an entry while it is merged

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class EdgeCounts:
    """What sorting found."""

    num_edges: int  # undirected, each counted once
    loops: int
    duplicates: int
    missing: int  # pairs that were given without their reverse
    weight_scale: float | None  # see `StoreFacts`


def write_run(
    folder: BlockFolder,
    name: str,
    source: Integers,
    target: Integers,
    num_nodes: int,
    weights: NDArray[Any] | None = None,
) -> None:
    """Sort some edges, without self-loops and duplicates, and write them under that name.

    A pair of weight zero is no edge; weights of a repeated pair are added, as in `Graph.build`.
    """
    rows, columns = source.astype(np.int64), target.astype(np.int64)
    _check_ends(rows, columns, num_nodes)
    kept, counts = rows != columns, {}
    if weights is not None:
        weights = weights.astype(np.float64)
        check_weights(torch.from_numpy(weights))
        counts["others"] = int(np.isin(weights, (0, 1), invert=True).sum())
        is_edge = weights != 0
        rows, columns, kept, weights = (array[is_edge] for array in (rows, columns, kept, weights))
    counts |= {"pairs": int(kept.sum()), "loops": int((~kept).sum())}
    rows, columns = rows[kept], columns[kept]
    keys = np.concatenate([_keys(rows, columns, 0), _keys(columns, rows, 1)])
    if weights is not None:
        keys, sums = _summed(keys, np.tile(weights[kept], 2))
        folder.write(f"{name}.weights.npy", sums)
    else:
        keys.sort()
        keys = keys[_is_first(keys)]
    folder.write(f"{name}.keys.npy", keys, **counts)


def merge_runs(
    folder: BlockFolder,
    runs: Sequence[str],
    num_nodes: int,
    rows_per_block: int,
    *,
    is_weighted: bool = False,
    memory_bytes: int,
) -> EdgeCounts:
    """Write the rows of every block that is not there yet.

    Blocks that are small beside the memory bound are merged at the same time.
    """
    ranges = row_ranges(num_nodes, rows_per_block)
    names = [block_name("pointers", block) for block in range(len(ranges))]  # written last
    threads = max(1, min(MOST_THREADS, memory_bytes // MERGED_BYTES))

    def merge(block: int) -> None:
        if folder.has(names[block]):
            return
        keys = [folder.read(f"{run}.keys.npy") for run in runs]
        weights = [folder.read(f"{run}.weights.npy") for run in runs] if is_weighted else None
        rows = merged_rows(keys, weights, *ranges[block], memory_bytes // threads)
        folder.write(block_name("neighbours", block), rows.neighbours)
        if rows.weights is not None:
            folder.write(block_name("weights", block), rows.weights.astype(np.float32))
        folder.write(names[block], rows.pointers, given=rows.given, one_sided=rows.one_sided)

    folder.fill(merge, range(len(names)), threads)
    counted = [folder.counts(name) for name in names]
    read = [folder.counts(f"{run}.keys.npy") for run in runs]
    entries = sum(int(folder.read(name)[-1]) for name in names)
    given = sum(counts["given"] for counts in counted)
    weight_scale = None
    if is_weighted and any(counts["others"] for counts in read):
        weight_scale = 1.0 if any(counts["one_sided"] for counts in counted) else 0.5
    return EdgeCounts(
        num_edges=entries // 2,
        loops=sum(counts["loops"] for counts in read),
        duplicates=sum(counts["pairs"] for counts in read) - given,
        missing=entries - given,
        weight_scale=weight_scale,
    )


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Rows of the adjacency."""

    pointers: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    weights: NDArray[np.float64] | None  # of both directions together
    given: int  # entries that were given in this direction
    one_sided: int  # entries whose weight is another one in the other direction


def merged_rows(
    keys: Sequence[NDArray[np.int64]],
    weights: Sequence[NDArray[np.float64]] | None,
    start: int,
    end: int,
    memory_bytes: int,
) -> MergedRows:
    """The rows from start to before end of all runs together.

    More entries than the memory bound allows are merged in parts of fewer rows.
    """
    borders = [start << ROW_BITS, end << ROW_BITS]
    found = [np.searchsorted(run, borders).tolist() for run in keys]
    entries = sum(high - low for low, high in found)
    if entries * EDGE_BYTES > memory_bytes and end - start > 1:
        middle = (start + end) // 2
        halves = [
            merged_rows(keys, weights, *part, memory_bytes)
            for part in ((start, middle), (middle, end))
        ]
        return _joined(*halves)
    merged = np.concatenate([run[low:high] for run, (low, high) in zip(keys, found, strict=True)])
    if weights is None:
        merged.sort(kind="stable")  # which merges runs that are sorted
        merged = merged[_is_first(merged)]
        pairs = merged >> COLUMN_BITS
        first = _is_first(pairs)
        sums, one_sided = None, 0
    else:
        parts = [run[low:high] for run, (low, high) in zip(weights, found, strict=True)]
        merged, values = _summed(merged, np.concatenate(parts))
        pairs = merged >> COLUMN_BITS
        first = _is_first(pairs)
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(values, starts) if len(starts) else values
        turned = np.where(merged & 1, -values, values)
        differences = np.abs(np.add.reduceat(turned, starts)) if len(starts) else turned
        one_sided = int((differences > SAME_WEIGHT * sums).sum())
    given = int((merged & 1 == 0).sum())
    pairs = pairs[first]
    rows = (pairs >> (ROW_BITS - COLUMN_BITS)) - start
    pointers = np.zeros(end - start + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=end - start), out=pointers[1:])
    neighbours = (pairs & (2 ** (ROW_BITS - COLUMN_BITS) - 1)).astype(np.int32)
    return MergedRows(pointers, neighbours, sums, given, one_sided)


def _check_ends(source: NDArray[np.int64], target: NDArray[np.int64], num_nodes: int) -> None:
    lowest, highest = np.minimum(source, target), np.maximum(source, target)
    outside = np.flatnonzero((lowest < 0) | (highest >= num_nodes)).tolist()
    if outside:
        pairs = shown(f"({source[k]}, {target[k]})" for k in outside)
        raise GraphError(f"Edges must join nodes 0 to {num_nodes - 1}. Got {pairs}.")


def _keys(rows: NDArray[np.int64], columns: NDArray[np.int64], side: int) -> NDArray[np.int64]:
    return rows << ROW_BITS | columns << COLUMN_BITS | side


def _is_first(ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a number is another one than the number before it."""
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


def _summed(
    keys: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The keys in order, each once, with the sum of its weights."""
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    first = _is_first(keys)
    return keys[first], np.add.reduceat(weights, np.flatnonzero(first)) if len(keys) else weights


def _joined(first: MergedRows, second: MergedRows) -> MergedRows:
    weights = None
    if first.weights is not None and second.weights is not None:
        weights = np.concatenate([first.weights, second.weights])
    return MergedRows(
        np.concatenate([first.pointers, first.pointers[-1] + second.pointers[1:]]),
        np.concatenate([first.neighbours, second.neighbours]),
        weights,
        first.given + second.given,
        first.one_sided + second.one_sided,
    )
