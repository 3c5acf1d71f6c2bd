"""Runs from a store: whole, killed at any moment and resumed, by the command line."""

import errno
import io
import json
import subprocess
import sys
from shutil import rmtree
from unittest.mock import Mock

import numpy as np
import pytest
from pyarrow import parquet

from aspect.attacks.pruning import Pruning
from aspect.cli.main import run
from aspect.data.source import Reading
from aspect.data.synthetic import mixed_graph
from aspect.errors import FileError, RunError, SettingsError
from aspect.evaluation.linear_probe import linear_probe
from aspect.experiment import trained_store
from aspect.experiment.trained import RunOptions, open_run, train_run
from aspect.methods.aspect import AspectMethod
from aspect.methods.registry import find_method
from aspect.scale import embedding, rows
from aspect.scale.fit import as_rows, output_of
from aspect.scale.rows import row_plan_of
from aspect.scale.store import GraphStore
from aspect.settings import Experiment, PerturbedBy, RowSettings

EXPERIMENT = Experiment(
    method="aspect",
    seed=3,
    scale="rows",
    rows=RowSettings(batch=50, queue=30, pool=2),
    settings={"epochs": 4, "width": 8, "order": 2, "gate_width": 4},
)

# A child that kills itself: after its third epoch, or in the middle of the embedding.
CHILD = """
import os, signal, sys
from pathlib import Path
from aspect.experiment.trained import RunOptions, train_run
from aspect.scale import embedding, rows
from aspect.settings import Experiment

when, out, experiment = sys.argv[1:]
embedding.STREAMED = rows.STREAMED = 64
embedding.SYNCED = 1
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
write = embedding.write_json
def note(path, content):
    write(path, content)
    if when == "embedding" and content["rows"] == 128:
        die()
embedding.write_json = note
options = RunOptions(
    device="cpu",
    settings_from="a test",
    checkpoint_every=2,
    on_epoch=lambda report: die() if when == "training" and report.epoch == 3 else None,
)
train_run(Experiment.model_validate_json(experiment), Path(out), options)
"""


@pytest.fixture(scope="module", autouse=True)
def _few_rows_at_a_time():
    with pytest.MonkeyPatch.context() as patch:
        for module in (embedding, rows):
            patch.setattr(module, "STREAMED", 64)
        patch.setattr(embedding, "SYNCED", 1)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "graph"
    return GraphStore.from_graph(mixed_graph(num_nodes=200, seed=1), path, rows_per_block=70)


def on_store(store, **changes):
    return EXPERIMENT.model_copy(update={"graph": str(store.path), **changes})


def kill(when, store, out):
    """Begin a run that is killed."""
    words = [when, str(out), on_store(store).model_dump_json()]
    source = f"import sys; sys.path[:0] = {sys.path!r}\n{CHILD}"
    killed = subprocess.run([sys.executable, "-c", source, *words], check=False)
    assert killed.returncode == -9


