"""Embeddings and gate of all nodes in one pass, into memory-mapped files; resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from aspect.data.files import is_file, replacing
from aspect.errors import RunError
from aspect.methods.base import Method
from aspect.nn.normalisation import Scaling
from aspect.scale.blocks import BlockedRows, check_disk, row_ranges
from aspect.scale.calibration import Moments
from aspect.scale.rows import STREAMED, RowBatches
from aspect.training.folder import EMBEDDINGS, POLICY, PROGRESS
from aspect.workspace import read_json, write_json

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
    first = next(data.outputs(method))[2]
    shape = (data.num_nodes, first.embedding.shape[1])
    done = _begun(folder, shape)
    advice = "Free some space, or lower width."
    if done == 0:
        check_disk(folder, 4 * shape[0] * (shape[1] + 1), advice)
    shapes = {EMBEDDINGS: shape} | ({} if first.gate is None else {POLICY: shape[:1]})
    files = _Files(folder, shapes, resume=done > 0)
    with ThreadPoolExecutor(1) as behind:  # writes while the next rows are embedded
        writing: Future[None] = behind.submit(lambda: None)
        for number, (start, end, output) in enumerate(data.outputs(method, done), start=1):
            parts = {EMBEDDINGS: output.embedding.cpu().numpy()}
            if output.gate is not None:
                parts[POLICY] = output.gate[:, 0].cpu().numpy()
            writing.result()
            is_synced = number % SYNCED == 0 or end == data.num_nodes
            writing = behind.submit(files.write, start, end, parts, is_synced=is_synced)
        writing.result()
    return files.opened[EMBEDDINGS], files.opened.get(POLICY)


class _Files:
    """What a pass writes, memory-mapped; its progress is noted when all before is on the disk."""

    def __init__(
        self, folder: Path, shapes: Mapping[str, tuple[int, ...]], *, resume: bool
    ) -> None:
        self.folder, self.shapes = folder, shapes
        self._open("r+" if resume else "w+")

    def _open(self, mode: Literal["r+", "w+"]) -> None:
        self.opened = {
            name: np.lib.format.open_memmap(
                self.folder / name, mode=mode, dtype=np.float32, shape=shape
            )
            for name, shape in self.shapes.items()
        }

    def write(self, start: int, end: int, parts: dict[str, Numbers], *, is_synced: bool) -> None:
        """Some rows of every file."""
        for name, rows in parts.items():
            self.opened[name][start:end] = rows
        if is_synced:
            for file in self.opened.values():
                file.flush()
            write_json(self.folder / PROGRESS, {"rows": end})
            self._open("r+")  # so that what is on the disk leaves the memory


def _begun(folder: Path, shape: tuple[int, int]) -> int:
    """Rows that an earlier pass of this run wrote."""
    if not (is_file(folder / PROGRESS) and is_file(folder / EMBEDDINGS)):
        return 0
    try:
        written = np.load(folder / EMBEDDINGS, mmap_mode="r", allow_pickle=False)
        progress = read_json(folder / PROGRESS, _Progress, fix="The pass begins anew.")
    except (ValueError, OSError, RunError):
        return 0
    rows = progress.rows // STREAMED * STREAMED
    return rows if written.shape == shape else 0


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

    embeddings = np.load(folder / EMBEDDINGS, mmap_mode="r", allow_pickle=False)
    has_gate = is_file(folder / POLICY)
    policy = np.load(folder / POLICY, mmap_mode="r", allow_pickle=False) if has_gate else None
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
