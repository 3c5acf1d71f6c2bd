"""A report's folder: a record, the page and the tables made from it; one process at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import filelock

from aspect.data.files import LEFT_BEHIND, reason, replacing
from aspect.errors import FileError, RunError

__all__ = ["PAGE", "ReportFolder"]

PAGE = "report.html"

RECORD, LOCK = "record.json", ".lock"
UNFINISHED = ".unfinished"  # holds the kind while a report is written; left there by a kill


class ReportFolder:
    """Where reports of one kind go; open it with `ReportFolder.open`."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind

    @classmethod
    @contextmanager
    def open(cls, path: Path, kind: str, *, overwrite: bool = True) -> Iterator[ReportFolder]:
        """Take the folder for this process.

        An empty folder and one with an unfinished report of this kind are taken; a complete report
        is replaced, or refused without `overwrite`; anything else is refused and left untouched.
        """
        folder = cls(path, kind)
        try:
            if path.exists() and not path.is_dir():
                raise FileError(f"{path} must be a folder. Got a file.")
            path.mkdir(parents=True, exist_ok=True)
            folder._refuse_foreign()
            lock = filelock.FileLock(path / LOCK, blocking=False)
            lock.acquire()
        except filelock.Timeout as error:
            raise RunError(
                f"Another process is using {path}. Wait for it, or choose another --out."
            ) from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise FileError(f"Cannot write to {path}: {reason(error)}.") from error
        try:
            if folder._has_own_record() and not overwrite:
                raise RunError(
                    f"{path} holds a {kind} report. "
                    "Pass --overwrite to replace it, or choose another --out."
                )
            yield folder
        finally:
            lock.release()

    def _refuse_foreign(self) -> None:
        names = {item.name for item in self.path.iterdir()}
        others = {name for name in names - {LOCK} if not LEFT_BEHIND.fullmatch(name)}
        if others and not (self._has_own_record() or self._is_unfinished()):
            raise RunError(
                f"{self.path} is not empty and holds no {self.kind} report. Choose another --out."
            )

    def _has_own_record(self) -> bool:
        try:
            record = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # missing, not text, or not JSON: not ours
            return False
        return isinstance(record, dict) and record.get("kind") == self.kind

    def _is_unfinished(self) -> bool:
        try:
            return (self.path / UNFINISHED).read_bytes() == self.kind.encode()
        except OSError:
            return False

    def write(self, record: str, files: Mapping[str, str]) -> None:
        """Write the files and last the record, whose presence says that the report is complete."""
        self._write(UNFINISHED, self.kind)
        with ExitStack() as stack:
            # All are written before the first takes its name, so that a full disk leaves an earlier
            # report whole; the first one opened, the record, is the last one named.
            for name, text in {RECORD: record, **files}.items():
                file = stack.enter_context(replacing(self.path / name, overwrite=True))
                file.write(text.encode())
                file.flush()
            (self.path / RECORD).unlink(missing_ok=True)
        (self.path / UNFINISHED).unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        with replacing(self.path / name, overwrite=True) as file:
            file.write(text.encode())
