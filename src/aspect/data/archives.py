"""Graphs in archives: the `.npz` format of the data sets, and `.pt` files of `torch.save`.

Files may be hostile: sizes, names and types are checked from the zip directory and
the array headers before any array is read, and no code of a file is ever run.

An `.npz` holds `edge_index` (integers [2, pairs]), the features as compressed rows (`x_indptr`,
`x_indices`, `x_data`, `x_shape`), the classes `y` and, if its source publishes splits,
`train_masks`, `val_masks` and `test_masks` (booleans [splits, nodes]). Ids of the nodes, names of
features and of classes are one JSON text in `names`, where there are any.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.convert import as_labelled
from aspect.data.features import as_features, imputed
from aspect.data.files import check_memory, file_bytes, replacing
from aspect.data.graph import Graph, LabelledGraph, label_graph
from aspect.data.source import NO_READING, Reading
from aspect.data.sparse import LARGEST_INT32, Pattern, SparseMatrix
from aspect.errors import AspectError, DataError, FileError, GraphError, shown

__all__ = [
    "content_sha256",
    "graph_sha256",
    "read_arrays",
    "read_npz",
    "read_saved",
    "sha256_of",
    "write_npz",
]

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
    "names": "u",
}
KIND_NAMES = {
    "iu": "integers",
    "u": "bytes",
    "f": "floating-point numbers",
    "b": "booleans",
    "iufb": "numbers",
}
MASK_KEYS = {"train": "train_masks", "validation": "val_masks", "test": "test_masks"}
OPTIONAL = ({"names"}, set(MASK_KEYS.values()))  # each group comes whole or not at all

LONGEST_HEADER = 10_000  # bytes; ours take 128
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# Real arrays of some size are never compressed further than this; all-zero ones are about 1000.
LARGEST_RATIO = 200
RATIO_FROM_BYTES = 16 * 2**20


def read_npz(
    path: Path | str, reading: Reading = NO_READING, *, sha256: str | None = None
) -> LabelledGraph:
    """Read a graph; with `sha256`, only if the file is the very one that has this checksum."""
    path = Path(path)
    data = file_bytes(path)
    actual = hashlib.sha256(data).hexdigest()
    if sha256 is not None and actual != sha256:
        raise DataError(
            f"{str(path)!r} is not the published file or is damaged: its sha256 must be "
            f"{sha256}. Got {actual}. Fetch it again."
        )
    arrays = read_arrays(data, path, KINDS, optional=OPTIONAL)
    try:
        return _graph_of(arrays, reading)
    except GraphError as error:
        raise GraphError(f"{str(path)!r} holds no usable graph. {error}") from error


def write_npz(path: Path | str, labelled: LabelledGraph, *, overwrite: bool = False) -> None:
    """Write a graph in the same format, each edge once per direction."""
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
    names = _names_of(labelled)
    if names:
        arrays["names"] = np.frombuffer(json.dumps(names).encode(), dtype=np.uint8)
    with replacing(Path(path), overwrite=overwrite) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def sha256_of(path: Path) -> str:
    """Checksum of a file's bytes."""
    return hashlib.sha256(file_bytes(path)).hexdigest()


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


# Arrays of an archive


