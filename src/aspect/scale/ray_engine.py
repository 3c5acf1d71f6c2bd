"""Many machines through Ray: propagation as tasks, training as Ray Train workers.

Store and bases lie where all machines see them. A block of a term is a task; the term before it
travels through the object store. A worker that is lost costs its block, or the epochs since the
last checkpoint, which Ray Train keeps in a storage path of any file system that pyarrow knows.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import SettingsError, TrainingError
from aspect.methods.base import Method
from aspect.scale.bases import BasisFacts, MissingBlocks, Numbers
from aspect.scale.blocks import BlockedRows, row_ranges
from aspect.scale.ranks import Ranks
from aspect.scale.rows import RowBatches, StoredViews
from aspect.settings import RowSettings
from aspect.training.trainer import EpochReport, Recorder, Snapshot, TrainingResult, train

if TYPE_CHECKING:
    import ray

ATTEMPTS = 3  # further ones of a block, or of a training, after its worker was lost
MEMORY_BYTES = 2**30  # of what a task gathers at a time
CHECKPOINT = "checkpoint.safetensors"
# Workers import torch before they begin, which takes long on a busy machine: Ray would wait 60 s.
STARTING = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300"


def connect(workers: int | None = None) -> int:
    """Join the cluster of $RAY_ADDRESS, or start one on this machine; the CPUs it has.

    Args:
        workers: CPUs of a cluster that is started here; none: those of the machine.
    """
    try:
        import ray
    except ImportError as error:
        raise SettingsError(
            "--engine ray needs Ray. Install it with: pip install 'aspect-gcl[ray]'."
        ) from error
    if not ray.is_initialized():
        try:
            here: dict[str, Any] = {"address": "local", "num_cpus": workers}
            cluster = {} if os.environ.get("RAY_ADDRESS") else {**here, "include_dashboard": False}
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **cluster)
        except ConnectionError as error:
            raise SettingsError(
                f"There is no Ray cluster at {os.environ.get('RAY_ADDRESS')!r}. "
                "`aspect cluster` says how to start one."
            ) from error
    return int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]  # Ray


def num_gpus() -> int:
    """GPUs of the cluster that was joined."""
    import ray

    return int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]  # Ray


# Propagation


class _Objects(BlockedRows):
    """A term whose blocks lie in Ray's object store."""

    def __init__(self, blocks: Sequence[ray.ObjectRef[Any]], facts: BasisFacts) -> None:
        self._blocks = list(blocks)
        self.ranges = row_ranges(facts.num_nodes, facts.rows_per_block)
        self._starts = np.array([start for start, _ in self.ranges])
        self.dtype = np.dtype(facts.settings.dtype)
        self.shape = (facts.num_nodes, facts.num_columns)

    @override
    def block(self, number: int) -> NDArray[Any]:
        import ray

        rows: NDArray[Any] = ray.get(self._blocks[number])
        return rows


