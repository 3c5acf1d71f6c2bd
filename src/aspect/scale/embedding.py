"""Embeddings and gate of all nodes in one pass, into memory-mapped files; resumable."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from aspect.data.files import is_file, naming, replacing
from aspect.errors import FileError, RunError
from aspect.methods.base import Method
from aspect.nn.normalisation import Scaling
from aspect.scale.blocks import BlockedRows, check_disk, mapped, row_ranges
from aspect.scale.calibration import Moments
from aspect.scale.rows import STREAMED, RowBatches
from aspect.training.files import EMBEDDINGS, POLICY, PROGRESS
from aspect.workspace import read_json, write_json

FLOAT_BYTES = 4
SYNCED = 16  # parts of a pass between two notes of how far it is

Numbers = NDArray[np.float32]


class _Progress(BaseModel):
    """How far a pass came, on the disk."""

    rows: int


def embed_store(data: RowBatches, method: Method, folder: Path) -> tuple[Numbers, Numbers | None]:
    """Write the embedding of every node, and its low band's weight, in the order of the nodes.

    A pass that was killed goes on where it last noted its progress.

    Returns:
        Both files, memory-mapped: [nodes, dim] and [nodes].
    """
    shapes, done = room_for(data, method, folder)
    with ExitStack() as stack, ThreadPoolExecutor(1) as behind:  # writes while others are embedded
        files = {
            name: stack.enter_context(_opened(folder / name, shape, done))
            for name, shape in shapes.items()
        }
        writing: Future[None] = behind.submit(lambda: None)
        for number, (_, end, output) in enumerate(data.outputs(method, done), start=1):
            parts = {EMBEDDINGS: output.embedding.cpu().numpy()}
            if output.gate is not None:
                parts[POLICY] = output.gate[:, 0].cpu().numpy()
            writing.result()
            is_synced = number % SYNCED == 0 or end == data.num_nodes
            writing = behind.submit(_write, folder, files, parts, end if is_synced else None)
        writing.result()
    return mapped(folder / EMBEDDINGS), mapped(folder / POLICY) if POLICY in shapes else None


def room_for(
    data: RowBatches, method: Method, folder: Path
) -> tuple[dict[str, tuple[int, ...]], int]:
    """Shapes of the files and how many rows they have; a disk without room for others is refused.

    The method need not be trained: what has no room is best known before.
    """
    first = next(data.outputs(method))[2]
    shapes: dict[str, tuple[int, ...]] = {EMBEDDINGS: (data.num_nodes, first.embedding.shape[1])}
    if first.gate is not None:
        shapes[POLICY] = (data.num_nodes,)
    done = _begun(folder, shapes)
    row_bytes = FLOAT_BYTES * sum(math.prod(shape[1:]) for shape in shapes.values())
    advice = "Free some space, or lower width."
    check_disk(folder, row_bytes * (data.num_nodes - done), advice)
    return shapes, done


def _opened(path: Path, shape: tuple[int, ...], done: int) -> FileIO:
    """A NumPy file to write further rows into; not mapped, where a full disk ends the process."""
    with naming(path):
        file = path.open("r+b" if done else "w+b", buffering=0)
        described = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, described)
        first = file.tell()
        file.truncate(first + FLOAT_BYTES * math.prod(shape))
        file.seek(first + FLOAT_BYTES * done * math.prod(shape[1:]))
    return file


def _write(
    folder: Path, files: Mapping[str, FileIO], parts: Mapping[str, Numbers], end: int | None
) -> None:
    """Write the next rows of every file; note their end when all before is on the disk."""
    for name, rows in parts.items():
        with naming(folder / name):
            left = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
            while left:
                left = left[files[name].write(left) :]
    if end is not None:
        for file in files.values():
            os.fsync(file.fileno())
        write_json(folder / PROGRESS, {"rows": end})


def _begun(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Rows that an earlier pass of this run wrote."""
    if not is_file(folder / PROGRESS):
        return 0
    try:
        written = {name: mapped(folder / name).shape for name in shapes}
        progress = read_json(folder / PROGRESS, _Progress, fix="The pass begins anew.")
    except (FileError, RunError):
        return 0
    return progress.rows // STREAMED * STREAMED if written == shapes else 0


def scaling_of(embeddings: Numbers) -> Scaling:
    """As `Scaling.of`, of a file, in two passes."""
    moments = None
    for part in _parts(embeddings):
        moments = moments or Moments.none(part)
        moments.add(part)
    assert moments is not None  # a store has nodes
    mean = moments.mean
    length = sum(float((part.double() - mean).norm(dim=1).sum()) for part in _parts(embeddings))
    std = (moments.squares / moments.count).sqrt()
    return Scaling(mean.float(), std.float(), torch.tensor(length / len(embeddings)))


def gate_moments(policy: Numbers | None) -> dict[str, float] | None:
    """Mean and standard deviation of the low band's weight."""
    if policy is None:
        return None
    moments = Moments.none(torch.empty(0, 1))
    for part in _parts(policy):
        moments.add(part.unsqueeze(1))
    unbiased = moments.squares / max(1, moments.count - 1)
    return {"mean": float(moments.mean), "std": float(unbiased.sqrt())}


def write_row_groups(
    path: Path, folder: Path, ids: BlockedRows | None, scale: Callable[[Tensor], Tensor]
) -> dict[str, int]:
    """Write the files of `embed_store` as one Parquet table, a row group at a time.

    Args:
        path: The table: `id`, `gate` where there is one, `z0`, `z1`, ...
        folder: That of the files.
        ids: Of the nodes; none: their row numbers.
        scale: What is done to the embeddings of a group.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    embeddings = mapped(folder / EMBEDDINGS)
    policy = mapped(folder / POLICY) if is_file(folder / POLICY) else None
    writer = None
    with replacing(path, overwrite=True) as file:
        for start, end in row_ranges(len(embeddings), STREAMED):
            rows = scale(torch.from_numpy(embeddings[start:end].copy())).cpu().numpy()
            columns: dict[str, Any] = {
                "id": np.arange(start, end) if ids is None else _texts(ids[start:end])
            }
            if policy is not None:
                columns["gate"] = policy[start:end].copy()
            columns |= {f"z{k}": np.ascontiguousarray(rows[:, k]) for k in range(rows.shape[1])}
            group = pa.table(columns)
            writer = writer or pq.ParquetWriter(file, group.schema)
            writer.write_table(group)
        assert writer is not None  # a store has nodes
        writer.close()
    return {"nodes": len(embeddings), "dim": embeddings.shape[1]}


def _texts(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids as they are written: texts lie in a store as bytes."""
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids


def _parts(embeddings: Numbers) -> Iterator[Tensor]:
    for start, end in row_ranges(len(embeddings), STREAMED):
        yield torch.from_numpy(embeddings[start:end].copy())
