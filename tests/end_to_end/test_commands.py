"""Every command, as tables for people and as one JSON object for programs."""

import json

import numpy as np
import pyarrow.parquet
import pytest
import torch

from aspect import Aspect, read_graph
from aspect.attacks.pruning import Pruning, edge_score_text, reached_text
from aspect.attacks.purification import prune_edges
from aspect.data.source import DATASETS
from aspect.data.synthetic import embedded_graph
from aspect.experiment.trained import open_run
from aspect.settings import load_experiment

from .conftest import TINY, write_tables

CONTROLS = ["random", "raw", "propagated", "spectral", "neighbour sets", "majority class"]

FILES = {
    "manifest.json",
    "config.yaml",
    "start.json",
    "metrics.jsonl",
    "model.safetensors",
    "embeddings.npy",
    "policy.npy",
    "ids.txt",
    "features.json",
    "record.json",
}


def skip(record):
    """Columns of the skip connection beside the two bands."""
    return min(32, 3 * record["graph"]["features"])


def test_train_leaves_a_whole_folder(trained):
    assert {path.name for path in trained.iterdir()} - {".lock"} == FILES
    record = json.loads((trained / "record.json").read_text())
    embeddings, policy = np.load(trained / "embeddings.npy"), np.load(trained / "policy.npy")
    assert embeddings.shape == (30, record["dim"]) == (record["graph"]["nodes"], 16 + skip(record))
    assert policy.shape == (30,)
    assert record["gate"]["mean"] == pytest.approx(policy.mean(), rel=1e-5)
    assert len((trained / "metrics.jsonl").read_text().splitlines()) == record["epochs"] == 2
    ids = [json.loads(line) for line in (trained / "ids.txt").read_text().splitlines()]
    assert ids[0] == "person 00/ä"
    assert set(record["versions"]) == {"aspect", "python", "torch", "torch-geometric", "numpy"}
    assert record["seed"] == 0


def test_a_settings_file_of_the_method_alone_and_one_json_object(cli, inputs):
    (cli.cwd / "own.yaml").write_text("epochs: 2\nwidth: 4\nlearning_rate: 1e-3\n")
    done = cli("train", *inputs, "--config", "own.yaml", "--set", "width=6", "--json")
    record = done.json
    assert done.out.count("\n") == 1
    assert (record["run"], record["epochs"]) == ("runs/edges-aspect-0", 2)
    assert record["dim"] == 12 + skip(record)
    assert record["seconds"] > 0
    assert set(record["gate"]) == {"mean", "std"}
    assert record["settings"]["learning_rate"] == 1e-3
    assert record["settings_from"] == "own.yaml, width=6"
    assert "settings: own.yaml, width=6" in done.err


def test_a_method_without_a_policy_has_no_gate(raw_run):
    assert json.loads((raw_run / "record.json").read_text())["gate"] is None
    assert not (raw_run / "policy.npy").exists()


def test_without_a_graph_the_embedded_one_is_taken(cli):
    found = cli("train", "--config", "defaults", *TINY, "--json").json
    assert found["graph"]["name"] == "mixed"
    graph = embedded_graph().graph
    assert found["graph"]["nodes"] == graph.num_nodes
    assert found["notices"] == list(graph.notices)


def test_the_saved_settings_repeat_the_run(cli, trained):
    again = cli("train", "--config", trained / "config.yaml", "--out", "again", "--json").json
    assert again["graph"]["sha256"] == load_experiment(trained / "config.yaml").graph_sha256
    for name in ("embeddings.npy", "policy.npy", "metrics.jsonl", "config.yaml"):
        assert (cli.cwd / "again" / name).read_bytes() == (trained / name).read_bytes()
    other = cli("train", "--config", trained / "config.yaml", "--seed", 1, "--json").json
    assert other["seed"] == 1
    assert not np.array_equal(
        np.load(cli.cwd / other["run"] / "embeddings.npy"), np.load(trained / "embeddings.npy")
    )


def test_a_complete_run_is_not_trained_again_by_resume(cli, trained):
    before = {path: path.stat().st_mtime_ns for path in trained.iterdir()}
    assert cli("train", "--out", trained, "--resume", "--json").json["epochs"] == 2
    kept = {path: path.stat().st_mtime_ns for path in trained.iterdir()}
    assert kept == before


