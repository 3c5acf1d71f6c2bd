"""`make memory`: what is measured, stopped, merged and shown."""

import subprocess
import sys
from itertools import product

import pytest

from aspect.data.synthetic import mixed_graph
from aspect.methods.registry import find_method, method_names
from aspect.settings import FOLDER as SETTINGS
from scripts import FOLDER, load_script

script = load_script("memory_methods")

GB = script.GB


def measurement(**changes):
    values = {"graph": "pubmed", "method": "dgi", "settings": "shipped"}
    values |= {"prepare_seconds": 0.5, "epoch_seconds": 1.25, "peak_bytes": 2 * GB}
    return script.Measurement(**values | changes)


@pytest.fixture
def small(monkeypatch):
    """A graph that is there wherever the tests run."""
    monkeypatch.setattr(script, "load_named", lambda _: mixed_graph(num_nodes=60))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["raw", "dgi", "hlcl", "aspect-s"])
def test_an_epoch_is_measured(name):
    found = script.measure("squirrel", name)
    assert (found.graph, found.method) == ("squirrel", name)
    assert found.peak_bytes > 2**20
    assert (found.epoch_seconds == 0) == (not find_method(name).method.trainable)
    assert found.settings == ("defaults" if name == "raw" else "shipped")


@pytest.mark.usefixtures("small")
def test_what_is_due_now_and_then_is_due(monkeypatch):
    stable, chooser = find_method("aspect-s").method, find_method("hlcl").method
    done = []
    for owner, name in ((stable, "search"), (chooser, "choose_anew")):
        whole = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, whole=whole, name=name: (done.append(name), whole(*args))[1]
        )
    for method in ("aspect-s", "hlcl"):
        script.measure("squirrel", method)
    assert done == ["search", "choose_anew"]


GREEDY = "import time; held = bytearray(b'1') * (300 * 2**20); time.sleep(60)"


def test_a_process_that_grows_too_large_is_stopped(monkeypatch):
    real = subprocess.Popen
    started = []

    def start(_command, **options):
        started.append(real([sys.executable, "-c", GREEDY], **options))
        return started[0]

    monkeypatch.setattr(script.subprocess, "Popen", start)
    monkeypatch.setattr(script, "STOPPED_AT_BYTES", 200 * 2**20)
    found = script.measure_apart("pubmed", "dgi")
    assert found.stopped
    assert found.peak_bytes > 200 * 2**20
    assert not found.is_small
    assert started[0].returncode != 0


def test_a_process_of_its_own_answers_or_says_why():
    line = script.measure_apart("pubmet", "raw")
    assert line.startswith("raw on pubmet: Unknown data set 'pubmet'. Did you mean 'pubmed'?")


def test_measurements_survive_the_file_and_are_merged(tmp_path):
    path = tmp_path / "new" / "memory.csv"
    assert script.read_measurements(path) == []
    old = [measurement(), measurement(graph="squirrel", stopped=True)]
    script.write_measurements(path, old)
    assert script.read_measurements(path) == old
    newer, another = measurement(peak_bytes=GB), measurement(method="bgrl")
    known = script.merged(script.merged(old, newer), another)
    assert known == [another, newer, old[1]]
    assert path.read_text().startswith("# Made by `make memory`")


@pytest.mark.parametrize("text", ["graph,method\npubmed,dgi\n", "\x00", "graph\n" * 3, "# x\na\n1"])
def test_a_file_of_another_kind_is_not_replaced(tmp_path, capsys, text):
    out = tmp_path / "memory.csv"
    out.write_text(text)
    assert script.main(["--method", "raw", "--out", str(out)]) == 2
    assert "must be a file of `make memory`: remove it." in capsys.readouterr().err
    assert out.read_text() == text


def test_the_command_keeps_other_rows_writes_and_prints(tmp_path, monkeypatch, capsys):
    answers = {
        "dgi": measurement(peak_bytes=9 * GB),
        "raw": "raw on pubmed: nothing worked",
        "gmi": measurement(method="gmi", peak_bytes=13 * GB, stopped=True),
    }
    monkeypatch.setattr(script, "measure_apart", lambda _, method: answers[method])
    out = tmp_path / "memory.csv"
    script.write_measurements(out, [measurement(), measurement(method="bgrl")])
    words = [word for name in answers for word in ("--method", name)]
    assert script.main([*words, "--graph", "pubmed", "--out", str(out)]) == 0
    known = {each.method: each for each in script.read_measurements(out)}
    assert list(known) == ["bgrl", "dgi", "gmi"]
    assert known["dgi"].peak_bytes == 9 * GB
    shown = capsys.readouterr()
    assert "raw on pubmed: nothing worked" in shown.err
    assert "gmi on pubmed was stopped at 13.0 GB." in shown.err
    (line,) = [line for line in shown.out.splitlines() if " dgi " in line]
    assert "9.00" in line
    assert " no " in line
    assert "bgrl" not in shown.out


def test_a_wrong_name_ends_in_one_sentence(tmp_path, capsys):
    assert script.main(["--method", "dgj", "--out", str(tmp_path / "out")]) == 2
    assert "Unknown method 'dgj'. Did you mean 'dgi'?" in capsys.readouterr().err


def test_every_released_method_was_measured_on_both_graphs_and_stays_within_the_target():
    """A method is released with its settings; a new one needs no measurement before that."""
    released = {path.name for path in SETTINGS.iterdir() if path.is_dir()} & set(method_names())
    measured = script.read_measurements(FOLDER.parent / "results" / "memory.csv")
    places = {(row.graph, row.method) for row in measured}
    assert {"aspect", "aspect-s", "bgrl"} <= released
    missing = sorted(set(product(script.GRAPHS, released)) - places)
    assert not missing, "Run: python benchmarks/memory_methods.py --method NAME"
    assert {method for _, method in places} <= set(method_names())
    assert [row for row in measured if not row.is_small] == []
