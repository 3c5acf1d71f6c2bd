"""Runs on poisoned graphs: what is learned from, what the folder tells, and going on with it."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from aspect import mixed_graph
from aspect.attacks.file import PerturbationFile
from aspect.attacks.pruning import Pruning
from aspect.config import to_yaml
from aspect.data.archives import content_sha256
from aspect.data.source import add_dataset
from aspect.data.splits import make_splits
from aspect.errors import FileError, GraphError, RunError
from aspect.estimator import Embedder
from aspect.experiment.evaluate import evaluate_runs
from aspect.experiment.trained import RunOptions, open_run, read_runs, train_run
from aspect.settings import Experiment, PerturbedBy, RowSettings, load_experiment
from attacks.attempts import labelled_graph
from experiment import poisoned as poisoned_runs
from experiment.poisoned import TINY, Place, changed, cut

RESULTS = ("config.yaml", "embeddings.npy", "policy.npy", "metrics.jsonl", "model.safetensors")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place.make(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def poisoned(place):
    """A complete run; tests must not change it."""
    return place.train("poisoned", split=1)


def assert_same(first, second, names=RESULTS):
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_it_learns_from_the_perturbed_graph(place, poisoned):
    perturbed = PerturbationFile.read(place.flips(1)).apply(place.labelled, 0.1)
    model = Embedder("aspect", seed=0, device="cpu", **TINY).fit(perturbed)
    np.testing.assert_array_equal(np.load(poisoned / "embeddings.npy"), model.embed(perturbed))
    run = open_run(poisoned)
    assert torch.equal(run.read_trained_graph().edge_index, perturbed.edge_index)


def test_the_record_tells_what_was_done(place, poisoned):
    record = json.loads((poisoned / "record.json").read_text())
    perturbed = PerturbationFile.read(place.flips(1)).apply(place.labelled, 0.1)
    assert record["perturbation"] == {
        "file": str(place.flips(1)),
        "sha256": PerturbationFile.read(place.flips(1)).digest(0.1),
        "mode": "poison",
        "kind": "random",
        "solver": "",
        "splits": "random",
        "split": 1,
        "seed": 0,
        "budget": 0.1,
        "flips": round(0.1 * place.labelled.graph.num_edges),
        "features": True,
        "edges": perturbed.num_edges,
    }
    assert record["graph"]["sha256"] == content_sha256(place.labelled)
    assert record["graph"]["edges"] == place.labelled.graph.num_edges


def test_the_record_tells_the_health_before_any_centring(poisoned):
    record = json.loads((poisoned / "record.json").read_text())
    run = open_run(poisoned)
    health = run.load_model("cpu").health(run.read_trained_graph())
    assert record["health"] == health.to_dict()
    assert all(sentence in record["warnings"] for sentence in health.warnings())


def test_the_clean_graph_can_still_be_read(place, poisoned):
    run = open_run(poisoned)
    assert run.is_poisoned
    assert content_sha256(run.read_graph()) == content_sha256(place.labelled)


def test_a_clean_run_says_nothing_of_perturbations(place):
    """Its settings are the text that they were before there were any."""
    out = place.train("clean")
    experiment = load_experiment(out / "config.yaml")
    expected = {
        "method": "aspect",
        "graph": place.graph,
        "graph_sha256": content_sha256(place.labelled),
        "seed": 0,
        "settings": experiment.settings,
    }
    assert (out / "config.yaml").read_text() == to_yaml(expected)
    assert "perturbation" not in json.loads((out / "record.json").read_text())
    run = open_run(out)
    assert run.poison is None
    assert torch.equal(run.read_trained_graph().edge_index, place.labelled.graph.edge_index)


def test_the_saved_settings_repeat_the_run(poisoned, tmp_path):
    experiment = load_experiment(poisoned / "config.yaml")
    train_run(experiment, tmp_path / "again", RunOptions(device="cpu"))
    assert_same(tmp_path / "again", poisoned)


def test_a_longer_attack_of_the_same_beginning_trains_the_same(place, poisoned, tmp_path):
    count = round(0.1 * place.labelled.graph.num_edges)
    short = cut(place.flips(1), count, tmp_path / "short.safetensors")
    perturbation = PerturbedBy(file=str(short), budget=0.1)
    experiment = Experiment(graph=place.graph, settings=TINY, perturbation=perturbation)
    train_run(experiment, tmp_path / "run", RunOptions(device="cpu"))
    assert_same(tmp_path / "run", poisoned, RESULTS[1:])


def test_a_copy_of_the_file_goes_on_with_the_same_run(tmp_path):
    own = Place.make(tmp_path)
    out = own.train("run", split=1)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    count = round(0.1 * own.labelled.graph.num_edges)
    copy = cut(own.flips(1), count, tmp_path / "copy.safetensors")
    perturbation = PerturbedBy(file=str(copy), budget=0.1)
    experiment = Experiment(graph=own.graph, settings=TINY, perturbation=perturbation)
    train_run(experiment, out, RunOptions(device="cpu", resume=True))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    own.flips(1).unlink()
    with pytest.raises(RunError, match="other settings"):
        train_run(experiment, out, RunOptions(device="cpu", resume=True))


def test_an_interrupted_run_goes_on_to_the_same_end(place, poisoned):
    def stop(report):
        if report.epoch == 3:
            raise KeyboardInterrupt

    out = place.folder / "stopped"
    with pytest.raises(KeyboardInterrupt):
        place.train("stopped", split=1, checkpoint_every=1, on_epoch=stop)
    assert not (out / "record.json").exists()
    experiment = load_experiment(out / "config.yaml")
    train_run(experiment, out, RunOptions(device="cpu", resume=True))
    assert_same(out, poisoned)


def test_labels_outside_of_the_training_nodes_change_nothing(tmp_path, monkeypatch):
    """DICE reads labels, so that one label too many would show; published splits stay the same."""
    labelled = labelled_graph()
    split = make_splits("random", labelled.labels, labelled.num_classes)[1]
    masks = {
        name: torch.isin(torch.arange(len(labelled.labels)), getattr(split, name))[None]
        for name in ("train", "validation", "test")
    }
    labels = (labelled.labels + 1) % labelled.num_classes
    labels[split.train] = labelled.labels[split.train]
    monkeypatch.setattr(poisoned_runs, "SPLITS", "published")
    runs = []
    for name, some in (("first", labelled.labels), ("second", labels)):
        (tmp_path / name).mkdir()
        place = Place.make(tmp_path / name, replace(labelled, labels=some, masks=masks))
        runs.append(place.train("dice", split=0, kind="dice"))
    assert labels.tolist() != labelled.labels.tolist()
    assert_same(*runs, RESULTS[1:])


@pytest.mark.parametrize("what", ["changed", "gone", "other graph"])
def test_a_file_that_is_not_what_it_was_is_refused(tmp_path, what):
    own = Place.make(tmp_path)
    out = own.train("run", split=1)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    file = own.flips(1)
    error = {"changed": RunError, "gone": FileError, "other graph": RunError}[what]
    if what == "changed":
        changed(file, mask_seed=5)
    elif what == "gone":
        file.unlink()
    else:
        graph = PerturbationFile.read(file).facts.graph.model_copy(update={"sha256": "0" * 64})
        changed(file, graph=graph)
    experiment = load_experiment(out / "config.yaml")
    for options in (RunOptions(resume=True), RunOptions(overwrite=True)):
        with pytest.raises(error):
            train_run(experiment, out, options)
    with pytest.raises(error):
        open_run(out).read_trained_graph()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_file_of_another_graph_leaves_no_folder(place, tmp_path):
    smaller = Place.make(tmp_path, labelled_graph(40))
    perturbation = PerturbedBy(file=str(place.flips(1)), budget=0.1)
    experiment = Experiment(graph=smaller.graph, settings=TINY, perturbation=perturbation)
    with pytest.raises(GraphError, match="belongs to the graph 'small' with 60 nodes"):
        train_run(experiment, tmp_path / "run", RunOptions(device="cpu"))
    assert not (tmp_path / "run").exists()


def test_another_budget_is_another_run(place, poisoned):
    with pytest.raises(RunError, match="other settings"):
        place.train("poisoned", split=1, budget=0.05, resume=True)
    with pytest.raises(RunError, match="other settings"):
        place.train("poisoned", split=1, features=False, resume=True)
    assert place.train("poisoned", split=1, resume=True) == poisoned


# Files of a run that are damaged, or of another run


@pytest.fixture
def two_runs(place, tmp_path):
    """Two complete runs that differ in the seed; a test may change them."""
    for seed in (0, 1):
        if not (place.folder / f"seed{seed}").exists():
            place.train(f"seed{seed}", seed=seed)
        shutil.copytree(place.folder / f"seed{seed}", tmp_path / str(seed))
    return tmp_path / "0", tmp_path / "1"


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml", "record.json", "start.json"])
def test_a_file_of_another_run_is_refused(two_runs, name):
    first, second = two_runs
    is_same = (first / name).read_bytes() == (second / name).read_bytes()
    shutil.copy(second / name, first / name)
    if is_same:
        open_run(first).load_model("cpu")
        return
    with pytest.raises(RunError, match=rf"{name} is damaged or of another folder"):
        open_run(first)


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml", "record.json"])
def test_the_same_without_a_manifest(two_runs, name, caplog):
    first, second = two_runs
    (first / "manifest.json").unlink()
    open_run(first)
    assert "has no manifest.json" in caplog.text
    shutil.copy(second / name, first / name)
    with pytest.raises(RunError, match=r"belongs to another run: its seed must be"):
        open_run(first).load_model("cpu")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 1}',
        100_000 * "[" + 100_000 * "]",
        '{"format": 1, "method": 3, "seed": 0, "settings": {}, "graph": {}, "warnings": []}',
    ],
    ids=range(6),
)
def test_a_damaged_record_is_one_sentence(two_runs, content):
    first, _ = two_runs
    (first / "manifest.json").unlink()
    (first / "record.json").write_text(content)
    with pytest.raises(RunError, match=r"record\.json is damaged .* Train again with --overwrite"):
        open_run(first)


@pytest.mark.parametrize("content", ["", "{}", '{"epoch": 1, "loss": "high"}'])
def test_a_damaged_log_is_one_sentence(two_runs, content):
    first, _ = two_runs
    (first / "manifest.json").unlink()
    (first / "metrics.jsonl").write_text(f"{content}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 1 is damaged"):
        read_runs([first], device="cpu")


def test_a_run_becomes_a_record_as_a_bench_makes_it(two_runs):
    _, second = two_runs
    (record,), (details,) = read_runs([second], device="cpu")
    assert record.cell.entry == "aspect"
    assert record.spec.seed == 1
    table = evaluate_runs([second], device="cpu")
    scores = [score.strict for score in record.scores]
    assert scores == list(table.scores.query("name == 'aspect'")["strict"])
    assert len(details.curves["loss"]) == record.epochs == TINY["epochs"]
    assert record.seconds.keys() == {"train"}


def test_a_run_becomes_a_record_by_the_metric_of_its_data_set(tmp_path, monkeypatch):
    """`aspect report RUN` chose by accuracy where bench and evaluate choose by ROC AUC."""
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path))
    add_dataset("areas", mixed_graph(60, seed=3), metric="roc-auc")
    experiment = Experiment(method="aspect", graph="areas", settings=TINY)
    train_run(experiment, tmp_path / "run", RunOptions(device="cpu"))
    (record,), _ = read_runs([tmp_path / "run"], device="cpu")
    table = evaluate_runs([tmp_path / "run"], device="cpu")
    assert (record.spec.metric, table.metric) == ("roc-auc", "roc-auc")
    validation = [score.validation for score in record.scores]
    assert validation == list(table.scores.query("name == 'aspect'")["validation"])


def test_a_run_on_rows_is_another_variant_than_one_on_the_whole_graph(two_runs, tmp_path):
    whole, _ = two_runs
    config, paths = load_experiment(whole / "config.yaml"), []
    for seed in (0, 1):
        rows = config.model_copy(
            update={"scale": "rows", "rows": RowSettings(batch=15), "seed": seed}
        )
        paths.append(tmp_path / f"rows{seed}")
        train_run(rows, paths[-1], RunOptions(device="cpu"))
    records, (of_whole, of_rows) = read_runs([whole, paths[0]], device="cpu")
    assert of_rows.sensitivity is None  # rows have no edges to search
    assert of_rows.spectrum.shares == of_whole.spectrum.shares
    assert [record.spec.rows and record.spec.rows.batch for record in records] == [None, 15]
    assert [record.cell.entry for record in records] == ["aspect (0)", "aspect (rows0)"]
    assert records[0].key != records[1].key
    with pytest.raises(RunError, match=r"rows1 has another way of training on rows than .*0"):
        evaluate_runs([whole, paths[1]], device="cpu")


def test_the_command_that_goes_on_quotes_the_folder(tmp_path):
    folder = tmp_path / "two words"
    folder.mkdir()
    with pytest.raises(RunError, match=r"Train one with: aspect train --out '.*/two words'\."):
        open_run(folder)
    (folder / "config.yaml").touch()
    with pytest.raises(RunError, match=r"Go on with: aspect train --out '.*/two words' --resume\."):
        open_run(folder)


@pytest.mark.parametrize("is_poisoned", [False, True])
def test_the_graph_is_pruned_once(poisoned, tmp_path, monkeypatch, is_poisoned):
    pruned, apply = [], Pruning.apply

    def counted(self, graph):
        pruned.append(graph)
        return apply(self, graph)

    monkeypatch.setattr(Pruning, "apply", counted)
    changes = {"prune": Pruning(ratio=0.1), **({} if is_poisoned else {"perturbation": None})}
    experiment = load_experiment(poisoned / "config.yaml").model_copy(update=changes)
    train_run(experiment, tmp_path / "run", RunOptions(device="cpu"))
    assert len(pruned) == 1
