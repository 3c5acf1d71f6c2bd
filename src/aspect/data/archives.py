"""Graphs in archives: the `.npz` format of the data sets.

Files may be hostile: names and sizes are checked from the zip directory before anything is read,
and types and shapes from the headers before any array is made. No code of a file is ever run.

An `.npz` holds `edge_index` (integers [2, pairs]), the features as compressed rows (`x_indptr`,
`x_indices`, `x_data`, `x_shape`), the classes `y` and, if its source publishes splits,
`train_masks`, `val_masks` and `test_masks` (booleans [splits, nodes]). A weighted graph has
`edge_weight` (numbers [pairs]). Ids of the nodes, names of features and of classes are one JSON
text in `names`, where there are any.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import ValidationError

from aspect.config import Config
from aspect.data.convert import labelled_of
from aspect.data.encoder import FeatureEncoder
from aspect.data.files import check_memory, file_bytes, replacing
from aspect.data.foreign import Parts
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.source import NO_READING, Reading
from aspect.data.sparse import LARGEST_INT32, SparseMatrix
from aspect.errors import AspectError, DataError, FileError, GraphError, shown

Array = NDArray[Any]

KINDS = {  # letters of numpy's dtype.kind that a key may have
    "edge_index": "iu",
    "edge_weight": "f",
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
OPTIONAL = (
    {"names"},
    {"edge_weight"},
    set(MASK_KEYS.values()),
)  # each group comes whole or not at all

LONGEST_HEADER = 10_000  # bytes; ours take 128
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# Real arrays of some size are never compressed further than this; all-zero ones are about 1000.
LARGEST_RATIO = 200
RATIO_FROM_BYTES = 16 * 2**20


class Names(Config):
    """What an archive keeps beyond numbers."""

    ids: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    integer_ids: bool = False
    class_names: tuple[str, ...] | None = None
    encoder: FeatureEncoder | None = None


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
        return labelled_of(_parts_of(arrays), reading)
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
    if labelled.graph.weights is not None:
        arrays["edge_weight"] = labelled.graph.weights.cpu().numpy()
    for part, mask in labelled.masks.items():
        arrays[MASK_KEYS[part]] = mask.cpu().numpy()
    numbered = tuple(map(str, range(int(labelled.labels.max()) + 1)))  # as a reader numbers them
    names = Names(
        ids=labelled.graph.ids,
        feature_names=labelled.graph.feature_names,
        integer_ids=labelled.graph.integer_ids,
        class_names=None if labelled.class_names == numbered else labelled.class_names,
        encoder=labelled.graph.encoder,
    ).model_dump(exclude_defaults=True)
    if names:
        arrays["names"] = np.frombuffer(json.dumps(names).encode(), dtype=np.uint8)
    with replacing(Path(path), overwrite=overwrite) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def content_sha256(labelled: LabelledGraph) -> str:
    """Checksum of the graph itself, whatever file it came in: sizes, edges, features and labels.

    Little-endian bytes of the shape, the simple undirected edges sorted by (row, column), the
    non-zero features as sorted compressed rows in float32, weights if there are any, in float32,
    and the labels; splits are left out.
    """
    digest = _digest_of(labelled.graph)
    digest.update(labelled.labels.cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def graph_sha256(graph: Graph) -> str:
    """The same without labels: of what a method sees."""
    return _digest_of(graph).hexdigest()


def _digest_of(graph: Graph) -> hashlib._Hash:
    matrix = _rows_of(graph)
    indices = (
        np.array(matrix.shape),
        graph.edge_index.cpu().numpy(),
        matrix.pattern.row_pointers.numpy(),
        matrix.pattern.columns.numpy(),
    )
    digest = hashlib.sha256()
    for array in indices:
        digest.update(array.astype("<i8").tobytes())
    digest.update(matrix.values.numpy().astype("<f4").tobytes())
    if graph.weights is not None:
        digest.update(b"weights")
        digest.update(graph.weights.cpu().numpy().astype("<f4").tobytes())
    return digest


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
            return {
                key: _array(
                    archive.read(member), f"{member.filename!r} in {str(path)!r}", kinds[key]
                )
                for key, member in zip(map(_key, members), members, strict=True)
            }
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
            f"Got {shown(odd, repr)}."
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


def _array(content: bytes, where: str, kinds: str) -> Array:
    """An array of one of these kinds; objects, and shapes beyond the bytes, are refused."""
    start = io.BytesIO(content)
    try:
        version = npy.read_magic(start)
        header = HEADERS[version](start, max_header_size=LONGEST_HEADER)
    except KeyError as error:
        raise FileError(f"{where} is not a plain .npy array. Got version {error}.") from error
    # numpy tokenises and evaluates the header as a literal, which fails in all these ways.
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise FileError(f"{where} has a damaged array header ({error}).") from error
    shape, is_fortran, dtype = header
    if dtype.hasobject:
        raise FileError(
            f"{where} holds Python objects, which are never loaded. Store plain numbers."
        )
    if dtype.kind not in kinds:
        raise FileError(f"{where} must hold {KIND_NAMES[kinds]}. Got {dtype}.")
    num_bytes, stored = math.prod(shape) * dtype.itemsize, len(content) - start.tell()
    if num_bytes != stored or any(size < 0 for size in shape):
        raise FileError(
            f"{where} says it has shape {list(shape)}, which takes {num_bytes} bytes. "
            f"It holds {stored}."
        )
    flat = np.frombuffer(content, dtype, offset=start.tell())
    array = flat.reshape(shape, order="F" if is_fortran else "C")
    return np.array(array, dtype=dtype.newbyteorder("="), order="C")


def compressed_rows(
    values: Array, columns: Array, pointers: Array, shape: Array
) -> scipy.sparse.csr_array:
    """A sparse matrix, once every row and column is known to exist.

    A column out of range or a falling pointer would crash the sparse product, not raise.
    """
    if shape.shape != (2,) or not all(0 <= size <= LARGEST_INT32 for size in shape.tolist()):
        raise GraphError(
            f"The shape of a matrix must be two counts up to {LARGEST_INT32}. "
            f"Got {shape.flatten().tolist()[:5]}."
        )
    try:
        matrix = scipy.sparse.csr_array((values, columns, pointers), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise GraphError(
            f"The rows of a {shape[0]} x {shape[1]} matrix must be compressed as scipy does it: "
            f"{error}."
        ) from error
    return matrix


# A graph of such arrays


def _parts_of(arrays: Mapping[str, Array]) -> Parts:
    rows = (arrays[key] for key in ("x_data", "x_indices", "x_indptr", "x_shape"))
    matrix = compressed_rows(*rows)
    if len(matrix.data) < len(arrays["x_data"]) or not matrix.has_canonical_format:
        raise GraphError("x_indices must rise within each row, without repeats, to the last one.")
    try:
        names = (
            Names.model_validate_json(arrays["names"].tobytes()) if "names" in arrays else Names()
        )
    except ValidationError as error:
        raise GraphError("names must be the JSON text of lists of strings.") from error
    # torch reads unsigned integers of 64 bits as they are; numpy would wrap them.
    tensors = {key: torch.from_numpy(arrays[key]) for key in arrays if key != "names"}
    return Parts(
        tensors["edge_index"],
        matrix.shape[0],
        matrix,
        tensors.get("edge_weight"),
        names.ids,
        names.integer_ids,
        tensors["y"],
        names.class_names,
        {part: tensors[key].movedim(0, -1) for part, key in MASK_KEYS.items() if key in tensors},
        names.feature_names,
        names.encoder,
    )
