"""`aspect evaluate --task`: clusters and held-out edges beside the same controls."""

import json

import pytest

from aspect.attacks.pruning import Pruning
from aspect.data.graph import edge_keys
from aspect.data.source import read_graph
from aspect.estimator import Embedder
from aspect.evaluation.clustering import cluster_scores
from aspect.evaluation.links import hold_out, link_scores
from aspect.experiment import tasks
from aspect.experiment.trained import open_run
from aspect.settings import RowSettings

CONTROLS = ["random", "raw", "propagated", "spectral"]


def test_clusters_of_a_run_are_those_of_its_embeddings(cli, trained):
    found = cli("evaluate", trained, "--task", "cluster", "--json").json
    assert found["task"] == "cluster"
    assert (found["clusters"], found["classes"], found["repeats"]) == (2, 2, 5)
    assert [row["name"] for row in found["rows"]] == ["aspect", *CONTROLS]
    run = open_run(trained)
    embeddings = run.load_model("cpu").embed(run.read_trained_graph())
    scores = cluster_scores(embeddings, run.read_graph().labels)
    for metric in ("nmi", "ari", "silhouette"):
        mean = sum(getattr(score, metric) for score in scores) / 5
        assert found["rows"][0][metric]["mean"] == pytest.approx(mean)
        assert found["rows"][0][metric]["repeats"] == 5
    told = cli("evaluate", trained, "--task", "cluster", "--repeats", 1, "--clusters", 3).out
    assert "3 clusters, over 1 seed and 1 k-means each" in " ".join(told.split())
    assert "raw: the features as they are." in told


def test_a_terminal_shows_one_bar(cli, trained, monkeypatch):
    monkeypatch.setattr("aspect.estimator.model.is_watched", lambda _: True)
    monkeypatch.setattr("aspect.training.progress.SECONDS_BETWEEN_LINES", 0)
    told = cli("evaluate", trained, "--task", "link", "--repeats", 1)
    assert "Training" in told.err
    assert "Epoch" not in told.err


@pytest.mark.parametrize(
    ("words", "changed", "trained_with"),
    [
        (("--prune", 0.2), "prune", Pruning(ratio=0.2)),
        (("--scale", "rows", "--batch", 16), "scale", RowSettings(batch=16)),
    ],
)
def test_links_are_predicted_by_a_model_that_is_trained_as_the_run_was(
    cli, inputs, tmp_path, monkeypatch, words, changed, trained_with
):
    run, options_of, begin = tmp_path / "run", {}, Embedder.__init__
    cli("train", *inputs, *words, "--set", "epochs=2", "--set", "width=8", "--out", run)

    def note(model, name, **options):
        options_of[name] = options.get(changed)
        begin(model, name, **options)

    monkeypatch.setattr(tasks.Embedder, "__init__", note)
    cli("evaluate", run, "--task", "link", "--repeats", 1)
    assert options_of.pop("aspect") == trained_with
    assert set(options_of.values()) <= {None, "auto"}
    assert sorted(options_of) == sorted(CONTROLS)


def test_clusters_need_no_labels(cli, unlabelled):
    cli("evaluate", unlabelled, "--task", "cluster").refused("number of clusters", "no labels")
    assert not (cli.cwd / "runs").exists()  # nothing was trained
    found = cli("evaluate", unlabelled, "--task", "cluster", "--clusters", 3, "--json").json
    assert found["rows"][0]["nmi"] is None
    assert -1 < found["rows"][0]["silhouette"]["mean"] < 1
    assert found["notices"] == ["The graph has no labels: no NMI and no ARI."]


