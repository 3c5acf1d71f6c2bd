"""How far something is: a bar on terminals and in notebooks, a line now and then elsewhere.

Imports nothing heavy: the command line shows progress before torch is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

MINUTE, HOUR = 60, 3600

SECONDS_BETWEEN_LINES = 5.0  # where there is nothing to draw a bar on

Advance = Callable[[int, int, str], None]  # done, of how many, and a word on where it stands


def duration(seconds: float) -> str:
    """Time for a reader, in its largest unit.

    >>> duration(59), duration(150), duration(5400)
    ('59 s', '2 min', '1.5 h')
    """
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.1f} h"


def is_watched(console: Console) -> bool:
    """Whether someone looks on: at a terminal or a notebook."""
    return console.is_terminal or console.is_jupyter


def has_bar(console: Console) -> bool:
    """Whether a bar can be drawn: on a terminal, or in a notebook that has widgets."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def show_progress(what: str, console: Console, *, guesses_time: bool = True) -> Iterator[Advance]:
    """A bar with the time left where one can be drawn; elsewhere a line every few seconds.

    Args:
        what: What is counted.
        console: Where to draw; text from outside must be harmless to it.
        guesses_time: Guess the time left from how far it is; off where the caller knows better.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        *([TimeRemainingColumn()] if guesses_time else []),
        TextColumn("{task.fields[word]}", markup=False),
    )
    # The time left is guessed from the steps of the last hour: one step may take minutes.
    bar = Progress(*columns, console=console, transient=True, speed_estimate_period=HOUR)
    task = bar.add_task(what, total=None, word="")
    last = console.get_time()

    def advance(done: int, total: int, word: str) -> None:
        nonlocal last
        bar.update(task, completed=done, total=total, word=word)
        if not drawn and console.get_time() - last >= SECONDS_BETWEEN_LINES:
            last = console.get_time()
            left = bar.tasks[0].time_remaining if guesses_time else None
            told = f", about {duration(left)} left" if left else ""
            console.print(Text(f"{what}: {done} of {total}{told}  {word}".rstrip()))

    drawn = has_bar(console)
    if not drawn:
        yield advance
        return
    with bar:
        yield advance
