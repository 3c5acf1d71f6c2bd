"""Tensors on disk, whole or not at all: safetensors files of our own, and embeddings for others.

A safetensors file holds a manifest and a digest. safetensors notices truncation but not a flipped
bit, so the digest covers names, types, shapes, values and the manifest itself. Nothing is ever
unpickled. Equal content gives equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from aspect.data.files import TABLES, embedding_files, is_file, replacing, target_of
from aspect.errors import CheckpointError, GraphError, reason, shown

Array = NDArray[Any]

FORMAT_VERSION = 1  # raised when an older library could misread what this one writes

# safetensors writes several entries in an order that changes from call to call; one has no order.
ENTRY = "aspect"
LENGTH = 8  # bytes at the beginning of a safetensors file that say how long its header is


LARGEST_INT64 = 2**63 - 1

# A spreadsheet takes a cell that starts so for a formula and would run it.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
    """Save tensors with a manifest of plain values."""
    stored = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    text = json.dumps({**manifest, "format": FORMAT_VERSION}, sort_keys=True)
    entry = json.dumps({"manifest": text, "sha256": _digest(stored, text)})
    with replacing(path, overwrite=True) as file:
        file.write(save(stored, {ENTRY: entry}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `write_tensors` wrote; anything else is refused with a sentence."""
    if not is_file(path):
        raise CheckpointError(f"There is no checkpoint at {path}.")
    try:
        # At once: safetensors opens a file's name twice, between which it may have been replaced.
        content = path.read_bytes()
        tensors = load(content)
        header = json.loads(content[LENGTH : LENGTH + int.from_bytes(content[:LENGTH], "little")])
        metadata = header.get("__metadata__", {})
    except OSError as error:
        raise CheckpointError(f"Cannot read {path}: {reason(error)}.") from error
    except (SafetensorError, ValueError, OverflowError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {error}.") from error
    text, expected, manifest = _manifest(path, metadata)
    # A newer format may digest otherwise, so it is named before anything is called damaged.
    if manifest["format"] > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format {manifest['format']}, newer than this version reads "
            f"({FORMAT_VERSION}). Upgrade aspect-gcl."
        )
    actual = _digest(tensors, text)
    if actual != expected:
        raise CheckpointError(
            f"{path} is damaged: its SHA-256 should be {expected[:16]}... Got {actual[:16]}..."
        )
    # Copies: what safetensors hands out are views of the file's bytes, aligned as they are.
    return {name: tensor.clone() for name, tensor in tensors.items()}, manifest


