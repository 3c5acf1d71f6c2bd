"""Perturbed graphs as a user meets them: attack, train on what it leaves, and evaluate."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from aspect.attacks.file import PerturbationFile
from aspect.data.source import read_graph
from aspect.data.tensors import write_tensors
from aspect.estimator import Embedder
from aspect.methods.controls import RawFeatures
from aspect.settings import load_experiment

from .conftest import TINY, snapshot, write_tables

QUICK = "probe: {learning_rate: 0.05, weight_decay: 0.001, steps: 20}\n"
SETTINGS = f"{QUICK}settings: {{epochs: 2, width: 8, gate_width: 4}}\n"
NAMES = ["aspect", "random", "raw", "propagated", "spectral", "neighbour sets", "majority class"]


def test_attack_train_evaluate_embed(cli, inputs, file):
    done = cli("train", *inputs, "--perturbation", file, "--budget", 0.1, *TINY)
    assert done.code == 0, done.err
    run = "runs/edges-aspect-0-metattack-implicit-class-balanced-2-0.1"
    graph = read_graph(inputs[0], nodes=inputs[2])
    count = round(0.1 * graph.graph.num_edges)
    assert f"The graph was perturbed first by metattack (implicit): {count} flips" in done.out
    assert "evaluated on class-balanced split 2 alone" in done.out
    edges = json.loads(Path(run, "record.json").read_text("utf-8"))["perturbation"]["edges"]
    assert edges != graph.graph.num_edges
    assert f"Trained aspect on edges (30 nodes, {edges} edges," in done.out
    title = f"perturbed by metattack (implicit), class-balanced split 2, 10% ({count} flips)"
    assert title in done.err

    found = cli("evaluate", run, "--json").json
    assert (found["mode"], found["kind"], found["solver"]) == ("poison", "metattack", "implicit")
    assert [(row["name"], row["splits"]) for row in found["rows"]] == [(n, [2]) for n in NAMES]
    assert found["rows"][0]["clean"] is None
    assert found["rows"][0]["drop"] is None
    assert found["perturbations"][0]["sha256"] == PerturbationFile.read(file).digest(0.1)

    cli("evaluate", run, "--splits", "random").refused("made for class-balanced splits")

    embedded = cli("embed", run, "--out", "z.npy")
    assert "was trained on a perturbed graph, and that one is embedded" in embedded.err
    np.testing.assert_array_equal(np.load("z.npy"), np.load(f"{run}/embeddings.npy"))
    assert "was trained on" not in cli("embed", run, *inputs, "--out", "clean.npy").err
    assert not np.array_equal(np.load("clean.npy"), np.load("z.npy"))
    expected = Embedder.load(f"{run}/model.safetensors").embed(graph)
    np.testing.assert_array_equal(np.load("clean.npy"), expected)


def test_the_saved_settings_repeat_a_poisoned_run(cli, inputs, file):
    options = ["--perturbation", file, "--edges-only", *TINY, "--json"]
    run = cli("train", *inputs, *options).json["run"]
    reached = f"{PerturbationFile.read(file).reached:g}"
    assert run == f"runs/edges-aspect-0-metattack-implicit-class-balanced-2-{reached}-edges"
    config = f"{run}/config.yaml"
    told = load_experiment(Path(config)).perturbation
    assert (told.file, told.features) == (str(file), False)
    assert cli("train", "--config", config, "--out", "again").code == 0
    for name in ("embeddings.npy", "policy.npy", "metrics.jsonl", "config.yaml"):
        assert Path("again", name).read_bytes() == Path(run, name).read_bytes()
    other = cli("train", "--config", config, "--seed", 1, "--json").json["run"]
    assert other == run.replace("aspect-0", "aspect-1")
    before = snapshot(run)
    assert cli("train", "--out", run, "--resume").code == 0
    assert cli("train", *inputs, *options, "--resume").code == 0
    cli("train", *inputs, *options[:2], *TINY, "--out", run, "--resume").refused("other settings")
    assert snapshot(run) == before


def test_the_sweep_is_one_command(cli, inputs, flips):
    Path("own.yaml").write_text(SETTINGS)
    options = ["--config", "own.yaml", "--probe", "published", "--budget", 0.1, "--budget", 0.2]
    arguments = ["evaluate", *inputs, "--perturbation", flips, *options]
    done = cli(*arguments, "--out", "scores.json", "--json")
    found = done.json
    assert json.loads(Path("scores.json").read_text()) == found
    assert "5 trainings: 1 on the clean graph and 4 on perturbed ones" in done.err
    assert "5 of 5: Training aspect with seed 0 on edges, perturbed by metattack" in done.err
    name = "runs/edges-aspect-0"
    attacks = [f"{budget:g}" for budget in (0.1, 0.2)]
    assert found["runs"] == [
        name,
        *(
            f"{name}-metattack-implicit-class-balanced-{split}-{budget}"
            for budget in attacks
            for split in (0, 2)
        ),
    ]
    assert [(row["name"], row["budget"], row["splits"]) for row in found["rows"]] == [
        (name, budget, [0, 2]) for name in NAMES for budget in (0.1, 0.2)
    ]
    for row in found["rows"]:
        assert row["clean"]["splits"] == row["perturbed"]["splits"] == 2
        clean, perturbed = row["clean"]["mean"], row["perturbed"]["mean"]
        assert row["drop"] == pytest.approx(100 * (clean - perturbed) / clean)
    before = snapshot("runs")
    again = cli(*arguments)
    assert snapshot("runs") == before  # nothing is trained twice
    assert "edges under metattack (implicit), mode poison" in again.out
    assert f"{found['rows'][0]['drop']:.2f}" in again.out
    by_hand = cli("evaluate", *reversed(found["runs"]), "--probe", "published", "--json").json
    assert by_hand["rows"] == found["rows"]


def test_evasion_of_a_graph_and_of_its_run(cli, inputs, flips):
    Path("own.yaml").write_text(SETTINGS)
    how = ["--probe", "published", "--perturbation", f"{flips}/*-2.*", "--mode", "evade", "--json"]
    found = cli("evaluate", *inputs, "--config", "own.yaml", *how).json
    assert found["runs"] == ["runs/edges-aspect-0"]
    assert found["mode"] == "evade"
    assert [(row["name"], row["splits"]) for row in found["rows"]] == [
        (name, [2]) for name in NAMES if name != "spectral"
    ]
    again = cli("evaluate", "runs/edges-aspect-0", *how).json
    assert again == found


def test_a_run_without_the_drop_says_what_is_missing(cli, inputs, file):
    run = cli("train", *inputs, "--method", "raw", "--perturbation", file, "--json").json["run"]
    done = cli("evaluate", run, "--mode", "poison")
    assert "For the drop of raw, give its run on the clean graph as well." in done.out
    assert [line.split("│")[1].strip() for line in done.out.splitlines() if "%" in line[:30]] == [
        "raw",
        "random",
        "propagated",
        "spectral",
        "neighbour sets",
        "majority class",
    ]


@pytest.mark.parametrize("retrain", [[], ["--retrain"]])
def test_an_interrupted_sweep_goes_on(cli, inputs, file, monkeypatch, retrain):
    from aspect.training.folder import RunFolder

    Path("own.yaml").write_text(SETTINGS)
    how = ["--config", "own.yaml", "--probe", "published"]
    arguments = ["evaluate", *inputs, "--perturbation", file, *how]
    with monkeypatch.context() as patch:
        done = RunFolder.training_done

        def stop(folder):
            done(folder)
            if "metattack" in folder.path.name:
                raise KeyboardInterrupt

        patch.setattr(RunFolder, "training_done", stop)
        told = cli(*arguments, *retrain)
    assert told.code == 130
    without = " without --retrain" if retrain else ""
    assert told.err.endswith(f"Interrupted. The same command{without} goes on.\n")
    clean = snapshot("runs/edges-aspect-0")
    assert cli(*arguments).code == 0
    assert snapshot("runs/edges-aspect-0") == clean


# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", 0.5], "run a longer attack"),
        (["--budget", 1e-6], "allows no flip of"),
        (["--set", "order=0"], "'order'"),
        (["--device", "tpu"], "Unknown device 'tpu'"),
    ],
)
@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_what_the_file_does_not_allow_is_refused(cli, inputs, file, name, options, words):
    cli(name, *inputs, "--perturbation", file, *options).refused(words)
    assert list(cli.cwd.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--splits", "random"], "made for class-balanced splits"),
        (["--probe", "published", "--config", "defaults"], "--config published"),
    ],
)
def test_what_would_be_refused_in_the_end_is_refused_before(cli, inputs, file, options, words):
    cli("evaluate", *inputs, "--perturbation", file, *options).refused(words)
    assert list(cli.cwd.iterdir()) == []


def test_a_file_of_another_graph(cli, flips, file):
    cli("train", "mixed", "--perturbation", file).refused("belongs to the graph 'edges'")
    cli("evaluate", "mixed", "--perturbation", file).refused("belongs to the graph 'edges'")
    cli("evaluate", "mixed", "--perturbation", flips).refused("no perturbation file of this graph")
    assert list(cli.cwd.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\x08" + bytes(40)])
def test_a_file_that_is_none(cli, content):
    Path("f.safetensors").write_bytes(content)
    for name in ("train", "evaluate"):
        cli(name, "mixed", "--perturbation", "f.safetensors").refused("f.safetensors", "damaged")
    write_tensors(Path("f.safetensors"), {}, {"kind": "model"})
    refused = cli("train", "mixed", "--perturbation", "f.safetensors")
    refused.refused("not a perturbation but a model")
    assert [path.name for path in cli.cwd.iterdir()] == ["f.safetensors"]


def test_files_of_two_attacks(cli, inputs, flips):
    shutil.copytree(flips, "both")
    attack = ["attack", *inputs, "--kind", "dice", "--flips", 9, "--split", 0]
    assert cli(*attack, "--out", "both/dice.safetensors").code == 0
    cli("evaluate", *inputs, "--perturbation", "both").refused("must be of one attack", "quotes")
    assert not Path("runs").exists()


def test_a_method_bound_to_its_graph_is_not_trained_for_evasion(cli, inputs, file, monkeypatch):
    monkeypatch.setattr(RawFeatures, "inductive", False)
    arguments = ["evaluate", *inputs, "--method", "raw", "--perturbation", file]
    cli(*arguments, "--mode", "evade").refused("raw cannot embed a graph", "take mode poison")
    assert list(cli.cwd.iterdir()) == []


def test_a_file_that_changes_after_the_training(cli, inputs):
    attack = ["attack", *inputs, "--kind", "random", "--flips", 12, "--split", 0]
    assert cli(*attack, "--out", "own.safetensors").code == 0
    options = ["--perturbation", "own.safetensors", "--method", "raw"]
    run = cli("train", *inputs, *options, "--json").json["run"]
    before = snapshot(run)
    assert cli(*attack, "--seed", 1, "--out", "own.safetensors", "--overwrite").code == 0
    for words in (["evaluate", run], ["embed", run, "--out", "z.npy"], ["train", "--out", run]):
        more = ["--resume"] if words[0] == "train" else []
        cli(*words, *more).refused("own.safetensors", "is not the file")
    again = [*inputs, *options]
    cli("evaluate", *again).refused("other settings", "--retrain")
    Path("own.safetensors").unlink()
    cli("evaluate", run).refused("no perturbation file at")
    assert snapshot(run) == before


def test_a_graph_that_changes_after_the_training(cli):
    write_tables(cli.cwd, count=30)
    inputs = ["edges.csv", "--nodes", "nodes.csv", "--device", "cpu"]
    attack = ["--kind", "random", "--flips", 12, "--split", 0, "--out", "own.safetensors"]
    assert cli("attack", *inputs, *attack).code == 0
    options = ["--perturbation", "own.safetensors", "--method", "raw"]
    run = cli("train", *inputs, *options, "--json").json["run"]
    write_tables(cli.cwd, count=31)
    cli("evaluate", run).refused("changed since the training")
    cli("train", *inputs, *options, "--out", "new").refused("belongs to the graph 'edges'")
    assert not Path("new").exists()
