"""Folders of `aspect train` as records and details, so that one page shows them beside a bench."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from aspect.benchmark.facts import graph_facts
from aspect.benchmark.record import Cell, Record, SplitScores, Work
from aspect.errors import GraphError, RunError
from aspect.evaluation.details import Details
from aspect.evaluation.inspection import inspect_model
from aspect.evaluation.probe import linear_probe
from aspect.graph.data import UNLABELLED, LabelledGraph
from aspect.graph.splits import make_splits
from aspect.provenance import faults_of, gate_summary
from aspect.runs import LoadedRun, load_run, source_of

__all__ = ["Trained", "read_runs"]

SPLITS: Literal["class-balanced"] = "class-balanced"  # as `aspect evaluate` takes
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
    """Probe every run on the class-balanced splits, and look into its model."""
    runs = [load_run(path, device=device) for path in paths]
    names = list(_entry_names(runs))
    records, details = [], []
    for run, name in zip(runs, names, strict=True):
        on_run(run.path)
        labelled = run.read_graph(data_dir)
        records.append(_record(run, name, labelled))
        details.append(
            inspect_model(
                run.model,
                labelled,
                title=name,
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


def _record(run: LoadedRun, entry: str, labelled: LabelledGraph) -> Record:
    graph, told = labelled.graph, run.record
    embeddings = run.model.embed(graph)
    scores, notices = _probe(run, labelled, embeddings)
    return Record(
        status="done",
        cell=_cell(run, entry, tuple(range(len(scores)))),
        graph=graph_facts(source_of(run.experiment), labelled),
        scores=scores,
        epochs=told.get("epochs", 0),
        stopped_early=told.get("stopped_early", False),
        loss=told.get("loss", {}),
        dim=embeddings.shape[1],
        parameters=_trained_numbers(run),
        gate=gate_summary(run.model.policy(graph)),
        seconds={"train": told["seconds"]} if "seconds" in told else {},
        notices=notices,
        warnings=tuple(faults_of(run.model, graph, embeddings)),
        device=told.get("device", ""),
        versions=told.get("versions", {}),
    )


def _cell(run: LoadedRun, entry: str, splits: tuple[int, ...]) -> Cell:
    told = run.record
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
            splits=SPLITS,
            split_numbers=splits,
            seed=told["seed"],
            device="cuda" if told.get("device", "").startswith("cuda") else "cpu",
            version=told.get("versions", {}).get("aspect", "unknown"),
        ),
    )


def _probe(
    run: LoadedRun, labelled: LabelledGraph, embeddings: Tensor
) -> tuple[tuple[SplitScores, ...], tuple[str, ...]]:
    """The scores, or why there are none; and what a reader must know beside them."""
    labels, classes = labelled.labels, labelled.num_classes
    if not bool((labels != UNLABELLED).any()):
        return (), ("The graph has no labels, so nothing was scored.",)
    try:
        splits = make_splits(SPLITS, labels, classes)
        result = linear_probe(embeddings.to(run.model.device), labels, splits, num_classes=classes)
    except GraphError as error:  # too few labels to judge by; all else can still be shown
        return (), (f"Nothing was scored: {error}",)
    scores = tuple(
        SplitScores(split=number, **asdict(score)) for number, score in enumerate(result.splits)
    )
    return scores, result.notices_naming(labelled.class_names)


def _trained_numbers(run: LoadedRun) -> int:
    method = run.model.method
    return sum(each.numel() for each in method.parameters()) if method.trainable else 0


def _curves(path: Path) -> dict[str, list[float]]:
    """Values of every epoch; one that was not a finite number once is no curve."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        names = [name for name in (lines[0] if lines else ()) if name != "epoch"]
        curves = {name: [line[name] for line in lines] for name in names}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged ({type(error).__name__}). Train again with --overwrite."
        ) from error
    return {name: values for name, values in curves.items() if None not in values}
