"""What the terminal shows: lines, tables, scores, progress and JSON.

All text from outside is made harmless first. Standard output carries the answer,
standard error everything else.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from aspect.cli.answers import schema_of
from aspect.errors import harmless
from aspect.training.progress import Advance, show_progress

WIDTH_OF_FILES = 160  # letters in a line of a table that no terminal limits


class Screen:
    """Where a command writes; with `as_json` the answer is one JSON object instead of tables.

    The object says by which schema it is written; `aspect.cli.answers` has them all.
    """

    def __init__(self, command: str = "", *, as_json: bool = False) -> None:
        self.command = command
        self.as_json = as_json
        self.is_answering = self.is_answered = False
        self.out = Console(highlight=False, soft_wrap=True)
        if not self.out.is_terminal:
            self.out.width = WIDTH_OF_FILES
        self.side = Console(stderr=True, highlight=False, soft_wrap=True)

    def answer(
        self, content: Mapping[str, Any], show: Callable[[], None], out: Path | None = None
    ) -> None:
        """The command's result: as JSON if asked for, else as `show` prints it; and into a file.

        It is said before it is written: a disk that is full by now does not cost the numbers.
        """
        content = {"schema": schema_of(self.command), **content}
        self.is_answering = True
        if self.as_json:
            _write_json(content)
        else:
            show()
        self.is_answering, self.is_answered = False, True
        if out is not None:
            from aspect.workspace import write_json

            write_json(out, content)

    def fail(self, sentence: str, kind: str, code: int) -> int:
        """Say what went wrong in a line beside the answer; as JSON, it is the answer as well."""
        sys.stderr.write(f"{harmless(sentence)}\n")
        if self.as_json and not self.is_answered:
            error = {"kind": kind, "message": sentence.removeprefix("Error: ")}
            content = {"command": self.command or None, "error": error, "exit_code": code}
            _write_json({"schema": schema_of("error"), **content})
        return code

    def say(self, *lines: str) -> None:
        """Lines of the answer."""
        for line in lines:
            self.out.print(Text(harmless(line)))

    def note(self, line: str) -> None:
        """A line beside the answer."""
        self.side.print(Text(harmless(line)))

    def warn(self, *lines: str) -> None:
        """Lines beside the answer that should not be overlooked."""
        for line in lines:
            text = Text("Warning: ", style="yellow")
            self.side.print(text.append(harmless(line), style="default"))

    def notices(self, sentences: Iterable[str]) -> None:
        """What to know of a graph; cautions as warnings."""
        from aspect.data.encoder import Caution

        for sentence in sentences:
            if isinstance(sentence, Caution):
                self.warn(sentence)
            else:
                self.note(f"Note: {sentence}")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = ""
    ) -> None:
        """A table of the answer; columns of numbers are set to the right."""
        drawn = Table(title=Text(harmless(title)) if title else None, title_justify="left")
        for index, column in enumerate(columns):
            numeric = index > 0 and all(_looks_numeric(row[index]) for row in rows)
            drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(harmless(cell)) for cell in row))
        whole = self.out.options.update(max_width=sys.maxsize)
        drawn.pad_edge = self.out.measure(drawn, options=whole).maximum <= self.out.width
        self.out.print(drawn, soft_wrap=False)

    @contextmanager
    def activity(self, what: str) -> Iterator[None]:
        """Show that something goes on whose end cannot be foreseen."""
        if self.side.is_terminal:
            with self.side.status(Text(f"{harmless(what)} ...")):
                yield
        else:
            self.note(f"{what} ...")
            yield

    @contextmanager
    def progress(self, what: str, *, guesses_time: bool = True) -> Iterator[Advance]:
        """A bar on a terminal; elsewhere a line now and then; both with the time left.

        The bar guesses the time left from how far it is, unless the caller knows better.
        """
        with show_progress(harmless(what), self.side, guesses_time=guesses_time) as advance:
            yield lambda done, total, word: advance(done, total, harmless(word))

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Show the library's warnings here for a while."""
        handler = _Warnings(self)
        logger = logging.getLogger("aspect")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


def _write_json(content: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
    sys.stdout.flush()


class _Warnings(logging.Handler):
    """Warnings of the library, on a screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self.screen = screen

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.screen.warn(record.getMessage())


def _looks_numeric(cell: object) -> bool:
    text = str(cell)
    return text in ("", "-") or text.lstrip("+-")[:1].isdigit()


def score_text(values: Mapping[str, Any] | None) -> str:
    """Mean and standard deviation; a dash where there is nothing."""
    if values is None:
        return "-"
    spread = "" if values["std"] is None else f" ± {values['std']:.2f}"
    return f"{values['mean']:.2f}{spread}"


def interval_text(values: Mapping[str, Any]) -> str:
    """The ends of the 95% interval; a dash for a single value."""
    return "-" if values["low"] is None else f"{values['low']:.2f} to {values['high']:.2f}"


def number_text(value: float | None, decimals: int = 2) -> str:
    """A number with two decimals; a dash where there is none."""
    return "-" if value is None else f"{round(value, decimals) + 0.0:.{decimals}f}"  # never -0.00


def health_text(health: Mapping[str, Any]) -> str:
    """Signs of collapse in a sentence."""
    return (
        f"Embedding health: mean cosine {health['mean_cosine']:.2f}, effective rank "
        f"{health['effective_rank']:.1f} of {min(health['dim'], health['nodes'])}."
    )


def explain(screen: Screen, rows: Sequence[Mapping[str, Any]]) -> None:
    """Say in a line each what the controls of a table are; the first row is the method."""
    from aspect.experiment.evaluate import EXPLANATIONS

    for name in dict.fromkeys(row["name"] for row in rows):
        if name in EXPLANATIONS and name != rows[0]["name"]:
            screen.say(f"{name}: {EXPLANATIONS[name]}.")
