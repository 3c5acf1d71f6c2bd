"""Tasks beyond classification, beside the same controls: clusters of nodes, and held-out edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from aspect.config import make_config
from aspect.data.features import with_structural_features
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.errors import RunError
from aspect.estimator import Embedder
from aspect.evaluation.clustering import ClusterScore, cluster_scores
from aspect.evaluation.links import (
    MOST_TRAINING_PAIRS,
    HeldOut,
    LinkScore,
    hold_out,
    link_scores,
    rule_scores,
)
from aspect.evaluation.metrics import Spread
from aspect.experiment.evaluate import control_settings, controls_of, open_seeds, with_seeds
from aspect.experiment.trained import StoredRun, untrained_model
from aspect.methods.registry import find_method
from aspect.settings import Experiment
from aspect.training.progress import Advance

OF_STRUCTURE = ("degree", "laplacian")  # features that tell of edges
FEW_EDGES = 50  # one of them is two points of a score


def cluster_runs(
    paths: Sequence[str | Path],
    *,
    clusters: int | None = None,
    repeats: int = 5,
    device: str | None = None,
    data_dir: str | None = None,
    on_step: Advance = lambda *_: None,
) -> dict[str, Any]:
    """Cluster the embeddings of complete runs by k-means; runs differ in the seed alone.

    A run on a perturbed graph is embedded on that one, and must be alone.

    Args:
        paths: The runs' folders.
        clusters: How many; by default as many as the graph has classes.
        repeats: k-means of each embedding, one seed each.
        device: Where embeddings are computed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Called before each embedding, with how far it is.

    Returns:
        Plain values for JSON: the rows, the method first, and what was measured.
    """
    runs = open_seeds(paths)
    if len(runs) > 1 and any(stored.is_poisoned for stored in runs):
        raise RunError("A run on a perturbed graph is clustered alone. Give that one only.")
    labelled = runs[0].read_graph(data_dir)
    graph = runs[0].read_trained_graph(data_dir) if runs[0].is_poisoned else labelled.graph
    method, scores = runs[0].record["method"], dict[str, list[list[ClusterScore]]]()
    names = [method, *controls_of(method)]
    for name, model in _embedders(runs, graph, device):
        on_step(names.index(name), len(names), name)
        found = cluster_scores(
            model.embed(graph), labelled.labels, clusters=clusters, seeds=repeats
        )
        scores.setdefault(name, []).append(found)
    classes = len(torch.unique(labelled.labels[labelled.labels != UNLABELLED]))
    return {
        "task": "cluster",
        "graph": runs[0].record["graph"]["name"],
        "method": method,
        "runs": [str(run.path) for run in runs],
        "seeds": [run.record["seed"] for run in runs],
        "repeats": repeats,
        "rows": [_row(name, scores[name], repeats) for name in names],
        "notices": [] if classes else ["The graph has no labels: no NMI and no ARI."],
        "warnings": [warning for run in runs for warning in run.warnings],
        "clusters": clusters or classes,
        "classes": classes,
    }


def _embedders(
    runs: Sequence[StoredRun], graph: Graph, device: str | None
) -> Iterator[tuple[str, Embedder]]:
    """The runs' models, then the controls, fitted to the graph; untrained weights of each seed."""
    method = runs[0].record["method"]
    for stored in runs:
        yield method, stored.load_model(device)
    for name, stored in with_seeds(controls_of(method), runs):
        settings = control_settings(name, stored.record["settings"])
        model = Embedder(name, seed=stored.record["seed"], device=device, **settings)
        yield name, model.fit(graph, progress=False)


