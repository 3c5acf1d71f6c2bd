"""A run: read the graph, perturb it, train on it, embed it, probe the embedding, make a record.

This is the only place where that happens: `train`, `evaluate`, `bench` and `report` call it.
"""

from __future__ import annotations

import gc
import logging
import math
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.attacks.file import PerturbationFile
from aspect.attacks.perturbation import Perturbation
from aspect.data.archives import content_sha256
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.source import GraphSource, Reading
from aspect.data.splits import Split, SplitKind, make_splits, only_targets, published_sha256
from aspect.errors import RunError, TrainingError, is_out_of_memory, sentence_of
from aspect.estimator import Embedder
from aspect.evaluation.baselines import MOST_TWIN_NODES, majority_probe, twin_probe
from aspect.evaluation.details import Details
from aspect.evaluation.inspection import ValueRecorder, inspect_model
from aspect.evaluation.linear_probe import Probe, evasion_probe, linear_probe, probe_named
from aspect.evaluation.neutral_probe import NeutralProbe, on_faster_device
from aspect.evaluation.pruning import PrunedProbe, probe_pruned
from aspect.evaluation.result import ProbeResult
from aspect.experiment.embeddings import precomputed_model
from aspect.experiment.record import AttackNote, GraphSummary, Record, SplitScores
from aspect.experiment.spec import Cell, Spec, check_unchanged, method_source
from aspect.provenance import device_name, forget_peak, peak_bytes, versions
from aspect.settings import PerturbedBy
from aspect.training.health import Health, check_finite
from aspect.training.trainer import Recorder

GRAPHS_KEPT = 16  # in the memory of a worker: all of a plan, as a rule


@dataclass(frozen=True)
class PerturbedGraph:
    """A perturbation of one graph for one split, with the file of its flips if there is one."""

    perturbation: Perturbation
    split: int  # the only one that a model of the perturbed graph may be evaluated on
    path: Path | None = None  # None: the flips are drawn
    sha256: str | None = None  # of all that the file does at the budget

    @classmethod
    def of(cls, file: PerturbationFile, perturbation: Perturbation) -> PerturbedGraph:
        """What a file does as the perturbation says."""
        return cls(perturbation, file.facts.split, file.path, file.digest(perturbation.budget))

    @classmethod
    def read(cls, named: PerturbedBy) -> PerturbedGraph:
        """Read the file that settings name; one that changed since is refused."""
        file = PerturbationFile.read(Path(named.file).absolute())
        perturbed = cls.of(file, file.perturbation(named.budget, features=named.features))
        if named.sha256 not in (None, perturbed.sha256):
            flips = len(file.flips(perturbed.budget))
            raise RunError(
                f"{file.path} is not the file that these settings were made with: the sha256 of "
                f"its first {flips} flips must be {str(named.sha256)[:16]}... "
                f"Got {str(perturbed.sha256)[:16]}... Bring that file back, or train anew on this "
                "one with --perturbation."
            )
        return perturbed

    @cached_property
    def file(self) -> PerturbationFile:
        """The file, if it still does what it did when it was first read."""
        assert self.path is not None  # the flips are not drawn
        file = PerturbationFile.read(self.path)
        check_unchanged(f"The flips in {str(self.path)!r}", self.sha256, file.digest(self.budget))
        return file

    @property
    def budget(self) -> float:
        """Flips per edge of the clean graph."""
        return self.perturbation.budget

    @property
    def targets(self) -> tuple[int, ...]:
        """Rows of the nodes that are attacked; none: the whole graph is."""
        return () if self.path is None else self.file.facts.targets

    @property
    def name(self) -> str:
        """A word for folders."""
        return self.file.name(self.perturbation)

    @property
    def title(self) -> str:
        """Words for people."""
        return self.file.title(self.perturbation)

    @property
    def described(self) -> PerturbedBy:
        """The same for a run's settings, in full."""
        return PerturbedBy(
            file=str(self.path),
            budget=self.budget,
            features=self.perturbation.features,
            sha256=self.sha256,
        )

    def apply(self, labelled: LabelledGraph) -> Graph:
        """The graph after it; one that the file was not made for is refused."""
        if self.path is None:
            return self.perturbation.apply(labelled, self.split)
        self.file.check(labelled)
        return self.perturbation.apply(labelled, self.split, self.file)

    def note(self) -> AttackNote | None:
        """How its flips were found, for a record; None where they are drawn."""
        if self.path is None:
            return None
        facts = self.file.facts
        return AttackNote(
            flips=len(self.file.flips(self.budget)),
            settings=facts.settings,
            seed=facts.seed,
            device=facts.device,
            version=facts.versions.get("aspect", "unknown"),
        )


