"""Folders of `aspect train` as records and details, so that one page shows them beside a bench."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from torch import Tensor

from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.splits import Split, make_splits
from aspect.errors import GraphError, RunError
from aspect.evaluation.details import Details
from aspect.evaluation.inspection import inspect_model
from aspect.evaluation.linear_probe import linear_probe
from aspect.experiment.facts import graph_facts
from aspect.experiment.model_facts import faults_of, gate_summary
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.perturbed import attack_note
from aspect.experiment.record import Cell, Record, SplitScores, Work
from aspect.experiment.runs import LoadedRun, load_run, source_of
from aspect.perturbation import FilePerturbation

__all__ = ["Trained", "read_runs"]

SPLITS: Literal["random"] = "random"  # as `aspect evaluate` takes
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Trained:
    """What several runs give."""

    records: tuple[Record, ...]
    details: tuple[Details, ...]


def read_runs(
    paths: Sequence[Path],
    *,
    device: str | None = None,
    data_dir: str | None = None,
    on_run: Callable[[Path], object] = str,
) -> Trained:
    """Probe every run on random splits, and look into its model.

    One that was trained on a perturbed graph is probed there, on the split of its file alone.
    """
    runs = [load_run(path, device=device) for path in paths]
    names = list(_entry_names(runs))
    records, details = [], []
    for run, name in zip(runs, names, strict=True):
        on_run(run.path)
        trained = _TrainedOn(run, run.read_graph(data_dir), run.read_perturbation())
        records.append(_record(trained, name))
        details.append(
            inspect_model(
                run.model,
                replace(trained.labelled, graph=trained.graph),
                title=trained.title(name),
                graph=run.record["graph"]["name"],
                curves=_curves(run.path / METRICS),
            )
        )
    return Trained(tuple(records), tuple(details))


def _entry_names(runs: Sequence[LoadedRun]) -> Iterator[str]:
    """The method; its folder too where runs of it on one graph differ in more than the seed."""
    settings: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        own = json.dumps(run.record["settings"], sort_keys=True)
        settings.setdefault(_place(run), set()).add(own)
    folders = Counter(run.path.name for run in runs)
    for run in runs:
        folder = run.path.name if folders[run.path.name] == 1 else str(run.path)
        method = run.model.name
        yield method if len(settings[_place(run)]) == 1 else f"{method} ({folder})"


def _place(run: LoadedRun) -> tuple[str, str]:
    return run.model.name, run.record["graph"]["sha256"]


@dataclass(frozen=True)
class _TrainedOn:
    """A run with its graph, clean and as it was trained on."""

    run: LoadedRun
    labelled: LabelledGraph  # clean
    file: FilePerturbation | None

    @cached_property
    def graph(self) -> Graph:
        """The one that was trained on."""
        return self.labelled.graph if self.file is None else self.file.apply(self.labelled)

    @property
    def perturbation(self) -> Perturbation | None:
        """What happened to it before."""
        if self.file is None:
            return None
        facts, features = self.file.facts, self.file.features
        return Perturbation(
            kind=facts.kind, solver=facts.solver, budget=self.file.budget, features=features
        )

    def splits(self) -> dict[int, Split]:
        """Those to be judged on, by their numbers."""
        labelled = self.labelled
        if self.file is not None:
            return {self.file.facts.split: self.file.split_of(labelled)}
        drawn = make_splits(SPLITS, labelled.labels, labelled.num_classes)
        return dict(enumerate(drawn))

    def title(self, entry: str) -> str:
        """Models of one method are told apart by what happened to their graph."""
        return entry if self.perturbation is None else f"{entry}, {self.perturbation.label}"


def _record(trained: _TrainedOn, entry: str) -> Record:
    run, graph, told = trained.run, trained.graph, trained.run.record
    embeddings, health = run.model.embed(graph, normalise="none"), run.model.health(graph)
    scores, notices = _probe(trained, embeddings)
    file = trained.file
    return Record(
        status="done",
        cell=_cell(trained, entry, tuple(score.split for score in scores)),
        graph=graph_facts(source_of(run.experiment), trained.labelled),
        attack=None if file is None else attack_note(file.trace, file.budget),
        scores=scores,
        epochs=told.get("epochs", 0),
        stopped_early=told.get("stopped_early", False),
        loss=told.get("loss", {}),
        dim=embeddings.shape[1],
        parameters=run.model.method.num_parameters,
        gate=gate_summary(run.model.policy(graph)),
        health=health.to_dict(),
        seconds={"train": told["seconds"]} if "seconds" in told else {},
        notices=notices,
        warnings=tuple(faults_of(run.model, graph, health)),
        device=told.get("device", ""),
        versions=told.get("versions", {}),
    )


def _cell(trained: _TrainedOn, entry: str, splits: tuple[int, ...]) -> Cell:
    run, told, file = trained.run, trained.run.record, trained.file
    return Cell(
        plan="train",
        entry=entry,
        title=entry,
        graph=told["graph"]["path"] or told["graph"]["name"],
        reading=run.experiment.reading,
        work=Work(
            method=run.model.name,
            settings=told["settings"],
            graph_sha256=told["graph"]["sha256"],
            splits=SPLITS if file is None else file.facts.splits,
            splits_sha256=None if file is None else file.facts.splits_sha256,
            split_numbers=splits,
            probe="neutral",
            perturbation=trained.perturbation,
            perturbation_sha256=None if file is None else (file.sha256,),
            seed=told["seed"],
            device="cuda" if told.get("device", "").startswith("cuda") else "cpu",
            version=told.get("versions", {}).get("aspect", "unknown"),
        ),
    )


def _probe(
    trained: _TrainedOn, embeddings: Tensor
) -> tuple[tuple[SplitScores, ...], tuple[str, ...]]:
    """The scores, or why there are none; and what a reader must know beside them."""
    labelled, device = trained.labelled, trained.run.model.device
    labels, classes = labelled.labels, labelled.num_classes
    if not bool((labels != UNLABELLED).any()):
        return (), ("The graph has no labels, so nothing was scored.",)
    try:
        splits = trained.splits()
        result = linear_probe(
            embeddings.to(device), labels, list(splits.values()), num_classes=classes
        )
    except GraphError as error:  # too few labels to judge by; all else can still be shown
        return (), (f"Nothing was scored: {error}",)
    scores = tuple(
        SplitScores.of(number, score) for number, score in zip(splits, result.splits, strict=True)
    )
    return scores, result.notices_naming(labelled.class_names)


def _curves(path: Path) -> dict[str, list[float | None]]:
    """Values of every epoch; None where there was none, or none that was a finite number."""
    try:
        epochs = [_values(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} is damaged ({type(error).__name__}). Train again with --overwrite."
        ) from error
    names = dict.fromkeys(name for values in epochs for name in values if name != "epoch")
    return {name: [values.get(name) for values in epochs] for name in names}


def _values(line: str) -> dict[str, float | None]:
    """One epoch's values by name."""
    told = json.loads(line)
    return {name: None if value is None else float(value) for name, value in told.items()}
