"""Tables of numbers for readers: as HTML, Markdown, LaTeX or CSV. Names are untrusted."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote

import pandas as pd

Mark = Literal["", "best", "second"]

SIGNIFICANT = "†"
SMALLEST_P = 0.001  # smaller ones are printed alike
# Of a cell, and what follows the column's name in a CSV.
CSV_PARTS = {
    "std": "std",
    "low": "low",
    "high": "high",
    "p_value": "p",
    "published": "published",
}
LONGEST_NOTE = 240  # letters; errors can be long
# A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")
# Brackets and stars in braces: behind `\\` they would be options of it.
LATEX_SPECIAL = str.maketrans(
    {
        **{letter: rf"\{letter}" for letter in "{}$&#%_"},
        **{letter: f"{{{letter}}}" for letter in "[]*"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "`": r"\textasciigrave{}",
        '"': r"{\char34}",
        "±": r"$\pm$",
        "×": r"$\times$",  # noqa: RUF001 - not the letter
        "·": r"$\cdot$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "−": "$-$",  # noqa: RUF001 - the minus sign of Unicode
        "–": "--",  # noqa: RUF001 - the dash of ranges
        "—": "---",
        "…": r"\ldots{}",
        "†": r"$^\dagger$",
        "→": r"$\to$",
        "∞": r"$\infty$",
    }
)
GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (\w+)")
SAME_AS_LATIN = set("ΑΒΕΖΗΙΚΜΝΟΡΤΧο")  # noqa: RUF001 - Greek letters without a command
VARIANTS = {"EPSILON": "VAREPSILON", "PHI": "VARPHI"}


@dataclass(frozen=True)
class TableCell:
    """A number with its std, interval and p-value; or a word instead."""

    value: float | None = None  # None: there is nothing to show
    std: float | None = None
    low: float | None = None  # ends of an interval
    high: float | None = None
    published: float | None = None  # the paper's figure of the same thing
    digits: int = 2
    mark: Mark = ""
    p_value: float | None = None  # of the difference that the value is
    significant: bool = False
    word: str = ""  # in place of a number; untrusted
    footnote: int = 0  # number of the table's note that belongs here; 0: none
    tip: str = ""  # how the number came about, for a page to show on demand; untrusted

    @property
    def text(self) -> str:
        """What a reader sees.

        >>> TableCell(1.0, low=-0.5, high=2.5, digits=1).text, TableCell().text
        ('1.0 (-0.5 to 2.5)', '-')
        >>> TableCell(2.0, p_value=0.0004, significant=True, digits=1).text
        '2.0, p < 0.001 †'
        >>> TableCell(81.25, std=0.5, published=82.0).text
        '81.25 ± 0.50 (82.00)'
        """
        return f"{self.own_text} {self.remarks}".rstrip()

    @property
    def own_text(self) -> str:
        """The number or the word, without the remarks."""
        if self.word or self.value is None:
            return self.word or "-"
        p_value = "" if self.p_value is None else f", p {p_text(self.p_value)}"
        text = f"{self.value:.{self.digits}f}{self._beside}{p_value}"
        return f"{text} {SIGNIFICANT}" if self.significant else text

    @property
    def remarks(self) -> str:
        """The published figure in brackets, and the number of a note."""
        published = "" if self.published is None else f"({self.published:.{self.digits}f})"
        footnote = f"[{self.footnote}]" if self.footnote else ""
        return f"{published} {footnote}".strip()

    @property
    def _beside(self) -> str:
        """Std and interval."""
        text = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        if self.low is not None and self.high is not None:
            text += f" ({self.low:.{self.digits}f} to {self.high:.{self.digits}f})"
        return text

    def to_markdown(self) -> str:
        """The best bold, the second best in italics."""
        star = {"best": "**", "second": "*", "": ""}[self.mark]
        text = f"{star}{_escape_markdown(self.own_text)}{star}"
        return f"{text} {_escape_markdown(self.remarks)}".rstrip()

    def to_latex(self) -> str:
        """The best bold, the second best underlined; std and interval stay plain."""
        if self.word or self.value is None:
            return escape_latex(self.text if self.word else f"— {self.remarks}")
        command = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}[self.mark]
        text = command % f"{self.value:.{self.digits}f}" + self._beside
        text = text.replace("-", "$-$").replace("±", r"$\pm$")
        p_value = "" if self.p_value is None else f", $p {p_text(self.p_value)}$"
        remarks = escape_latex(f"{SIGNIFICANT if self.significant else ''} {self.remarks}")
        return f"{text}{p_value} {remarks}".rstrip()


@dataclass(frozen=True)
class Line:
    """One row: a name, a note on it, and its numbers."""

    title: str
    note: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    name: str  # for files and anchors: letters and dashes
    caption: str
    columns: tuple[str, ...]  # of the numbers; before them stands the row's title
    lines: tuple[Line, ...]
    head: str = "method"  # above the titles
    notes: tuple[str, ...] = ()  # below the table; cells refer to those that begin with [1], ...

    @property
    def headline(self) -> tuple[str, str]:
        """The caption's first words, up to a pause, and the rest of it."""
        pause = re.search(r"[;:.](?=\s)| \(", self.caption)
        cut = pause.start() if pause else len(self.caption)
        return self.caption[:cut], self.caption[cut:]

    def files(self) -> dict[str, str]:
        """The table as text, by the name of a file."""
        return {
            f"{self.name}.csv": self.to_csv(),
            f"{self.name}.md": self.to_markdown_with_caption(),
            f"{self.name}.tex": self.to_latex(),
        }

    @property
    def downloads(self) -> list[tuple[str, str]]:
        """Names and data URLs of the files, which work from a disk, without a server or script."""
        return [
            (name, f"data:text/plain;charset=utf-8,{quote(text, errors='replace')}")
            for name, text in self.files().items()
        ]

    def to_csv(self) -> str:
        """Plain numbers in full; std, interval, p and published figures in columns of their own."""
        columns: list[tuple[str, list[object]]] = [
            (self.head, [csv_safe(line.title) for line in self.lines]),
            ("note", [csv_safe(line.note) for line in self.lines]),
        ]
        for index, column in enumerate(self.columns):
            cells = [line.cells[index] for line in self.lines]
            columns.append(
                (column, [csv_safe(cell.word) if cell.word else cell.value for cell in cells])
            )
            for field, name in CSV_PARTS.items():
                parts = [getattr(cell, field) for cell in cells]
                if any(part is not None for part in parts):
                    columns.append((f"{column} {name}", parts))
        frame = pd.DataFrame(dict(enumerate(values for _, values in columns)), dtype=object)
        head = [csv_safe(name) for name, _ in columns]
        return frame.to_csv(index=False, header=head, lineterminator="\n")

    def to_markdown(self) -> str:
        """As GitHub writes it."""
        head = [_escape_markdown(name) for name in (self.head, *self.columns)]
        rule = [":--", *("--:" for _ in self.columns)]
        rows = [
            [_title(line, _escape_markdown), *(cell.to_markdown() for cell in line.cells)]
            for line in self.lines
        ]
        return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))

    def to_markdown_with_caption(self) -> str:
        """Caption, table and notes, as paragraphs."""
        notes = "".join(f"\n{_escape_markdown(note)}\n" for note in self.notes)
        return f"{_escape_markdown(self.caption)}\n\n{self.to_markdown()}{notes}"

    def to_latex(self) -> str:
        """A float in the style of booktabs."""
        frame = pd.DataFrame(
            [
                [_title(line, escape_latex), *(cell.to_latex() for cell in line.cells)]
                for line in self.lines
            ],
        )
        frame.columns = pd.Index([escape_latex(name) for name in (self.head, *self.columns)])
        text: str = frame.style.hide(axis="index").to_latex(
            position="htbp",
            position_float="centering",
            caption=escape_latex(self.caption),
            label=f"tab:{slug(self.name)}",
            column_format=f"l{'r' * len(self.columns)}",
            hrules=True,
        )
        notes = [rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in self.notes]
        return text.replace("\\end{table}", "\n".join([*notes, "\\end{table}"]))


