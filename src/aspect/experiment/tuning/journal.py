"""The study on disk: a journal that several processes append to, and that a kill leaves whole."""

from __future__ import annotations

from pathlib import Path

import filelock
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from typing_extensions import override

from aspect.errors import RunError

__all__ = ["JOURNAL_LOCK", "create_study", "mend", "open_study"]

NAME = "search"  # of the one study in a journal
JOURNAL_LOCK = ".journal.lock"

# Trials that must come to their end before others are held against them.
TRIALS_BEFORE_PRUNING = 5


class _FileLock(JournalFileOpenLock):
    """A lock that the system lets go of when its holder is killed; Optuna's own would stay."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.lock = filelock.FileLock(path.parent / JOURNAL_LOCK)

    @override
    def acquire(self) -> bool:
        self.lock.acquire()
        return True

    @override
    def release(self) -> None:
        self.lock.release()


def _storage(path: Path) -> JournalStorage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what matters is said in our own words
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=_FileLock(path)))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise RunError(
            f"{path} is damaged ({type(error).__name__}). Pass --overwrite to search anew."
        ) from error


def _pruner() -> optuna.pruners.BasePruner:
    """Give up what is below the median of the trials that came to their end, at the same epoch."""
    return optuna.pruners.MedianPruner(n_startup_trials=TRIALS_BEFORE_PRUNING)


def create_study(path: str | Path) -> optuna.Study:
    """The study of a journal, begun if there is none."""
    return optuna.create_study(
        storage=_storage(Path(path)),
        study_name=NAME,
        direction="maximize",
        pruner=_pruner(),
        load_if_exists=True,
    )


def open_study(path: str | Path) -> optuna.Study:
    """The study of a journal, for a worker."""
    return optuna.load_study(study_name=NAME, storage=_storage(Path(path)), pruner=_pruner())


def mend(path: Path) -> None:
    """Cut off a last line that a power cut or a full disk left unfinished."""
    if not path.is_file():
        return
    with _FileLock(path).lock, path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