def test_links_are_predicted_by_a_model_that_never_saw_them(cli, trained, monkeypatch):
    seen = []
    fit = Embedder.fit

    def spy(model, graph, **options):
        seen.append((model.name, graph))
        return fit(model, graph, **options)

    monkeypatch.setattr(tasks.Embedder, "fit", spy)
    found = cli("evaluate", trained, "--task", "link", "--repeats", 2, "--json").json
    run = open_run(trained)
    whole = run.read_graph().graph
    held_outs = [hold_out(whole, number) for number in range(2)]
    rules = ["common neighbours", "degrees"]
    assert [row["name"] for row in found["rows"]] == ["aspect", *CONTROLS, *rules]
    assert len(seen) == 2 * 5
    for number, (_, graph) in enumerate(seen):
        keys = set(edge_keys(graph).tolist())
        assert keys == set(edge_keys(held_outs[number % 2].graph).tolist())
        assert len(keys) == found["edges"]["training"] == whole.num_edges - 7
    assert found["edges"]["test"] == found["negatives"]["test"] == 5
    assert found["edges"]["validation"] == found["negatives"]["validation"] == 2
    model = Embedder("aspect", seed=0, device="cpu", **run.experiment.settings)
    scores = [link_scores(model.fit(one.graph).embed(one.graph), one) for one in held_outs]
    mean = sum(score.roc_auc for score in scores) / 2
    assert found["rows"][0]["roc_auc"]["mean"] == pytest.approx(mean)
    assert "Trained anew without the 7 edges that are held out" in found["notices"][0]


def test_links_of_a_graph_need_no_run_and_leave_none(cli, inputs):
    command = ["evaluate", *inputs, "--method", "raw", "--task", "link", "--repeats", 1]
    told = cli(*command, "--seeds", 2, "--out", "scores.json")
    assert told.code == 0, told.err
    assert "percent over 2 seeds and 1 set of held-out edges" in " ".join(told.out.split())
    found = json.loads((cli.cwd / "scores.json").read_text())
    assert found["seeds"] == [0, 1]
    assert [row["name"] for row in found["rows"]][:2] == ["raw", "random"]
    assert [path.name for path in cli.cwd.iterdir()] == ["scores.json"]


def test_features_made_of_edges_are_made_without_those_held_out(cli, inputs, monkeypatch):
    seen = []
    monkeypatch.setattr(
        tasks, "link_scores", lambda z, held: seen.append(held) or link_scores(z, held)
    )
    command = ["evaluate", *inputs, "--method", "raw", "--task", "link", "--repeats", 1]
    assert cli(*command, "--features", "laplacian").code == 0
    graph = read_graph(inputs[0], nodes=inputs[2], features="laplacian").graph
    expected = hold_out(graph).graph
    assert set(edge_keys(seen[0].graph).tolist()) == set(edge_keys(expected).tolist())
    assert not seen[0].graph.features.allclose(graph.features)


def test_what_does_not_go_together(cli, trained, poisoned, inputs):
    for options, words in (
        (["--repeats", 2], "--repeats belongs to --task"),
        (["--task", "link", "--clusters", 2], "--clusters belongs to --task cluster"),
        (["--task", "link", "--splits", "random"], "belong to --task classify"),
        (["--task", "cluster", "--prune", 0.1], "belong to --task classify"),
        (["--task", "cluster", "--probe", "paper"], "belong to --task classify"),
        (["--task", "cluster", "--budget", 0.1], "belong to --task classify"),
        (["--task", "cluster", "--clusters", 30], "between 2 and 29"),
        (["--task", "rank"], "--task"),
    ):
        cli("evaluate", trained, *options).refused(words)
    cli("evaluate", poisoned, "--task", "link").refused("perturbed graph", "clean graph")
    cli("evaluate", poisoned, trained, "--task", "cluster").refused("differ in the seed")
    cli("evaluate", *inputs, "--task", "link", "--retrain").refused("--retrain does nothing")


def test_a_poisoned_run_is_clustered_on_its_own_graph(cli, poisoned):
    found = cli("evaluate", poisoned, "--task", "cluster", "--repeats", 1, "--json").json
    run = open_run(poisoned)
    rows = run.load_model("cpu").embed(run.read_trained_graph())
    (score,) = cluster_scores(rows, run.read_graph().labels, seeds=1)
    assert found["rows"][0]["nmi"]["mean"] == pytest.approx(score.nmi)
