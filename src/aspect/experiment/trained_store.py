"""Runs of a graph that stays on the disk: trained, embedded and probed.

The bases lie in the folder `bases` of the run until it is complete. A run that was killed, in
propagation, training or embedding, goes on where it was. Started by torchrun, several processes
share every batch; the first of them writes the folder.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aspect.config import to_yaml
from aspect.data.files import is_file
from aspect.data.graph import UNLABELLED
from aspect.data.source import NO_READING, GraphSource, Metric
from aspect.data.splits import make_splits
from aspect.data.tensors import read_tensors
from aspect.errors import FileError, GraphError, RunError, SettingsError
from aspect.estimator import Embedder, choose_device
from aspect.evaluation.baselines import knn_probe, majority_probe
from aspect.evaluation.linear_probe import linear_probe
from aspect.experiment.evaluate import (
    MAJORITY,
    EvaluationTable,
    chosen_probe,
    open_seeds,
    score_lines,
)
from aspect.experiment.record import GraphSummary, Record
from aspect.experiment.run import faults_of, training_facts
from aspect.experiment.spec import Cell
from aspect.experiment.trained import (
    TRAIN_AGAIN,
    RunOptions,
    StoredRun,
    open_folder,
    open_run,
    run_record,
    training_spec,
)
from aspect.methods.base import Method
from aspect.methods.controls import side_by_side
from aspect.nn.normalisation import Normalisation, Scaling
from aspect.provenance import versions
from aspect.randomness import seed_for
from aspect.scale.bases import BasisSettings, Propagator, compute_bases
from aspect.scale.embedding import (
    embed_store,
    gate_moments,
    room_for,
    scaling_of,
    write_row_groups,
)
from aspect.scale.ranks import Ranks
from aspect.scale.ray_engine import RayTraining, connect, num_gpus, propagate_by_ray
from aspect.scale.rows import RowBatches, row_plan_of, stored_views
from aspect.scale.store import GraphStore
from aspect.settings import Experiment, RowSettings
from aspect.training.files import BASES, CHECKPOINT, CHECKPOINTS, EMBEDDINGS, METRICS, MODEL
from aspect.training.folder import RunFolder
from aspect.training.health import Health
from aspect.training.progress import Advance
from aspect.training.trainer import Recorder, Snapshot, TrainingResult, train

PROBED = 10_000  # nodes with labels, drawn the same for every run
MOST_PROPAGATED = 20_000_000  # nodes of a store whose propagated features are computed as a control

Nodes = NDArray[np.int64]


def train_store(
    experiment: Experiment, path: Path, out: Path, options: RunOptions
) -> dict[str, Any]:
    """Train on the store at `path` into the folder `out`; see `aspect.experiment.trained`."""
    _check_suits_store(experiment, path)
    store = GraphStore.open(path)
    rows = experiment.rows or RowSettings()
    with process_group(options.device) as (ranks, device):
        model = Embedder(
            experiment.method,
            seed=experiment.seed,
            device=device,
            scale=rows,
            **experiment.settings,
        )
        if ranks.rank > 0:
            return _follow(model, store, rows, out, ranks)
        asked = {  # in full; `aspect train --config` takes the file as it is
            "method": model.name,
            "graph": str(store.path),
            "graph_sha256": store.digest,
            "seed": experiment.seed,
            "scale": "rows",
            "rows": rows.model_dump(mode="json"),
            "settings": model.config.model_dump(mode="json"),
        }
        with open_folder(out, to_yaml(asked), model, options) as folder:
            if folder.is_complete:
                return dict(open_run(folder.path).record)
            return _StoreRun(model, store, rows, folder, options, ranks).carry_out()


def _check_suits_store(experiment: Experiment, path: Path) -> None:
    """Refuse what only a graph in memory can be given, since it would be left out in silence."""
    for what, is_given in (
        ("A perturbation", experiment.perturbation is not None),
        ("Edge pruning", experiment.prune is not None),
        ("--scale full", experiment.scale == "full"),
        ("An option of reading", experiment.reading != NO_READING),
    ):
        if is_given:
            raise SettingsError(
                f"{what} needs a graph in memory, and {str(path)!r} is a store, which stays on the "
                "disk. Leave it out, or name the files that the store was made from."
            )


def store_of(stored: StoredRun) -> GraphStore:
    """The store of a run, refused if it changed since the training."""
    facts = stored.record["graph"]
    store = GraphStore.open(Path(facts["path"]))
    if store.digest != facts["sha256"]:
        raise RunError(f"{store.path} changed since {stored.path} was trained. {TRAIN_AGAIN}")
    return store


def embed_run(stored: StoredRun, out: Path, normalise: Normalisation) -> dict[str, Any]:
    """The embeddings of a run of a store as a Parquet table, written in row groups.

    Returns:
        What `aspect embed` tells.
    """
    if out.suffix.lower() != ".parquet":
        raise FileError(
            f"Embeddings of a store are written as .parquet. Got the name {out.name!r}; "
            f"the bare matrix is {stored.path / EMBEDDINGS}."
        )
    store, model = store_of(stored), stored.load_model("cpu")
    counts = write_row_groups(
        out, stored.path, store.ids, lambda rows: model.scaled(rows, normalise)
    )
    return {
        "out": str(out),
        "gate_out": None,
        **counts,
        "known_nodes": 0,
        "normalise": normalise,
        "gate": stored.record["gate"],
        "pruned_edges": 0,
        "edges": stored.record["graph"]["edges"],
        "prune_score": None,
        "health": stored.record["health"],
        "warnings": stored.record["warnings"],
    }


@contextmanager
def process_group(device: str | None) -> Iterator[tuple[Ranks, str | None]]:
    """The processes of torchrun and this one's device; a single process where there are none."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield Ranks.here(), device
        return
    on_gpu = torch.cuda.is_available() and device != "cpu"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield Ranks.here(), f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
    finally:
        dist.destroy_process_group()


