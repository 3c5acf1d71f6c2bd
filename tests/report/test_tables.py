"""Tables: what is marked, and that no name can break out of its cell."""

import csv
import io

import pytest

from aspect.report.tables import Cell, Line, Table, marked


def lines(*values, apart=()):
    return [
        Line(f"row {index}", "", (Cell(value),), apart=index in apart)
        for index, value in enumerate(values)
    ]


def marks(found):
    return [line.cells[0].mark for line in found]


def test_best_and_second_best_are_marked():
    assert marks(marked(lines(1.0, 3.0, 2.0))) == ["", "best", "second"]


def test_what_looks_equal_shares_a_mark():
    assert marks(marked(lines(3.001, 2.0, 2.999, 1.0))) == ["best", "second", "best", ""]


def test_what_stands_apart_or_is_missing_takes_no_mark():
    assert marks(marked(lines(9.0, 1.0, None, 2.0, apart={0}))) == ["", "second", "", "best"]


def test_every_column_has_its_own_best():
    found = marked([Line("a", "", (Cell(1.0), Cell(5.0))), Line("b", "", (Cell(2.0), Cell(4.0)))])
    assert [[cell.mark for cell in line.cells] for line in found] == [
        ["second", "best"],
        ["best", "second"],
    ]


HOSTILE = ["=cmd()", "+1", "-1", "@sum", 'quote " and, comma', "a\nb", "| pipe | `code` <img>"]


@pytest.fixture
def hostile():
    rows = tuple(Line(name, name, (Cell(1.5, std=0.25), Cell())) for name in HOSTILE)
    return Table("t", "", ("score", "none"), rows)


def test_csv_keeps_numbers_in_full_and_disarms_formulas(hostile):
    head, *rows = list(csv.reader(io.StringIO(hostile.to_csv())))
    assert head == ["method", "note", "score", "score std", "none"]
    assert len(rows) == len(HOSTILE)
    for name, row in zip(HOSTILE, rows, strict=True):
        assert row[0] == row[1] == (f"'{name}" if name[0] in "=+-@" else name)
        assert row[2:] == ["1.5", "0.25", ""]


def test_markdown_has_one_line_and_the_same_cells_for_every_row(hostile):
    table = hostile.to_markdown().splitlines()
    assert len(table) == len(HOSTILE) + 2
    for line in table:
        assert line.replace(r"\|", "").count("|") == 4
    assert r"\| pipe \| \`code\` \<img\>" in table[-1]


def test_markdown_shows_the_marks():
    table = Table("t", "", ("score",), marked(lines(1.0, 3.0, 2.0)))
    assert "| **3.00** |" in table.to_markdown()
    assert "| *2.00* |" in table.to_markdown()


def test_the_lowest_can_be_the_best_and_a_column_can_go_unmarked():
    rows = [Line(name, "", (Cell(value),) * 3) for name, value in (("a", 1.0), ("b", 2.0))]
    found = marked(rows, ("highest", "lowest", "neither"))
    assert [[cell.mark for cell in line.cells] for line in found] == [
        ["second", "best", ""],
        ["best", "second", ""],
    ]


def test_words_are_disarmed_in_every_form():
    rows = tuple(Line("a", "", (Cell(word=name, footnote=1),)) for name in HOSTILE)
    table = Table("t", "a | b", ("device",), rows, notes=("[1] <img>",))
    _, *found = list(csv.reader(io.StringIO(table.to_csv())))
    assert [row[2] for row in found] == [
        f"'{name}" if name[0] in "=+-@" else name for name in HOSTILE
    ]
    text = table.to_markdown_with_caption()
    assert text.startswith("a \\| b\n\n")
    assert text.endswith("\n\n\\[1\\] \\<img\\>\n")
    for line in table.to_markdown().splitlines():
        assert line.replace(r"\|", "").count("|") == 3


def test_chances_have_a_column_of_their_own():
    cell = Cell(1.0, low=0.0, high=2.0, p_value=0.04, decided=True)
    table = Table("t", "", ("x",), (Line("a", "", (cell,)), Line("b", "", (Cell(),))))
    assert table.to_csv() == "method,note,x,x low,x high,x p\na,,1.0,0.0,2.0,0.04\nb,,,,,\n"
    assert cell.text == "1.00 (0.00 to 2.00), p = 0.040 †"


def test_a_published_figure_stands_outside_the_marks_and_in_a_column_of_its_own():
    rows = [
        Line("a", "", (Cell(3.0, std=0.5, published=2.5, footnote=1),)),
        Line("b", "", (Cell(published=4.0),)),
    ]
    table = Table("t", "", ("score",), marked(rows))
    assert "| **3.00 ± 0.50** (2.50) \\[1\\] |" in table.to_markdown()
    assert "| - (4.00) |" in table.to_markdown()
    assert r"a & \textbf{3.00} $\pm$ 0.50 (2.50) {[}1{]} \\" in table.to_latex()
    head, *found = list(csv.reader(io.StringIO(table.to_csv())))
    assert head == ["method", "note", "score", "score std", "score published"]
    assert [row[2:] for row in found] == [["3.0", "0.5", "2.5"], ["", "", "4.0"]]
