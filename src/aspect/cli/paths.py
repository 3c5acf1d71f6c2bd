"""What lies where: which folders are runs, and where an answer may be written.

Wrong places are answered here, before anything heavy is imported and before all the work.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from aspect.data.files import is_file, is_folder, is_present, reason, target_of
from aspect.errors import FileError

__all__ = ["CONFIG", "check_target", "is_run"]

# Of a run's folder; `aspect.training.folder`, which writes them, is too heavy for a wrong name.
CONFIG = "config.yaml"
SIGNS_OF_A_RUN = ("start.json", "metrics.jsonl", "checkpoint.safetensors", "record.json")


def is_run(folder: Path) -> bool:
    """Whether a run lives there, complete or not."""
    return is_file(folder / CONFIG) and any(is_present(folder / name) for name in SIGNS_OF_A_RUN)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that could not be written later, or that would spoil a run."""
    target = target_of(path, overwrite)
    folder = target.parent
    if is_folder(target):
        raise FileError(f"Cannot write {str(path)!r}: it is a folder.")
    try:
        if not is_folder(folder):
            folder.stat()
            raise NotADirectoryError(errno.ENOTDIR, str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, str(folder))
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot write {str(path)!r}: {reason(error)}.") from error
    if is_run(folder):
        raise FileError(f"{path} would lie in a run's folder, {folder}. Choose another --out.")
