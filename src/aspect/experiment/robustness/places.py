"""Where perturbation files lie: a file, a folder of them, or a pattern.

Nothing heavy is imported, so that the command line can answer a wrong place at once.
"""

from __future__ import annotations

from pathlib import Path

from aspect.attacks.names import SUFFIX
from aspect.data.files import is_file, is_folder
from aspect.errors import FileError

__all__ = ["files_at"]


def files_at(place: Path) -> list[Path]:
    """The files that a place stands for, sorted; a pattern may stand in the last part of it."""
    if is_file(place):
        return [place]
    if is_folder(place):
        found = sorted(path for path in place.glob(f"*{SUFFIX}") if is_file(path))
        if not found:
            raise FileError(f"The folder {str(place)!r} holds no perturbation files (*{SUFFIX}).")
        return found
    if not is_folder(place.parent) or not set("*?[") & set(place.name):
        raise FileError(f"There is no perturbation file or folder at {str(place)!r}.")
    found = sorted(path for path in place.parent.glob(place.name) if is_file(path))
    if not found:
        raise FileError(f"No file fits the pattern {str(place)!r}.")
    return found