@dataclass(frozen=True)
class Task:
    """A run that is to be carried out."""

    cell: Cell
    perturbed: tuple[PerturbedGraph, ...] = ()  # one for each of its splits, unless it is clean
    is_probed: bool = True  # off: the splits say what was poisoned, and nothing is scored
    has_details: bool = False  # whether its model is to be looked into
    shown: tuple[PerturbedGraph, ...] = ()  # what the details show besides the clean graph
    targets: tuple[int, ...] = ()  # test nodes to score; none: those that are attacked, or all


@dataclass(frozen=True, eq=False)
class Outcome:
    """A record, and what does not fit into it."""

    record: Record
    details: Details | None = None
    trace: str = ""  # where a run that failed did so
    probed: ProbeResult | None = None  # stays in the process that computed it


@dataclass
class Training:
    """What several runs share: graph and model, once they are there, or why there is no model."""

    model: Embedder | None = None
    graph: Graph | None = None  # that is trained on
    error: TrainingError | None = None


def run_cells(
    tasks: Sequence[Task], *, data_dir: str | None = None, device: str | None = None
) -> list[Outcome]:
    """The runs of one training in a worker: one of them trains, all evaluate that model."""
    outcomes: list[Outcome] = []
    training = Training()
    for task in tasks:
        outcome = run_cell(task, data_dir=data_dir, device=device, training=training)
        outcomes.append(replace(outcome, probed=None))
    del training, outcome
    free_memory()
    return outcomes


def free_memory() -> None:
    """Give back what trainings on a GPU held, since other processes may share it."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def run_cell(
    task: Task,
    *,
    data_dir: str | None = None,
    device: str | None = None,
    training: Training | None = None,
) -> Outcome:
    """As `run`; whatever goes wrong becomes a failed record with a sentence."""
    try:
        with _warnings() as warned:
            outcome = run(task, data_dir=data_dir, device=device, training=training)
        record = outcome.record
        record = record.model_copy(update={"warnings": (*warned, *record.warnings)})
        return replace(outcome, record=record)
    except Exception as error:
        return failure(task.cell, _sentence(error), traceback.format_exc())


def failure(cell: Cell, reason: str, trace: str = "") -> Outcome:
    """Of a run that came to nothing."""
    record = Record(status="failed", cell=cell, error=reason, versions=versions())
    return Outcome(record, trace=trace)


def _sentence(error: Exception) -> str:
    if is_out_of_memory(error):
        return (
            "Out of memory. Lower width, sample negatives (negatives: 1000), or use fewer workers."
        )
    return sentence_of(error)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The library's warnings from here on, each once; a worker has no screen to show them on."""
    warned: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() not in warned:
                warned.append(record.getMessage())

    handler, logger = Listener(logging.WARNING), logging.getLogger("aspect")
    logger.addHandler(handler)
    try:
        yield warned
    finally:
        logger.removeHandler(handler)