def read_arrays(
    data: bytes,
    path: Path,
    kinds: Mapping[str, str],
    optional: Sequence[set[str]] = (),
    *,
    ignore_others: bool = False,
) -> dict[str, Array]:
    """The arrays of an `.npz`: exactly the keys of `kinds`, each of a type kind listed there.

    Each group of `optional` keys comes whole or not at all. Other members are refused, or left
    alone if they are to be ignored.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if ignore_others:
                members = [member for member in members if _key(member) in kinds]
            _check_directory(members, path, kinds, optional)
            for member in members:
                _check_array(archive, member, path, kinds[_key(member)])
        with np.load(io.BytesIO(data), allow_pickle=False, max_header_size=LONGEST_HEADER) as file:
            return {key: _native(file[key]) for key in map(_key, members)}
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OverflowError) as error:
        raise FileError(
            f"{str(path)!r} is not a whole .npz archive: it is cut off or damaged ({error}). "
            "Fetch or write it again."
        ) from error
    # zipfile and numpy on odd members
    except (NotImplementedError, RuntimeError, OSError, ValueError) as error:
        if isinstance(error, AspectError):
            raise
        raise FileError(f"{str(path)!r} is not a plain .npz archive ({error}).") from error


def _key(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _native(array: Array) -> Array:
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def _check_directory(
    members: list[zipfile.ZipInfo],
    path: Path,
    kinds: Mapping[str, str],
    optional: Sequence[set[str]],
) -> None:
    """Refuse, from the directory alone, what no graph needs; nothing has been read by then."""
    expected = {f"{key}.npy" for key in kinds}
    counts = Counter(member.filename for member in members)
    odd = [name for name in counts if name not in expected or counts[name] > 1]
    if odd:
        raise FileError(
            f"{str(path)!r} must hold the members {', '.join(sorted(expected))} and nothing else. "
            f"Got {shown(map(repr, odd))}."
        )
    missing = {key for key in kinds if f"{key}.npy" not in counts}
    for group in optional:
        missing = missing - group if missing >= group else missing
    if missing:
        raise FileError(f"{str(path)!r} lacks {shown(sorted(missing))} of the keys of a graph.")
    for member in members:
        where = f"{member.filename!r} in {str(path)!r}"
        if stat.S_ISLNK(member.external_attr >> 16):
            raise FileError(f"{where} is a symbolic link. An array must be stored itself.")
        ratio = member.file_size / max(1, member.compress_size)
        if member.file_size > RATIO_FROM_BYTES and ratio > LARGEST_RATIO:
            raise FileError(
                f"{where} would grow {ratio:.0f}-fold to {member.file_size} bytes; at most "
                f"{LARGEST_RATIO}-fold is allowed. Store it uncompressed if it is real."
            )
    check_memory(sum(member.file_size for member in members), path)


def _check_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, kinds: str) -> None:
    """Refuse an array by its header: objects, other types, and sizes that it does not have."""
    where = f"{member.filename!r} in {str(path)!r}"
    with archive.open(member) as file:
        start = io.BytesIO(file.read(LONGEST_HEADER))
    try:
        version = npy.read_magic(start)
        shape, _, dtype = HEADERS[version](start, max_header_size=LONGEST_HEADER)
    except KeyError as error:
        raise FileError(f"{where} is not a plain .npy array. Got version {error}.") from error
    # numpy tokenises and evaluates the header as a literal, which fails in all these ways.
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise FileError(f"{where} has a damaged array header ({error}).") from error
    if dtype.hasobject:
        raise FileError(
            f"{where} holds Python objects, which are never loaded. Store plain numbers."
        )
    if dtype.kind not in kinds:
        raise FileError(f"{where} must hold {KIND_NAMES[kinds]}. Got {dtype}.")
    num_bytes, stored = math.prod(shape) * dtype.itemsize, member.file_size - start.tell()
    if num_bytes != stored or any(size < 0 for size in shape):
        raise FileError(
            f"{where} says it has shape {list(shape)}, which takes {num_bytes} bytes. "
            f"It holds {stored}."
        )


# A graph of such arrays


def _graph_of(arrays: Mapping[str, Array], reading: Reading) -> LabelledGraph:
    features, notices = imputed(_features_of(arrays), reading.impute)
    # torch reads unsigned integers of 64 bits as they are; numpy would wrap them.
    edge_index, labels = torch.from_numpy(arrays["edge_index"]), torch.from_numpy(arrays["y"])
    names = _read_names(arrays)
    graph = Graph.build(
        features,
        edge_index,
        names.get("ids"),
        feature_names=names.get("feature_names"),
        integer_ids=bool(names.get("integer_ids", False)),
        directed_is_error=reading.directed == "error",
        notices=notices,
    )
    masks = {
        part: torch.from_numpy(arrays[key]) for part, key in MASK_KEYS.items() if key in arrays
    }
    return label_graph(graph, labels, names.get("class_names"), masks=masks)


def _names_of(labelled: LabelledGraph) -> dict[str, Any]:
    """Names beyond numbers, as they are kept."""
    graph, classes = labelled.graph, labelled.class_names
    names: dict[str, Any] = {"ids": graph.ids, "feature_names": graph.feature_names}
    if graph.integer_ids:
        names["integer_ids"] = True
    if classes != tuple(map(str, range(len(classes)))):
        names["class_names"] = classes
    return {key: value for key, value in names.items() if value is not None}


def _read_names(arrays: Mapping[str, Array]) -> dict[str, Any]:
    if "names" not in arrays:
        return {}
    try:
        names = json.loads(arrays["names"].tobytes())
        lists = [names.get(key) or [] for key in ("ids", "feature_names", "class_names")]
        if all(isinstance(name, str) for texts in lists for name in texts):
            return dict(names)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise GraphError("names must be the JSON text of lists of strings.") from error
    raise GraphError("names must be the JSON text of lists of strings.")


def _features_of(arrays: Mapping[str, Array]) -> SparseMatrix:
    pointers, columns, values = (arrays[key] for key in ("x_indptr", "x_indices", "x_data"))
    stored = arrays["x_shape"]
    if stored.shape != (2,) or not all(0 <= size <= LARGEST_INT32 for size in stored.tolist()):
        raise GraphError(
            f"x_shape must be two counts up to {LARGEST_INT32}: nodes, features. "
            f"Got {stored.flatten().tolist()[:5]}."
        )
    shape = (int(stored[0]), int(stored[1]))
    _check_rows(pointers, columns, values, shape)
    pattern = Pattern(
        torch.from_numpy(pointers.astype(np.int32)),
        torch.from_numpy(columns.astype(np.int32)),
        shape,
    )
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which Graph.build refuses
        return SparseMatrix(pattern, torch.from_numpy(values.astype(np.float32)))


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


# Files of torch.save


def read_saved(path: Path, reading: Reading = NO_READING) -> LabelledGraph:
    """Read a PyG `Data`; a file that names anything but tensors and PyG's containers is refused."""
    content = file_bytes(path)
    notices = _check_saved(content, path)
    try:
        with torch.serialization.safe_globals(_pyg_classes()):
            data = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{str(path)!r} is damaged, or holds more than tensors and PyG's Data, which is never "
            "loaded. Save a plain torch_geometric.data.Data with torch.save."
        ) from error
    # Damaged bytes fail in the unpickler in whatever way they happen to.
    except Exception as error:
        raise FileError(
            f"{str(path)!r} is not a whole file of torch.save ({type(error).__name__}). "
            "Save it again."
        ) from error
    try:
        _check_declared(data, path)
        if reading.features is not None and data.num_nodes:
            # Whatever x is, the structural features take its place.
            data.x = torch.zeros(data.num_nodes, 1)
        elif data.x is not None:
            data.x, cleaned = imputed(as_features(data.x), reading.impute)
            notices += cleaned
        labelled = as_labelled(data, directed_is_error=reading.directed == "error")
    except AspectError:
        raise
    # A Data whose bytes are damaged, or of another age, fails anywhere inside PyG.
    except Exception as error:
        raise FileError(
            f"{str(path)!r} holds no whole PyG Data ({type(error).__name__}). Save it again."
        ) from error
    graph = replace(labelled.graph, notices=(*notices, *labelled.graph.notices))
    return replace(labelled, graph=graph)


def _check_saved(content: bytes, path: Path) -> list[str]:
    """Refuse an archive that would grow beyond the memory or whose checksums differ; a notice."""
    try:
        if not zipfile.is_zipfile(io.BytesIO(content)):
            return [f"{str(path)!r} has no checksums: damage to its numbers would go unnoticed."]
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_memory(sum(member.file_size for member in archive.infolist()), path)
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{str(path)!r} is cut off or damaged ({error}). Save it again.") from error
    if damaged is not None:
        raise FileError(
            f"{str(path)!r} is damaged: {damaged!r} in it has another checksum. Save it again."
        )
    return []


def _check_declared(data: Any, path: Path) -> None:  # noqa: ANN401 - whatever the file holds
    """Refuse what is no graph, and one that says it is larger than its file: strides of zero."""
    if not hasattr(data, "edge_index"):
        raise GraphError(
            f"{str(path)!r} must hold a PyG Data with an edge_index. Got {type(data).__name__}."
        )
    tensors = [value for _, value in data if isinstance(value, Tensor)]
    declared = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    check_memory(max(declared, 8 * int(data.num_nodes or 0)), path)


def _pyg_classes() -> list[Any]:
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
