"""Tables of numbers, ready to be shown: as a page, Markdown, LaTeX or CSV; names are untrusted."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aspect.report.latex import escape_latex, latex_number

__all__ = ["Cell", "Direction", "Line", "Table", "counted", "csv_safe", "marked", "slug"]

Mark = Literal["", "best", "second"]

# Which end of a column is the good one; neither: nothing is marked.
Direction = Literal["highest", "lowest", "neither"]

NOTHING = "-"
DECIDED = "†"
SMALLEST_CHANCE = 0.001  # smaller ones are all alike
# A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")


@dataclass(frozen=True)
class Cell:
    """A number with what surrounds it: a spread, an interval, a chance; or a word instead."""

    value: float | None = None  # None: there is nothing to show
    std: float | None = None
    low: float | None = None  # ends of an interval
    high: float | None = None
    published: float | None = None  # another's figure of the same thing, to be held against ours
    digits: int = 2
    mark: Mark = ""
    p_value: float | None = None  # of the difference that the value is
    decided: bool = False  # luck is an unlikely explanation of the difference
    word: str = ""  # in place of a number; untrusted
    footnote: int = 0  # number of the table's note that belongs here; 0: none
    tip: str = ""  # what stands behind the number, for a page to show on demand; untrusted

    @property
    def text(self) -> str:
        """What a reader sees.

        >>> Cell(81.25, std=0.5).text, Cell(1.0, low=-0.5, high=2.5, digits=1).text, Cell().text
        ('81.25 ± 0.50', '1.0 (-0.5 to 2.5)', '-')
        >>> Cell(2.0, p_value=0.0004, decided=True, digits=1).text, Cell(footnote=1).text
        ('2.0, p < 0.001 †', '- [1]')
        >>> Cell(81.25, std=0.5, published=82.0).text
        '81.25 ± 0.50 (82.00)'
        """
        return f"{self.own_text} {self.remarks}".rstrip()

    @property
    def own_text(self) -> str:
        """The number or the word, without what is said about it."""
        return self.word or self._number

    @property
    def remarks(self) -> str:
        """What follows: the published figure in brackets, and the number of a note."""
        beside = "" if self.published is None else f"({self.published:.{self.digits}f})"
        footnote = f"[{self.footnote}]" if self.footnote else ""
        return f"{beside} {footnote}".strip()

    @property
    def _number(self) -> str:
        if self.value is None:
            return NOTHING
        text = f"{self.value:.{self.digits}f}"
        if self.std is not None:
            text += f" ± {self.std:.{self.digits}f}"
        if self.low is not None and self.high is not None:
            text += f" ({self.low:.{self.digits}f} to {self.high:.{self.digits}f})"
        if self.p_value is not None:
            text += f", p {_chance(self.p_value)}"
        return f"{text} {DECIDED}" if self.decided else text

    def to_latex(self) -> str:
        """The same with the best bold and the second best underlined, spreads left plain."""
        if self.word or self.value is None:
            return escape_latex(self.text if self.word else f"— {self.remarks}".rstrip())
        command = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}[self.mark]
        text = command % latex_number(self.value, self.digits)
        if self.std is not None:
            text += rf" $\pm$ {latex_number(self.std, self.digits)}"
        if self.low is not None and self.high is not None:
            ends = [latex_number(end, self.digits) for end in (self.low, self.high)]
            text += f" ({ends[0]} to {ends[1]})"
        if self.p_value is not None:
            text += f", $p {_chance(self.p_value)}$"
        remarks = f"{DECIDED if self.decided else ''} {self.remarks}".strip()
        return f"{text} {escape_latex(remarks)}".rstrip()


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
    notes: tuple[str, ...] = ()  # below the table; cells refer to those that begin with [1], ...

    def to_csv(self) -> str:
        """Plain numbers in full; spreads and intervals in columns of their own."""
        parts = [self._parts(index) for index in range(len(self.columns))]
        names = [
            csv_safe(f"{column} {PARTS[part]}".rstrip())
            for column, own in zip(self.columns, parts, strict=True)
            for part in own
        ]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([csv_safe(self.head), "note", *names])
        for line in self.lines:
            values = [
                csv_safe(cell.word) if part == "value" and cell.word else getattr(cell, part)
                for cell, own in zip(line.cells, parts, strict=True)
                for part in own
            ]
            writer.writerow([csv_safe(line.title), csv_safe(line.note), *values])
        return file.getvalue()

    def _parts(self, index: int) -> list[str]:
        """Which fields of a column's cells hold a number anywhere."""
        cells = [line.cells[index] for line in self.lines]
        return [
            part
            for part in PARTS
            if part == "value" or any(getattr(cell, part) is not None for cell in cells)
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

    def to_markdown_with_caption(self) -> str:
        """Caption, table and notes, as paragraphs."""
        notes = "".join(f"\n{_markdown_safe(note)}\n" for note in self.notes)
        return f"{_markdown_safe(self.caption)}\n\n{self.to_markdown()}{notes}"

    def to_latex(self) -> str:
        """A float in the style of booktabs; the best bold, the second best underlined."""
        head = " & ".join(escape_latex(name) for name in (self.head, *self.columns))
        together = [_latex_line(line) for line in self.lines if not line.apart]
        apart = [_latex_line(line) for line in self.lines if line.apart]
        rule = [r"\midrule"] if together and apart else []
        notes = [rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in self.notes]
        rows = [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{escape_latex(self.caption)}}}",
            rf"\label{{tab:{slug(self.name)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *together,
            *rule,
            *apart,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
        return "".join(f"{row}\n" for row in rows)


