"""Tables of numbers, ready to be shown: as a page, Markdown or CSV. Names in them are untrusted."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Cell", "Line", "Table", "counted", "marked"]

Mark = Literal["", "best", "second"]

NOTHING = "-"
# A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")


@dataclass(frozen=True)
class Cell:
    """A number with what surrounds it: a spread, or an interval."""

    value: float | None = None  # None: there is nothing to show
    std: float | None = None
    low: float | None = None  # ends of an interval
    high: float | None = None
    digits: int = 2
    mark: Mark = ""

    @property
    def text(self) -> str:
        """What a reader sees.

        >>> Cell(81.25, std=0.5).text, Cell(1.0, low=-0.5, high=2.5, digits=1).text, Cell().text
        ('81.25 ± 0.50', '1.0 (-0.5 to 2.5)', '-')
        """
        if self.value is None:
            return NOTHING
        text = f"{self.value:.{self.digits}f}"
        if self.std is not None:
            text += f" ± {self.std:.{self.digits}f}"
        if self.low is not None and self.high is not None:
            text += f" ({self.low:.{self.digits}f} to {self.high:.{self.digits}f})"
        return text


@dataclass(frozen=True)
class Line:
    """One row: a name, a word on it, and its numbers."""

    title: str
    note: str
    cells: tuple[Cell, ...]
    apart: bool = False  # stands below the others and takes no part in the comparison


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    name: str  # for files and anchors: letters and dashes
    caption: str
    columns: tuple[str, ...]  # of the numbers; before them stands the row's title
    lines: tuple[Line, ...]
    head: str = "method"  # above the titles

    def to_csv(self) -> str:
        """Plain numbers in full; spreads and intervals in columns of their own."""
        parts = [self._parts(index) for index in range(len(self.columns))]
        names = [
            _csv_safe(f"{column} {part}" if part != "value" else column)
            for column, own in zip(self.columns, parts, strict=True)
            for part in own
        ]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([_csv_safe(self.head), "note", *names])
        for line in self.lines:
            numbers = [
                getattr(cell, part)
                for cell, own in zip(line.cells, parts, strict=True)
                for part in own
            ]
            writer.writerow([_csv_safe(line.title), _csv_safe(line.note), *numbers])
        return file.getvalue()

    def _parts(self, index: int) -> list[str]:
        """Which fields of a column's cells hold a number anywhere."""
        cells = [line.cells[index] for line in self.lines]
        optional = ("std", "low", "high")
        return [
            "value",
            *(part for part in optional if any(getattr(cell, part) is not None for cell in cells)),
        ]

    def to_markdown(self) -> str:
        """The table as a reader sees it; the best bold, the second best in italics."""
        head = [self.head, *self.columns]
        rows = [
            [_line_title(line), *(_emphasised(cell) for cell in line.cells)] for line in self.lines
        ]
        rule = [":--", *("--:" for _ in self.columns)]
        texts = [[_markdown_safe(name) for name in head], rule, *rows]
        return "".join(f"| {' | '.join(row)} |\n" for row in texts)


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 seed`, `1,000 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def marked(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Mark the highest and the second highest number of every column; equals share a mark.

    Numbers are equal that look equal. Lines that stand apart are not compared.
    """
    compared = [line for line in lines if not line.apart]
    width = len(lines[0].cells) if lines else 0
    ranks = [_two_highest([line.cells[index] for line in compared]) for index in range(width)]
    return tuple(line if line.apart else _with_marks(line, ranks) for line in lines)


def _two_highest(cells: Sequence[Cell]) -> list[float]:
    shown = {round(cell.value, cell.digits) for cell in cells if cell.value is not None}
    return sorted(shown, reverse=True)[:2]


def _with_marks(line: Line, ranks: Sequence[Sequence[float]]) -> Line:
    return replace(line, cells=tuple(_marks(line.cells, ranks)))


def _marks(cells: Sequence[Cell], ranks: Sequence[Sequence[float]]) -> Iterator[Cell]:
    marks: tuple[Mark, Mark] = ("best", "second")
    for cell, highest in zip(cells, ranks, strict=True):
        shown = None if cell.value is None else round(cell.value, cell.digits)
        found = [mark for mark, value in zip(marks, highest, strict=False) if shown == value]
        yield replace(cell, mark=found[0] if found else "")


def _csv_safe(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def _markdown_safe(text: str) -> str:
    return MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _line_title(line: Line) -> str:
    note = f" ({_markdown_safe(line.note)})" if line.note else ""
    return f"{_markdown_safe(line.title)}{note}"


def _emphasised(cell: Cell) -> str:
    star = {"best": "**", "second": "*", "": ""}[cell.mark]
    return f"{star}{cell.text}{star}"
