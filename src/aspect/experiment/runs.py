"""A run from start to end: read the graph, train, leave a folder that tells all about it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from aspect.config import to_yaml
from aspect.data.archives import content_sha256
from aspect.data.files import is_file, replacing
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.source import GraphSource
from aspect.data.tensors import write_embeddings
from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder, choose_device
from aspect.experiment.model_facts import faults_of, gate_summary
from aspect.perturbation import FilePerturbation
from aspect.provenance import versions
from aspect.settings import Experiment, load_experiment
from aspect.training.folder import CONFIG, RECORD, RunFolder, Start, read_start
from aspect.training.health import check_finite
from aspect.training.trainer import EpochReport
from aspect.workspace import write_text

__all__ = [
    "MODEL",
    "LoadedRun",
    "RunOptions",
    "StoredRun",
    "load_run",
    "open_run",
    "source_of",
    "train_run",
]

MODEL = "model.safetensors"
RECORD_FORMAT = 1
REQUIRED = {"format", "method", "seed", "settings", "graph", "warnings"}


def _ignore(news: object) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; none of it changes what is learned."""

    device: str | None = None  # the GPU if there is one, else the CPU
    data_dir: str | None = None  # where files of named data sets lie
    resume: bool = False
    overwrite: bool = False
    checkpoint_every: int = 20  # epochs
    tensorboard: bool = False
    settings_from: str = ""  # a word on where the settings come from, for the record
    on_graph: Callable[[LabelledGraph], None] = _ignore  # told the clean graph before training
    on_outlook: Callable[[str], None] = _ignore  # told what to know before training, sentence wise
    on_epoch: Callable[[EpochReport], None] = _ignore  # told of every epoch


def source_of(experiment: Experiment) -> GraphSource:
    """The graph that an experiment is about; the embedded one if it names none."""
    named = {} if experiment.graph is None else {"graph": experiment.graph}
    return GraphSource(**named, reading=experiment.reading)


def train_run(
    experiment: Experiment, out: str | Path, options: RunOptions | None = None
) -> dict[str, Any]:
    """Train as the experiment says into the folder `out`; return the record it ends with.

    Everything that can be refused is refused before the folder is touched. A complete run that is
    resumed is left as it is; an unfinished one goes on with the device and the data it began with,
    unless the options name others.
    """
    options = _as_begun(options or RunOptions(), Path(out))
    source = source_of(experiment).absolute()
    model = Embedder(
        experiment.method, seed=experiment.seed, device=options.device, **experiment.settings
    )
    labelled = source.read(options.data_dir)
    options.on_graph(labelled)
    checksum = content_sha256(labelled)
    perturbation = _perturbation_of(experiment)
    if perturbation is not None and options.resume:
        perturbation = _as_first_read(perturbation, Path(out))
    graph = labelled.graph if perturbation is None else perturbation.apply(labelled)
    text = _config_text(experiment, model, source, checksum, perturbation)
    with RunFolder.open(
        Path(out),
        text,
        start=Start(
            settings_from=options.settings_from,
            data_dir=_absolute(options.data_dir),
            device=model.device.type,
        ),
        resume=options.resume,
        overwrite=options.overwrite,
        checkpoint_every=options.checkpoint_every,
        tensorboard=options.tensorboard,
    ) as folder:
        if folder.is_complete:
            return _read_record(folder.path)
        for sentence in model.outlook(graph):
            options.on_outlook(sentence)
        folder.on_epoch = options.on_epoch
        record = _train_into(folder, model, graph)
        record["settings_from"] = options.settings_from
        record["graph"] = _graph_facts(source, labelled, checksum, options.data_dir)
        if perturbation is not None:
            record["perturbation"] = {**perturbation.to_dict("poison"), "edges": graph.num_edges}
        folder.complete(record)
        return record


def _as_begun(options: RunOptions, out: Path) -> RunOptions:
    """The options of a resumed run, with what they leave open as it was at the beginning."""
    start = read_start(out) if options.resume else None
    if start is None:
        return options
    device = options.device
    if device is None and not (out / RECORD).is_file():  # a complete run needs no device
        device = start.device
        try:
            choose_device(device)
        except SettingsError as error:
            raise RunError(
                f"The run in {out} began on {device}, which is not there. "
                "Pass --device cpu to go on elsewhere, with other rounding."
            ) from error
    return replace(
        options,
        device=device,
        data_dir=options.data_dir or start.data_dir,
        settings_from=start.settings_from,
    )


def _perturbation_of(experiment: Experiment) -> FilePerturbation | None:
    wanted = experiment.perturbation
    return None if wanted is None else FilePerturbation.read(wanted)


def _as_first_read(perturbation: FilePerturbation, out: Path) -> FilePerturbation:
    """The same flips from the file that the run began with: where a copy lies decides nothing.

    If that file is gone or changed, the run is one with other settings.
    """
    begun = load_experiment(out / CONFIG).perturbation if is_file(out / CONFIG) else None
    if begun is None or not is_file(Path(begun.file)):
        return perturbation
    first = replace(perturbation, path=Path(begun.file))
    return first if first.described == begun else perturbation


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _train_into(folder: RunFolder, model: Embedder, graph: Graph) -> dict[str, Any]:
    started = time.perf_counter()
    model.fit(graph, recorder=folder)
    seconds = time.perf_counter() - started
    return {
        "run": str(folder.path),
        **_record_of(model, seconds),
        **_write_outputs(folder.path, model, graph),
        "notices": list(graph.notices),
    }


