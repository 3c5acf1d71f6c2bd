"""`aspect inspect` as a user meets it: a table, a file, several runs, and wrong words."""

import json

import pytest

from .conftest import TINY

FEW = ["--num-splits", 2]


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Few mixes and short trainings: the numbers are tested elsewhere."""
    monkeypatch.setattr("aspect.evaluation.headroom.MIXES", (0.0, 0.5, 1.0))
    monkeypatch.setattr("aspect.evaluation.headroom.GATE_EPOCHS", 5)


def test_the_table_and_the_file_tell_the_same(cli, trained):
    done = cli("inspect", trained, *FEW, "--out", "h.json")
    assert done.code == 0, done.err
    content = json.loads((cli.cwd / "h.json").read_text(encoding="utf-8"))
    lines = [line for line in done.out.splitlines() if line.startswith("│")]
    assert len(lines) == len(content["rows"]) == 7
    for line, row in zip(lines, content["rows"], strict=True):
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        assert cells[1].startswith(f"{row['accuracy']['mean']:.2f} ± ")
        over = {gain["over"]: gain["mean"] for gain in row["gains"]}
        assert cells[3].startswith(f"{over['one-mix']:+.2f}" if "one-mix" in over else "-")
    assert content["runs"] == [str(trained)]
    assert content["splits"] == "random"
    assert done.out.splitlines()[-1] == content["conclusion"]
    assert content["conclusion"].startswith("Against one mix for all, a gate trained with labels ")
    assert "aspect on edges (30 nodes): percent over 1 run and 2 random splits" in done.out


def test_json_is_all_there_is_and_the_same_again(cli, trained):
    first, again = (cli("inspect", trained, *FEW, "--json").json for _ in range(2))
    assert first == again
    assert first["graph"] == "edges"


def test_runs_are_seeds_of_one_method(cli, inputs):
    for seed in (0, 1):
        given = [*inputs, *TINY, "--method", "aspect-s", "--seed", seed, "--out", f"run-{seed}"]
        assert cli("train", *given).code == 0
    content = cli("inspect", "run-0", "run-1", *FEW, "--json").json
    assert content["method"] == "aspect-s"
    assert content["rows"][0]["accuracy"]["seeds"] == 2
    cli("inspect", "run-0", "run-0", *FEW).refused("must differ in the seed")


def test_other_methods_have_no_gate(cli, raw_run):
    cli("inspect", raw_run).refused("two bands and a gate: aspect or aspect-s. Got raw.")


def test_wrong_words_are_one_sentence(cli, trained, unlabelled, poisoned):
    cli("inspect", trained, "--splits", "published").refused("publishes no splits")
    cli("inspect", trained, "--num-splits", 11).refused("from 1 to 10. Got 11.")
    cli("inspect", trained, "--overwrite").refused("--overwrite replaces the file of --out")
    cli("inspect", trained, "--out", "no/where.json").refused("there is no such file or folder")
    cli("inspect", unlabelled).refused("has no labels, and a probe needs some")
    cli("inspect", poisoned).refused("perturbed for one split")
