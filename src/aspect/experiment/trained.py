"""Folders of `aspect train`: a run from start to end, and what is read back from it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from aspect import __version__
from aspect.attacks.purification import used_score
from aspect.config import make_config, to_yaml
from aspect.data.archives import content_sha256
from aspect.data.files import is_file, replacing
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.source import GraphSource
from aspect.data.splits import make_splits
from aspect.data.tensors import write_embeddings
from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder, choose_device
from aspect.evaluation.details import Details
from aspect.evaluation.inspection import ValueRecorder
from aspect.experiment.embeddings import read_ids
from aspect.experiment.record import GraphSummary, Record
from aspect.experiment.run import Outcome, PerturbedGraph, Task, Training, run
from aspect.experiment.spec import Cell, Spec, method_source, metric_for
from aspect.methods.registry import find_method
from aspect.plugins import is_reference
from aspect.scale.store import is_store
from aspect.settings import Experiment, RowSettings, load_experiment
from aspect.training.files import (
    CONFIG,
    EMBEDDINGS,
    FEATURES,
    IDS,
    METRICS,
    MODEL,
    POLICY,
    RECORD,
    check_run,
)
from aspect.training.folder import RUN, RunFolder, Start, read_start
from aspect.training.health import Health
from aspect.training.trainer import EpochReport
from aspect.workspace import (
    MANIFEST,
    Workspace,
    read_json,
    read_json_lines,
    write_json,
    write_text,
)

logger = logging.getLogger(__name__)

RECORD_FORMAT = 1
OF_RECORD = ("epochs", "stopped_early", "loss", "versions", "dim", "gate", "warnings")
TRAIN_AGAIN = "Train again with --overwrite."


def _ignore(news: object) -> None:
    """The default of callbacks."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; none of it changes what is learned."""

    device: str | None = None  # the GPU if there is one, else the CPU
    data_dir: str | None = None  # where files of named data sets lie
    resume: bool = False
    overwrite: bool = False
    checkpoint_every: int = 20  # epochs
    tensorboard: bool = False
    engine: Literal["local", "ray"] = "local"  # of a store: who propagates and trains
    workers: int | None = None  # of Ray; none: all of the cluster
    storage: str | None = None  # where Ray's checkpoints go; none: into the run's folder
    settings_from: str = ""  # a word on where the settings come from, for the record
    on_graph: Callable[[LabelledGraph], None] = _ignore  # called with the clean graph
    on_outlook: Callable[[str], None] = _ignore  # called with what to know before training
    on_epoch: Callable[[EpochReport], None] = _ignore  # called after every epoch


# Training


def train_run(
    experiment: Experiment, out: str | Path, options: RunOptions | None = None
) -> dict[str, Any]:
    """Train as the experiment says into the folder `out`; return the record it ends with.

    A store is trained on where it lies (`aspect.experiment.trained_store`). Everything that can be
    refused is refused before the folder is touched. A complete run that is resumed is left as it
    is; an unfinished one goes on with the device and the data it began with, unless the options
    name others.
    """
    options = _as_begun(options or RunOptions(), Path(out))
    entry = find_method(experiment.method)  # a setting may be called as an argument of the model is
    make_config(entry.config, experiment.settings, owner=entry.method.name)
    source = experiment.source.absolute()
    if is_store(Path(source.graph)):
        from aspect.experiment.trained_store import train_store

        return train_store(experiment, Path(source.graph), Path(out), options)
    if options.engine != "local":
        raise SettingsError(
            "--engine ray trains on a store. Make one of the graph with: aspect store."
        )
    return _train_in_memory(experiment, source, Path(out), options)