def propagate_by_ray(
    missing: MissingBlocks, work: Callable[..., Numbers] | None = None
) -> Iterator[tuple[int, Numbers]]:
    """Blocks of a term as Ray tasks, in place of the loop of `aspect.scale.bases`.

    The same blocks in, the same bits out: a task is `propagate_block`. Of the terms before, a block
    needs its own rows from the disk, which all machines see.

    Args:
        missing: The blocks; they come as they are done.
        work: What a task does.
    """
    import ray

    connect()
    shared, rows = ray.put(missing), missing.previous
    previous = [ray.put(np.asarray(rows.block(block))) for block in range(len(rows.ranges))]
    task = ray.remote(max_retries=ATTEMPTS)(work or _propagate)
    waiting = {task.remote(shared, block, previous): block for block in missing.blocks}
    while waiting:
        (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
        block = waiting.pop(ready)
        yield block, ray.get(ready)


def _propagate(missing: MissingBlocks, block: int, previous: list[ray.ObjectRef[Any]]) -> Numbers:
    """A block of the next term, in a worker."""
    objects = _Objects(previous, missing.facts)
    return missing.computed(block, objects, memory_bytes=MEMORY_BYTES)


# Training


@dataclass(frozen=True)
class RayTraining:
    """One model trained by several workers, each with its share of every batch.

    Args:
        workers: Their number.
        storage: Where checkpoints go: a path or URI of a file system that pyarrow knows.
        name: Of the training, under the storage; one that was stopped goes on under its name.
        use_gpu: One GPU for each worker (nccl); else CPUs (gloo).
        checkpoint_every: Epochs.
    """

    workers: int
    storage: str
    name: str
    use_gpu: bool = False
    checkpoint_every: int = 20

    def train(
        self,
        method: Method,
        views: StoredViews,
        settings: RowSettings,
        *,
        seed: int,
        recorder: Recorder | None = None,
    ) -> TrainingResult:
        """Train in place; the recorder hears of all epochs when the workers are done."""
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        connect(self.workers)
        os.environ.setdefault(*STARTING)
        work = {
            "method": method.cpu(),
            "views": views,
            "settings": settings,
            "seed": seed,
            "use_gpu": self.use_gpu,
            "checkpoint_every": self.checkpoint_every,
        }
        trainer = TorchTrainer(
            _train_worker,
            train_loop_config=work,
            scaling_config=ScalingConfig(num_workers=self.workers, use_gpu=self.use_gpu),
            run_config=RunConfig(
                name=self.name,
                storage_path=self.storage,
                failure_config=FailureConfig(max_failures=ATTEMPTS),
            ),
        )
        result = trainer.fit()
        if result.error is not None or result.checkpoint is None:
            raise TrainingError(f"The workers did not end their training. {result.error}")
        with result.checkpoint.as_directory() as folder:
            tensors, manifest = read_tensors(Path(folder) / CHECKPOINT)
        method.load_state_dict(tensors)
        method.eval()
        ended = TrainingResult(**manifest["result"])
        _replay(recorder or Recorder(), manifest["history"], method.config.epochs)
        return ended


def _replay(recorder: Recorder, history: Sequence[dict[str, float]], epochs: int) -> None:
    """Tell a recorder of what is over; its checkpoints are not needed."""
    recorder.latest()
    for number, values in enumerate(history, start=1):
        recorder.epoch_done(EpochReport(number, epochs, values), lambda: Snapshot({}, {"epoch": 0}))
    recorder.training_done()


class _Reporter(Recorder):
    """The trainer's recorder in a worker: the first one writes checkpoints, all report."""

    def __init__(self, rank: int, every: int) -> None:
        self.rank, self.every = rank, every
        self.history: list[dict[str, float]] = []

    @override
    def latest(self) -> Snapshot | None:
        from ray import train as ray_train

        checkpoint = ray_train.get_checkpoint()
        if checkpoint is None:
            return None
        with checkpoint.as_directory() as folder:
            tensors, manifest = read_tensors(Path(folder) / CHECKPOINT)
        self.history = manifest["history"]
        return Snapshot(tensors, manifest["state"])

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        self.history.append(report.values)
        if report.epoch % self.every == 0 and report.epoch < report.epochs:
            taken = snapshot()
            self.report(taken.tensors, {"state": taken.state})

    def report(self, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> None:
        """Hand a checkpoint to Ray Train; all workers meet here."""
        from ray import train as ray_train
        from ray.train import Checkpoint

        last = {"loss": self.history[-1]["loss"], "epoch": len(self.history)}
        if self.rank > 0:
            ray_train.report(last)
            return
        with tempfile.TemporaryDirectory() as folder:
            written = {"kind": "checkpoint", "history": self.history, **manifest}
            write_tensors(Path(folder) / CHECKPOINT, tensors, json.loads(json.dumps(written)))
            ray_train.report(last, checkpoint=Checkpoint.from_directory(folder))


def _train_worker(work: dict[str, Any]) -> None:
    """The loop of one worker; the process group is Ray Train's."""
    from ray.train.torch import get_device

    ranks, method = Ranks.here(), work["method"]
    device = get_device() if work["use_gpu"] else torch.device("cpu")
    method.to(device)
    data = RowBatches(
        work["views"], work["settings"], seed=work["seed"], device=device, ranks=ranks
    )
    recorder = _Reporter(ranks.rank, work["checkpoint_every"])
    result = train(method, data, seed=work["seed"], recorder=recorder)
    state = {name: value.cpu() for name, value in method.state_dict().items()}
    recorder.report(state, {"result": vars(result), "state": {"epoch": result.epochs}})
