"""Bad input: one sentence, exit code 2, nothing half-written, nothing lost."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from aspect.training.health import Health

from .conftest import TINY, snapshot, write_tables


@pytest.fixture
def run_copy(trained, tmp_path):
    """A complete run that a test may damage."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("temperature=0", ["'temperature'", "Got 0"]),
        ("epochs=true", ["'epochs'", "must be a number"]),
        ("learning_rate=1e300", ["'learning_rate'", "less than or equal"]),
        ("epochs=many", ["'epochs'", "Got 'many'"]),
        ("temprature=0.5", ["Unknown setting 'temprature'", "Did you mean 'temperature'?"]),
        ("readout=[", ["readout", "YAML"]),
    ],
)
def test_a_bad_setting(cli, inputs, setting, words):
    cli("train", *inputs, "--set", setting, "--json").refused(*words)
    assert not (cli.cwd / "runs").exists()


@pytest.mark.parametrize("device", ["cuda:9", "tpu"])
def test_a_device_that_is_not_there(cli, inputs, device):
    cli("train", *inputs, "--device", device).refused(device, "cpu")
    assert not (cli.cwd / "runs").exists()


def test_settings_that_are_not_shipped(cli, inputs):
    cli("train", *inputs, "--config", "published").refused("No published settings")
    cli("train", *inputs, "--config", "missing.yaml").refused("missing.yaml")
    (cli.cwd / "broken.yaml").write_text("a: [")
    cli("train", *inputs, "--config", "broken.yaml").refused("broken.yaml", "line 1")
    (cli.cwd / "list.yaml").write_text("- 1")
    cli("train", *inputs, "--config", "list.yaml").refused("names and values")


def test_a_graph_that_is_not_there(cli):
    cli("train", "no/such/edges.csv").refused("no/such/edges.csv")
    cli("train", "graph.xyz").refused(".npz")


def test_options_without_the_graph_they_belong_to(cli, trained):
    cli("train", "--config", trained / "config.yaml", "--nodes", "nodes.csv").refused(
        "belong to a graph"
    )
    assert list(cli.cwd.iterdir()) == []


def test_output_exists(cli, inputs):
    assert cli("train", *inputs, *TINY, "--out", "run").code == 0
    before = snapshot(cli.cwd / "run")
    cli("train", *inputs, *TINY, "--out", "run").refused("--resume", "--overwrite")
    other = cli("train", *inputs, *TINY, "--out", "run", "--resume", "--set", "epochs=4")
    other.refused("other settings")
    assert snapshot(cli.cwd / "run") == before
    assert cli("train", *inputs, *TINY, "--out", "run", "--overwrite").code == 0


@pytest.mark.parametrize("name", ["seed", "device", "prune", "graph", "scale"])
def test_what_the_model_is_given_besides_is_no_setting(cli, inputs, name):
    said = cli("train", *inputs, "--set", f"{name}=1", "--out", "run")
    said.refused(f"Unknown setting '{name}' of aspect.", "Known: epochs, ")
    linked = cli("evaluate", *inputs, "--task", "link", "--set", f"{name}=1")
    linked.refused(f"Unknown setting '{name}' of aspect.", "Known: epochs, ")


def test_a_command_to_copy_is_quoted(cli, inputs):
    done = cli("train", *inputs, *TINY, "--set", "epochs=1", "--out", "my run")
    assert ": 1 epoch in " in done.out
    assert "\nNext: aspect evaluate 'my run'\n" in done.out


def test_a_folder_of_something_else_is_left_alone(cli, inputs):
    (cli.cwd / "photos").mkdir()
    (cli.cwd / "photos" / "cat.jpg").write_bytes(b"miaow")
    before = snapshot(cli.cwd)
    cli("train", *inputs, "--out", "photos", "--overwrite").refused("not a run's folder")
    cli("evaluate", "photos").refused("not a run's folder")
    cli("embed", "photos", "--out", "z.npy").refused("not a run's folder")
    assert snapshot(cli.cwd) == before


def test_output_cannot_be_written(cli, inputs, trained):
    (cli.cwd / "file").write_text("")
    cli("train", *inputs, *TINY, "--out", "file").refused("file")
    cli("train", *inputs, *TINY, "--out", "file/run").refused("not a folder")
    cli("embed", trained, "--out", "file/z.npy").refused("not a folder")
    cli("embed", trained, "--out", "nowhere/z.npy").refused("no such file or folder")
    cli("evaluate", trained, "--out", "file/s.json").refused("not a folder")
    cli("evaluate", trained, "--out", "nowhere/s.json").refused("no such file or folder")
    (cli.cwd / "folder").mkdir()
    cli("evaluate", trained, "--out", "folder", "--overwrite").refused("it is a folder")
    assert (cli.cwd / "file").read_text() == ""