def predict_links(
    experiments: Sequence[Experiment],
    labelled: LabelledGraph,
    *,
    runs: Sequence[str] = (),
    repeats: int = 3,
    device: str | None = None,
    on_step: Advance = lambda *_: None,
) -> dict[str, Any]:
    """Train anew on a graph without some of its edges, and tell these from other pairs.

    A model that was trained on the whole graph has seen every edge, so that nothing of a run but
    its settings and its seed is used.

    Args:
        experiments: Method and settings, which differ in the seed alone.
        labelled: Their graph; labels are not looked at.
        runs: Folders that the experiments come from.
        repeats: Sets of held-out edges; each experiment is trained once for each of them.
        device: Where to train.
        on_step: Called before each training, with how far it is.

    Returns:
        Plain values for JSON: the rows, the method first, and what was measured.
    """
    first = experiments[0]
    # Features that a graph got by itself, for want of any, tell of its edges as well.
    encoder = labelled.graph.encoder
    kind = first.reading.features or (None if encoder is None else encoder.structural)
    scores: dict[str, list[list[LinkScore]]] = {}
    held_outs = [hold_out(labelled.graph, number) for number in range(repeats)]
    if kind in OF_STRUCTURE:  # those of the whole graph would tell of the edges that are held out
        held_outs = [
            replace(one, graph=with_structural_features(one.graph, kind)) for one in held_outs
        ]
    todo = [(first.method, experiment) for experiment in experiments]
    todo += with_seeds(controls_of(first.method), experiments)
    for done, (name, experiment) in enumerate(todo):
        rows = []
        for number, held_out in enumerate(held_outs):
            on_step(done * repeats + number, len(todo) * repeats, name)
            rows.append(_linked(name, experiment, first.method, held_out, device))
        scores.setdefault(name, []).append(rows)
    by_rule = [rule_scores(held_out) for held_out in held_outs]
    for rule in by_rule[0]:
        scores[rule] = [[found[rule] for found in by_rule]]
    return {
        "task": "link",
        "graph": first.source.name,
        "method": first.method,
        "runs": list(runs),
        "seeds": [experiment.seed for experiment in experiments],
        "repeats": repeats,
        "rows": [_row(name, found, repeats) for name, found in scores.items()],
        "notices": list(_link_notices(held_outs, labelled.graph)),
        "warnings": [],
        **_link_facts(held_outs),
    }


def _linked(
    name: str, experiment: Experiment, method: str, held_out: HeldOut, device: str | None
) -> LinkScore:
    """Train on what is left, embed that, and score the pairs; controls have settings alone."""
    config = make_config(find_method(method).config, experiment.settings, owner=method)
    if name != method:
        settings = control_settings(name, config.model_dump(mode="json"))
        experiment = Experiment(method=name, seed=experiment.seed, settings=settings)
    model = untrained_model(experiment, device).fit(held_out.graph, progress=False)
    return link_scores(model.embed(held_out.graph), held_out)


def _link_facts(held_outs: Sequence[HeldOut]) -> dict[str, Any]:
    first = held_outs[0]
    counted = {
        "training": first.graph.num_edges,
        "validation": first.validation.edges.shape[1],
        "test": first.test.edges.shape[1],
    }
    return {
        "edges": counted,
        "negatives": {
            "training": first.train.negatives.shape[1],
            "validation": first.validation.negatives.shape[1],
            "test": first.test.negatives.shape[1],
            "drawn": "uniformly, each once, from all pairs that are no edge of the whole graph",
        },
    }


def _link_notices(held_outs: Sequence[HeldOut], graph: Graph) -> Iterator[str]:
    facts = _link_facts(held_outs)
    edges = facts["edges"]
    yield (
        f"Trained anew without the {edges['validation'] + edges['test']} edges that are held out: "
        f"{edges['test']} for the test, {edges['validation']} to choose the classifier's penalty; "
        f"{edges['training']} are left. Each is compared with as many non-edges, drawn "
        f"{facts['negatives']['drawn']}."
    )
    if edges["test"] < FEW_EDGES:
        yield f"{edges['test']} test edges are few: the scores are coarse. More --repeats help."
    if facts["negatives"]["training"] == MOST_TRAINING_PAIRS:
        yield f"The classifier is fitted to {MOST_TRAINING_PAIRS:,} of the edges that are left."
    before = int((graph.degrees() == 0).sum())
    alone = max(int((one.graph.degrees() == 0).sum()) for one in held_outs) - before
    if alone:
        yield f"Up to {alone} of {graph.num_nodes} nodes lose their last edge by it."


def _row(
    name: str, scores: Sequence[Sequence[ClusterScore | LinkScore]], repeats: int
) -> dict[str, Any]:
    """Every metric over seeds and repeats; None where one of them has none."""
    row: dict[str, Any] = {"name": name}
    for metric in asdict(scores[0][0]):
        values = [[getattr(score, metric) for score in of_seed] for of_seed in scores]
        row[metric] = None
        if not any(value is None for of_seed in values for value in of_seed):
            spread = asdict(Spread.of(values))
            del spread["splits"]
            row[metric] = {**spread, "repeats": repeats}
    return row