def _train_in_memory(
    experiment: Experiment, source: GraphSource, out: Path, options: RunOptions
) -> dict[str, Any]:
    model = untrained_model(experiment, options.device)
    labelled = source.read(options.data_dir)
    options.on_graph(labelled)
    model.suit(labelled.graph)
    checksum = content_sha256(labelled)
    poison = (
        None if experiment.perturbation is None else PerturbedGraph.read(experiment.perturbation)
    )
    if poison is not None and options.resume:
        poison = _as_first_read(poison, out)
    graph = labelled.graph if poison is None else poison.apply(labelled)
    rows = model.rows_for(graph)
    if rows is not None:
        experiment = experiment.model_copy(update={"scale": "rows", "rows": rows})
    text = _config_text(experiment, model, source, checksum, poison)
    with open_folder(out, text, model, options) as folder:
        if folder.is_complete:
            return dict(open_run(folder.path).record)
        for sentence in model.outlook(graph):
            options.on_outlook(sentence)
        model.scale = rows or "full"
        spec = training_spec(model, checksum, poison, rows)
        cell = Cell.outside_plans("train", model.name, source, spec)
        task = Task(cell, () if poison is None else (poison,), is_probed=False)
        training = Training(model, graph)
        outcome = run(task, labelled=labelled, training=training, recorder=folder)
        _write_outputs(folder.path, model, graph)
        facts = run_record(outcome.record, model, folder.path, options)
        record = {**facts, "notices": [*graph.notices]}
        if poison is not None:
            told = poison.file.to_dict(poison.perturbation)
            record["perturbation"] = {**told, "edges": graph.num_edges}
        if model.prune is not None:
            record["prune"] = {**model.prune.model_dump(), **_pruned(model, graph)}
        folder.complete(record)
        return record


def untrained_model(experiment: Experiment, device: str | None) -> Embedder:
    """The model that an experiment describes, not fitted yet."""
    return Embedder(
        experiment.method,
        seed=experiment.seed,
        device=device,
        prune=experiment.prune,
        scale=(experiment.rows or "rows") if experiment.scale == "rows" else experiment.scale,
        **experiment.settings,
    )


@contextmanager
def open_folder(
    out: Path, config: str, model: Embedder, options: RunOptions
) -> Iterator[RunFolder]:
    """The folder of a run that is to be trained, held for this process; see `RunFolder.open`."""
    start = Start(
        settings_from=options.settings_from,
        data_dir=_absolute(options.data_dir),
        device=model.device.type,
        source=_unchanged_source(model, out, resume=options.resume),
    )
    with RunFolder.open(
        out,
        config,
        start=start,
        resume=options.resume,
        overwrite=options.overwrite,
        checkpoint_every=options.checkpoint_every,
        tensorboard=options.tensorboard,
    ) as folder:
        folder.on_epoch = options.on_epoch
        yield folder


def _pruned(model: Embedder, graph: Graph) -> dict[str, Any]:
    """What the pruning of a model did to a graph, beside what was asked of it.

    Nodes with few edges keep one, and a score may have a fallback.
    """
    assert model.prune is not None  # the model prunes
    left = model.pruned(graph)
    count = graph.num_edges - left.num_edges
    if model.prune.soft and left.weights is not None:
        before = graph.weights if graph.weights is not None else torch.ones(len(left.weights))
        count = int((left.weights < before.to(left.weights)).sum()) // 2  # both directions
    return {
        "pruned": graph.num_edges - left.num_edges,
        "edges": graph.num_edges,
        "reached": count / max(1, graph.num_edges),
        "used_score": used_score(graph.to(model.device), model.prune.score),
    }


def _as_begun(options: RunOptions, out: Path) -> RunOptions:
    """The options of a resumed run, with what they leave open as it was at the beginning."""
    start = read_start(out) if options.resume else None
    if start is None:
        return options
    device = options.device
    if device is None and not is_file(out / RECORD):  # a complete run needs no device
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


def _unchanged_source(model: Embedder, out: Path, *, resume: bool) -> str | None:
    """Of a method from outside; a run that began with another one cannot go on."""
    if not is_reference(model.name):
        return None
    start, source = read_start(out) if resume else None, method_source(model.name)
    if start is not None and start.source not in (None, source) and not is_file(out / RECORD):
        raise RunError(
            f"The source of {model.name} changed since the run in {out} began. Bring it back to go "
            "on, or pass --overwrite to train anew."
        )
    return source


def _as_first_read(poison: PerturbedGraph, out: Path) -> PerturbedGraph:
    """The same flips from the file that the run began with: where a copy lies decides nothing.

    If that file is gone or changed, the run is one with other settings.
    """
    begun = load_experiment(out / CONFIG).perturbation if is_file(out / CONFIG) else None
    if begun is None or not is_file(Path(begun.file)):
        return poison
    copy = poison.described.model_copy(update={"file": begun.file})
    return PerturbedGraph.read(begun) if copy == begun else poison


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _config_text(
    experiment: Experiment,
    model: Embedder,
    source: GraphSource,
    checksum: str,
    poison: PerturbedGraph | None,
) -> str:
    """The settings in full; `aspect train --config` takes the file as it is."""
    full = experiment.model_copy(
        update={
            "graph": source.graph,
            "reading": source.reading,
            "graph_sha256": checksum,
            "perturbation": None if poison is None else poison.described,
        }
    )
    values = {
        **full.model_dump(mode="json", exclude_defaults=True),
        "method": full.method,
        "seed": full.seed,
        "settings": model.config.model_dump(mode="json"),
    }
    return to_yaml({name: values[name] for name in Experiment.model_fields if name in values})


