"""One trial: train with some settings, and score the embeddings on validation nodes on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from optuna import Trial
from typing_extensions import override

from aspect.config import make_config
from aspect.data.graph import Graph
from aspect.data.npz import content_sha256
from aspect.data.source import GraphSource
from aspect.data.splits import Split, SplitKind, make_splits, published_sha256
from aspect.errors import GraphError, TrainingError
from aspect.estimator import DTYPE
from aspect.evaluation.linear_probe import Probe, ProbeName, probe_named, validation_accuracy
from aspect.experiment.tuning.journal import open_study
from aspect.experiment.tuning.request import Search
from aspect.methods.base import Method
from aspect.methods.registry import find_method
from aspect.randomness import isolated_seed, seed_for
from aspect.training.health import Health
from aspect.training.trainer import EpochReport, NoRecorder, Snapshot, train

__all__ = [
    "Problem",
    "RungRecorder",
    "RungScore",
    "TrialScore",
    "TrialTask",
    "best_epoch",
    "run_trial",
    "score_settings",
]


Tell = Callable[[int, "RungScore"], None]  # told the score after an epoch

FIRST_PART = 8  # no trial is given up before it has done one of so many parts of the most epochs


@dataclass(frozen=True)
class TrialTask:
    """What a worker needs to know of a trial."""

    number: int  # 0 is the start
    settings: dict[str, Any]  # in full; its epochs are those to train for
    search: Search
    journal: str  # path of the study
    trial_id: int  # in the journal
    data_dir: str | None = None


@dataclass(frozen=True)
class RungScore:
    """What the embedding is worth after some epochs."""

    validation: float  # mean over splits, and over seeds where there are several, in percent
    health: Health  # before any centring; of several seeds the worst

    @classmethod
    def over_seeds(cls, scores: Sequence[RungScore]) -> RungScore:
        """The mean accuracy, and the health that is closest to collapse."""
        worst = max(
            (score.health for score in scores),
            key=lambda health: (health.is_collapsed, health.mean_cosine),
        )
        return cls(sum(score.validation for score in scores) / len(scores), worst)


@dataclass(frozen=True)
class TrialScore:
    """How a trial went."""

    score: RungScore
    epochs: int  # that gave it: the number to set
    pruned: bool  # given up on the way, as one that would hardly have been the best
    seconds: float


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph with its splits, ready to train and score on."""

    graph: Graph
    labels: torch.Tensor  # [nodes]
    splits: tuple[Split, ...]
    num_classes: int
    probe: Probe

    @torch.no_grad()
    def score(self, method: Method) -> RungScore:
        """Mean validation accuracy over the splits, and health, of the embedding as it is now."""
        method.calibrate(self.graph)
        accuracies = validation_accuracy(
            method.eval().embed(self.graph),
            self.labels,
            self.splits,
            num_classes=self.num_classes,
            probe=self.probe,
        )
        health = Health.of(method.embed_uncentred(self.graph))
        return RungScore(sum(accuracies) / len(accuracies), health)


class RungRecorder(NoRecorder):
    """Scores a training at its rungs and tells each score; who is told may end the training.

    The method itself is asked, in evaluation mode, which leaves no trace in its training: no step
    reads what is calibrated, and the trainer puts it back into training mode in every epoch.
    """

    def __init__(
        self,
        epochs: Collection[int],
        score: Callable[[], RungScore],
        tell: Tell,
    ) -> None:
        self.epochs, self.score, self.tell = epochs, score, tell
        self.scores: dict[int, RungScore] = {}

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        if report.epoch in self.epochs:
            self.scores[report.epoch] = self.score()
            self.tell(report.epoch, self.scores[report.epoch])


class _GivenUpError(Exception):
    """The pruner has seen enough."""


