import io
import json
import logging
import re

import pytest
from rich.console import Console

from aspect.cli.console import Screen
from aspect.errors import harmless
from aspect.training import progress

NASTY = "\x1b]0;owned\x07[bold red]x[/] \u202ethgir\r\n"


def screen(*, terminal, as_json=False):
    """A screen that writes into strings."""
    found = Screen("train", as_json=as_json)
    for name in ("out", "side"):
        made = Console(file=io.StringIO(), force_terminal=terminal, width=100, highlight=False)
        setattr(found, name, made)
    return found


def written(part):
    return part.file.getvalue()


@pytest.mark.parametrize("letter", ["\x1b", "\x07", "\r", "\n", "\u202e", "\x9b", "\udc80"])
def test_harmless_shows_what_could_act(letter):
    assert letter not in harmless(f"a{letter}b")
    assert harmless(f"a{letter}b").isascii()


def test_harmless_leaves_letters_alone():
    assert harmless("naïve 图 [x]") == "naïve 图 [x]"


def test_every_way_to_write_is_harmless():
    own = screen(terminal=True)
    own.say(NASTY)
    own.note(NASTY)
    own.warn(NASTY)
    own.table(["name"], [[NASTY]], title=NASTY)
    with own.activity(NASTY), own.logging():
        logging.getLogger("aspect.somewhere").warning(NASTY)
    text = written(own.out) + written(own.side)
    assert text.count("[bold red]x[/]") >= 6
    for letters in ("\x1b]0;", "\x07", "\u202e", "\r\n"):
        assert letters not in text


def test_a_bar_on_a_terminal():
    own = screen(terminal=True)
    with own.progress("Epoch") as advance:
        advance(3, 7, "loss [red]1.5")
    assert "Epoch" in written(own.side)
    assert "3/7" in written(own.side)
    assert "loss [red]1.5" in written(own.side)
    assert written(own.out) == ""


def test_lines_elsewhere_now_and_then(monkeypatch):
    own = screen(terminal=False)
    with own.progress("Epoch") as advance:
        advance(1, 7, "too soon")
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
        advance(2, 7, "loss 1.5")
    assert re.fullmatch(r"Epoch: 2 of 7, about \d s left  loss 1\.5\n", written(own.side))


def test_json_is_all_there_is_on_standard_output(capsys):
    own = Screen("train", as_json=True)
    own.note("beside")
    own.answer({"name": NASTY, "value": 1.5}, show=lambda: pytest.fail("nothing else is shown"))
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": "aspect/train/1", "name": NASTY, "value": 1.5}
    assert "\x1b" not in out
    assert err == "beside\n"


def test_json_holds_numbers_only():
    with pytest.raises(ValueError, match="JSON"):
        Screen("train", as_json=True).answer({"value": float("nan")}, show=list)


def test_columns_of_numbers_are_set_to_the_right():
    own = screen(terminal=False)
    own.table(["name", "score"], [["a", "7.00"], ["long name", "12.50 ± 1"]])
    assert "│ a         │      7.00 │" in written(own.out)


def test_a_sign_does_not_make_a_number_a_word():
    own = screen(terminal=False)
    own.table(["name", "gain"], [["a", "+7.00 ± 1.00"], ["b", "-10.00 ± 12.00"], ["c", "-"]])
    assert "│ a    │   +7.00 ± 1.00 │" in written(own.out)


def test_a_table_that_is_a_little_too_wide_gives_up_its_outer_blanks():
    own = screen(terminal=True)
    own.out.width = 20
    own.table(["name", "score"], [["letters", "12345678"]])  # 22 letters wide with them
    assert "│letters │ 12345678│" in written(own.out)
