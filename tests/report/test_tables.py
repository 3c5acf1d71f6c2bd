"""Tables in every form: what is marked, and that no name can break out of its cell."""

import csv
import io
import re

import pytest

from aspect.report.tables import Line, Notes, Table, TableCell, escape_latex, marked
from report.benchmark_records import NASTY


def lines(*values):
    return [Line(f"row {index}", "", (TableCell(value),)) for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ((1.0, 3.0, 2.0), ["", "best", "second"]),
        ((3.001, 2.0, 2.999, 1.0), ["best", "second", "best", ""]),  # they look equal
        ((1.0, None, 2.0), ["second", "", "best"]),
    ],
)
def test_best_and_second_best_are_marked(values, marks):
    found = marked(lines(*values))
    assert [line.cells[0].mark for line in found] == marks
    rows = [
        Line("a", "", (TableCell(1.0), TableCell(1.0))),
        Line("b", "", (TableCell(2.0), TableCell(2.0))),
    ]
    found = marked(rows, lowest=[1])  # the second column has its best at the other end
    assert [[cell.mark for cell in line.cells] for line in found] == [
        ["second", "best"],
        ["best", "second"],
    ]


HOSTILE = ["=cmd()", "+1", "-1", "@sum", 'quote " and, comma', "a\nb", "| pipe | `code` <img>"]


@pytest.fixture
def hostile():
    rows = tuple(
        Line(name, name, (TableCell(1.5, std=0.25), TableCell(), TableCell(word=name, footnote=1)))
        for name in HOSTILE
    )
    return Table("t", "a | b", ("score", "none", "word"), rows, notes=("[1] <img>",))


def test_csv_keeps_numbers_in_full_and_disarms_formulas(hostile):
    head, *rows = list(csv.reader(io.StringIO(hostile.to_csv())))
    assert head == ["method", "note", "score", "score std", "none", "word"]
    assert len(rows) == len(HOSTILE)
    for name, row in zip(HOSTILE, rows, strict=True):
        safe = f"'{name}" if name[0] in "=+-@" else name
        assert row == [safe, safe, "1.5", "0.25", "", safe]


def test_markdown_has_one_line_and_the_same_cells_for_every_row(hostile):
    table = hostile.to_markdown().splitlines()
    assert len(table) == len(HOSTILE) + 2
    for line in table:
        assert line.replace(r"\|", "").count("|") == 5
    assert r"\| pipe \| \`code\` \<img\>" in table[-1]
    text = hostile.to_markdown_with_caption()
    assert text.startswith("a \\| b\n\n")
    assert text.endswith("\n\n\\[1\\] \\<img\\>\n")


def test_p_values_have_a_column_of_their_own():
    cell = TableCell(1.0, low=0.0, high=2.0, p_value=0.04, significant=True)
    table = Table("t", "", ("x",), (Line("a", "", (cell,)), Line("b", "", (TableCell(),))))
    assert table.to_csv() == "method,note,x,x low,x high,x p\na,,1.0,0.0,2.0,0.04\nb,,,,,\n"
    assert cell.text == "1.00 (0.00 to 2.00), p = 0.040 †"
    assert cell.to_latex() == r"1.00 (0.00 to 2.00), $p = 0.040$ $^\dagger$"


def test_a_published_figure_stands_outside_the_marks_and_in_a_column_of_its_own():
    rows = [
        Line("a", "", (TableCell(3.0, std=0.5, published=2.5, footnote=1),)),
        Line("b", "", (TableCell(published=4.0),)),
    ]
    table = Table("t", "", ("score",), marked(rows))
    assert "| **3.00 ± 0.50** (2.50) \\[1\\] |" in table.to_markdown()
    assert "| - (4.00) |" in table.to_markdown()
    assert r"a & \textbf{3.00} $\pm$ 0.50 (2.50) {[}1{]} \\" in table.to_latex()
    head, *found = list(csv.reader(io.StringIO(table.to_csv())))
    assert head == ["method", "note", "score", "score std", "score published"]
    assert [row[2:] for row in found] == [["3.0", "0.5", "2.5"], ["", "", "4.0"]]


def test_notes_are_numbered_once_and_cut():
    notes = Notes()
    assert [notes.number(text) for text in ("", "a", "b", "a")] == [0, 1, 2, 1]
    notes.number("word " * 100)
    assert notes.sentences[:2] == ("[1] a", "[2] b")
    assert len(notes.sentences[2]) <= 240
    assert notes.sentences[2].endswith(" ...")


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",  # noqa: RUF001 - Greek it is
    "ε": r"$\varepsilon$",
    "Σ": r"$\Sigma$",
    "é": "é",
}


def test_letters_with_a_meaning_in_latex_are_escaped():
    for letter, escaped in LATEX.items():
        assert escape_latex(f"a{letter}b") == f"a{escaped}b"
    assert escape_latex(r"\input{/etc/passwd}") == r"\textbackslash{}input\{/etc/passwd\}"
    assert escape_latex("a\n\nb\tc\x00d\x1b[0m") == "a b cd{[}0m"


def bare(text):
    """The text without escapes, our commands and formulas."""
    text = re.sub(r"\$(\\[A-Za-z]+|\^\\dagger|-)\$", "", text)
    text = re.sub(r"\\[\\{}$&#%_]|\{\\char34\}|\\text[a-z]+\{\}", "", text)
    return text.replace("{[}", "").replace("{]}", "").replace("{*}", "")


@pytest.mark.parametrize("name", [*NASTY, "".join(LATEX), "[2cm] * x", "\\\\ \\hline"])
def test_nothing_special_is_left(name):
    assert not set(bare(escape_latex(name))) & set('\\{}$&#%_~^<>|`"[]*±')


def test_a_float_in_the_style_of_booktabs():
    rows = marked(
        [
            Line("a", "", (TableCell(1.0), TableCell(word="50% _x_"))),
            Line(
                "b",
                "n",
                (TableCell(3.0, std=0.5), TableCell(-1.0, low=-2.0, high=0.0, p_value=0.0001)),
            ),
            Line("c", "", (TableCell(2.0, footnote=1), TableCell(footnote=1))),
        ]
    )
    table = Table("Odd name_1", "Caption with 5%", ("x", "y"), rows, notes=("[1] 3 & 4",))
    assert table.to_latex().splitlines() == [
        r"\begin{table}[htbp]",
        r"\centering",
        r"\caption{Caption with 5\%}",
        r"\label{tab:odd-name-1}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & x & y \\",
        r"\midrule",
        r"a & 1.00 & 50\% \_x\_ \\",
        r"b (n) & \textbf{3.00} $\pm$ 0.50 & "
        r"\textbf{$-$1.00} ($-$2.00 to 0.00), $p < 0.001$ \\",
        r"c & \underline{2.00} {[}1{]} & --- {[}1{]} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip\footnotesize {[}1{]} 3 \& 4",
        r"\end{table}",
    ]