def test_evaluate_prints_the_method_the_controls_and_the_classes(cli, trained):
    done = cli("evaluate", trained)
    assert done.code == 0, done.err
    assert "10 random splits; probe: neutral" in done.out
    for name in ("random", "raw", "propagated", "spectral", "neighbour sets", "majority class"):
        assert f"\n{name}: " in done.out, "every control is explained in a line of its own"
    for column in ("accuracy", "recall", "precision", "test nodes"):
        assert column in done.out
    assert "optimistic" not in done.out
    assert "published tables" not in done.out


def test_the_paper_s_probe_and_splits_are_labelled_as_such(cli, trained):
    done = cli("evaluate", trained, "--probe", "paper", "--splits", "class-balanced")
    assert "optimistic*" in done.out
    assert "* chooses the step on the test set: only for comparison" in done.out
    assert "Class-balanced splits are only for comparison with published tables" in done.out


def test_evaluate_adds_a_row_with_pruned_edges(cli, trained):
    found = cli("evaluate", trained, "--prune", 0.1, "--prune", 0.3, "--json").json
    names = [row["name"] for row in found["rows"]]
    assert names == ["aspect", "aspect, pruned", *CONTROLS]


def test_evaluate_answers_with_one_json_object_and_a_file(cli, trained):
    found = cli("evaluate", trained, "--out", "scores.json", "--json").json
    assert json.loads((cli.cwd / "scores.json").read_text()) == found
    cli("evaluate", trained, "--out", "scores.json").refused("scores.json", "exists")
    assert json.loads((cli.cwd / "scores.json").read_text()) == found
    assert 0 <= found["strict"]["mean"] <= 100
    assert found["optimistic"] is None
    assert found["strict"]["low"] <= found["strict"]["mean"] <= found["strict"]["high"]
    assert found["strict"]["std"] >= 0
    assert [row["name"] for row in found["rows"]] == ["aspect", *CONTROLS]
    assert {"macro_f1", "roc_auc", "knn", "splits", "runs"} <= set(found)
    assert found["strict"] == found["rows"][0]["strict"]
    assert found["rows"][-1]["knn"] is None
    assert 0 <= found["at_path_end"] <= 100
    assert found["rows"][-1]["at_path_end"] is None
    assert [score["name"] for score in found["per_class"]] == ["group 0", "group 1"]
    assert {"label", "recall", "precision", "f1", "roc_auc", "support"} <= set(
        found["per_class"][0]
    )
    (health,) = found["health"]
    assert {"mean_cosine", "effective_rank"} <= set(health)


def test_evaluate_trains_several_seeds_of_a_graph(cli, inputs):
    found = cli("evaluate", *inputs, *TINY, "--seeds", 2, "--json").json
    assert found["runs"] == ["runs/edges-aspect-0", "runs/edges-aspect-1"]
    assert found["strict"]["seeds"] == 2
    assert found["strict"]["std_seeds"] is not None
    again = cli("evaluate", "runs/edges-aspect-0", "runs/edges-aspect-1", "--json").json
    assert again["rows"] == found["rows"]


def test_evaluate_begins_with_the_seed_of_the_settings_file(cli, inputs):
    (cli.cwd / "mine.yaml").write_text("method: raw\nseed: 3\n")
    command = ["evaluate", *inputs, "--config", "mine.yaml", "--json"]
    assert cli(*command, "--seeds", 2).json["runs"] == ["runs/edges-raw-3", "runs/edges-raw-4"]
    assert cli(*command, "--seed", 0).json["runs"] == ["runs/edges-raw-0"]


def test_evaluate_replaces_its_file_and_keeps_the_runs(cli, inputs):
    command = ["evaluate", *inputs, *TINY]
    run = cli.cwd / "runs" / "edges-aspect-0"
    assert cli(*command, "--out", "s.json").code == 0
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    assert cli(*command, "--out", "s.json", "--overwrite").code == 0
    assert {path: path.stat().st_mtime_ns for path in run.iterdir()} == before
    (run / "record.json").unlink()
    assert cli(*command).code == 0  # goes on with the run
    assert (run / "config.yaml").stat().st_mtime_ns == before[run / "config.yaml"]
    other = [*command, "--set", "order=2"]
    line = cli(*other, "--out", "s.json", "--overwrite").refused("other settings", "--retrain")
    assert "--overwrite" not in line
    assert cli(*other, "--retrain").code == 0
    assert json.loads((run / "record.json").read_text())["settings"]["order"] == 2


