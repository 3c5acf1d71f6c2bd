"""Runs of a store, probed on a sample of its nodes: neither graph nor embeddings fit the memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.graph import UNLABELLED
from aspect.data.source import Metric
from aspect.data.splits import make_splits
from aspect.errors import GraphError
from aspect.estimator import choose_device
from aspect.evaluation.baselines import knn_probe, majority_probe
from aspect.evaluation.linear_probe import linear_probe
from aspect.experiment.evaluate import (
    MAJORITY,
    EvaluationTable,
    chosen_probe,
    open_seeds,
    score_lines,
)
from aspect.experiment.trained import StoredRun
from aspect.experiment.trained_store import store_of
from aspect.methods.controls import side_by_side
from aspect.randomness import seed_for
from aspect.scale.bases import BasisSettings, compute_bases
from aspect.scale.store import GraphStore
from aspect.training.folder import EMBEDDINGS
from aspect.training.health import Health
from aspect.training.progress import Advance

PROBED = 10_000  # nodes with labels, drawn the same for every run
MOST_PROPAGATED = 20_000_000  # nodes of a store whose propagated features are computed as a control

Nodes = NDArray[np.int64]


def evaluate_store_runs(
    paths: Sequence[str | Path],
    *,
    probe: str = "neutral",
    metric: Metric | None = None,
    device: str | None = None,
    on_step: Advance = lambda *_: None,
) -> EvaluationTable:
    """Probe complete runs of one method on one store, on random splits of a sample of its nodes.

    Beside them stand the raw features, the features of one and two hops, and the majority class.

    Args:
        paths: The runs' folders; several are seeds.
        probe: As in `evaluate_runs`.
        metric: As in `evaluate_runs`.
        device: Where it is probed.
        on_step: Called before each embedding is probed, with how far it is.
    """
    runs = open_seeds(paths)
    store = store_of(runs[0])
    nodes, labels = _sample(store)
    classes, where = len(store.facts.class_names), choose_device(device)
    splits = make_splits("random", labels, classes)
    how = chosen_probe(runs[0].experiment, probe, metric)
    numbers = range(len(splits))
    lines: list[dict[str, Any]] = []
    total = len(runs) + 1 + (store.num_nodes <= MOST_PROPAGATED)
    for done, (name, seed, found) in enumerate(_embeddings(runs, store, nodes)):
        on_step(done, total, name)
        rows = found.to(where, torch.float32)
        result = linear_probe(rows, labels, splits, num_classes=classes, probe=how)
        voted = knn_probe(rows, labels, splits, num_classes=classes)
        knn = [score.strict for score in voted.splits]
        lines += score_lines(name, 0.0, seed, numbers, result, knn=knn)
    majority = majority_probe(labels, splits, num_classes=classes)
    lines += score_lines(MAJORITY, 0.0, 0, numbers, majority)
    return EvaluationTable(
        graph=runs[0].record["graph"]["name"],
        runs=tuple(str(stored.path) for stored in runs),
        splits="random",
        probe=probe,
        metric=how.metric,
        scores=pd.DataFrame(lines, dtype=object),  # None and whole numbers stay as they are
        class_names=store.facts.class_names,
        health=tuple(Health.from_dict(stored.record["health"]) for stored in runs),
        warnings=tuple(warning for stored in runs for warning in stored.warnings),
    )


def _sample(store: GraphStore) -> tuple[Nodes, Tensor]:
    """Some nodes with labels, ascending, and their classes."""
    if store.labels is None:
        raise GraphError(
            f"The store {str(store.path)!r} has no labels, and a probe needs some. Make it with "
            "--labels; `aspect embed` needs none."
        )
    labels = store.labels[0 : store.num_nodes]
    known = np.flatnonzero(labels != UNLABELLED)
    drawn = np.random.default_rng(seed_for(0, "probed nodes"))
    nodes = np.sort(drawn.choice(known, min(PROBED, len(known)), replace=False))
    return nodes, torch.from_numpy(labels[nodes].astype(np.int64))


def _embeddings(
    runs: Sequence[StoredRun], store: GraphStore, nodes: Nodes
) -> Iterator[tuple[str, int, Tensor]]:
    """Name, seed and rows of all that is probed."""
    for stored in runs:
        matrix = np.load(stored.path / EMBEDDINGS, mmap_mode="r", allow_pickle=False)
        yield stored.label, stored.record["seed"], torch.from_numpy(np.array(matrix[nodes]))
    seed = runs[0].record["seed"]
    raw = torch.from_numpy(store.features[nodes].astype(np.float32))
    yield "raw", seed, raw
    if store.num_nodes > MOST_PROPAGATED:
        return
    with tempfile.TemporaryDirectory(prefix="aspect-rows-") as folder:
        settings = BasisSettings(order=2, row_normalise=False)
        first, second, third = torch.from_numpy(
            compute_bases(store, Path(folder) / "bases", settings).rows(nodes)
        )
    # S X and S^2 X by the polynomials of -S.
    yield "propagated", seed, side_by_side([raw, -second, (third + first) / 2])
