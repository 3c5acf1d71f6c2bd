"""`aspect train STORE`: a run's folder from a graph that stays on the disk.

The bases lie in the folder `bases` of the run until it is complete. A run that was killed, in
propagation, training or embedding, goes on where it was. Started by torchrun, several processes
share every batch; the first of them writes the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from aspect.config import to_yaml
from aspect.data.files import is_file
from aspect.data.tensors import read_tensors
from aspect.errors import FileError, RunError
from aspect.estimator import Embedder
from aspect.experiment.trained import (
    MODEL,
    RECORD_FORMAT,
    TRAIN_AGAIN,
    RunOptions,
    StoredRun,
    open_run,
)
from aspect.methods.base import Method
from aspect.nn.normalisation import Normalisation
from aspect.provenance import versions
from aspect.scale.bases import Propagator
from aspect.scale.embedding import (
    PROGRESS,
    embed_store,
    gate_moments,
    scaling_of,
    write_row_groups,
)
from aspect.scale.ranks import Ranks
from aspect.scale.ray_engine import RayTraining, connect, num_gpus, propagate_by_ray
from aspect.scale.rows import RowBatches, row_plan_of, stored_views
from aspect.scale.store import GraphStore
from aspect.settings import Experiment, RowSettings
from aspect.training.folder import CHECKPOINT, METRICS, RunFolder, Start
from aspect.training.health import Health
from aspect.training.trainer import Recorder, Snapshot, TrainingResult, train

BASES, CHECKPOINTS = "bases", "checkpoints"  # folders of the run until it is complete


def train_store(
    experiment: Experiment, path: Path, out: Path, options: RunOptions | None = None
) -> dict[str, Any]:
    """Train on the store at `path` into the folder `out`; return the record it ends with."""
    options = options or RunOptions()
    store = GraphStore.open(path.absolute())
    rows = experiment.rows or RowSettings()
    with process_group(options.device) as (ranks, device):
        model = Embedder(
            experiment.method,
            seed=experiment.seed,
            device=device,
            scale=rows,
            **experiment.settings,
        )
        text = _config_text(experiment, model, store, rows)
        if ranks.rank > 0:
            return _follow(model, store, rows, out, ranks)
        start = Start(settings_from=options.settings_from, device=model.device.type)
        with RunFolder.open(
            out,
            text,
            start=start,
            resume=options.resume,
            overwrite=options.overwrite,
            checkpoint_every=options.checkpoint_every,
            tensorboard=options.tensorboard,
        ) as folder:
            if folder.is_complete:
                return dict(open_run(folder.path).record)
            folder.on_epoch = options.on_epoch
            return _StoreRun(model, store, rows, folder, options, ranks).carry_out()


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
            f"the bare matrix is {stored.path / 'embeddings.npy'}."
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


class _StoreRun:
    """The steps of a run; each takes up what was there."""

    def __init__(
        self,
        model: Embedder,
        store: GraphStore,
        rows: RowSettings,
        folder: RunFolder,
        options: RunOptions,
        ranks: Ranks,
    ) -> None:
        self.model, self.store, self.rows = model, store, rows
        self.folder, self.options, self.ranks = folder, options, ranks
        self.seconds: dict[str, float] = {}

    def carry_out(self) -> dict[str, Any]:
        path, model = self.folder.path, self.model
        started = time.perf_counter()
        engine = propagate_by_ray if self.options.engine == "ray" else None
        method, data = _rows_of(model, self.store, self.rows, path, self.ranks, engine)
        self.seconds["propagate"] = time.perf_counter() - started
        started = time.perf_counter()
        result = self._trained(method, data)
        self.seconds["train"] = time.perf_counter() - started
        started = time.perf_counter()
        embeddings, policy = embed_store(data, method, path)
        self.seconds["embed"] = time.perf_counter() - started
        gate, dim = gate_moments(policy), embeddings.shape[1]
        model.take(
            method,
            num_features=self.store.num_features,
            rows=self.rows,
            projection=data.projection,
            scaling=scaling_of(embeddings),
            result=result,
        )
        model.save(path / MODEL)
        health = Health.of(data.uncentred(method))
        record = self._record(result, gate, dim, health)
        self.folder.complete(record)
        for made in (BASES, CHECKPOINTS):
            shutil.rmtree(path / made, ignore_errors=True)
        (path / PROGRESS).unlink()
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
        self.model.take(
            method,
            num_features=self.store.num_features,
            rows=self.rows,
            projection=None,
            scaling=None,
            result=result,
        )
        self.model.save(saved)
        return result

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

    def _record(
        self,
        result: TrainingResult,
        gate: dict[str, float] | None,
        dim: int,
        health: Health,
    ) -> dict[str, Any]:
        model, facts = self.model, self.store.facts
        return {
            "run": str(self.folder.path),
            "format": RECORD_FORMAT,
            "method": model.name,
            "seed": model.seed,
            "settings": model.config.model_dump(mode="json"),
            "rows": self.rows.model_dump(mode="json"),
            "epochs": result.epochs,
            "stopped_early": result.stopped_early,
            "loss": result.values,
            "dim": dim,
            "gate": gate,
            "versions": versions(),
            "seconds": self.seconds["train"],
            "seconds_by_step": self.seconds,
            "device": str(model.device),
            "health": health.to_dict(),
            "warnings": health.warnings(),
            "notices": list(facts.notices),
            "settings_from": self.options.settings_from,
            "graph": {
                "name": self.store.path.name,
                "nodes": facts.num_nodes,
                "edges": facts.num_edges,
                "features": facts.num_features,
                "classes": len(facts.class_names),
                "path": str(self.store.path),
                "data_dir": None,
                "sha256": self.store.digest,
            },
        }


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


def _config_text(
    experiment: Experiment, model: Embedder, store: GraphStore, rows: RowSettings
) -> str:
    """The settings in full; `aspect train --config` takes the file as it is."""
    return to_yaml(
        {
            "method": model.name,
            "graph": str(store.path),
            "graph_sha256": store.digest,
            "seed": experiment.seed,
            "scale": "rows",
            "rows": rows.model_dump(mode="json"),
            "settings": model.config.model_dump(mode="json"),
        }
    )