def _config_text(
    experiment: Experiment,
    model: Embedder,
    source: GraphSource,
    checksum: str,
    perturbation: FilePerturbation | None,
) -> str:
    """The settings in full; `aspect train --config` takes the file as it is."""
    own = experiment.model_copy(
        update={
            "graph": source.graph,
            "reading": source.reading,
            "graph_sha256": checksum,
            "perturbation": None if perturbation is None else perturbation.described,
        }
    )
    values = {
        **own.model_dump(mode="json", exclude_defaults=True),
        "method": own.method,
        "seed": own.seed,
        "settings": model.config.model_dump(mode="json"),
    }
    return to_yaml({name: values[name] for name in Experiment.model_fields if name in values})


def _record_of(model: Embedder, seconds: float) -> dict[str, Any]:
    result = model.result
    assert result is not None  # the model is fitted
    return {
        "format": RECORD_FORMAT,
        "method": model.name,
        "seed": model.seed,
        "settings": model.config.model_dump(mode="json"),
        "epochs": result.epochs,
        "stopped_early": result.stopped_early,
        "seconds": seconds,  # of training, in the process that ended it
        "loss": result.values,
        "device": str(model.device),
        "versions": versions(),
    }


def _graph_facts(
    source: GraphSource, labelled: LabelledGraph, checksum: str, data_dir: str | None
) -> dict[str, Any]:
    graph = labelled.graph
    return {
        "name": source.name,
        "path": None if source.is_named else source.graph,
        "data_dir": _absolute(data_dir),
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": labelled.num_classes,
        "sha256": checksum,
    }


def _write_outputs(path: Path, model: Embedder, graph: Graph) -> dict[str, Any]:
    """Model, embeddings, policy and ids; and what the record says of them."""
    embeddings, policy = model.embed(graph), model.policy(graph)
    check_finite(embeddings)
    health = model.health(graph)
    model.save(path / MODEL)
    write_embeddings(path / "embeddings.npy", embeddings, overwrite=True)
    if policy is not None:
        with replacing(path / "policy.npy", overwrite=True) as file:
            np.save(file, policy.numpy(), allow_pickle=False)
    if graph.ids is not None:
        lines = (json.dumps(node, ensure_ascii=False) for node in graph.ids)
        write_text(path / "ids.txt", "".join(f"{line}\n" for line in lines))
    return {
        "dim": embeddings.shape[1],
        "gate": gate_summary(policy),
        "health": health.to_dict(),  # before any centring
        "warnings": faults_of(model, graph, health),
    }


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A complete run as its folder tells of it; the model stays on disk."""

    path: Path
    experiment: Experiment
    record: Mapping[str, Any]

    @property
    def is_poisoned(self) -> bool:
        """Whether it was trained on a perturbed graph."""
        return self.experiment.perturbation is not None

    def load_model(self, device: str | None = None) -> Embedder:
        """The trained method."""
        return Embedder.load(self.path / MODEL, device=device)

    def read_perturbation(self) -> FilePerturbation | None:
        """What its graph suffered before the training, refused if the file changed since."""
        return _perturbation_of(self.experiment)

    def read_trained_graph(self, data_dir: str | None = None) -> Graph:
        """The graph as it was trained on: perturbed, if the run is a poisoned one."""
        labelled, perturbation = self.read_graph(data_dir), self.read_perturbation()
        return labelled.graph if perturbation is None else perturbation.apply(labelled)

    def read_graph(self, data_dir: str | None = None) -> LabelledGraph:
        """The clean graph with its labels, refused if it changed since the training."""
        facts = self.record["graph"]
        labelled = source_of(self.experiment).read(data_dir or facts["data_dir"])
        checksum = content_sha256(labelled)
        if checksum != facts["sha256"]:
            raise GraphError(
                f"The graph of {self.path} changed since the training: its sha256 must be "
                f"{facts['sha256']}. Got {checksum}. Train again."
            )
        return labelled


@dataclass(frozen=True, eq=False)
class LoadedRun(StoredRun):
    """A complete run, read back with its model."""

    model: Embedder


def load_run(path: str | Path, *, device: str | None = None) -> LoadedRun:
    """Read a complete run; one that is missing or unfinished is refused."""
    stored = open_run(path)
    return LoadedRun(stored.path, stored.experiment, stored.record, model=stored.load_model(device))


def open_run(path: str | Path) -> StoredRun:
    """The same without its model."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise RunError(f"{path} is not a run's folder. Train one with: aspect train --out {path}.")
    if not (path / RECORD).is_file():
        raise RunError(
            f"The run in {path} is not complete. Go on with: aspect train --out {path} --resume."
        )
    return StoredRun(path, load_experiment(path / CONFIG), _read_record(path))


def _read_record(path: Path) -> dict[str, Any]:
    with _damage_named(path / RECORD):
        record: dict[str, Any] = json.loads((path / RECORD).read_text(encoding="utf-8"))
        missing = REQUIRED - set(record)
        if missing:
            raise KeyError(*missing)
        if record["format"] > RECORD_FORMAT:
            raise RunError(
                f"{path / RECORD} has format {record['format']}, newer than this version reads "
                f"({RECORD_FORMAT}). Upgrade aspect-gcl."
            )
        return {**record, "run": str(path)}


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Turn what reading a damaged record raises into a sentence that names the file."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged ({type(error).__name__}). Train again with --overwrite."
        ) from error
