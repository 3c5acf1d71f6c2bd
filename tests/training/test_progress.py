"""Bars where they can be drawn, lines elsewhere, and who decides."""

import io
import re

import pytest
from rich.console import Console

from aspect import Embedder, mixed_graph
from aspect.training import progress
from aspect.training.progress import has_bar, is_watched, show_progress
from aspect.training.trainer import Recorder

SMALL = {"device": "cpu", "epochs": 3, "width": 8}


def console(clock=None, **options):
    options |= {} if clock is None else {"get_time": lambda: clock[0], "force_terminal": False}
    return Console(file=io.StringIO(), width=100, highlight=False, **options)


@pytest.fixture
def graph():
    return mixed_graph(num_nodes=30, num_features=4, seed=0)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


@pytest.fixture
def clock():
    """A clock that is moved by hand."""
    return [100.0]


def test_time_left_also_for_steps_of_minutes(clock):
    side = console(clock)
    with show_progress("Epoch", side) as advance:
        for done in range(1, 4):
            clock[0] += 200
            advance(done, 10, "loss 1.5")
    lines = side.file.getvalue().splitlines()
    assert lines[0] == "Epoch: 1 of 10  loss 1.5"
    assert lines[2] == "Epoch: 3 of 10, about 23 min left  loss 1.5"


def test_lines_come_every_few_seconds(clock):
    side = console(clock)
    with show_progress("Epoch", side) as advance:
        for done in range(1, 103):
            clock[0] += 0.1
            advance(done, 102, "")
    assert len(side.file.getvalue().splitlines()) == 2


def test_time_is_not_guessed_where_the_caller_knows_better(clock):
    side = console(clock)
    with show_progress("Runs", side, guesses_time=False) as advance:
        for done in (1, 2):
            clock[0] += 60
            advance(done, 10, "an hour left")
    assert side.file.getvalue().splitlines()[-1] == "Runs: 2 of 10  an hour left"


def test_a_bar_on_a_terminal_is_gone_afterwards():
    side = console(force_terminal=True)
    with show_progress("Epoch", side) as advance:
        advance(2, 7, "loss [red]1.5")
    text = side.file.getvalue()
    assert "2/7" in text
    assert "loss [red]1.5" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is cleared


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_needs_widgets_for_a_bar(monkeypatch, has_widgets):
    monkeypatch.setattr(progress, "find_spec", lambda name: name if has_widgets else None)
    assert has_bar(console(force_jupyter=True)) == has_widgets
    assert is_watched(console(force_jupyter=True))
    assert is_watched(console(force_terminal=True))
    assert not is_watched(console(force_terminal=False))
    assert has_bar(console(force_terminal=True))
    assert not has_bar(console(force_terminal=False))


# The choice of `fit`


@pytest.mark.usefixtures("at_once")
def test_fit_shows_progress_when_asked(graph, capsys):
    Embedder("grace", **SMALL).fit(graph, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"Epoch: 3 of 3  loss \d+\.\d{4}", lines[2])


@pytest.mark.usefixtures("at_once")
def test_fit_is_silent_without_a_terminal_or_when_told_so(graph, capsys, monkeypatch):
    Embedder("grace", **SMALL).fit(graph)
    monkeypatch.setattr("aspect.estimator.model.is_watched", lambda _: True)
    Embedder("grace", **SMALL).fit(graph, progress=False)
    Embedder("grace", **SMALL).fit(graph, recorder=Recorder())
    assert capsys.readouterr().err == ""
    Embedder("grace", **SMALL).fit(graph)
    assert "Epoch: 1 of 3" in capsys.readouterr().err


def test_a_recorder_is_served_beside_the_bar(graph):
    class Counting(Recorder):
        epochs, done, asked = 0, False, False

        def latest(self):
            self.asked = True

        def epoch_done(self, report, _):
            self.epochs = report.epoch

        def training_done(self):
            self.done = True

    recorder = Counting()
    Embedder("grace", **SMALL).fit(graph, recorder=recorder, progress=True)
    assert (recorder.epochs, recorder.done, recorder.asked) == (3, True, True)
