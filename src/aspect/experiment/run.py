"""One cell of the grid, carried out: read, perturb, train, embed, probe; a record in any case."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from aspect.data.graph import Graph, LabelledGraph
from aspect.data.source import GraphSource
from aspect.data.splits import Split, published_sha256
from aspect.errors import GraphError, sentence_of
from aspect.estimator import Embedder
from aspect.evaluation.baselines import majority_probe
from aspect.evaluation.details import Details
from aspect.evaluation.evasion import evasion_probe
from aspect.evaluation.inspection import ValueRecorder, inspect_model
from aspect.evaluation.linear_probe import linear_probe, probe_named
from aspect.evaluation.pruning import probe_pruned
from aspect.evaluation.result import ProbeResult
from aspect.experiment.facts import graph_facts
from aspect.experiment.graphs import draw_splits, read_unchanged, twin_accuracies
from aspect.experiment.memory import forget_peak, peak_bytes
from aspect.experiment.model_facts import faults_of, gate_summary
from aspect.experiment.perturbed import Change
from aspect.experiment.record import Cell, Record, SplitScores
from aspect.provenance import device_name, versions
from aspect.training.health import check_finite

__all__ = ["Outcome", "Task", "run_cell"]


@dataclass(frozen=True)
class Task:
    """A cell, the files of its flips, and whether its model is to be looked into."""

    cell: Cell
    files: tuple[Path, ...] = ()  # one for each of its splits, unless the flips are drawn
    has_details: bool = False
    shown: tuple[Change, ...] = ()  # what the details tell of besides the clean graph

    def changes(self) -> list[Change]:
        """What is done to the graph, split by split."""
        work = self.cell.work
        if work.perturbation is None:
            return []
        if not work.perturbation.has_file:
            return [Change(work.perturbation, split) for split in work.split_numbers]
        checksums = work.perturbation_sha256 or ()
        return [
            Change(work.perturbation, split, path, sha256)
            for split, path, sha256 in zip(work.split_numbers, self.files, checksums, strict=True)
        ]


@dataclass(frozen=True)
class Outcome:
    """A record, and what does not fit into it."""

    record: Record
    details: Details | None = None
    trace: str = ""  # where a cell that failed did so


def run_cell(task: Task, *, data_dir: str | None = None, device: str | None = None) -> Outcome:
    """Carry out a cell; whatever goes wrong becomes a failed record with a sentence.

    Args:
        task: The cell.
        data_dir: Where files of named data sets lie.
        device: Where to train; of the kind that the cell names.
    """
    place = device or task.cell.work.device
    try:
        with _listening() as heard:
            return _Run(task, data_dir, place, heard).outcome()
    except Exception as error:
        record = Record(
            status="failed", cell=task.cell, error=_sentence(error), versions=versions()
        )
        return Outcome(record, trace=traceback.format_exc())


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error):
        return (
            "Out of memory. Lower width, sample negatives (negatives: 1000), or use fewer workers."
        )
    return sentence_of(error)


@contextmanager
def _listening() -> Iterator[list[str]]:
    """The library's warnings from here on, each once; a worker has no screen to show them on."""
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() not in heard:
                heard.append(record.getMessage())

    handler, logger = Listener(logging.WARNING), logging.getLogger("aspect")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