def test_the_name_of_a_data_set_wins_over_a_folder_without_a_run(cli, raw_run):
    (cli.cwd / "mixed").mkdir()
    (cli.cwd / "mixed" / "notes.txt").write_text("mine")
    settings = ["--config", "defaults", "--method", "raw"]
    assert cli("evaluate", "mixed", *settings, "--json").json["graph"] == "mixed"
    (cli.cwd / "texas").symlink_to(raw_run)
    assert cli("evaluate", "texas", "--json").json["graph"] == "edges"


def test_the_published_probe_needs_published_settings(cli, trained, inputs):
    cli("evaluate", trained, "--probe", "published").refused("--config published")
    probe = "probe: {learning_rate: 0.05, weight_decay: 0.001, steps: 7}\n"
    (cli.cwd / "own.yaml").write_text(f"{probe}settings: {{epochs: 1, width: 4}}\n")
    run = cli("train", *inputs, "--config", "own.yaml", "--json").json["run"]
    found = cli("evaluate", run, "--probe", "published", "--json").json
    assert found["probe"] == "published"
    assert found["strict"]["mean"] <= found["optimistic"]["mean"]


def test_embed_gives_what_training_left(cli, trained):
    found = cli("embed", trained, "--out", "z.parquet", "--gate", "--json").json
    assert found["nodes"] == 30
    assert found["gate_out"] is None
    table = pyarrow.parquet.read_table(cli.cwd / "z.parquet").to_pydict()
    assert table["id"][1] == "person 01/ä"
    np.testing.assert_allclose(table["gate"], np.load(trained / "policy.npy"), rtol=1e-6)
    matrix = np.stack([table[f"z{k}"] for k in range(found["dim"])], axis=1)
    np.testing.assert_allclose(matrix, np.load(trained / "embeddings.npy"), rtol=1e-6)