# Fields of a cell that CSV shows in columns of their own, and what is added to the column's name.
PARTS = {
    "value": "",
    "std": "std",
    "low": "low",
    "high": "high",
    "p_value": "p",
    "published": "published",
}


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 seed`, `1,000 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def slug(text: str) -> str:
    """Letters, digits and dashes of a text, for files, anchors and labels.

    >>> slug("random (sparse) 10%")
    'random-sparse-10'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "table"


def marked(lines: Sequence[Line], directions: Sequence[Direction] = ()) -> tuple[Line, ...]:
    """Mark the best and the second best number of every column; equals share a mark.

    Numbers are equal that look equal. Lines that stand apart are not compared. The highest is the
    best, unless the column's direction says otherwise.
    """
    compared = [line for line in lines if not line.apart]
    width = len(lines[0].cells) if lines else 0
    highest: Direction = "highest"
    ends = directions or [highest] * width
    ranks = [
        _two_best([line.cells[index] for line in compared], ends[index]) for index in range(width)
    ]
    return tuple(line if line.apart else _with_marks(line, ranks) for line in lines)


def _two_best(cells: Sequence[Cell], direction: Direction) -> list[float]:
    if direction == "neither":
        return []
    shown = {round(cell.value, cell.digits) for cell in cells if cell.value is not None}
    return sorted(shown, reverse=direction == "highest")[:2]


def _with_marks(line: Line, ranks: Sequence[Sequence[float]]) -> Line:
    return replace(line, cells=tuple(_marks(line.cells, ranks)))


def _marks(cells: Sequence[Cell], ranks: Sequence[Sequence[float]]) -> Iterator[Cell]:
    marks: tuple[Mark, Mark] = ("best", "second")
    for cell, best in zip(cells, ranks, strict=True):
        shown = None if cell.value is None else round(cell.value, cell.digits)
        found = [mark for mark, value in zip(marks, best, strict=False) if shown == value]
        yield replace(cell, mark=found[0] if found else "")


def _chance(p_value: float) -> str:
    return f"= {p_value:.3f}" if p_value >= SMALLEST_CHANCE else f"< {SMALLEST_CHANCE}"


def csv_safe(text: str) -> str:
    """The text, disarmed where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _markdown_safe(text: str) -> str:
    return MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _line_title(line: Line) -> str:
    note = f" ({_markdown_safe(line.note)})" if line.note else ""
    return f"{_markdown_safe(line.title)}{note}"


def _emphasised(cell: Cell) -> str:
    star = {"best": "**", "second": "*", "": ""}[cell.mark]
    own = f"{star}{_markdown_safe(cell.own_text)}{star}"
    return f"{own} {_markdown_safe(cell.remarks)}".rstrip()


def _latex_line(line: Line) -> str:
    note = f" ({escape_latex(line.note)})" if line.note else ""
    cells = [f"{escape_latex(line.title)}{note}", *(cell.to_latex() for cell in line.cells)]
    return f"{' & '.join(cells)} \\\\"
