"""Files that are made of something else: which of them differ from it, and making them anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aspect.data.files import replacing
from aspect.errors import FileError, reason

__all__ = ["differing", "read_text", "write_differing"]

Expected = Mapping[Path, str | None]  # what a file should hold; None: it should not be there


def differing(expected: Expected) -> list[Path]:
    """The files that do not hold what they should."""
    return [path for path, text in expected.items() if _read_if_there(path) != text]


def write_differing(expected: Expected) -> list[Path]:
    """Make every file what it should be; those that changed."""
    changed = differing(expected)
    for path in changed:
        text = expected[path]
        try:
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"Cannot write {path}: {reason(error)}.") from error
        with replacing(path, overwrite=True) as file:
            file.write(text.encode())
    return changed


def read_text(path: Path) -> str:
    """All of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"Cannot read {path}: {reason(error)}.") from error


def _read_if_there(path: Path) -> str | None:
    return read_text(path) if path.is_file() else None
