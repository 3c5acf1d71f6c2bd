"""LaTeX: no name can start a command, a comment or a column of its own."""

import re

import pytest

from aspect.report.latex import escape_latex, latex_number
from aspect.report.tables import Cell, Line, Table, marked
from report.benchmark_records import NASTY

EXPECTED = {
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
    "Σ": r"$\Sigma$",
    "é": "é",
}


@pytest.mark.parametrize("letter", EXPECTED)
def test_letters_with_a_meaning_are_written_out(letter):
    assert escape_latex(letter) == EXPECTED[letter]
    assert escape_latex(f"a{letter}b") == f"a{EXPECTED[letter]}b"


def test_a_command_becomes_text():
    assert escape_latex(r"\input{/etc/passwd}") == r"\textbackslash{}input\{/etc/passwd\}"


def test_lines_are_joined_and_what_cannot_be_printed_is_left_out():
    assert escape_latex("a\n\nb\tc\x00d\x1b[0m") == "a b cd{[}0m"


def bare(text):
    """The text without what LaTeX itself is told: escapes, our commands and formulas."""
    text = re.sub(r"\$(\\[A-Za-z]+|\^\\dagger|-)\$", "", text)
    text = re.sub(r"\\[\\{}$&#%_]|\{\\char34\}|\\text[a-z]+\{\}", "", text)
    return text.replace("{[}", "").replace("{]}", "").replace("{*}", "")


@pytest.mark.parametrize("name", [*NASTY, "".join(EXPECTED), "[2cm] * x", "\\\\ \\hline"])
def test_nothing_special_is_left(name):
    assert not set(bare(escape_latex(name))) & set('\\{}$&#%_~^<>|`"[]*±')


def test_minus_signs_are_those_of_formulas():
    assert latex_number(-0.5, 2) == "$-$0.50"
    assert latex_number(0.5, 0) == "0"


def test_best_is_bold_and_second_best_underlined():
    lines = marked([Line(str(value), "", (Cell(value, std=0.5),)) for value in (1.0, 3.0, 2.0)])
    text = Table("t", "", ("score",), lines).to_latex()
    assert r"1.0 & 1.00 $\pm$ 0.50 \\" in text
    assert r"3.0 & \textbf{3.00} $\pm$ 0.50 \\" in text
    assert r"2.0 & \underline{2.00} $\pm$ 0.50 \\" in text


def test_a_float_in_the_style_of_booktabs():
    lines = (
        Line("a", "", (Cell(1.0), Cell(word="50% _x_"))),
        Line(
            "b", "", (Cell(footnote=1), Cell(-1.0, low=-2.0, high=0.0, p_value=0.0001)), apart=True
        ),
    )
    table = Table("Odd name_1", "Caption with 5%", ("x", "y"), lines, notes=("[1] 3 & 4",))
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
        r"\midrule",
        r"b & --- {[}1{]} & $-$1.00 ($-$2.00 to 0.00), $p < 0.001$ \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip\footnotesize {[}1{]} 3 \& 4",
        r"\end{table}",
    ]


def test_hostile_rows_keep_their_columns():
    lines = tuple(Line(name, name, (Cell(1.0), Cell(word=name))) for name in NASTY)
    rows = Table("t", "", NASTY[:2], lines).to_latex().splitlines()
    for row in rows[6:7] + rows[8:-3]:
        assert row.endswith(r" \\")
        assert row.replace(r"\&", "").count("&") == 2
