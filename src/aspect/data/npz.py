"""The `.npz` format of the data sets: read without trusting it, written whole or not at all.

An archive holds `edge_index` (integers [2, pairs]), the features as compressed rows (`x_indptr`,
`x_indices`, `x_data`, `x_shape`), the classes `y` and, if its source publishes splits,
`train_masks`, `val_masks` and `test_masks` (booleans [splits, nodes]). Sizes, names and types are
checked from the zip directory and the array headers before any array is read; nothing is ever
unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aspect.data.archive import read_arrays
from aspect.data.files import file_bytes, replacing
from aspect.data.graph import Features, Graph, LabelledGraph
from aspect.data.labelling import label_graph
from aspect.data.matrices import imputed
from aspect.data.sparse import LARGEST_INT32, Pattern, SparseMatrix
from aspect.errors import DataError, GraphError

__all__ = ["content_sha256", "graph_sha256", "read_npz", "write_npz"]

Array = NDArray[Any]

KINDS = {  # letters of numpy's dtype.kind that a key may have
    "edge_index": "iu",
    "x_indptr": "iu",
    "x_indices": "iu",
    "x_data": "f",
    "x_shape": "iu",
    "y": "iu",
    "train_masks": "b",
    "val_masks": "b",
    "test_masks": "b",
}
MASK_KEYS = {"train": "train_masks", "validation": "val_masks", "test": "test_masks"}


def read_npz(
    path: Path | str,
    *,
    sha256: str | None = None,
    impute: str | None = None,
    directed_is_error: bool = False,
) -> LabelledGraph:
    """Read a graph; with `sha256`, only if the file is the very one that has this checksum."""
    path = Path(path)
    data = file_bytes(path)
    if sha256 is not None:
        _check_sha256(data, sha256, path)
    arrays = read_arrays(data, path, KINDS, optional=frozenset(MASK_KEYS.values()))
    try:
        return _graph_of(arrays, impute, directed_is_error)
    except GraphError as error:
        raise GraphError(f"{str(path)!r} holds no usable graph. {error}") from error


def write_npz(path: Path | str, labelled: LabelledGraph, *, overwrite: bool = False) -> None:
    """Write a graph in the same format, each edge once per direction; ids and names are lost."""
    matrix = _rows_of(labelled.graph)
    arrays: dict[str, Array] = {
        "edge_index": labelled.graph.edge_index.cpu().numpy().astype(np.int32),
        "x_indptr": matrix.pattern.row_pointers.numpy().astype(np.int64),
        "x_indices": matrix.pattern.columns.numpy().astype(np.int32),
        "x_data": matrix.values.numpy().astype(np.float32),
        "x_shape": np.array(matrix.shape, dtype=np.int64),
        "y": labelled.labels.cpu().numpy().astype(np.int64),
    }
    for part, mask in labelled.masks.items():
        arrays[MASK_KEYS[part]] = mask.cpu().numpy()
    with replacing(Path(path), overwrite=overwrite) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def content_sha256(labelled: LabelledGraph) -> str:
    """Checksum of the graph itself, whatever file it came in: sizes, edges, features and labels.

    Little-endian bytes of the shape, the simple undirected edges sorted by (row, column), the
    non-zero features as sorted compressed rows in float32, and the labels; splits are left out.
    """
    return _sha256([*_parts_of(labelled.graph), (labelled.labels.cpu().numpy(), "<i8")])


def graph_sha256(graph: Graph) -> str:
    """The same without labels: of what a method sees."""
    return _sha256(_parts_of(graph))


def _parts_of(graph: Graph) -> list[tuple[Array, str]]:
    matrix = _rows_of(graph)
    return [
        (np.array(matrix.shape), "<i8"),
        (graph.edge_index.cpu().numpy(), "<i8"),
        (matrix.pattern.row_pointers.numpy(), "<i8"),
        (matrix.pattern.columns.numpy(), "<i8"),
        (matrix.values.numpy(), "<f4"),
    ]


def _sha256(parts: Iterable[tuple[Array, str]]) -> str:
    digest = hashlib.sha256()
    for array, kind in parts:
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.hexdigest()


def _rows_of(graph: Graph) -> SparseMatrix:
    """The features in compressed rows on the CPU, without stored zeros."""
    features = graph.features
    if not isinstance(features, SparseMatrix):
        return SparseMatrix.from_dense(features.cpu())
    features = features.to("cpu")
    kept = features.values != 0
    if bool(kept.all()):
        return features
    rows, columns = features.pattern.rows[kept], features.pattern.columns[kept]
    return SparseMatrix.from_entries(rows, columns, features.values[kept], features.shape)


def _check_sha256(data: bytes, expected: str, path: Path) -> None:
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected:
        raise DataError(
            f"{str(path)!r} is not the published file or is damaged: its sha256 must be "
            f"{expected}. Got {actual}. Fetch it again."
        )


def _graph_of(
    arrays: Mapping[str, Array], impute: str | None, directed_is_error: bool
) -> LabelledGraph:
    features: Features = _features_of(arrays)
    notices: list[str] = []
    if impute is not None:
        features, notices = imputed(features, impute)
    edge_index = torch.from_numpy(arrays["edge_index"].astype(np.int64))
    graph = Graph.build(features, edge_index, directed_is_error=directed_is_error)
    graph = replace(graph, notices=(*notices, *graph.notices))
    masks = {
        part: torch.from_numpy(arrays[key]) for part, key in MASK_KEYS.items() if key in arrays
    }
    return label_graph(graph, torch.from_numpy(arrays["y"].astype(np.int64)), masks=masks)


def _features_of(arrays: Mapping[str, Array]) -> SparseMatrix:
    pointers, columns, values = (arrays[key] for key in ("x_indptr", "x_indices", "x_data"))
    shape = _shape_of(arrays["x_shape"])
    _check_rows(pointers, columns, values, shape)
    pattern = Pattern(
        torch.from_numpy(pointers.astype(np.int32)),
        torch.from_numpy(columns.astype(np.int32)),
        shape,
    )
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which Graph.build refuses
        return SparseMatrix(pattern, torch.from_numpy(values.astype(np.float32)))


def _shape_of(stored: Array) -> tuple[int, int]:
    if stored.shape != (2,) or not all(0 <= size <= LARGEST_INT32 for size in stored.tolist()):
        raise GraphError(
            f"x_shape must be two counts up to {LARGEST_INT32}: nodes, features. "
            f"Got {stored.flatten().tolist()[:5]}."
        )
    rows, columns = stored.tolist()
    return rows, columns


def _check_rows(pointers: Array, columns: Array, values: Array, shape: tuple[int, int]) -> None:
    """A column out of range or a falling pointer would crash the sparse product, not raise."""
    if pointers.shape != (shape[0] + 1,):
        raise GraphError(f"x_indptr must have shape [{shape[0] + 1}]. Got {list(pointers.shape)}.")
    if columns.ndim != 1 or columns.shape != values.shape:
        raise GraphError(
            "x_indices and x_data must be of one length. "
            f"Got {list(columns.shape)} and {list(values.shape)}."
        )
    steps = pointers[1:].astype(np.int64) - pointers[:-1].astype(np.int64)
    if pointers[0] != 0 or pointers[-1] != len(columns) or bool((steps < 0).any()):
        raise GraphError(f"x_indptr must rise from 0 to {len(columns)} without falling.")
    if len(columns) and not (int(columns.min()) >= 0 and int(columns.max()) < shape[1]):
        raise GraphError(
            f"x_indices must be columns 0 to {shape[1] - 1}. "
            f"Got {columns.min()} to {columns.max()}."
        )
    keys = np.repeat(np.arange(shape[0], dtype=np.int64), steps) * shape[1] + columns
    if bool((np.diff(keys) <= 0).any()):
        raise GraphError("x_indices must rise within each row, without repeats.")