def training_spec(
    model: Embedder,
    graph_sha256: str,
    poison: PerturbedGraph | None = None,
    rows: RowSettings | None = None,
) -> Spec:
    """What decides the model; which splits it is evaluated on is for others to say."""
    facts = None if poison is None else poison.file.facts
    return Spec(
        method=model.name,
        source=method_source(model.name),
        settings=model.config.model_dump(mode="json"),
        graph_sha256=graph_sha256,
        splits="random" if facts is None else facts.splits,
        splits_sha256=None if facts is None else facts.splits_sha256,
        split_numbers=() if facts is None else (facts.split,),
        probe="neutral",
        perturbation=None if poison is None else poison.perturbation,
        perturbation_sha256=None if poison is None else (str(poison.sha256),),
        pruning=model.prune,
        rows=rows,
        seed=model.seed,
        device="cuda" if model.device.type == "cuda" else "cpu",
        version=__version__,
    )


def run_record(record: Record, model: Embedder, path: Path, options: RunOptions) -> dict[str, Any]:
    """What the folder says of the run, as `_RunRecord` reads it back."""
    spec, source = record.spec, record.cell.graph_source
    assert record.graph is not None  # it is done
    return {
        "run": str(path),
        "format": RECORD_FORMAT,
        "method": spec.method,
        **({} if spec.source is None else {"source": spec.source}),
        "seed": spec.seed,
        "settings": spec.settings,
        **({} if spec.rows is None else {"rows": spec.rows.model_dump(mode="json")}),
        **record.model_dump(mode="json", include=set(OF_RECORD)),
        "seconds": record.seconds["train"],  # in the process that ended it
        "device": str(model.device),
        "health": Health.from_dict(record.health or {}).to_dict(),  # before any centring
        "settings_from": options.settings_from,
        "graph": {
            **record.graph.model_dump(exclude={"homophily"}),
            "path": None if source.is_named else source.graph,
            "data_dir": _absolute(options.data_dir),
            "sha256": spec.graph_sha256,
        },
    }


def _write_outputs(path: Path, model: Embedder, graph: Graph) -> None:
    """Model, embeddings, policy, ids, and how the features were made."""
    model.save(path / MODEL)
    if graph.encoder is not None:
        write_json(path / FEATURES, graph.encoder.to_json())
    write_embeddings(path / EMBEDDINGS, model.embed(graph), overwrite=True)
    if (policy := model.policy(graph)) is not None:
        with replacing(path / POLICY, overwrite=True) as file:
            np.save(file, policy.numpy(), allow_pickle=False)
    if graph.ids is not None:
        lines = (json.dumps(node, ensure_ascii=False) for node in graph.ids)
        write_text(path / IDS, "".join(f"{line}\n" for line in lines))


# Runs that are there


class _TrainedGraph(GraphSummary):
    """The graph that a run was trained on, as its record describes it."""

    model_config = ConfigDict(extra="allow")

    path: str | None = None
    data_dir: str | None = None
    sha256: str