def test_output_is_the_input(cli, trained, tables):
    edges = cli.cwd / "edges.csv"
    shutil.copy(tables / "edges.csv", edges)
    before = edges.read_bytes()
    for command in (
        ["embed", trained / "model.safetensors", edges, "--nodes", tables / "nodes.csv"],
        ["evaluate", edges, "--nodes", tables / "nodes.csv"],
        ["evaluate", tables / "edges.csv", "--nodes", edges],
        ["evaluate", "mixed", "--embeddings", edges],
    ):
        cli(*command, "--out", edges, "--overwrite").refused("one of the inputs")
    assert edges.read_bytes() == before


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_a_runs_own_folder_takes_no_answers(cli, run_copy, trained, overwrite):
    before = snapshot(run_copy)
    for run in (run_copy, trained):
        for name in ("embeddings.npy", "new.csv"):
            told = cli("embed", run, "--out", run_copy / name, *overwrite)
            told.refused("exists" if name == "embeddings.npy" and not overwrite else "run's folder")
    name = "record.json" if overwrite else "scores.json"
    cli("evaluate", trained, "--out", run_copy / name, *overwrite).refused("run's folder")
    (cli.cwd / "link.npy").symlink_to(run_copy / "embeddings.npy")
    cli("embed", trained, "--out", "link.npy", "--overwrite").refused("run's folder")
    assert snapshot(run_copy) == before


@pytest.mark.parametrize("name", ["z.gate.npy", "z.ids.txt"])
def test_a_file_beside_the_matrix_is_found_before_the_work(cli, trained, name, monkeypatch):
    (cli.cwd / name).write_text("mine")
    monkeypatch.setattr(
        "aspect.experiment.trained.open_run", Mock(side_effect=AssertionError("worked"))
    )
    cli("embed", trained, "--out", "z.npy").refused(name, "--overwrite")
    assert [path.name for path in cli.cwd.iterdir()] == [name]


def test_embeddings_are_not_replaced_unasked(cli, trained):
    (cli.cwd / "z.csv").write_text("mine")
    cli("embed", trained, "--out", "z.csv").refused("z.csv", "--overwrite")
    assert (cli.cwd / "z.csv").read_text() == "mine"
    assert cli("embed", trained, "--out", "z.csv", "--overwrite").code == 0


def test_a_run_that_is_missing_or_unfinished(cli, run_copy):
    (run_copy / "record.json").unlink()
    cli("evaluate", run_copy).refused("not complete", "--resume")
    cli("evaluate", run_copy, "missing").refused("missing")
    cli("embed", "missing.safetensors", "mixed", "--out", "z.npy").refused("missing.safetensors")