def _manifest(path: Path, metadata: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
    """The manifest as it was written, the digest it should have, and what it says."""
    if ENTRY not in metadata:
        raise CheckpointError(f"{path} was not written by aspect: it has no manifest.")
    try:
        entry = json.loads(metadata[ENTRY])
        text, expected = str(entry["manifest"]), str(entry["sha256"])
        manifest: dict[str, Any] = json.loads(text)
        manifest["format"] = int(manifest["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: its manifest cannot be read.") from error
    return text, expected, manifest


def _digest(tensors: Mapping[str, Tensor], manifest: str) -> str:
    digest = hashlib.sha256(manifest.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        # As bytes, for NumPy knows no bfloat16; flat first, for torch views no single number.
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Embeddings


def write_embeddings(
    path: Path | str,
    embeddings: Float[Tensor, "nodes dim"],
    ids: Sequence[str] | None = None,
    gate: Float[Tensor, " weights"] | None = None,
    overwrite: bool = False,
    *,
    integer_ids: bool = False,
    gate_column: bool = False,
) -> None:
    """Write one row per node; the format follows from the ending of the name.

    Parquet and CSV get the columns `id` and `z0`, `z1`, ...; `.vec` and `.txt` are word2vec's text
    format, a line with both counts and then a line per node, its id first; `.npy` is the bare
    matrix, with the ids, one JSON string per line, beside it: for `cora.npy` in `cora.ids.txt`.
    Without ids the row numbers are the ids.

    In CSV, ids that a spreadsheet would run as a formula, and those that start with an apostrophe,
    get a leading apostrophe. word2vec's format has no quotes: ids with spaces are refused.

    Args:
        path: The file.
        embeddings: On any device.
        ids: Names of the nodes.
        gate: Gate weights, written beside: for `cora.parquet` as the table `cora.gate.parquet`, for
            `cora.npy` as the vector `cora.gate.npy`, for `cora.vec` as the table `cora.gate.csv`.
        overwrite: Whether to replace what is there.
        integer_ids: The ids are integers again in tables, as a graph's own flag says.
        gate_column: Write gate weights as a column `gate` of the table instead.
    """
    path = Path(path)
    files = embedding_files(path, gate_column=gate_column)
    matrix = _as_array(embeddings)
    weights = None if gate is None else _as_array(gate)
    for what, values in (("ids", ids), ("gate weights", weights)):
        if values is not None and len(values) != len(matrix):
            raise GraphError(
                f"There must be one of the {what} per row. "
                f"Got {len(values)} for {len(matrix)} rows of embeddings."
            )
    # Half a surrogate pair is a Python string, but no text that a file can hold.
    wrong = [node for node in ids or () if any("\ud800" <= letter <= "\udfff" for letter in node)]
    if wrong:
        raise GraphError(f"Node ids must be valid Unicode text. Got {shown(map(ascii, wrong))}.")
    contents = _contents(files, matrix, weights, ids, integer_ids)
    # Ids and gate weights of other embeddings would be taken for those of these.
    stale = [name for name in files.values() if name not in contents]
    for name in stale:
        target_of(name, overwrite)
    with ExitStack() as stack:
        # All are written before the first takes its name: a full disk leaves none of them.
        for name, content in contents.items():
            file = stack.enter_context(replacing(name, overwrite=overwrite))
            file.write(content)
            file.flush()
    for name in stale:
        name.unlink(missing_ok=True)


def _contents(
    files: Mapping[str, Path],
    matrix: Array,
    gate: Array | None,
    ids: Sequence[str] | None,
    integer_ids: bool,
) -> dict[Path, Any]:
    """Every file as bytes."""
    path, beside = files["embeddings"], files.get("gate")
    gates = {} if gate is None else {"gate": gate}
    columns = {f"z{k}": np.ascontiguousarray(matrix[:, k]) for k in range(matrix.shape[1])}
    contents: dict[Path, Any] = {}
    if path.suffix.lower() in TABLES:
        of_table = columns if beside else {**gates, **columns}
        contents[path] = _table(path, of_table, ids, integer_ids)
    else:
        contents[path] = _npy(matrix) if "ids" in files else _word2vec(matrix, ids)
    if "ids" in files and ids is not None:  # an id may itself hold a line break
        lines = (json.dumps(node, ensure_ascii=False) + "\n" for node in ids)
        contents[files["ids"]] = "".join(lines).encode()
    if beside and gate is not None:
        is_bare = beside.suffix == ".npy"
        contents[beside] = _npy(gate) if is_bare else _table(beside, gates, ids, integer_ids)
    return contents


def _as_array(values: Tensor) -> Array:
    """Numbers on the CPU; numpy has no bfloat16, which every float32 holds exactly."""
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def _npy(array: Array) -> Any:  # noqa: ANN401 - a buffer
    """A whole file as bytes: numpy itself would not notice a disk that fills up."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getbuffer()


def _word2vec(matrix: Array, ids: Sequence[str] | None) -> bytes:
    """word2vec's text format; numbers are as short as they can be read back exactly."""
    names = [str(k) for k in range(len(matrix))] if ids is None else ids
    spaced = [node for node in names if not node or any(letter.isspace() for letter in node)]
    if spaced:
        raise GraphError(
            f"word2vec's text format has no place for empty ids or ids with spaces. "
            f"Got {shown(spaced, repr)}. Write .parquet or .csv."
        )
    rows = (
        f"{node} {' '.join(row.astype(str))}\n" for node, row in zip(names, matrix, strict=True)
    )
    return "".join([f"{len(matrix)} {matrix.shape[1]}\n", *rows]).encode()


def _table(
    path: Path, columns: Mapping[str, Array], ids: Sequence[str] | None, integer_ids: bool
) -> Any:  # noqa: ANN401 - a buffer of Arrow
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    is_csv = path.suffix.lower() == ".csv"
    if ids is None:
        size = len(next(iter(columns.values())))
        cells = pa.array([str(k) for k in range(size)])
    elif integer_ids:
        cells = pa.array(_as_integers(ids))
    else:
        # One apostrophe more for ids that have it already, so that no two become one.
        starts = (*FORMULA_STARTS, "'")
        inert = [f"'{node}" if is_csv and node.startswith(starts) else node for node in ids]
        cells = pa.array(inert, pa.string())
    table = pa.table({"id": cells, **{name: pa.array(part) for name, part in columns.items()}})
    out = pa.BufferOutputStream()
    write = pyarrow.csv.write_csv if is_csv else pyarrow.parquet.write_table
    write(table, out)
    return out.getvalue()


def _as_integers(ids: Sequence[str]) -> Array:
    """The integers that the ids spell, of 64 bits; unsigned only where there is no other way."""
    try:
        numbers = [int(node) for node in ids]
        return np.array(numbers, np.uint64 if max(numbers) > LARGEST_INT64 else np.int64)
    except (ValueError, OverflowError) as error:
        raise GraphError(f"Integer ids must be integers of 64 bits. Got {error}.") from error
