"""Logs of the numbers of every epoch: JSON lines always, TensorBoard on request."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from aspect.data.files import naming
from aspect.errors import FileError, RunError


class JsonLinesLog:
    """One JSON object a line, one line an epoch; no timings, so equal runs write equal bytes."""

    def __init__(self, path: Path, *, keep_epochs: int) -> None:
        """Open for more lines, cutting off those beyond `keep_epochs`: a killed run's last ones.

        The file is cut in place, never rewritten, so that a kill at this moment loses nothing.
        """
        self.path = path
        with naming(path):
            # Without a buffer there is nothing left over to fail a second time on a full disk.
            self.file = path.open("ab", buffering=0)
        try:
            with naming(path):
                content = path.read_bytes() if keep_epochs else b""
                self.file.truncate(_length_of(content, keep_epochs, path))
        except BaseException:
            self.file.close()
            raise

    def write(self, epoch: int, values: dict[str, float]) -> None:
        """Add one epoch and hand it to the system: a kill loses at most the line in flight."""
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = json.dumps({"epoch": epoch, **finite}).encode() + b"\n"
        with naming(self.path):
            while line:
                line = line[self.file.write(line) :]

    def sync(self) -> None:
        """Wait until the lines are on the disk."""
        with naming(self.path):
            os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _length_of(content: bytes, epochs: int, path: Path) -> int:
    """Bytes of the lines of the first epochs; a run that goes on from epoch 40 must find all 40."""
    lines = content.splitlines(keepends=True)[:epochs]
    for epoch in range(1, epochs + 1):
        if epoch > len(lines) or not _is_line_of(epoch, lines[epoch - 1]):
            raise RunError(
                f"{path} lacks the line of epoch {epoch}, but the checkpoint is of epoch {epochs}. "
                "Pass --overwrite to begin anew."
            )
    return sum(len(line) for line in lines)


def _is_line_of(epoch: int, line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and bool(json.loads(line)["epoch"] == epoch)
    except (ValueError, KeyError, TypeError):
        return False


def require_tensorboard() -> None:
    """Refuse while nothing has been touched yet, if the extra is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise FileError(
            "TensorBoard is not installed. Install it with: pip install 'aspect-gcl[tensorboard]'."
        ) from error


class TensorBoardLog:
    """The same numbers for TensorBoard; needs the extra `tensorboard`."""

    def __init__(self, folder: Path, *, keep_epochs: int) -> None:
        """Open for more points; TensorBoard forgets those beyond `keep_epochs`."""
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder
        with naming(folder):
            self.writer = SummaryWriter(str(folder), purge_step=keep_epochs + 1)

    def write(self, epoch: int, values: dict[str, float]) -> None:
        """Add one point to every curve."""
        with naming(self.folder):
            for name, value in values.items():
                self.writer.add_scalar(name, value, epoch)

    def sync(self) -> None:
        """Hand the points to the system; the lines of JSON are what is kept for good."""
        with naming(self.folder):
            self.writer.flush()

    def close(self) -> None:
        """Write out what is still in memory."""
        with naming(self.folder):
            self.writer.close()


EpochLog = JsonLinesLog | TensorBoardLog
