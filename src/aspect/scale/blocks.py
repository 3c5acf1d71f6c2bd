"""Folders of blocks: each block written whole with its SHA-256, a killed writer goes on.

A block is a NumPy file. Its name and SHA-256 are noted in a journal once it is on the disk, so that
a writer that was killed keeps the blocks it finished. The last step turns the journal into the
folder's manifest; a folder with a manifest is complete.
"""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from aspect.data.files import file_bytes, is_file, replacing
from aspect.errors import FileError, GraphError, RunError
from aspect.workspace import (
    MANIFEST,
    FolderKind,
    Manifest,
    Workspace,
    json_text,
    read_json_lines,
    sealed,
    write_json,
)

logger = logging.getLogger(__name__)

JOB = "job.json"  # what a folder is filled with: another job must not go on with it
VERSION = re.compile(rb"^ +\d+,?\n", re.MULTILINE)  # in it: a file's size, its time of change
JOURNAL = "blocks.jsonl"
SCRATCH = "scratch-"  # names of blocks that only serve to make others begin so
GIB = 2**30


def row_ranges(num_rows: int, rows_per_block: int) -> list[tuple[int, int]]:
    """First row and end of every block.

    >>> row_ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    starts = range(0, num_rows, rows_per_block)
    return [(start, min(start + rows_per_block, num_rows)) for start in starts]


def block_name(part: str, block: int) -> str:
    """The file of a block: `features-00003.npy`."""
    return f"{part}-{block:05d}.npy"


def size_text(num_bytes: int) -> str:
    """A size on the disk, to be read.

    >>> size_text(3 * 2**30), size_text(5 * 2**20)
    ('3.00 GiB', '5.00 MiB')
    """
    if num_bytes < GIB / 10:
        return f"{num_bytes / 2**20:.2f} MiB"
    return f"{num_bytes / GIB:,.2f} GiB"


def check_disk(path: Path, num_bytes: int, advice: str) -> None:
    """Refuse beforehand what the disk has no room for.

    Args:
        path: Where it would be written; it need not be there yet.
        num_bytes: What will be written.
        advice: A sentence on what to lower.
    """
    place = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    if num_bytes > free:
        raise FileError(
            f"{str(path)!r} needs {size_text(num_bytes)} of disk, and {size_text(free)} are free. "
            f"{advice}"
        )


class BlockRecord(BaseModel):
    """A finished block, as the journal knows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    sha256: str
    num_bytes: int
    counts: dict[str, int] = {}  # what was counted while it was made