def test_embed_writes_the_gate_beside_what_has_no_column_for_it(cli, trained, raw_run):
    found = cli("embed", trained, "--out", "z.csv", "--json").json
    assert found["gate_out"] == "z.gate.csv"
    told = cli("embed", trained, "--out", "z.csv", "--overwrite")
    assert "Gate weights: z.gate.csv." in told.out
    lines = (cli.cwd / "z.gate.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == '"id","gate"'
    assert len(lines) == 31
    cli("embed", trained, "--out", "z.npy", "--gate").refused("leave --gate out")
    cli("embed", trained, "--out", "y.vec").refused("ids with spaces", "person 00")
    assert cli("embed", raw_run, "--out", "raw.csv", "--json").json["gate_out"] is None
    assert sorted(path.name for path in cli.cwd.iterdir()) == ["raw.csv", "z.csv", "z.gate.csv"]


def test_embed_serves_a_graph_that_was_not_trained_on(cli, trained):
    other = cli.cwd / "other"
    other.mkdir()
    write_tables(other, count=41, label=False, shift=1.0)
    inputs = [other / "edges.csv", "--nodes", other / "nodes.csv"]
    model = trained / "model.safetensors"
    found = cli("embed", model, *inputs, "--out", "new.npy", "--json").json
    assert found["nodes"] == 41
    loaded = Aspect.load(model)
    labelled = read_graph(inputs[0], nodes=inputs[2], encoder=loaded.encoder)
    expected = loaded.embed(labelled)
    assert torch.isfinite(expected).all()
    np.testing.assert_array_equal(np.load(cli.cwd / "new.npy"), expected.numpy())


def test_embed_prunes_edges(cli, trained):
    whole = open_run(trained).read_trained_graph()
    found = cli("embed", trained, "--prune", 0.2, "--out", "z.npy", "--json").json
    assert found["pruned_edges"] == whole.num_edges - prune_edges(whole, 0.2).num_edges
    expected = Aspect.load(trained / "model.safetensors").embed(prune_edges(whole, 0.2))
    np.testing.assert_array_equal(np.load(cli.cwd / "z.npy"), expected.numpy())
    told = cli("embed", trained, "--prune", 0.2, "--out", "z.csv")
    assert found["edges"] == whole.num_edges
    reached = reached_text(found["pruned_edges"], whole.num_edges, 0.2)
    score = edge_score_text("auto", found["prune_score"])
    assert f"Pruned: {reached}. {score}" in " ".join(told.out.split())


@pytest.mark.parametrize("soft", [False, True])
def test_train_tells_how_many_edges_were_pruned_and_by_which_score(cli, inputs, soft):
    how = ["--prune", 0.6, *(["--prune-soft"] if soft else []), "--out", "run"]
    told = " ".join(cli("train", *inputs, *TINY, *how).out.split())
    stored = json.loads((cli.cwd / "run/record.json").read_text())["prune"]
    assert stored["edges"] == open_run(cli.cwd / "run").read_trained_graph().num_edges
    assert 0 < stored["reached"] <= 0.6
    count = round(stored["reached"] * stored["edges"])
    assert stored["pruned"] == (0 if soft else count)
    reached, score = reached_text(count, stored["edges"], 0.6), stored["used_score"]
    what = "Weighed less" if soft else "Pruned"
    assert f"{what} before the training: {reached}. {edge_score_text('auto', score)}" in told


def test_rows_are_not_taken_for_a_graph_without_edges(cli, inputs):
    whole = cli("train", *inputs, *TINY, "--scale", "rows", "--out", "whole", "--json").json
    assert cli("embed", whole["run"], "--out", "z.npy", "--json").json["pruned_edges"] == 0
    how = ["--scale", "rows", "--prune", 0.2, "--out", "run"]
    told = cli("train", *inputs, *TINY, *how, "--json").json
    assert told["prune"]["pruned"] <= 0.2 * told["graph"]["edges"]
    found = cli("embed", told["run"], "--out", "y.npy", "--json").json
    assert found["pruned_edges"] == told["prune"]["pruned"]


def test_train_on_a_pruned_graph_and_all_that_follows_prunes_alike(cli, inputs):
    how = ["--prune", 0.25, "--prune-score", "features", "--prune-rounds", 2]
    done = cli("train", *inputs, *TINY, *how, "--json")
    run = cli.cwd / done.json["run"]
    assert run.name == "edges-aspect-0-pruned"
    whole = open_run(run).read_trained_graph()
    assert done.json["prune"]["pruned"] == round(0.25 * whole.num_edges)
    assert load_experiment(run / "config.yaml").prune == Pruning(
        ratio=0.25, score="features", rounds=2
    )
    unpruned = cli("train", *inputs, "--config", run / "config.yaml", "--prune", 0, "--json").json
    assert unpruned["run"] == "runs/edges-aspect-0"
    assert unpruned.get("prune") is None
    left = whole.num_edges - done.json["prune"]["pruned"]
    assert (
        f"({whole.num_nodes} nodes, {left} edges,"
        in cli("train", *inputs, *TINY, *how, "--overwrite").out
    )
    found = cli("embed", run, "--out", "z.npy", "--json").json
    assert found["pruned_edges"] == done.json["prune"]["pruned"]
    np.testing.assert_array_equal(np.load(cli.cwd / "z.npy"), np.load(run / "embeddings.npy"))
    again = cli("embed", run, "--prune", 0.1, "--out", "y.npy")
    assert again.code == 2
    assert "prunes every graph by its own rule" in again.err
    judged = cli("evaluate", run, "--json").json
    assert judged["rows"][0]["name"] == "aspect, pruned in training"
    twice = cli("evaluate", run, "--prune", 0.1)
    assert twice.code == 2
    assert "Leave --prune out" in twice.err
    resumed = cli("train", *inputs, *TINY, "--out", run, "--resume")
    assert resumed.code == 2  # it was trained with other settings


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--prune", "half"], "above 0 and below 1, or auto. Got 'half'"),
        (["--prune", "1.5"], "above 0 and below 1, or auto. Got 1.5"),
        (["--prune", "auto", "--prune-score", "suport"], "Did you mean 'support'?"),
        (["--prune-rounds", "2"], "belong to --prune RATIO|auto"),
    ],
)
def test_a_wrong_pruning_is_one_sentence(cli, inputs, options, told):
    done = cli("train", *inputs, *TINY, *options)
    assert done.code == 2
    assert told in " ".join(done.err.split())


def test_tensorboard_gets_the_same_curves(cli, inputs):
    assert cli("train", *inputs, *TINY, "--tensorboard", "--out", "run").code == 0
    assert any((cli.cwd / "run" / "tensorboard").iterdir())


