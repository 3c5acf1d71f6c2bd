"""The few exceptions that users may catch; each carries one sentence fit for the command line."""

from __future__ import annotations

import difflib
import errno
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

MOST_SHOWN = 5

Offender = TypeVar("Offender")

REASONS = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than allowed here",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "the path is too long",
}


class AspectError(Exception):
    """Base of all errors that the user can fix; the command line prints it and exits with 2."""


class GraphError(AspectError, ValueError):
    """The graph given cannot be used: its edges, features, ids or labels are wrong."""


class GraphWarning(UserWarning):
    """What was cleaned, dropped or made up so that a graph can be used."""


class DataError(AspectError):
    """A data set cannot be found, or is not what its name says."""


class FileError(AspectError):
    """A file or folder cannot be read or written."""


class SettingsError(AspectError, ValueError):
    """A setting has an unknown name or an impossible value."""


class CheckpointError(AspectError):
    """A saved model is damaged, or belongs to something else."""


class RunError(AspectError):
    """A run's folder cannot be used: taken, missing or of another run."""


class TrainingError(AspectError):
    """Training cannot go on, for example because the loss is no longer a number."""


class UnknownNameError(AspectError, KeyError):
    """A name that is not registered; the nearest known one is offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        offer = f" Did you mean {near[0]!r}?" if near else ""
        self.sentence = f"Unknown {kind} {name!r}.{offer} Known: {', '.join(names)}."
        super().__init__(kind, name, names)  # as given, so that the error can be pickled

    def __str__(self) -> str:  # KeyError would show the sentence in quotes
        return self.sentence


def reason(error: Exception) -> str:
    """Why the system refused, in words: `the disk is full`."""
    number = error.errno if isinstance(error, OSError) else None
    if number in REASONS:
        return REASONS[number]
    if "requested and" in str(error):  # numpy counts what it could not write, and gives no number
        return "the disk is full or the file larger than allowed here"
    return f"the system says {str(error) or type(error).__name__!r}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the main memory or a GPU's was full."""
    torch = sys.modules.get("torch")  # if it is not there, it has not raised
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    # On the CPU torch has no type of its own for it.
    return isinstance(error, kinds) or "allocate memory" in str(error)


def sentence_of(error: BaseException) -> str:
    """What went wrong, in a line for a record; our own errors say it themselves."""
    if isinstance(error, AspectError):
        return str(error)
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}".rstrip(":. ") + "."


def harmless(text: object) -> str:
    r"""Text that cannot move a terminal's cursor, change colours or break the line.

    >>> harmless("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in str(text)
    )


def shown(items: Iterable[Offender], word: Callable[[Offender], str] = str) -> str:
    """The first few of many offenders, each in a word, with their count: `3, 5, 8 (3 in all)`.

    >>> shown(range(9))
    '0, 1, 2, 3, 4, ... (9 in all)'
    """
    every = list(items)
    dots = ", ..." if len(every) > MOST_SHOWN else ""
    return f"{', '.join(map(word, every[:MOST_SHOWN]))}{dots} ({len(every)} in all)"


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 seed`, `1,000 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def warn(sentence: str, category: type[Warning]) -> None:
    """A warning at the user's line: the first outside of this package and torch's decorators."""
    level, frame, inside = 2, sys._getframe(1), ("aspect", "torch")
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, category, stacklevel=level)