class BlockFolder:
    """A folder that is being filled with blocks; open it with `BlockFolder.open`."""

    def __init__(self, workspace: Workspace, advice: str) -> None:
        self.path, self._workspace, self._advice = workspace.path, workspace, advice
        self._records = {record.name: record for record in self._read_journal()}
        self._noting = threading.Lock()

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        kind: FolderKind,
        job: Mapping[str, Any],
        advice: str,
        num_bytes: int = 0,
    ) -> Iterator[BlockFolder]:
        """Hold the folder for this process and this job; finished blocks of the same job are kept.

        Args:
            path: The folder, made if need be.
            kind: What it is a folder of.
            job: What decides every byte of it; a folder of another job is refused.
            advice: What to lower when the disk is full, a sentence.
            num_bytes: What will be written, for which a disk without room is refused beforehand.
        """
        if not is_file(path / JOB):
            check_disk(path, num_bytes, advice)
        with Workspace.open(path, kind) as workspace:
            folder = cls(workspace, advice)
            folder._claim(json_text(job))
            if folder.is_complete:
                folder._remove_scratch()  # of a process that was killed in its last moment
            try:
                yield folder
            except (GraphError, FileError) as error:
                # A wrong input leaves nothing worth keeping, unlike a disk that is full.
                if not isinstance(error.__cause__, OSError | FileError):
                    folder._discard()
                raise
            except MemoryError as error:
                raise RunError(
                    f"Out of memory while {path} was filled. Lower --memory (memory_bytes in "
                    "Python) or the columns of the features. The same command then goes on."
                ) from error

    def _claim(self, job: str) -> None:
        """Refuse the folder of another job; begin anew where files changed since it was begun."""
        begun = file_bytes(self.path / JOB) if self._workspace.has(JOB) else job.encode()
        if begun != job.encode():
            is_same_command = VERSION.sub(b"", begun) == VERSION.sub(b"", job.encode())
            if self.is_complete or not is_same_command:
                raise RunError(
                    f"{self.path} was begun with other input or settings, which {self.path / JOB} "
                    "names. Choose another --out, or remove it."
                )
            logger.warning("Input changed since %s was begun: it is made anew.", self.path)
            self._discard()
        if not self._workspace.has(JOB):
            self._workspace.write(JOB, job)

    @property
    def is_complete(self) -> bool:
        """Whether every block is there and sealed."""
        return self._workspace.has(MANIFEST)

    def has(self, name: str) -> bool:
        """Whether a block is finished: noted, there, and of its size."""
        record = self._records.get(name)
        file = self.path / name
        return record is not None and is_file(file) and file.stat().st_size == record.num_bytes

    def write(self, name: str, block: NDArray[Any], **counts: int) -> None:
        """Write a block, then note it."""
        block, header, digest = np.ascontiguousarray(block), io.BytesIO(), hashlib.sha256()
        described = np.lib.format.header_data_from_array_1_0(block)
        np.lib.format.write_array_header_1_0(header, described)
        parts = header.getbuffer(), block.reshape(-1).view(np.uint8).data  # without a copy
        try:
            with replacing(self.path / name, overwrite=True) as file:
                for part in parts:
                    digest.update(part)
                    file.write(part)
            self.note(name, digest.hexdigest(), sum(map(len, parts)), counts)
        except (FileError, OSError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                told = f"Cannot write {str(self.path / name)!r}: the disk is full."
                raise FileError(f"{told} {self._advice} The same command then goes on.") from error
            raise

    def note(self, name: str, sha256: str, num_bytes: int, counts: dict[str, int]) -> None:
        """Put a block that lies in the folder into the journal."""
        record = BlockRecord(name=name, sha256=sha256, num_bytes=num_bytes, counts=counts)
        with self._noting, (self.path / JOURNAL).open("ab") as journal:
            journal.write(sealed(record).encode())
        self._records[name] = record

    def fill(self, make: Callable[[int], None], numbers: Iterable[int], threads: int) -> None:
        """Make blocks in some threads; NumPy lets others go on while it computes and writes."""
        with ThreadPoolExecutor(max(1, min(threads, os.cpu_count() or 1))) as pool:
            for _ in pool.map(make, numbers):  # which ends with the first that fails
                pass

    def read(self, name: str) -> NDArray[Any]:
        """A finished block, memory-mapped."""
        return mapped(self.path / name)

    def counts(self, name: str) -> dict[str, int]:
        """What was counted while a finished block was made."""
        return self._records[name].counts

    def finish(self, name: str, facts: BaseModel) -> None:
        """Write what the folder holds, and the manifest: it is complete, without scratch files."""
        write_json(self.path / name, facts.model_dump(mode="json"))
        blocks = sorted(block for block in self._records if not block.startswith(SCRATCH))
        files = {block: self._records[block].sha256 for block in blocks}
        for small in (JOB, name):
            files[small] = hashlib.sha256(file_bytes(self.path / small)).hexdigest()
        write_json(self.path / MANIFEST, Manifest(files=files).model_dump())
        self._workspace.remove(JOURNAL)
        self._remove_scratch()

    def _discard(self) -> None:
        self._remove_scratch()
        self._workspace.remove(JOB, JOURNAL, *self._records)
        self._records.clear()

    def _remove_scratch(self) -> None:
        for file in self.path.glob(f"{SCRATCH}*"):
            file.unlink()

    def _read_journal(self) -> list[BlockRecord]:
        """The finished blocks; the last line may be torn, where the writer was killed."""
        if not self._workspace.has(JOURNAL):
            return []
        journal = self.path / JOURNAL
        content = file_bytes(journal)
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with journal.open("r+b") as file:
                file.truncate(whole)
        return read_json_lines(journal, BlockRecord, fix="Remove the folder and begin anew.")


def mapped(file: Path) -> NDArray[Any]:
    """A block, memory-mapped; it leaves the memory with the array."""
    try:
        # Copy-on-write: torch takes no array that is read-only; nothing reaches the file.
        block: NDArray[Any] = np.load(file, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            f"{str(file)!r} is missing, cut off or damaged ({error}). Make the folder anew."
        ) from error
    return block


def converted(array: NDArray[Any], dtype: np.dtype[Any] | str) -> NDArray[Any]:
    """The same finite numbers in another floating type, refused where they are too large for it."""
    dtype = np.dtype(dtype)
    if np.float16 in (array.dtype, dtype):  # torch is several times faster at it
        numbers = torch.from_numpy(array).to(getattr(torch, dtype.name), copy=True).numpy()
    else:
        with np.errstate(over="ignore"):
            numbers = array.astype(dtype, copy=False)
    if dtype.itemsize < array.dtype.itemsize and not np.isfinite(numbers).all():
        raise GraphError(
            f"Numbers must fit {dtype}, up to {np.finfo(dtype).max:.3g}. "
            f"Got {np.abs(array).max():.3g}: take a wider type, or rescale the features."
        )
    return numbers


class BlockedRows:
    """A matrix or vector on disk, cut into blocks of rows; an index reads what it names.

    `rows[3:10]` and `rows[numbers]` are arrays in memory; `rows.block(2)` is memory-mapped.
    """

    def __init__(self, folder: Path, part: str, ranges: Sequence[tuple[int, int]]) -> None:
        self._folder, self._part, self.ranges = folder, part, list(ranges)
        self._starts = np.array([start for start, _ in ranges])
        first = self.block(0)
        self.dtype: np.dtype[Any] = first.dtype
        if first.dtype.kind == "S":  # each block is as wide as its longest text
            self.dtype = np.result_type(*(self.block(k).dtype for k in range(len(self.ranges))))
        self.shape: tuple[int, ...] = (ranges[-1][1], *first.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def block(self, number: int) -> NDArray[Any]:
        """The rows of one block, memory-mapped."""
        return mapped(self._folder / block_name(self._part, number))

    def __getitem__(self, rows: slice | NDArray[np.integer[Any]]) -> NDArray[Any]:
        """These rows, copied into memory; a slice has no step."""
        if isinstance(rows, slice):
            start, end, step = rows.indices(len(self))
            assert step == 1
            return self.between(start, max(start, end), self.dtype)
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        result = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for owner in np.flatnonzero(np.bincount(owners, minlength=len(self.ranges))):
            chosen = np.flatnonzero(owners == owner)
            result[chosen] = self.block(int(owner))[rows[chosen] - self._starts[owner]]
        return result

    def between(self, start: int, end: int, dtype: np.dtype[Any] | str) -> NDArray[Any]:
        """The rows from the first to before the end, as numbers of this type."""
        result = np.empty((end - start, *self.shape[1:]), dtype)
        for number, (first, last) in enumerate(self.ranges):
            low, high = max(start, first), min(end, last)
            if low < high:
                result[low - start : high - start] = converted(
                    self.block(number)[low - first : high - first], dtype
                )
        return result