def stop(_):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """A run that nothing stopped."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    options = RunOptions(device="cpu", settings_from="a test", checkpoint_every=2)
    train_run(on_store(store), out, options)
    return out


def test_a_run_has_the_files_and_the_model_of_any_run(store, whole):
    stored = open_run(whole)
    assert stored.record["graph"]["nodes"] == store.num_nodes
    assert stored.record["epochs"] == 4
    assert sorted(path.name for path in whole.iterdir() if path.name != ".lock") == [
        "config.yaml",
        "embeddings.npy",
        "manifest.json",
        "metrics.jsonl",
        "model.safetensors",
        "policy.npy",
        "record.json",
        "start.json",
    ]
    model, graph = stored.load_model("cpu"), mixed_graph(num_nodes=200, seed=1).graph
    expected = output_of(model.method, as_rows(graph, row_plan_of(model.method)))
    found = np.load(whole / "embeddings.npy")
    np.testing.assert_allclose(found, expected.embedding.detach(), atol=1e-5)
    np.testing.assert_allclose(np.load(whole / "policy.npy"), model.policy(graph), atol=1e-6)
    centred = model.embed(graph)
    assert abs(float(centred.norm(dim=1).mean()) - 4) < 1e-3


@pytest.mark.parametrize("when", ["training", "embedding"])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(store, whole, tmp_path, when):
    out = tmp_path / "run"
    kill(when, store, out)
    assert not (out / "record.json").exists()
    assert (out / "model.safetensors").exists() == (when == "embedding")
    record = train_run(on_store(store), out, RunOptions(checkpoint_every=2, resume=True))
    assert record["epochs"] == 4
    for name in ("embeddings.npy", "policy.npy", "metrics.jsonl", "start.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    ended = json.loads((whole / "record.json").read_text())
    for name in ("loss", "device", "settings_from", "health"):
        assert record[name] == ended[name], name


@pytest.mark.parametrize("when", ["training", "embedding"])
def test_another_run_replaces_all_that_a_killed_one_left(store, tmp_path, when):
    out = tmp_path / "run"
    kill(when, store, out)
    assert (out / "bases").is_dir()
    other = on_store(store, seed=5)
    with pytest.raises(KeyboardInterrupt):
        train_run(other, out, RunOptions(device="cpu", overwrite=True, on_epoch=stop))
    assert not (out / "embedding.json").exists()
    train_run(other, out, RunOptions(device="cpu", resume=True))
    train_run(other, tmp_path / "alone", RunOptions(device="cpu"))
    for name in ("embeddings.npy", "policy.npy", "metrics.jsonl"):
        assert (out / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name


def test_a_disk_that_fills_up_while_embeddings_are_written(store, whole, tmp_path, monkeypatch):
    opened = embedding._opened

    class Filling(io.FileIO):
        def write(self, part):
            if self.tell() > 64 * 4 * 20:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(part[:100])  # as far as it goes

    def filling(path, shape, done):
        with opened(path, shape, done) as made:
            file = Filling(path, "r+")
            file.seek(made.tell())
        return file

    options = RunOptions(device="cpu", resume=True)
    with monkeypatch.context() as full:
        full.setattr(embedding, "_opened", filling)
        with pytest.raises(FileError, match=r"Cannot write to .*embeddings\.npy: the disk is full"):
            train_run(on_store(store), tmp_path, RunOptions(device="cpu"))
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: Mock(free=100))
        with pytest.raises(
            FileError, match=r"MiB of disk, and 0\.00 MiB are free\. .* lower width"
        ):
            train_run(on_store(store), tmp_path, options)
    train_run(on_store(store), tmp_path, options)
    for name in ("embeddings.npy", "policy.npy"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_disk_without_room_for_the_embeddings_is_refused_before_the_training(
    store, tmp_path, monkeypatch
):
    monkeypatch.setattr(trained_store, "train", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_run(on_store(store), tmp_path, RunOptions(device="cpu"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: Mock(free=100))
    with pytest.raises(FileError, match=r"0\.00 MiB are free\. .* lower width"):
        train_run(on_store(store), tmp_path, RunOptions(device="cpu", resume=True))


def test_embeddings_are_written_in_row_groups(whole, tmp_path, capsys):
    out = tmp_path / "nodes.parquet"
    assert run(["embed", str(whole), "--out", str(out), "--normalise", "none"]) == 0
    assert "Wrote 200 embeddings of 48 dimensions" in capsys.readouterr().out
    table = parquet.read_table(out)
    assert parquet.ParquetFile(out).num_row_groups == 4
    assert table.column_names[:3] == ["id", "gate", "z0"]
    rows = np.stack([table[f"z{k}"].to_numpy() for k in range(48)], axis=1)
    np.testing.assert_array_equal(rows, np.load(whole / "embeddings.npy"))
    np.testing.assert_array_equal(table["id"].to_numpy(), np.arange(200))
    assert run(["embed", str(whole), "--out", str(tmp_path / "nodes.csv")]) == 2
    assert "written as .parquet" in capsys.readouterr().err


def test_a_store_that_is_gone_or_changed_since_the_training_is_refused(tmp_path, capsys):
    path = tmp_path / "graph"
    store = GraphStore.from_graph(mixed_graph(num_nodes=200, seed=1), path, rows_per_block=70)
    train_run(on_store(store), tmp_path / "run", RunOptions(device="cpu"))
    rmtree(path)
    for sentence in (f"{path} holds no graph store", "changed since"):
        for command in (["embed", "--out", str(tmp_path / "z.parquet")], ["evaluate"]):
            assert run([command[0], str(tmp_path / "run"), *command[1:]]) == 2
            assert sentence in capsys.readouterr().err
        GraphStore.from_graph(mixed_graph(num_nodes=200, seed=2), path, rows_per_block=70)


def test_a_damaged_block_is_not_trained_on(tmp_path):
    store = GraphStore.from_graph(mixed_graph(num_nodes=200, seed=1), tmp_path / "graph")
    block = store.path / "features-00000.npy"
    damaged = bytearray(block.read_bytes())
    damaged[-7] ^= 1
    block.write_bytes(damaged)
    with pytest.raises(RunError, match=r"features-00000\.npy is damaged"):
        train_run(on_store(store), tmp_path / "run", RunOptions(device="cpu"))


def test_a_run_is_probed_beside_its_features(whole, capsys):
    assert run(["evaluate", str(whole), "--device", "cpu", "--json"]) == 0
    found = {row["name"]: row["strict"] for row in json.loads(capsys.readouterr().out)["rows"]}
    # All 200 nodes are drawn, so that the splits are those of the graph in memory.
    labelled = mixed_graph(num_nodes=200, seed=1)
    expected = {"aspect": np.load(whole / "embeddings.npy")}
    for name in ("raw", "propagated"):
        known = find_method(name)
        control = known.method(known.config(), labelled.graph.num_features)
        expected[name] = control.embed(labelled.graph)
    for name, rows_of in expected.items():
        mean = linear_probe(rows_of, labelled.labels).strict.mean
        assert found[name]["mean"] == pytest.approx(mean, abs=0.3), name
    assert list(found) == [*expected, "majority class"]
    assert run(["evaluate", str(whole), "--splits", "class-balanced"]) == 2
    assert "Leave --perturbation, --prune and --splits out." in capsys.readouterr().err


def test_a_store_is_trained_on_and_probed_by_one_command(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", str(store.path), "--set", "epochs=1", "--set", "width=8"]
    assert run([*words, "--prune", "0.1"]) == 2
    assert "is a store, which is probed on random splits" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert run([*words, "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == "aspect"
    assert found["runs"] == ["runs/graph-aspect-0"]


def test_a_complete_run_is_left_as_it_is(store, whole):
    before = (whole / "record.json").stat().st_mtime_ns
    (whole / "bases" / "clean").mkdir(parents=True)  # a kill before it was swept
    record = train_run(on_store(store), whole, RunOptions(device="cpu", resume=True))
    assert record["epochs"] == 4
    assert not (whole / "bases").exists()
    assert (whole / "record.json").stat().st_mtime_ns == before


def test_another_run_in_the_folder_is_refused(store, whole):
    with pytest.raises(RunError, match="other settings"):
        train_run(on_store(store, seed=4), whole, RunOptions(device="cpu", resume=True))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"perturbation": PerturbedBy(file="flips.safetensors")}, "A perturbation"),
        ({"prune": Pruning(ratio=0.3)}, "Edge pruning"),
        ({"scale": "full", "rows": None}, "--scale full"),
        ({"reading": Reading(label="y")}, "An option of reading"),
    ],
)
def test_what_a_store_cannot_be_given_is_refused_and_not_left_out(store, tmp_path, changes, what):
    with pytest.raises(SettingsError, match=rf"^{what} needs a graph in memory, and .* is a store"):
        train_run(on_store(store, **changes), tmp_path / "run", RunOptions(device="cpu"))
    assert not (tmp_path / "run").exists()


def test_a_graph_that_stays_on_the_disk_is_not_read_whole(whole, tmp_path, capsys):
    for words in (
        ["report", str(whole), "--out", str(tmp_path / "report.html")],
        ["evaluate", str(whole), "--task", "cluster"],
    ):
        assert run(words) == 2
        assert "trained on a store, which is never read whole" in capsys.readouterr().err


def test_the_command_line_takes_a_store(store, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", str(store.path), "--scale", "rows", "--batch", "80", "--out", str(out)]
    assert run([*words, "--set", "epochs=1", "--set", "width=8", "--device", "cpu"]) == 0
    assert "200 nodes" in capsys.readouterr().out
    assert run(["train", "--out", str(out), "--resume"]) == 0  # it is complete


def test_out_of_memory_says_what_to_lower(store, tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(AspectMethod, "loss_terms", full)
    words = ["train", str(store.path), "--scale", "rows", "--out", str(tmp_path / "run")]
    assert run([*words, "--device", "cpu"]) == 2
    said = "Out of memory at epoch 1. Lower order or width or --batch or --queue, or choose"
    assert said in capsys.readouterr().err