def run(
    task: Task,
    *,
    data_dir: str | None = None,
    device: str | None = None,
    labelled: LabelledGraph | None = None,
    training: Training | None = None,
    probe: Probe | None = None,
    recorder: Recorder | None = None,
) -> Outcome:
    """Carry out a run; what is wrong is raised.

    Args:
        task: The run.
        data_dir: Where files of named data sets lie.
        device: Where to train; by default of the kind that the spec names.
        labelled: The clean graph of the spec, if it was read already.
        training: Shared with other runs; a model in it was, or is, trained as the spec says.
        probe: In place of the one that the spec names.
        recorder: Keeps the reports of the training; the values of a `ValueRecorder`, as it is by
            default, become the curves of the details.
    """
    spec = task.cell.spec
    if labelled is None:
        labelled = read_graph(task.cell.graph_source, data_dir, spec.graph_sha256)
    if task.is_probed:
        published = published_sha256(spec.splits, labelled.masks)
        check_unchanged(f"The splits of {task.cell.graph!r}", spec.splits_sha256, published)
    if not task.cell.embeddings:
        check_unchanged(f"The source of {spec.method}", spec.source, method_source(spec.method))
    return _Run(task, labelled, device or spec.device, probe).outcome(
        training or Training(), recorder or ValueRecorder()
    )