@dataclass
class _StoreRun:
    """The steps of a run; each takes up what was there."""

    model: Embedder
    store: GraphStore
    rows: RowSettings
    folder: RunFolder
    options: RunOptions
    ranks: Ranks
    seconds: dict[str, float] = field(default_factory=dict)  # of each step

    def carry_out(self) -> dict[str, Any]:
        path, model = self.folder.path, self.model
        started = time.perf_counter()
        self.store.verify()  # a damaged block would go into the bases
        engine = propagate_by_ray if self.options.engine == "ray" else None
        method, data = _rows_of(model, self.store, self.rows, path, self.ranks, engine)
        room_for(data, method, path)
        self.seconds["propagate"] = time.perf_counter() - started
        started = time.perf_counter()
        result = self._trained(method, data)
        self.seconds["train"] = time.perf_counter() - started
        started = time.perf_counter()
        embeddings, policy = embed_store(data, method, path)
        self.seconds["embed"] = time.perf_counter() - started
        gate, dim = gate_moments(policy), embeddings.shape[1]
        self._save(method, result, data.projection, scaling_of(embeddings))
        health = Health.of(data.uncentred(method))
        record = {
            **run_record(self._record(gate, dim, health), model, path, self.options),
            "seconds_by_step": self.seconds,
            "notices": list(self.store.facts.notices),
        }
        self.folder.complete(record)
        return record

    def _trained(self, method: Method, data: RowBatches) -> TrainingResult:
        """The method, trained now, or as it was when the embedding began."""
        saved = self.folder.path / MODEL
        if is_file(saved):
            tensors = read_tensors(saved)[0]
            method.load_state_dict({name: tensors[name] for name in method.state_dict()})
            method.eval()
            return self._result_as_logged()
        if self.options.engine == "ray":
            result = self._trained_by_ray(method, data)
        else:
            result = train(method, data, seed=self.model.seed, recorder=self.folder)
        self._save(method, result)
        return result

    def _save(
        self,
        method: Method,
        result: TrainingResult,
        projection: Tensor | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        self.model.take(
            method,
            num_features=self.store.num_features,
            rows=self.rows,
            projection=projection,
            scaling=scaling,
            result=result,
        )
        self.model.save(self.folder.path / MODEL)

    def _trained_by_ray(self, method: Method, data: RowBatches) -> TrainingResult:
        options, folder = self.options, self.folder
        on_gpu = self.model.device.type == "cuda"
        cores = connect(options.workers)
        training = RayTraining(
            options.workers or (num_gpus() if on_gpu else cores),
            options.storage or str((folder.path / CHECKPOINTS).absolute()),
            folder.path.name,
            use_gpu=on_gpu,
            checkpoint_every=folder.checkpoint_every,
        )
        folder.checkpoint_every = self.model.config.epochs + 1  # Ray Train keeps its own
        result = training.train(
            method, data.views, self.rows, seed=self.model.seed, recorder=folder
        )
        method.to(self.model.device)
        return result

    def _result_as_logged(self) -> TrainingResult:
        """How the training ended, which was before this process began."""
        values = json.loads((self.folder.path / METRICS).read_text().splitlines()[-1])
        epochs = values.pop("epoch")
        return TrainingResult(epochs, epochs < self.model.config.epochs, values, epochs)

    def _record(self, gate: dict[str, float] | None, dim: int, health: Health) -> Record:
        """As `run` makes one of a graph in memory."""
        model, facts = self.model, self.store.facts
        spec = training_spec(model, self.store.digest, rows=self.rows)
        source = GraphSource(graph=str(self.store.path))
        return Record(
            status="done",
            cell=Cell.outside_plans("train", model.name, source, spec),
            graph=GraphSummary(
                name=source.name,
                nodes=facts.num_nodes,
                edges=facts.num_edges,
                features=facts.num_features,
                classes=len(facts.class_names),
            ),
            **training_facts(model),
            dim=dim,
            gate=gate,
            health=health.to_dict(),
            seconds=self.seconds,
            warnings=tuple(faults_of(model, health)),
            versions=versions(),
        )


def _rows_of(
    model: Embedder,
    store: GraphStore,
    rows: RowSettings,
    folder: Path,
    ranks: Ranks,
    engine: Propagator | None = None,
) -> tuple[Method, RowBatches]:
    """An untrained method, and the store as batches; the first process propagates."""
    method = model.untrained(rows.projection_width or store.num_features)
    if ranks.rank > 0:
        dist.barrier()
    views = stored_views(
        store,
        folder / BASES,
        row_plan_of(method),
        rows,
        seed=model.seed,
        device=str(model.device),
        engine=engine,
        is_alone=ranks.world == 1,
    )
    if ranks.world > 1 and ranks.rank == 0:
        dist.barrier()
    return method, RowBatches(views, rows, seed=model.seed, device=model.device, ranks=ranks)


class _Follower(Recorder):
    """Of a process that writes nothing: it goes on from the checkpoint that the first one reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @override
    def latest(self) -> Snapshot | None:
        if not is_file(self.folder / CHECKPOINT):
            return None
        tensors, manifest = read_tensors(self.folder / CHECKPOINT)
        return Snapshot(tensors, manifest["state"])


def _follow(
    model: Embedder, store: GraphStore, rows: RowSettings, folder: Path, ranks: Ranks
) -> dict[str, Any]:
    """The part of a process other than the first: its share of every batch."""
    method, data = _rows_of(model, store, rows, folder, ranks)
    if not is_file(folder / MODEL):
        train(method, data, seed=model.seed, recorder=_Follower(folder))
    return {}


# Probed on a sample of the nodes: neither graph nor embeddings fit the memory


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