class _RunRecord(BaseModel):
    """A run's record.json; version 0.1 had fewer fields."""

    model_config = ConfigDict(extra="allow")

    format: int
    method: str
    source: str | None = None
    seed: int
    settings: dict[str, Any]
    graph: _TrainedGraph
    warnings: list[str]
    epochs: int = 0
    stopped_early: bool = False
    seconds: float | None = None
    loss: dict[str, float | None] = Field(default_factory=dict)
    device: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    gate: dict[str, float] | None = None
    health: dict[str, int | float] | None = None
    perturbation: dict[str, Any] | None = None
    prune: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A complete run as its folder holds it; the model stays on disk."""

    path: Path
    experiment: Experiment
    record: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What it is called in tables."""
        method = str(self.record["method"])
        return method if self.experiment.prune is None else f"{method}, pruned in training"

    @property
    def identity(self) -> dict[str, Any]:
        """What seeds of one variant share, by what it is called in a sentence."""
        return {
            "method": self.record["method"],
            "source of the method": self.record.get("source"),
            "setting": self.record["settings"],
            "graph": self.record["graph"]["sha256"],
            "pruning": self.experiment.prune,
            "way of training on rows": self.record.get("rows"),
        }

    @property
    def warnings(self) -> list[str]:
        """What its record warns of, under its name."""
        return [f"{self.path}: {text}" for text in self.record["warnings"]]

    @property
    def is_poisoned(self) -> bool:
        """Whether it was trained on a perturbed graph."""
        return self.experiment.perturbation is not None

    def load_model(self, device: str | None = None) -> Embedder:
        """The trained method; another run's model is refused."""
        model = Embedder.load(self.path / MODEL, device=device)
        given = (model.name, model.seed, model.config.model_dump(mode="json"))
        _check_same(self.path / MODEL, given, self.record)
        if self.record.get("source") not in (None, method_source(model.name)):
            logger.warning(
                "The source of %s changed since %s was trained: what it embeds now may differ.",
                model.name,
                self.path,
            )
        return model

    def read_embeddings(self) -> tuple[Float[Tensor, "nodes dim"], list[str] | None]:
        """What the training left in the folder: an embedding per node, and ids if it has any."""
        matrix, ids = self.path / EMBEDDINGS, self.path / IDS
        try:
            rows = torch.from_numpy(np.load(matrix, allow_pickle=False))
            names = read_ids(ids) if is_file(ids) else None
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{self.path} has no whole {EMBEDDINGS}. {TRAIN_AGAIN}") from error
        if names is not None and len(names) != len(rows):
            raise RunError(
                f"{self.path} has {len(rows)} embeddings and {len(names)} ids. {TRAIN_AGAIN}"
            )
        return rows, names

    @cached_property
    def poison(self) -> PerturbedGraph | None:
        """What was done to its graph before the training; refused if the file changed since."""
        named = self.experiment.perturbation
        return None if named is None else PerturbedGraph.read(named)

    def read_trained_graph(self, data_dir: str | None = None) -> Graph:
        """The graph as it was trained on: perturbed, if the run is a poisoned one."""
        labelled = self.read_graph(data_dir)
        return labelled.graph if self.poison is None else self.poison.apply(labelled)

    def read_graph(self, data_dir: str | None = None) -> LabelledGraph:
        """The clean graph with its labels, refused if it changed since the training."""
        facts, source = self.record["graph"], self.experiment.source
        if is_store(Path(source.graph)):
            raise RunError(
                f"{self.path} was trained on a store, which is never read whole. Such runs are for "
                "aspect embed and aspect evaluate without --task."
            )
        labelled = source.read(data_dir or facts["data_dir"])
        checksum = content_sha256(labelled)
        if checksum != facts["sha256"] and labelled.graph.encoder is not None:
            # Version 0.2 took the numbers of a table as they are.
            labelled = source.unscaled().read(data_dir or facts["data_dir"])
            checksum = content_sha256(labelled)
        if checksum != facts["sha256"]:
            raise GraphError(
                f"The graph of {self.path} changed since the training: its sha256 must be "
                f"{facts['sha256']}. Got {checksum}. Train again."
            )
        return labelled


def open_run(path: str | Path) -> StoredRun:
    """A complete run, every file of it compared with its manifest; others are refused."""
    path = Path(path)
    check_run(path)
    if not Workspace(path, RUN).verify(TRAIN_AGAIN):
        logger.warning(
            "%s has no %s, as runs of version 0.2 and before: damage may go unnoticed.",
            path,
            MANIFEST,
        )
    checked = read_json(path / RECORD, _RunRecord, fix=TRAIN_AGAIN, newest=RECORD_FORMAT)
    record = {**checked.model_dump(exclude_unset=True), "run": str(path)}
    record["graph"] = checked.graph.model_dump(exclude={"homophily"})
    experiment = load_experiment(path / CONFIG)
    given = (experiment.method, experiment.seed, experiment.settings)
    _check_same(path / CONFIG, given, record)
    return StoredRun(path, experiment, record)


def _check_same(
    path: Path, given: tuple[str, int, Mapping[str, Any]], record: Mapping[str, Any]
) -> None:
    """Refuse a file of another run: its scores would stand under this run's name."""
    method, seed, settings = given
    known = {name: value for name, value in record["settings"].items() if name in settings}
    for what, expected, found in (
        ("method", record["method"], method),
        ("seed", record["seed"], seed),
        *((f"setting {name}", value, settings[name]) for name, value in known.items()),
    ):
        if expected != found:
            raise RunError(
                f"{path} belongs to another run: its {what} must be {expected!r}, as {RECORD} "
                f"says. Got {found!r}. {TRAIN_AGAIN}"
            )