@dataclass
class _Run:
    """The steps of a run, each timed."""

    task: Task
    labelled: LabelledGraph
    device: str
    probe: Probe | None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cell, self.spec = self.task.cell, self.task.cell.spec

    def outcome(self, training: Training, recorder: Recorder) -> Outcome:
        spec = self.spec
        splits, targets = [], self._targets
        if self.task.is_probed:
            splits = draw_splits(self.labelled, spec.splits, spec.split_numbers, targets)
        # All files are looked at before the training: one that changed must not cost it.
        notes = [perturbed.note() for perturbed in self.task.perturbed]
        graph = training.graph = training.graph or self._trained_graph()
        model = self._model(training, graph, recorder)
        with self._timed("embed", model.device):
            embeddings = model.embed(graph, normalise="none").to(model.device)
        check_finite(embeddings)
        probed: ProbeResult | None = None
        pruned: PrunedProbe | None = None
        scores: tuple[SplitScores, ...] = ()
        if splits:
            with self._timed("probe", model.device):
                probed, pruned = self._probe(model, graph, embeddings, splits)
            scores = self._scores(probed, pruned, splits)
        health = model.health(graph)
        record = Record(
            status="done",
            cell=self.cell,
            graph=_summary(self.cell.graph_source, self.labelled),
            attack=notes[0] if notes else None,
            scores=scores,
            prune_score=None if pruned is None else pruned.score,
            **training_facts(model),
            dim=embeddings.shape[1],
            parameters=model.method.num_parameters,
            gate=gate_summary(model.policy(graph)),
            health=health.to_dict(),
            seconds=self.seconds,
            peak_memory_bytes=peak_bytes(model.device),
            notices=self._notices(probed, splits) if probed else (),
            warnings=(*model.warnings(graph), *faults_of(model, health)),
            device=device_name(model.device),
            versions=versions(),
        )
        details = self._details(model, graph, recorder) if self.task.has_details else None
        return Outcome(record, details, probed=probed)

    @property
    def _targets(self) -> tuple[int, ...]:
        """The test nodes that are scored; none: all of them."""
        perturbed = self.task.perturbed
        return self.task.targets or (perturbed[0].targets if perturbed else ())

    def _notices(self, probed: ProbeResult, splits: Sequence[Split]) -> tuple[str, ...]:
        """What a reader must know beside the scores."""
        sentences = probed.notices_naming(self.labelled.class_names)
        told = target_notice(self._targets, dict(zip(self.spec.split_numbers, splits, strict=True)))
        return (*sentences, told) if told else sentences

    def _model(self, training: Training, graph: Graph, recorder: Recorder) -> Embedder:
        """The training's; it is trained once, and so it fails once."""
        if training.error is not None:
            raise training.error
        model = training.model or self._new_model()
        if not model.is_fitted:
            forget_peak(model.device)
            try:
                with self._timed("train", model.device):
                    model.fit(graph, recorder=recorder)
            except TrainingError as error:
                training.error = error
                raise
        training.model = model
        return model

    def _new_model(self) -> Embedder:
        """One that has to be fitted; that of a file of embeddings only reads it."""
        spec = self.spec
        if self.cell.embeddings:
            return precomputed_model(self.cell.embeddings, spec.source, self.device)
        scale = spec.rows or "full"
        return Embedder(
            spec.method,
            seed=spec.seed,
            device=self.device,
            prune=spec.pruning,
            scale=scale,
            **spec.settings,
        )

    def _trained_graph(self) -> Graph:
        """The clean graph, or the one that was poisoned for the run's only split."""
        perturbation = self.spec.perturbation
        if perturbation is None or perturbation.mode == "evade":
            return self.labelled.graph
        (perturbed,) = self.task.perturbed
        return perturbed.apply(self.labelled)

    def _probe(
        self, model: Embedder, graph: Graph, embeddings: Tensor, splits: list[Split]
    ) -> tuple[ProbeResult, PrunedProbe | None]:
        """The scores, and what was pruned for them where validation chose that."""
        spec, labelled = self.spec, self.labelled
        labels, classes = labelled.labels, labelled.num_classes
        probe = self.probe or probe_named(spec.probe or "paper", spec.metric)
        if spec.prune is not None:
            pruned = probe_pruned(model, graph, labelled, splits, spec.prune, probe=probe)
            return pruned.result, pruned
        if spec.perturbation is None or spec.perturbation.mode == "poison":
            if isinstance(probe, NeutralProbe):
                embeddings = on_faster_device(embeddings)
            result = linear_probe(embeddings, labels, splits, num_classes=classes, probe=probe)
        else:
            perturbed = (
                model.embed(one.apply(labelled), normalise="none").to(model.device)
                for one in self.task.perturbed
            )
            result = evasion_probe(
                embeddings, perturbed, labels, splits, num_classes=classes, probe=probe
            )
        return result, None

    def _scores(
        self, probed: ProbeResult, pruned: PrunedProbe | None, splits: list[Split]
    ) -> tuple[SplitScores, ...]:
        """With what each split gives without any embedding; twins of the clean graph alone."""
        labels, classes = self.labelled.labels, self.labelled.num_classes
        majority = majority_probe(labels, splits, num_classes=classes)
        twins: tuple[float | None, ...] = (None,) * len(splits)
        if self.spec.perturbation is None and not self._targets:
            twins = _twin_accuracies(self.labelled, self.spec, splits)
        prunings = (None,) * len(splits) if pruned is None else pruned.splits
        rows = zip(
            self.spec.split_numbers, probed.splits, prunings, majority.splits, twins, strict=True
        )
        return tuple(
            SplitScores.of(
                number,
                score,
                prune=None if pruning is None else pruning.asked,
                pruned=None if pruning is None else pruning.reached,
                majority=least.strict,
                twins=twin,
            )
            for number, score, pruning, least, twin in rows
        )

    def _details(self, model: Embedder, graph: Graph, recorder: Recorder) -> Details:
        """Of the graph that was trained on, and of perturbed ones."""
        return inspect_model(
            model,
            replace(self.labelled, graph=graph),
            title=self.cell.title,
            graph=self.cell.graph_source.name,
            curves=recorder.values if isinstance(recorder, ValueRecorder) else {},
            perturbed=[
                (one.perturbation.label, one.apply(self.labelled)) for one in self.task.shown
            ],
        )

    @contextmanager
    def _timed(self, step: str, device: torch.device) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.seconds[step] = time.perf_counter() - started


def training_facts(model: Embedder) -> dict[str, object]:
    """How the training ended; nothing of a model that was loaded."""
    result = model.result
    if result is None:
        return {}
    finite = {name: value for name, value in result.values.items() if math.isfinite(value)}
    return {"epochs": result.epochs, "stopped_early": result.stopped_early, "loss": finite}


