"""`aspect tune` as a user meets it: two workers, a kill in the middle, and wrong words."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from optuna.trial import TrialState

from aspect.experiment.tuning import open_study

from .conftest import command, environment, is_alive, wait_for, workers_of

SMALL = ["--set", "width=8", "--set", "gate_width=4", "--set", "order=2"]


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
    """How many drawn trials the journal leaves running; one killed in the drawing is drawn anew.

    In a copy, so that the folder stays as it is.
    """
    study = open_study(Path(shutil.copytree(out, scratch)) / "study.journal")
    whole = max(len(trial.params) for trial in study.get_trials())
    running = study.get_trials(states=(TrialState.RUNNING,))
    return sum(len(trial.params) == whole or trial.number == 0 for trial in running)


def test_a_search_killed_in_the_middle_is_resumed(inputs, process, cli, tmp_path):
    out, trials = tmp_path / "search", 6
    arguments = ["tune", *inputs, "--trials", trials, "--workers", 2, "--max-epochs", 20, *SMALL]
    arguments += ["--max-cosine", 1, "--out", out, "--json"]
    parent = subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (out / "trials.csv").exists() and len(ended(out)) >= 2)
        workers = workers_of(parent.pid)
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


def test_one_command_for_several_methods_and_a_file_that_train_takes(inputs, cli):
    searches = ["--method", "aspect", "--method", "low", "--trials", 2, "--workers", 1]
    searches += ["--max-cosine", 1]
    done = cli("tune", *inputs, *searches, "--set", "epochs=2", *SMALL, "--splits", "random")
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
        "tune", *inputs, *searches, "--set", "epochs=2", *SMALL, "--splits", "random", "--json"
    )
    found = best.json["searches"][1]
    assert (record["method"], record["settings"]["epochs"]) == ("low", 2)
    assert {name: record["settings"][name] for name in found["changed"]} == found["changed"]
    scores = cli("evaluate", "run", "--splits", "random", "--json").json
    # Trials are scored to a looser tolerance: an answer may differ, one of sixty is 1.7 points.
    assert scores["rows"][0]["validation"]["mean"] == pytest.approx(found["validation"], abs=3.4)
    assert "has its 2 trials already" in best.err
    assert (found["probe"], found["splits"], found["max_cosine"]) == ("neutral", "random", 1)
    assert found["health"] == record["health"]


def test_settings_of_a_poisoned_run_are_searched_on_the_clean_graph_and_that_is_said(
    inputs, cli, tmp_path
):
    poisoned = tmp_path / "poisoned.yaml"
    changed = "perturbation: {file: flips.safetensors}\nprune: {ratio: 0.2}\n"
    poisoned.write_text(f"method: low\n{changed}")
    few = ["--trials", 1, "--workers", 1, "--set", "epochs=1", *SMALL, "--max-cosine", 1]
    few += ["--seconds", 600, "--out", "search", "--json"]
    done = cli("tune", *inputs, "--config", poisoned, *few)
    (search,) = done.json["searches"]
    assert (search["method"], search["trials"]) == ("low", 1)
    assert (
        f"The settings of {poisoned} were for a graph that is perturbed and pruned. "
        "The search is on edges as it is."
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


def test_a_search_in_which_everything_fails_says_why(inputs, cli):
    wrong = ["--set", "learning_rate=1e9", "--set", "epochs=3", "--set", "layer_order=filter-first"]
    done = cli("tune", *inputs, "--trials", 2, "--workers", 1, *wrong, *SMALL, "--out", "search")
    done.refused("All 2 trials of aspect on edges failed. The first:", "not a finite number")
    assert "failed" in Path("search/trials.csv").read_text()


def test_a_search_without_a_healthy_trial_says_why(inputs, cli):
    strict = ["--max-cosine", 1e-9, "--set", "epochs=2", "--trials", 2, "--workers", 1]
    done = cli("tune", *inputs, *strict, *SMALL, "--out", "search")
    done.refused("All 2 trials of aspect on edges failed or are close to collapse. The first:")
    assert "above the maximum of 1e-09" in done.err
    assert "unhealthy" in Path("search/trials.csv").read_text()
    assert not Path("search/settings.yaml").exists()


def test_without_time_no_trial_is_begun(inputs, cli):
    few = ["--trials", 1, "--workers", 1, "--set", "epochs=1", "--max-cosine", 1, *SMALL]
    cli("tune", *inputs, *few, "--seconds", 0).refused("No trial of aspect on edges was done")


def test_the_epochs_of_the_first_trial_are_said_where_they_are_more(inputs, cli):
    few = ["--trials", 1, "--workers", 1, "--set", "width=8", "--seconds", 0]
    told = cli("tune", *inputs, *few, "--max-epochs", 20, "--out", "few").err
    assert ": 1 trial, 1 at a time, of up to 20 epochs, the first of 200;" in told
    told = cli("tune", *inputs, *few, "--max-epochs", 300, "--out", "many").err
    assert "of up to 300 epochs;" in told


def test_what_the_graph_or_the_method_does_not_offer_is_refused(inputs, cli, unlabelled):
    bare = unlabelled.parent / "tables"
    cli("tune", bare / "edges.csv", "--nodes", bare / "nodes.csv").refused("no node has one")
    cli("tune", *inputs, "--method", "raw").refused("No setting of 'raw' has a search range")
    cli("tune", *inputs, "--set", "widht=3").refused("Did you mean 'width'?")
    cli("tune", *inputs, "--splits", "published").refused("No masks were given")
    cli("tune", *inputs, "--set", "epochs=3", "--max-epochs", 5).refused("epochs are fixed at 3")
    cli("tune", *inputs, "--max-cosine", 2).refused(
        "--max-cosine must be less than or equal to 1. Got 2.0."
    )
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_taken_is_refused_before_the_first_search(inputs, cli):
    taken = Path("runs/tune/edges-low")
    taken.mkdir(parents=True)
    (taken / "thesis.txt").write_text("mine")
    cli("tune", *inputs, "--method", "aspect", "--method", "low").refused("holds no search")
    assert list(Path("runs/tune").rglob("*")) == [taken, taken / "thesis.txt"]