def test_a_damaged_model(cli, run_copy):
    model = run_copy / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    cli("evaluate", run_copy).refused("model.safetensors", "damaged", "SHA-256")
    model.write_bytes(content[: len(content) // 2])
    cli("embed", run_copy, "--out", "z.npy").refused("model.safetensors", "damaged")
    assert not (cli.cwd / "z.npy").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99}'])
def test_a_damaged_record(cli, run_copy, content):
    (run_copy / "record.json").write_text(content, encoding="utf-8")
    cli("evaluate", run_copy).refused("record.json")


def test_the_graph_changed_since_training(cli):
    write_tables(cli.cwd, count=30)
    graph = ["edges.csv", "--nodes", "nodes.csv", "--method", "raw"]
    assert cli("train", *graph, "--out", "run").code == 0
    write_tables(cli.cwd, count=31)
    cli("evaluate", "run").refused("changed since")
    cli("train", *graph, "--out", "run", "--resume").refused("other settings")


def test_a_graph_with_other_features(cli, trained, tmp_path):
    nodes = tmp_path / "two.csv"
    nodes.write_text("id,f,g\na,1,2\nb,3,4\nc,5,6\n")
    edges = tmp_path / "few.csv"
    edges.write_text("source,target\na,b\nb,c\n")
    cli("embed", trained, edges, "--nodes", nodes, "--out", "z.npy").refused(
        "columns of the training", "lacks 'a', 'b', 'c', 'd'"
    )
    assert not (cli.cwd / "z.npy").exists()


def test_labels_missing_for_the_probe(cli, unlabelled):
    cli("evaluate", unlabelled).refused("no labels", "--label")


def test_what_no_probe_can_evaluate_is_refused_before_the_training(cli, inputs, unlabelled):
    tables = unlabelled.parent / "tables"
    cli("evaluate", tables / "edges.csv", "--nodes", tables / "nodes.csv", *TINY).refused(
        "The graph 'edges' has no labels, and a probe needs some", "--label"
    )
    cli("evaluate", *inputs, *TINY, "--splits", "published").refused("publishes no splits")
    assert not (cli.cwd / "runs").exists()


def test_one_class_only(cli):
    write_tables(cli.cwd, count=30)
    text = (cli.cwd / "nodes.csv").read_text().replace("group 1", "group 0")
    (cli.cwd / "nodes.csv").write_text(text)
    graph = ["edges.csv", "--nodes", "nodes.csv", "--method", "raw"]
    assert cli("train", *graph, "--out", "run").code == 0
    cli("evaluate", "run").refused("at least 2 classes")


def test_splits_that_are_not_published(cli, trained):
    cli("evaluate", trained, "--splits", "published").refused("publishes no splits")


def test_runs_that_cannot_be_compared(cli, trained, inputs):
    cli("evaluate", trained, trained).refused("differ in the seed")
    run = cli("train", *inputs, *TINY, "--set", "order=2", "--seed", 1, "--json").json["run"]
    cli("evaluate", trained, run).refused("another setting")


def test_a_loss_that_is_no_number_stops_and_keeps_the_checkpoint(cli, inputs):
    diverging = ["--set", "learning_rate=1e9", "--set", "layer_order=filter-first"]
    command = ["train", *inputs, *TINY, *diverging, "--checkpoint-every", 1]
    line = cli(*command, "--out", "run").refused("not a finite number", "learning_rate")
    epoch = int(line.split("epoch ")[1].split()[0])
    from aspect.data.tensors import read_tensors

    _, manifest = read_tensors(cli.cwd / "run" / "checkpoint.safetensors")
    assert manifest["state"]["epoch"] == epoch - 1 >= 1
    assert not (cli.cwd / "run" / "record.json").exists()


def test_debug_shows_the_traceback_and_nothing_else_does(cli, inputs):
    command = ["train", *inputs, "--set", "order=0"]
    assert "Traceback" not in cli(*command).err
    told = cli(*command, "--debug")
    assert "Traceback" in told.err
    assert told.code == 2


def test_an_unexpected_error_is_one_line_too(cli, trained, monkeypatch):
    monkeypatch.setattr(
        "aspect.experiment.evaluate.open_run", Mock(side_effect=ZeroDivisionError("oh"))
    )
    told = cli("evaluate", trained)
    assert told.code == 1
    assert told.out == ""
    last = told.err.splitlines()[-1]
    assert last == "Error: ZeroDivisionError: oh (unexpected; run again with --debug to see where)"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes."),
    ],
)
def test_out_of_memory_names_what_to_lower(cli, trained, monkeypatch, error):
    monkeypatch.setattr("aspect.experiment.evaluate.open_run", Mock(side_effect=error))
    cli("evaluate", trained).refused("memory", "width")


def test_text_from_outside_cannot_move_the_cursor(cli, tmp_path):
    (tmp_path / "e.csv").write_text("source,target\na,\x1b[2J[bold]x\n")
    (tmp_path / "n.csv").write_text("id,f\na,1\nb,2\n")
    told = cli("train", tmp_path / "e.csv", "--nodes", tmp_path / "n.csv")
    told.refused("[bold]x")
    assert "\x1b" not in told.err


def test_warnings_reach_the_record_and_the_screen(cli, inputs, monkeypatch):
    monkeypatch.setattr(Health, "warnings", Mock(return_value=["All the same."]))
    told = cli("train", *inputs, *TINY, "--json")
    assert "Warning: All the same." in told.err
    assert "All the same." in told.json["warnings"]
    record = json.loads((cli.cwd / told.json["run"] / "record.json").read_text())
    assert record["warnings"] == told.json["warnings"]
    assert "All the same." in cli("evaluate", told.json["run"]).err


def test_neighbours_of_nobody(cli, trained, run_copy):
    cli("neighbours", trained, "person 7/ä").refused("Got 'person 7/ä'", "Did you mean 'person")
    cli("neighbours", trained, "x", "--k", 0).refused("--k")
    cli("neighbours", cli.cwd, "x").refused("not a run's folder")
    (run_copy / "manifest.json").unlink()
    (run_copy / "embeddings.npy").write_bytes(b"no array")
    cli("neighbours", run_copy, "x").refused("no whole embeddings.npy", "--overwrite")
