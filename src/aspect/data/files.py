"""Paths that may be wrong, files written whole or not at all, folders with one writer at a time."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from aspect.errors import REASONS, AspectError, FileError, reason

# What a file may take of the free memory: it is held once as read and at least once as a graph.
SHARE_OF_MEMORY = 0.25
ASSUMED_BYTES = 4 * 2**30  # where the system does not tell

# What a process killed in the middle of writing leaves behind, see `replacing`.
LEFT_BEHIND = re.compile(r"\.[0-9a-f]{16}\.part")


CGROUP = Path("/sys/fs/cgroup")  # as seen inside a container
CACHE = "inactive_file "

# Endings of files of embeddings, each with those of the files beside it: for gate weights, which
# tables may hold themselves, and for ids, where the file has no place for them.
TABLES = {".parquet": ".gate.parquet", ".csv": ".gate.csv"}
MATRICES = {".npy": ".gate.npy", ".vec": ".gate.csv", ".txt": ".gate.csv"}
IDS = ".ids.txt"


def is_file(path: Path) -> bool:
    """Whether a regular file can be found there; an impossible path is no file."""
    return os.path.isfile(path)  # noqa: PTH113 - that of a path raises for an impossible one


def is_present(path: Path) -> bool:
    """Whether that name is taken, be it by a link into nowhere."""
    return os.path.lexists(path)


def is_folder(path: Path) -> bool:
    """Whether a folder can be found there; an impossible path is none."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def file_bytes(path: Path) -> bytes:
    """The whole of a regular file, refused beforehand if it would crowd the memory."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or device"
            raise FileError(f"{str(path)!r} must be a file. Got {kind}.")
        check_memory(status.st_size, path)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot read {str(path)!r}: {reason(error)}.") from error


def check_memory(num_bytes: int, path: Path) -> None:
    """Refuse what would take more than its share of the memory that is free now."""
    bound = int(available_bytes() * SHARE_OF_MEMORY)
    if num_bytes > bound:
        raise FileError(
            f"{str(path)!r} holds {num_bytes} bytes; at most {bound} fit the memory that is free "
            "here. Use a machine with more memory, or a smaller graph."
        )


def available_bytes() -> int:
    """Memory that can still be taken, within the limit of the container if there is one."""
    free, limit = _free_memory(), _told(CGROUP / "memory.max")
    if limit is None:
        return free
    # Files that were read are counted as used, but make room as soon as it is needed.
    used = (_told(CGROUP / "memory.current") or 0) - (_told(CGROUP / "memory.stat", CACHE) or 0)
    return min(free, max(0, limit - max(0, used)))


def _told(file: Path, entry: str = "") -> int | None:
    """The number that the system tells in a file, or in an entry of it."""
    with suppress(OSError, ValueError):  # ValueError: the word max, for no limit
        for line in file.read_text().splitlines():
            if line.startswith(entry):
                return int(line.removeprefix(entry).removesuffix("kB"))
    return None


def _free_memory() -> int:
    kibibytes = _told(Path("/proc/meminfo"), "MemAvailable:")
    if kibibytes is not None:
        return kibibytes * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return ASSUMED_BYTES


@contextmanager
def replacing(path: Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """A file to write into that takes its name only when it is complete and on the disk.

    Whatever goes wrong, nothing half-written stays and an older file of that name is untouched.
    """
    target = target_of(path, overwrite)
    temporary = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            # numpy writes past Python's buffer, and may not notice that the disk is full.
            if os.fstat(file.fileno()).st_size < file.tell():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        target_of(path, overwrite)  # which another process may have written meanwhile
        temporary.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise FileError(f"Cannot write {str(path)!r}: {reason(error)}.") from error
    finally:
        # Also after an interrupt; a folder that cannot be written has no temporary file to remove.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def target_of(path: Path, overwrite: bool) -> Path:
    """Where the content is to lie: behind the link if the name is one."""
    try:
        os.fsencode(path)
        if "\0" in str(path):
            raise FileError(f"A file's name must not hold a NUL character. Got {str(path)!r}.")
        target = path.resolve() if path.is_symlink() else path
        taken = target.exists()
    except (OSError, RuntimeError, UnicodeError) as error:  # RuntimeError: links in a loop
        why = REASONS[errno.ELOOP] if isinstance(error, RuntimeError) else reason(error)
        raise FileError(f"Cannot write {str(path)!r}: {why}.") from error
    if taken and not overwrite:
        raise FileError(
            f"{str(path)!r} exists. Pass --overwrite to replace it, or choose another name."
        )
    return target


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut; systems without folder handles do so anyway."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn what the system refuses into a sentence about the folder."""
    try:
        yield
    except AspectError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FileError(f"Cannot write to {path}: {reason(error)}.") from error


def embedding_files(path: Path, *, gate_column: bool = False) -> dict[str, Path]:
    """Where `embeddings`, their `gate` weights and `ids` go, by the ending of the first's name.

    A part that is a column, or a word of each line, has no file of its own.
    """
    suffix = path.suffix.lower()
    beside = {**TABLES, **MATRICES}
    if suffix not in beside:
        raise FileError(
            f"Embeddings are written as {', '.join(TABLES)}, .npy, or word2vec text as .vec or "
            f".txt. Got the name {path.name!r}."
        )
    if gate_column and suffix not in TABLES:
        raise FileError(
            f"Only tables ({', '.join(TABLES)}) have a column for gate weights. Got the name "
            f"{path.name!r}: leave --gate out, and they are written to "
            f"{path.with_suffix(beside[suffix]).name!r}."
        )
    files = {"embeddings": path}
    if not gate_column:
        files["gate"] = path.with_suffix(beside[suffix])
    if suffix == ".npy":
        files["ids"] = path.with_suffix(IDS)
    return files