@dataclass
class _Run:
    """The steps of a cell, each timed."""

    task: Task
    data_dir: str | None
    device: str
    heard: list[str]  # what the library has warned of so far
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        return self.task.cell

    def outcome(self) -> Outcome:
        labelled = self._labelled()
        splits = draw_splits(labelled, self.cell.work.splits, self.cell.work.split_numbers)
        # All files are looked at before the training: one that changed must not cost it.
        notes = [change.note() for change in self.task.changes()]
        curves = ValueRecorder()
        model = self._model()
        forget_peak(model.device)
        graph = self._trained_on(labelled)
        with self._timed("train", model.device):
            model.fit(graph, recorder=curves)
        record = self._record(model, graph, labelled, splits)
        record = record.model_copy(update={"attack": notes[0] if notes else None})
        details = self._details(model, labelled, curves) if self.task.has_details else None
        return Outcome(record, details)

    def _model(self) -> Embedder:
        work = self.cell.work
        return Embedder(work.method, seed=work.seed, device=self.device, **work.settings)

    def _labelled(self) -> LabelledGraph:
        cell, work = self.cell, self.cell.work
        labelled = read_unchanged(cell.graph, cell.reading, self.data_dir, work.graph_sha256)
        if published_sha256(work.splits, labelled.masks) != work.splits_sha256:
            raise GraphError(
                f"The splits of {cell.graph!r} changed since the bench began. Run the bench again."
            )
        return labelled

    def _trained_on(self, labelled: LabelledGraph) -> Graph:
        """The clean graph, or the one that was poisoned for the cell's only split."""
        work = self.cell.work
        if work.perturbation is None or work.perturbation.mode == "evade":
            return labelled.graph
        (change,) = self.task.changes()
        return change.apply(labelled)

    def _record(
        self, model: Embedder, graph: Graph, labelled: LabelledGraph, splits: list[Split]
    ) -> Record:
        with self._timed("embed", model.device):
            embeddings = model.embed(graph, normalise="none")
        check_finite(embeddings)
        with self._timed("probe", model.device):
            found, doubt = self._probe(model, graph, embeddings, labelled, splits)
        result, policy, health = model.result, model.policy(graph), model.health(graph)
        assert result is not None  # the model is fitted
        return Record(
            status="done",
            cell=self.cell,
            graph=graph_facts(self._source(), labelled),
            scores=self._scores(found, doubt, labelled, splits),
            epochs=result.epochs,
            stopped_early=result.stopped_early,
            loss={name: value for name, value in result.values.items() if math.isfinite(value)},
            dim=embeddings.shape[1],
            parameters=model.method.num_parameters,
            gate=gate_summary(policy),
            health=health.to_dict(),
            seconds=self.seconds,
            peak_memory_bytes=peak_bytes(model.device),
            notices=found.notices_naming(labelled.class_names),
            warnings=(*self.heard, *faults_of(model, graph, health)),
            device=device_name(model.device),
            versions=versions(),
        )

    def _source(self) -> GraphSource:
        return GraphSource(graph=self.cell.graph, reading=self.cell.reading)

    def _probe(
        self,
        model: Embedder,
        graph: Graph,
        embeddings: torch.Tensor,
        labelled: LabelledGraph,
        splits: list[Split],
    ) -> tuple[ProbeResult, Sequence[float | None]]:
        """The scores, and the share of doubtful edges that was left out for each of them."""
        work, labels = self.cell.work, labelled.labels
        probe = probe_named(work.probe or "paper")
        if work.doubt is not None:
            return probe_pruned(model, graph, labelled, splits, work.doubt, probe=probe)
        clean, classes = embeddings.to(model.device), labelled.num_classes
        unasked = [None] * len(splits)
        if work.perturbation is None or work.perturbation.mode == "poison":
            result = linear_probe(clean, labels, splits, num_classes=classes, probe=probe)
            return result, unasked
        perturbed = (
            model.embed(change.apply(labelled), normalise="none").to(model.device)
            for change in self.task.changes()
        )
        result = evasion_probe(clean, perturbed, labels, splits, num_classes=classes, probe=probe)
        return result, unasked

    def _scores(
        self,
        found: ProbeResult,
        doubt: Sequence[float | None],
        labelled: LabelledGraph,
        splits: list[Split],
    ) -> tuple[SplitScores, ...]:
        """With what each split reads without any embedding."""
        majority = majority_probe(labelled.labels, splits, num_classes=labelled.num_classes)
        numbers = self.cell.work.split_numbers
        rows = zip(numbers, found.splits, doubt, majority.splits, self._twins(), strict=True)
        return tuple(
            SplitScores.of(number, score, doubt=share, majority=least.strict, twins=twins)
            for number, score, share, least, twins in rows
        )

    def _twins(self) -> tuple[float | None, ...]:
        """Of the clean graph; under a perturbation another rule would be needed for each split."""
        cell, work = self.cell, self.cell.work
        if work.perturbation is not None:
            return (None,) * len(work.split_numbers)
        return twin_accuracies(
            cell.graph,
            cell.reading,
            self.data_dir,
            work.graph_sha256,
            work.splits,
            work.split_numbers,
        )

    def _details(self, model: Embedder, labelled: LabelledGraph, curves: ValueRecorder) -> Details:
        """Of the clean graph and the perturbed ones."""
        shown = [(each.perturbation.label, each.apply(labelled)) for each in self.task.shown]
        return inspect_model(
            model,
            labelled,
            title=self.cell.title,
            graph=self._source().name,
            curves=curves.values,
            perturbed=shown,
        )

    @contextmanager
    def _timed(self, step: str, device: torch.device) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.seconds[step] = time.perf_counter() - started
