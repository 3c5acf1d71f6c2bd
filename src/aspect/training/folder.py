"""A run's folder: one process at a time, resumable any moment; `aspect.training.files` lists it."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from aspect import __version__
from aspect.config import Config
from aspect.data.files import is_file, naming
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import CheckpointError, RunError, SettingsError
from aspect.training.files import (
    BASES,
    CHECKPOINT,
    CHECKPOINTS,
    CONFIG,
    METRICS,
    OUTPUTS,
    PROGRESS,
    RECORD,
    SIGNS_OF_A_RUN,
    START,
    TENSORBOARD,
)
from aspect.training.log import EpochLog, JsonLinesLog, TensorBoardLog, require_tensorboard
from aspect.training.trainer import EpochReport, Recorder, Snapshot
from aspect.workspace import MANIFEST, FolderKind, Workspace, json_text, read_json

logger = logging.getLogger(__name__)

MOST_LINES = 4  # of a config, in a sentence
RUN = FolderKind(
    foreign="not a run's folder",
    owns=lambda names: CONFIG in names and (names == {CONFIG} or bool(names & SIGNS_OF_A_RUN)),
)


class Start(Config):
    """How a run was begun, or last gone on with: no part of what is learned, so not in its config.

    With it `--resume` needs no other word, and ends with the record of a run never stopped.
    """

    settings_from: str = ""
    """A word on where the settings come from."""
    data_dir: str | None = None
    """Where files of named data sets lie; an absolute path."""
    device: str | None = None
    """Kind of the device, `cpu` or `cuda`: another one rounds otherwise."""
    source: str | None = None
    """SHA-256 of the source of a method from outside, which must not change on the way."""


def read_start(path: Path) -> Start | None:
    """How the run in a folder was begun; None if the folder does not tell."""
    file = path / START
    if not is_file(file):
        return None
    return read_json(
        file, Start, fix="Remove it, and give --data-dir and --device as at the beginning."
    )


@dataclass(eq=False)
class RunFolder(Recorder):
    """The trainer's recorder on disk; open it with `RunFolder.open`."""

    path: Path
    config: str  # the text that says what is run
    start: Start | None = None
    checkpoint_every: int = 20  # epochs
    tensorboard: bool = False
    on_epoch: Callable[[EpochReport], object] = str  # called after every epoch

    def __post_init__(self) -> None:
        self.workspace = Workspace(self.path, RUN)
        self.logs: list[EpochLog] = []
        self._is_training = False
        self._stop_wanted = False

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        config: str,
        *,
        start: Start | None = None,
        resume: bool = False,
        overwrite: bool = False,
        checkpoint_every: int = 20,
        tensorboard: bool = False,
    ) -> Iterator[RunFolder]:
        """Take the folder for this process; `config` is the text that says what is run.

        `start` is kept beside it and does not decide whether a resumed run is the same.
        A folder that holds a run is refused unless it is resumed (same config) or overwritten; one
        that holds something else is refused and left untouched.
        """
        if checkpoint_every < 1:
            raise SettingsError(f"checkpoint_every must be at least 1. Got {checkpoint_every}.")
        if tensorboard:
            require_tensorboard()
        folder = cls(path, config, start, checkpoint_every, tensorboard)
        with ExitStack() as cleanup:
            folder.workspace = cleanup.enter_context(Workspace.open(path, RUN))
            with naming(path):
                folder._claim(resume=resume, overwrite=overwrite)
            cleanup.callback(folder._close_logs)
            cleanup.enter_context(folder._graceful_signals())
            yield folder

    def _claim(self, *, resume: bool, overwrite: bool) -> None:
        """Make the folder this run's; a kill at any moment leaves one that can be claimed again."""
        is_run = self.workspace.has(CONFIG)
        if is_run and not (resume or overwrite):
            raise RunError(
                f"{self.path} holds a run. "
                "Pass --resume to go on with it or --overwrite to replace it."
            )
        if not (is_run and resume):
            self._begin_anew()
            return
        before = (self.path / CONFIG).read_bytes()
        if before != self.config.encode():
            raise RunError(
                f"{self.path} holds a run with other settings"
                f"{_difference(before.decode(errors='replace'), self.config)}. "
                f"Resume with its own ({self.path / CONFIG}), or pass --overwrite."
            )
        if self.is_complete:
            self._remove_scratch()
        elif self.start != read_start(self.path):
            self._write_start()

    def _begin_anew(self) -> None:
        """Remove what a run writes, and nothing else: the record first, for it says "complete".

        Log and config stay until they are replaced, so that the folder is a run's at any moment.
        """
        self.workspace.remove(RECORD, MANIFEST, *OUTPUTS, START)
        self._remove_scratch()
        self._remove_folder(TENSORBOARD)
        self.workspace.write(CONFIG, self.config)
        self._write_start()
        (self.path / METRICS).write_bytes(b"")

    def _remove_scratch(self) -> None:
        """What a complete run has no need of."""
        self.workspace.remove(CHECKPOINT, PROGRESS)
        for name in (BASES, CHECKPOINTS):
            # A file system of the network keeps what is still open.
            self._remove_folder(name, ignore_errors=True)

    def _remove_folder(self, name: str, *, ignore_errors: bool = False) -> None:
        folder = self.path / name
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            shutil.rmtree(folder, ignore_errors)

    def _write_start(self) -> None:
        if self.start is not None:
            self.workspace.write(START, json_text(self.start.model_dump()))

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end."""
        return self.workspace.has(RECORD)

    def latest(self) -> Snapshot | None:
        """The checkpoint to go on from, if there is one; logs are cut back to it."""
        if self.is_complete:
            raise RunError(f"The run in {self.path} is complete. Pass --overwrite to replace it.")
        snapshot = self._read_checkpoint() if self.workspace.has(CHECKPOINT) else None
        epochs = snapshot.state["epoch"] if snapshot else 0
        self._close_logs()
        self.logs.append(JsonLinesLog(self.path / METRICS, keep_epochs=epochs))
        if self.tensorboard:
            self.logs.append(TensorBoardLog(self.path / TENSORBOARD, keep_epochs=epochs))
        self._is_training = True
        return snapshot

    def _read_checkpoint(self) -> Snapshot:
        path = self.path / CHECKPOINT
        try:
            tensors, manifest = read_tensors(path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} Pass --overwrite to begin anew.") from error
        if manifest.get("config") != self.config:
            raise CheckpointError(f"{path} belongs to a run with other settings.")
        if str(manifest.get("version")).split(".")[0] != __version__.split(".")[0]:
            raise CheckpointError(
                f"{path} was written by aspect {manifest.get('version')}, which may train "
                f"otherwise than {__version__}. Pass --overwrite to begin anew."
            )
        return Snapshot(tensors, manifest["state"])

    def next_look(self, epoch: int) -> int:
        """The next checkpoint."""
        return epoch + self.checkpoint_every - epoch % self.checkpoint_every

    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        """Log the epoch, checkpoint if it is time or if we are asked to stop."""
        for log in self.logs:
            log.write(report.epoch, report.values)
        self.on_epoch(report)
        stop = self._stop_wanted and report.is_latest
        if stop or report.epoch % self.checkpoint_every == 0:
            self._write_checkpoint(snapshot())
        if stop:
            logger.warning("Stopped after epoch %d; the run can be resumed.", report.epoch)
            raise KeyboardInterrupt

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        # The log first: after a power cut a checkpoint must never be ahead of it.
        for log in self.logs:
            log.sync()
        manifest = {
            "kind": "checkpoint",
            "version": __version__,
            "config": self.config,
            "state": snapshot.state,
        }
        write_tensors(self.path / CHECKPOINT, snapshot.tensors, manifest)

    def training_done(self) -> None:
        """From here on nothing asks whether to stop, so Ctrl-C stops at once."""
        self._is_training = False
        for log in self.logs:
            log.sync()
        if self._stop_wanted:
            raise KeyboardInterrupt

    def complete(self, record: Mapping[str, Any]) -> None:
        """Write the manifest, and the record, which marks the run complete."""
        text = json_text(record)
        self.workspace.seal((CONFIG, START, METRICS, *OUTPUTS), coming={RECORD: text})
        self.workspace.write(RECORD, text)
        self._remove_scratch()

    def _close_logs(self) -> None:
        while self.logs:
            self.logs.pop().close()

    @contextmanager
    def _graceful_signals(self) -> Iterator[None]:
        """Let the first Ctrl-C (or SIGTERM) end the epoch and write a checkpoint.

        The second one stops at once, as does the first outside of training. A signal that is
        ignored, as Ctrl-C is for a process in the background, stays so.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's interface
            if self._stop_wanted or not self._is_training:
                raise KeyboardInterrupt
            self._stop_wanted = True  # said at the epoch's end: a handler must not write

        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        heeded = {
            number: handler for number, handler in before.items() if handler != signal.SIG_IGN
        }
        try:
            for number in heeded:
                signal.signal(number, note)
            yield
        finally:
            for number, handler in heeded.items():
                signal.signal(number, handler or signal.SIG_DFL)


def _difference(before: str, now: str) -> str:
    """Lines of two configs that are not in the other, as part of a sentence; empty if none is."""
    texts = before.splitlines(), now.splitlines()
    had, given = (
        ", ".join([line.strip() for line in one if line not in other][:MOST_LINES]) or "nothing"
        for one, other in (texts, texts[::-1])
    )
    return "" if had == given else f": it has {had}, and was given {given}"