def p_text(p_value: float) -> str:
    """With its sign: `= 0.012`, or `< 0.001`."""
    return f"= {p_value:.3f}" if p_value >= SMALLEST_P else f"< {SMALLEST_P}"


class Notes:
    """Sentences below a table, numbered as its cells first refer to them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, sentence: str) -> int:
        """Number of a sentence; 0, which shows nothing, if it is empty."""
        return self._numbers.setdefault(sentence, len(self._numbers) + 1) if sentence else 0

    @property
    def sentences(self) -> tuple[str, ...]:
        """All with their numbers, for `Table.notes`."""
        return tuple(
            textwrap.shorten(f"[{number}] {sentence}", LONGEST_NOTE, placeholder=" ...")
            for sentence, number in self._numbers.items()
        )


def marked(lines: Sequence[Line], lowest: Collection[int] = ()) -> tuple[Line, ...]:
    """Mark the best and the second best number of every column; equals share a mark.

    Numbers are equal that look equal. The highest is the best, except in the columns `lowest`.
    """
    rows = [list(line.cells) for line in lines]
    for column in range(len(rows[0]) if rows else 0):
        cells = [row[column] for row in rows]
        shown = {round(cell.value, cell.digits) for cell in cells if cell.value is not None}
        ends = sorted(shown, reverse=column not in lowest)[:2]
        marks: dict[float, Mark] = dict(zip(ends, ("best", "second"), strict=False))
        for row in rows:
            cell = row[column]
            if cell.value is not None:
                row[column] = replace(cell, mark=marks.get(round(cell.value, cell.digits), ""))
    return tuple(replace(line, cells=tuple(row)) for line, row in zip(lines, rows, strict=True))


def slug(text: str) -> str:
    """Letters, digits and dashes of a text, for files, anchors and labels.

    >>> slug("random (sparse) 10%")
    'random-sparse-10'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "table"


def csv_safe(text: str) -> str:
    """The text, disarmed where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def escape_latex(text: str) -> str:
    r"""The text as LaTeX prints it, on one line; other letters are left to the engine.

    >>> print(escape_latex("50% & _x_, λ"))
    50\% \& \_x\_, $\lambda$
    """
    line = " ".join(text.split())
    return "".join(map(_latex_letter, line))


def _latex_letter(letter: str) -> str:
    # Unicode spells this one letter otherwise than LaTeX.
    greek = GREEK.fullmatch(unicodedata.name(letter, "").replace("LAMDA", "LAMBDA"))
    if greek and letter not in SAME_AS_LATIN:
        name = VARIANTS.get(greek[2], greek[2])
        return rf"$\{name.lower() if greek[1] == 'SMALL' else greek[2].capitalize()}$"
    return letter.translate(LATEX_SPECIAL) if letter.isprintable() else ""


def _escape_markdown(text: str) -> str:
    return MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _title(line: Line, escape: Callable[[str], str]) -> str:
    note = f" ({escape(line.note)})" if line.note else ""
    return f"{escape(line.title)}{note}"