def gate_summary(policy: Float[Tensor, " nodes"] | None) -> dict[str, float] | None:
    """Mean and standard deviation of the low band's weight over the nodes."""
    if policy is None:
        return None
    std = float(policy.std()) if len(policy) > 1 else 0.0
    return {"mean": float(policy.mean()), "std": std}


def faults_of(model: Embedder, health: Health) -> list[str]:
    """A training that came to nothing, a collapse; a sentence each."""
    warnings = []
    if model.result is not None and model.result.epochs > 0 and model.result.kept == 0:
        warnings.append(
            "No loss was below that of the first epoch, so the weights are those from before the "
            "training. Try a lower learning_rate or more patience."
        )
    return [*warnings, *health.warnings()]


def _summary(source: GraphSource, labelled: LabelledGraph) -> GraphSummary:
    graph = labelled.graph
    return GraphSummary(
        name=source.name,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=labelled.num_classes,
        homophily=labelled.homophily,
    )


# Graphs: a worker meets the same few again and again, and reads each once.


def read_graph(source: GraphSource, data_dir: str | None, sha256: str) -> LabelledGraph:
    """The graph, if its content is still that which the command began with.

    Args:
        source: Name or path, and how it is read.
        data_dir: Where files of named data sets lie.
        sha256: Checksum of the content as it was.
    """
    labelled, checksum = _read(source.graph, source.reading, data_dir)
    check_unchanged(f"The graph {source.graph!r}", sha256, checksum)
    return labelled


def forget_graphs() -> None:
    """Read every graph anew from here on."""
    _read.cache_clear()
    _twins.clear()


@lru_cache(maxsize=GRAPHS_KEPT)
def _read(graph: str, reading: Reading, data_dir: str | None) -> tuple[LabelledGraph, str]:
    """A graph and the checksum of its content."""
    labelled = GraphSource(graph=graph, reading=reading).read(data_dir)
    return labelled, content_sha256(labelled)


def draw_splits(
    labelled: LabelledGraph,
    kind: SplitKind,
    numbers: tuple[int, ...],
    targets: tuple[int, ...] = (),
) -> list[Split]:
    """Some of a graph's splits by their numbers; with targets, these alone are tested."""
    if not numbers:
        return []
    drawn = make_splits(
        kind, labelled.labels, labelled.num_classes, count=max(numbers) + 1, masks=labelled.masks
    )
    return [only_targets(drawn[number], targets) for number in numbers]


def target_notice(targets: Sequence[int], splits: Mapping[int, Split]) -> str:
    """Which nodes a targeted attack is scored at; empty for an attack on the whole graph."""
    if not targets:
        return ""
    counts = (
        f"{len(split.test)} of {len(targets)} on split {number}" for number, split in splits.items()
    )
    return (
        "A targeted attack is scored at its targets alone, as far as they are test nodes: "
        f"{', '.join(counts)}."
    )


_twins: dict[tuple[object, ...], tuple[float | None, ...]] = {}


def _twin_accuracies(
    labelled: LabelledGraph, spec: Spec, splits: list[Split]
) -> tuple[float | None, ...]:
    """Test accuracy, split by split, of the nearest neighbour by neighbour sets on a clean graph.

    None for every split of a graph that is too large. The rule knows no method, so a worker
    computes it once for each graph.
    """
    if labelled.graph.num_nodes > MOST_TWIN_NODES:
        return (None,) * len(splits)
    key = (spec.graph_sha256, spec.splits, spec.splits_sha256, spec.split_numbers)
    if key not in _twins:
        result = twin_probe(
            labelled.graph, labelled.labels, splits, num_classes=labelled.num_classes
        )
        _twins[key] = tuple(score.strict for score in result.splits)
    return _twins[key]
