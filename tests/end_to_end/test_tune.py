"""`aspect tune` as a user meets it: two workers, a kill in the middle, and wrong words."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState

from aspect.experiment.tuning import open_study

from .conftest import command, environment, write_tables

SMALL = ["--set", "width=8", "--set", "gate_width=4", "--set", "order=2"]
DEADLINE_SECONDS = 120


@pytest.fixture
def graph(tables):
    return [tables / "edges.csv", "--nodes", tables / "nodes.csv", "--device", "cpu"]


def journal(out):
    lines = (out / "study.journal").read_text().splitlines()
    return [json.loads(line) for line in lines]


def ended(out):
    """Ids of trials that came to an end, with their lines, in the order of the journal."""
    over = {1, 2}  # complete, pruned
    return [
        (line["trial_id"], line["state"], line["values"])
        for line in journal(out)
        if line["op_code"] == 6 and line["state"] in over
    ]


def unfinished(out, scratch):
    """How many trials the journal leaves running; in a copy, so that the folder stays as it is."""
    copy = Path(shutil.copytree(out, scratch)) / "study.journal"
    return len(open_study(copy).get_trials(states=(TrialState.RUNNING,)))


def children_of(parent):
    """Processes whose parent it is, from the system's own table."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(words[1]) == parent:
            found.append(int(folder.name))
    return found


def is_alive(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.02)


def test_a_search_killed_in_the_middle_is_resumed(graph, process, cli, tmp_path):
    out, trials = tmp_path / "search", 7
    arguments = ["tune", *graph, "--trials", trials, "--workers", 2, "--max-epochs", 24, *SMALL]
    arguments += ["--max-cosine", 1, "--out", out, "--json"]
    parent = subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (out / "trials.csv").exists() and len(ended(out)) >= 2)
        workers = children_of(parent.pid)
        assert len(workers) >= 2
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
    before = ended(out)
    assert 2 <= len(before) < trials
    assert (out / "settings.yaml").exists()
    left = unfinished(out, tmp_path / "copy")

    found = process(*arguments).json["searches"][0]
    assert found["trials"] == trials
    assert trials == found["complete"] + found["pruned"] + found["unhealthy"]
    assert found["done_before"] == len(before)
    assert found["run_again"] == left
    after = ended(out)
    assert after[: len(before)] == before  # none of them was run again
    assert len(after) == trials
    assert found["validation"] >= found["start"]

    again = cli(*arguments).json["searches"][0]
    assert (again["done_before"], again["run_again"]) == (trials, 0)
    assert again["validation"] == found["validation"]
    assert ended(out) == after


def test_one_command_for_several_methods_and_a_file_that_train_takes(graph, cli):
    searches = ["--method", "aspect", "--method", "low", "--trials", 2, "--workers", 1]
    searches += ["--max-cosine", 1]
    done = cli("tune", *graph, *searches, "--set", "epochs=2", *SMALL, "--splits", "random")
    assert done.code == 0, done.err
    for name in ("aspect", "low"):
        folder = Path("runs/tune") / f"edges-{name}"
        assert f"Next: aspect train --config {folder}/settings.yaml" in done.out
        assert f"edges, {name}:" in done.out
        assert "<h1>Settings of " in (folder / "report.html").read_text()
    assert "best validation" in done.out
    assert "mean cosine" in done.out
    assert "2 trials" in done.err
    record = cli("train", "--config", folder / "settings.yaml", "--out", "run", "--json").json
    best = cli(
        "tune", *graph, *searches, "--set", "epochs=2", *SMALL, "--splits", "random", "--json"
    )
    found = best.json["searches"][1]
    assert (record["method"], record["settings"]["epochs"]) == ("low", 2)
    assert {name: record["settings"][name] for name in found["changed"]} == found["changed"]
    scores = cli("evaluate", "run", "--splits", "random", "--json").json
    assert scores["rows"][0]["validation"]["mean"] == pytest.approx(found["validation"])
    assert "has its 2 trials already" in best.err
    assert (found["probe"], found["splits"], found["max_cosine"]) == ("neutral", "random", 1)
    assert found["health"] == record["health"]


def test_settings_of_a_poisoned_run_are_searched_on_the_clean_graph_and_that_is_said(
    graph, cli, tmp_path
):
    poisoned = tmp_path / "poisoned.yaml"
    poisoned.write_text("method: low\nperturbation: {file: flips.safetensors}\n")
    few = ["--trials", 1, "--workers", 1, "--set", "epochs=1", *SMALL, "--max-cosine", 1]
    few += ["--seconds", 600, "--out", "search", "--json"]
    done = cli("tune", *graph, "--config", poisoned, *few)
    (search,) = done.json["searches"]
    assert (search["method"], search["trials"]) == ("low", 1)
    assert (
        f"The settings of {poisoned} were for a perturbed graph. The search is on edges as it is."
    ) in done.err

    page = Path("search/report.html")
    before = page.read_bytes()
    page.unlink()
    done = cli("report", "search")
    assert "Wrote search/report.html" in done.out, done.err
    assert page.read_bytes() == before
    assert cli("report", "search", "--out", "page.html", "--json").json["report"] == "page.html"
    cli("report", "search", "--out", "page.html").refused("'page.html' exists")
    cli("report", "search", "--tables", "tables").refused("A search has one page.")


