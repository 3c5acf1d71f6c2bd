"""Folders that one process at a time writes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from aspect.errors import FileError, RunError, reason

__all__ = ["LOCK", "locked", "naming"]

LOCK = ".lock"  # taken while a process works in a folder; what is left of it means nothing


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder; the system lets go of it when the process ends, however it ends."""
    lock = filelock.FileLock(path / LOCK, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise RunError(
            f"Another process is using {path}. Wait for it, or choose another --out."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn what the system refuses into a sentence about the folder."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FileError(f"Cannot write to {path}: {reason(error)}.") from error