# Runs as records


def read_runs(
    paths: Sequence[Path],
    *,
    device: str | None = None,
    data_dir: str | None = None,
    on_run: Callable[[Path], object] = str,
) -> tuple[list[Record], list[Details]]:
    """Probe every run on random splits, and look into its model.

    One that was trained on a perturbed graph is probed there, on the split of its file alone.
    """
    runs = [open_run(path) for path in paths]
    models = [stored.load_model(device) for stored in runs]  # this and the logs before all the work
    curves = [_curves(stored.path / METRICS) for stored in runs]
    records, details = [], []
    for stored, model, entry, values in zip(runs, models, _entry_names(runs), curves, strict=True):
        on_run(stored.path)
        outcome = _probed(stored, model, entry, values, stored.read_graph(data_dir))
        records.append(outcome.record)
        assert outcome.details is not None  # asked for
        poison = stored.poison
        title = entry if poison is None else f"{entry}, {poison.perturbation.label}"
        details.append(outcome.details.model_copy(update={"title": title}))
    return records, details


def _entry_names(runs: Sequence[StoredRun]) -> Iterator[str]:
    """The method; its folder too where runs of it on one graph differ in more than the seed."""
    groups = [(stored.record["method"], stored.record["graph"]["sha256"]) for stored in runs]
    settings = [json.dumps(stored.identity, sort_keys=True, default=str) for stored in runs]
    variants = Counter(group for group, _ in set(zip(groups, settings, strict=True)))
    folders = Counter(stored.path.name for stored in runs)
    for stored, group in zip(runs, groups, strict=True):
        folder = stored.path.name if folders[stored.path.name] == 1 else str(stored.path)
        yield group[0] if variants[group] == 1 else f"{group[0]} ({folder})"


def _probed(
    stored: StoredRun,
    model: Embedder,
    entry: str,
    curves: dict[str, list[float | None]],
    labelled: LabelledGraph,
) -> Outcome:
    """The run's record with scores; or without, and a notice that says why."""
    recorded, poison = stored.record, stored.poison
    metric = metric_for("neutral", stored.experiment.source)
    spec = training_spec(model, recorded["graph"]["sha256"], poison, model.rows).model_copy(
        update={
            "settings": recorded["settings"],
            "metric": None if metric == "accuracy" else metric,
            "version": recorded.get("versions", {}).get("aspect", "unknown"),
        }
    )

    def carry_out(spec: Spec, *, is_probed: bool) -> Outcome:
        cell = Cell.outside_plans("train", entry, stored.experiment.source, spec)
        perturbed = () if poison is None else (poison,)
        task = Task(cell, perturbed, is_probed=is_probed, has_details=True)
        return run(
            task, labelled=labelled, training=Training(model), recorder=ValueRecorder(curves)
        )

    notices: tuple[str, ...] = ()
    try:
        if not bool((labelled.labels != UNLABELLED).any()):
            raise GraphError("the graph has no labels.")
        numbers = spec.split_numbers
        if poison is None:
            numbers = tuple(
                range(len(make_splits("random", labelled.labels, labelled.num_classes)))
            )
        outcome = carry_out(spec.model_copy(update={"split_numbers": numbers}), is_probed=True)
    except GraphError as error:  # too few labels to evaluate by; all else can still be shown
        notices = (f"Nothing was scored: {error}",)
        outcome = carry_out(spec, is_probed=False)
    known = {
        name: recorded[name]
        for name in ("epochs", "stopped_early", "loss", "device", "versions")
        if name in recorded
    }
    seconds = {"train": recorded["seconds"]} if recorded.get("seconds") is not None else {}
    record = outcome.record.model_copy(
        update={
            **known,
            "seconds": seconds,
            "peak_memory_bytes": None,
            "notices": (*notices, *outcome.record.notices),
        }
    )
    return replace(outcome, record=record)


class _Epoch(BaseModel):
    """One line of a run's log."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, float | None]
    epoch: int


def _curves(path: Path) -> dict[str, list[float | None]]:
    """Values of every epoch; None where there was none, or none that was a finite number."""
    epochs = [line.__pydantic_extra__ for line in read_json_lines(path, _Epoch, fix=TRAIN_AGAIN)]
    names: Iterable[str] = dict.fromkeys(name for values in epochs for name in values)
    return {name: [values.get(name) for values in epochs] for name in names}