def run_trial(task: TrialTask) -> TrialScore:
    """Carry out a trial in a worker; the journal says how others fared at the same rung."""
    started = time.perf_counter()
    search = task.search
    problem = _problem(_Read.of(search), task.data_dir)
    study = open_study(task.journal)
    trial = Trial(study, task.trial_id)
    told = set(study._storage.get_trial(task.trial_id).intermediate_values)  # by a killed worker
    last: list[tuple[int, RungScore]] = []

    def tell(epoch: int, score: RungScore) -> None:
        last.append((epoch, score))
        if epoch in told:  # and not given up there
            return
        trial.report(score.validation, epoch)
        # The start is never given up: it is what the others are held against. First epochs say too
        # little of where a training leads.
        is_early = epoch < search.max_epochs / FIRST_PART
        is_over = epoch == task.settings["epochs"]
        if task.number > 0 and not is_early and not is_over and trial.should_prune():
            raise _GivenUpError

    try:
        scores = score_settings(problem, search, task.settings, tell)
    except _GivenUpError:
        epochs, score = last[-1]
        return TrialScore(score, epochs, True, time.perf_counter() - started)
    # Epochs of the start are a part of it.
    is_free = search.searches_epochs and task.number > 0
    epochs = best_epoch(search, scores) if is_free else max(scores)
    return TrialScore(scores[epochs], epochs, False, time.perf_counter() - started)


def best_epoch(search: Search, scores: Mapping[int, RungScore]) -> int:
    """The healthy one with the highest validation accuracy; of equals the fewest epochs."""
    return max(
        scores,
        key=lambda epoch: (
            not search.fault_of(scores[epoch].health),
            scores[epoch].validation,
            -epoch,
        ),
    )


def score_settings(
    problem: Problem,
    search: Search,
    settings: dict[str, Any],
    tell: Tell,
) -> dict[int, RungScore]:
    """The score over the seeds at every rung and at the end, by epoch.

    Only the first seed's scores are told: they are comparable between trials, and a trial that is
    given up is so before the other seeds are begun.
    """
    curves = []
    for place, seed in enumerate(search.seeds):
        listener = tell if place == 0 else _ignore
        curves.append(dict(_curve(problem, search, settings, seed, listener)))
    # With patience, each seed's training ends where it pleases: what all of them have counts.
    common = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    if not common:
        raise TrainingError("Every training ended with the weights that it started from.")
    return {epoch: RungScore.over_seeds([curve[epoch] for curve in curves]) for epoch in common}


def _ignore(epoch: int, score: RungScore) -> None:
    """Nobody waits for it."""


def _curve(
    problem: Problem,
    search: Search,
    settings: dict[str, Any],
    seed: int,
    tell: Tell,
) -> Iterator[tuple[int, RungScore]]:
    entry = find_method(search.method)
    config = make_config(entry.config, settings, owner=search.method)
    with isolated_seed(seed_for(seed, "weights")):
        method = entry.method(config, problem.graph.num_features)
    method = method.to(problem.graph.device)
    before = [epoch for epoch in search.rungs if epoch < config.epochs]
    recorder = RungRecorder(before, lambda: problem.score(method), tell)
    result = train(method, problem.graph, seed=seed, recorder=recorder)
    yield from recorder.scores.items()
    # With patience the training ends where it pleases, and with the weights that it prefers. Those
    # from before the first epoch are no merit of settings that were drawn.
    is_start = settings == search.settings
    if result.kept > 0 or is_start or not search.searches_epochs:
        final = problem.score(method)
        tell(config.epochs, final)
        yield config.epochs, final


class _Read(NamedTuple):
    """What the problem of a search depends on; unlike the search, it can be the key of a cache."""

    source: GraphSource
    sha256: str
    splits: SplitKind
    splits_sha256: str | None
    probe: ProbeName
    device: str

    @classmethod
    def of(cls, search: Search) -> _Read:
        return cls(
            search.source,
            search.graph_sha256,
            search.splits,
            search.splits_sha256,
            search.probe,
            search.device,
        )


@lru_cache(maxsize=1)  # a worker carries out many trials on one graph
def _problem(read: _Read, data_dir: str | None) -> Problem:
    name, labelled = read.source.name, read.source.read(data_dir)
    checksum = content_sha256(labelled)
    if checksum != read.sha256:
        raise GraphError(
            f"The graph {name} changed during the search: its sha256 must be {read.sha256}. "
            f"Got {checksum}."
        )
    if published_sha256(read.splits, labelled.masks) != read.splits_sha256:
        raise GraphError(f"The splits of {name} changed during the search.")
    return Problem(
        labelled.graph.to(DTYPE).to(read.device),
        labelled.labels,
        tuple(
            make_splits(read.splits, labelled.labels, labelled.num_classes, masks=labelled.masks)
        ),
        labelled.num_classes,
        probe_named(read.probe),
    )