def test_aspect_s_says_beforehand_what_it_takes(cli, inputs):
    method = ["--method", "aspect-s", *TINY]
    settings = ["--set", "warm_up=0", "--set", "interval=1", "--set", "perturbation_steps=1"]
    found = cli("train", *inputs, *method, *settings, "--out", "run")
    assert found.code == 0
    (note,) = [line for line in found.err.splitlines() if "ASPECT-S" in line]
    assert note.startswith("Note: ASPECT-S searches for harmful perturbations in ")
    again = cli("train", "--out", "run", "--resume")
    assert "ASPECT-S" not in again.err  # there is nothing left to do
    never = cli("train", *inputs, *method, "--out", "never", "--json")
    assert "Note: ASPECT-S will never search" in never.err
    assert never.json["method"] == "aspect-s"


def test_structural_features_for_a_graph_without_any(cli, tables):
    found = cli("train", tables / "edges.csv", "--features", "degree", *TINY, "--json").json
    assert found["graph"]["features"] >= 2
    again = cli("embed", found["run"], "--out", "z.npy", "--json").json
    assert again["nodes"] == found["graph"]["nodes"]


def test_datasets_lists_the_catalogue_and_where_files_are(cli):
    (cli.cwd / "data").mkdir()
    (cli.cwd / "data" / "cora.npz").write_bytes(b"")
    found = {e["name"]: e for e in cli("datasets", "--data-dir", "data", "--json").json["datasets"]}
    assert set(found) == {*DATASETS, "mixed"}
    assert found["cora"]["path"] == "data/cora.npz"
    assert found["texas"]["path"] is None
    assert found["mixed"]["edges"] == embedded_graph().graph.num_edges
    shown = cli("datasets").out
    assert "cornell_old: Faulty: Cornell's edges with the features and labels of Texas" in shown


@pytest.mark.data
def test_a_named_data_set_with_published_splits(cli):
    run = cli("train", "texas", *TINY, "--json").json["run"]
    found = cli("evaluate", run, "--splits", "published", "--json").json
    assert found["graph"] == "texas"
    assert found["strict"]["splits"] == 10


def write_small(folder, labels, features=None):
    """A ring of nodes with these labels."""
    folder.mkdir()
    count = len(labels)
    edges = [f"{node},{(node + 1) % count}" for node in range(count)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    rows = features or [f"{node % 3},{node % 5}" for node in range(count)]
    nodes = [
        f"{node},{row},{label}" for node, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,a,b,label", *nodes]) + "\n")
    return [folder / "edges.csv", "--nodes", folder / "nodes.csv", "--method", "raw"]


def test_a_class_of_one_node_is_served_and_said(cli):
    graph = write_small(cli.cwd / "own", ["ant"] * 10 + ["bee"] * 9 + ["cat"])
    found = cli("evaluate", *graph, "--json").json
    assert found["notices"] == ["10 of 10 test sets lack a class (of 3): cat."]
    assert [score["support"] for score in found["per_class"]] == [2, 2, 0]
    assert found["per_class"][2]["recall"] is None


def test_fewer_nodes_than_a_split_needs_are_refused(cli):
    graph = write_small(cli.cwd / "own", ["ant", "bee", "ant", "bee"])
    cli("evaluate", *graph).refused("4 labelled nodes in 2 classes are too few to split")


def test_constant_embeddings_are_the_majority_class_and_said(cli):
    graph = write_small(cli.cwd / "own", ["ant"] * 12 + ["bee"] * 8, features=["2,3"] * 20)
    found = cli("evaluate", *graph, "--json").json
    assert found["strict"]["mean"] == found["rows"][-1]["strict"]["mean"]
    assert "All embeddings are the same" in found["notices"][0]
    assert any("collapse" in warning for warning in found["warnings"])


def test_neighbours_lists_the_most_similar_nodes_by_id(cli, trained):
    found = cli("neighbours", trained, "person 07/ä", "--k", 3, "--json").json
    rows, ids = np.load(trained / "embeddings.npy").astype(float), open_run(trained).read_graph()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = units @ units[7]
    order = [row for row in np.argsort(-cosines) if row != 7][:3]
    assert [entry["node"] for entry in found["neighbours"]] == [ids.graph.ids[k] for k in order]
    np.testing.assert_allclose([entry["cosine"] for entry in found["neighbours"]], cosines[order])
    told = cli("neighbours", trained, "person 07/ä").out
    assert "the 10 nodes most similar to person 07/ä" in told