def test_a_search_in_which_everything_fails_says_why(graph, cli):
    wrong = ["--set", "learning_rate=1e9", "--set", "epochs=3"]
    done = cli("tune", *graph, "--trials", 2, "--workers", 1, *wrong, *SMALL, "--out", "search")
    done.refused("All 2 trials of aspect on edges failed. The first:", "not a finite number")
    assert "failed" in Path("search/trials.csv").read_text()


def test_a_search_without_a_healthy_trial_says_why(graph, cli):
    strict = ["--max-cosine", 1e-9, "--set", "epochs=2", "--trials", 2, "--workers", 1]
    done = cli("tune", *graph, *strict, *SMALL, "--out", "search")
    done.refused("All 2 trials of aspect on edges failed or are close to collapse. The first:")
    assert "above the maximum of 1e-09" in done.err
    assert "unhealthy" in Path("search/trials.csv").read_text()
    assert not Path("search/settings.yaml").exists()


def test_without_time_no_trial_is_begun(graph, cli):
    few = ["--trials", 1, "--workers", 1, "--set", "epochs=1", "--max-cosine", 1, *SMALL]
    cli("tune", *graph, *few, "--seconds", 0).refused("No trial of aspect on edges was done within")


def test_wrong_words_are_answered_at_once(cli):
    for arguments, words in (
        (["koora"], "Did you mean 'cora'?"),
        (["cora", "--method", "aspekt"], "Did you mean 'aspect'?"),
        (["cora", "--method", "aspect", "--method", "aspekt"], "Did you mean 'aspect'?"),
        (["cora", "--trials", "0"], "--trials"),
        (["cora", "--workers", "0"], "--workers"),
        (["cora", "--seeds", "0"], "--seeds"),
        (["cora", "--splits", "fair"], "--splits"),
        (["cora", "--seconds", "-1"], "--seconds"),
        (["cora", "--set", "epochs"], "A setting is given as key=value"),
        (["cora", "--nodes", "nodes.csv"], "--nodes belongs to a graph in files of yours"),
        (["a.csv", "b.csv", "--nodes", "n.csv"], "Options of reading belong to one graph. Got 2"),
        (["a/g.npz", "b/g.npz"], "Two searches would share the folder 'g-aspect'"),
        ([], "Missing argument"),
    ):
        cli("tune", *arguments).refused(words)
    assert list(cli.cwd.iterdir()) == []


def test_wrong_names_need_nothing_heavy():
    code = (
        "import sys; from aspect.cli.main import run; code = run(sys.argv[1:]); "
        "sys.exit(10 * code + any(name in sys.modules for name in ('torch', 'numpy', 'optuna')))"
    )
    for arguments, expected in ((["koora"], 20), (["cora", "--method", "x"], 20), (["--help"], 0)):
        python = command()[0]
        done = subprocess.run(
            [python, "-c", code, "tune", *arguments],
            capture_output=True,
            env=environment(),
            check=False,
            timeout=60,
        )
        assert done.returncode == expected, done.stderr


def test_what_the_graph_or_the_method_does_not_offer_is_refused(graph, cli, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    write_tables(bare, count=30, label=False)
    unlabelled = [bare / "edges.csv", "--nodes", bare / "nodes.csv"]
    cli("tune", *unlabelled).refused("no node has one")
    cli("tune", *graph, "--method", "raw").refused("No setting of 'raw' has a search range")
    cli("tune", *graph, "--set", "widht=3").refused("Did you mean 'width'?")
    cli("tune", *graph, "--splits", "published").refused("No masks were given")
    cli("tune", *graph, "--set", "epochs=3", "--max-epochs", 5).refused("The epochs are fixed at 3")
    cli("tune", *graph, "--max-cosine", 2).refused("mean cosine must be in (0, 1]. Got 2.0.")
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_taken_is_refused_before_the_first_search(graph, cli):
    taken = Path("runs/tune/edges-low")
    taken.mkdir(parents=True)
    (taken / "thesis.txt").write_text("mine")
    cli("tune", *graph, "--method", "aspect", "--method", "low").refused("holds no search")
    assert list(Path("runs/tune").rglob("*")) == [taken, taken / "thesis.txt"]
