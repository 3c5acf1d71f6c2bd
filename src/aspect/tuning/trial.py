"""One trial: train with some settings, and score the embeddings on validation nodes on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from optuna import Trial
from typing_extensions import override

from aspect.benchmark.record import SplitName
from aspect.config import make_config
from aspect.errors import GraphError, TrainingError
from aspect.estimator import DTYPE
from aspect.evaluation.validation import validation_accuracy
from aspect.graph.data import Graph
from aspect.graph.npz import content_sha256
from aspect.graph.source import GraphSource
from aspect.graph.splits import Split, make_splits, published_sha256
from aspect.methods.base import Method
from aspect.methods.registry import find_method
from aspect.randomness import isolated_seed, seed_for
from aspect.training.trainer import EpochReport, NoRecorder, Snapshot, train
from aspect.tuning.journal import open_study
from aspect.tuning.request import Search

__all__ = ["Problem", "RungRecorder", "TrialScore", "TrialTask", "run_trial", "score_settings"]


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
class TrialScore:
    """How a trial went."""

    validation: float  # mean over splits and seeds, in percent
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

    @torch.no_grad()
    def score(self, method: Method) -> float:
        """Mean validation accuracy over the splits, of the embeddings as they are now."""
        embeddings = method.eval().embed(self.graph)
        accuracies = validation_accuracy(
            embeddings, self.labels, self.splits, num_classes=self.num_classes
        )
        return sum(accuracies) / len(accuracies)


class RungRecorder(NoRecorder):
    """Scores a training at its rungs and tells each score; who is told may end the training.

    The method itself is asked, in evaluation mode, which leaves no trace in it: the trainer puts it
    back into training mode at the start of every epoch.
    """

    def __init__(
        self,
        epochs: Collection[int],
        score: Callable[[], float],
        tell: Callable[[int, float], None],
    ) -> None:
        self.epochs, self.score, self.tell = epochs, score, tell
        self.scores: dict[int, float] = {}

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
    problem = _problem(
        search.source,
        task.data_dir,
        search.graph_sha256,
        search.splits,
        search.splits_sha256,
        search.device,
    )
    study = open_study(task.journal)
    trial = Trial(study, task.trial_id)
    told = set(study._storage.get_trial(task.trial_id).intermediate_values)  # by a killed worker
    last: list[tuple[int, float]] = []

    def tell(epoch: int, validation: float) -> None:
        last.append((epoch, validation))
        if epoch in told:  # and not given up there
            return
        trial.report(validation, epoch)
        # The start is never given up: it is what the others are held against. First epochs say too
        # little of where a training leads.
        is_early = epoch < search.max_epochs / FIRST_PART
        is_over = epoch == task.settings["epochs"]
        if task.number > 0 and not is_early and not is_over and trial.should_prune():
            raise _GivenUpError

    try:
        scores = score_settings(problem, search, task.settings, tell)
    except _GivenUpError:
        epochs, validation = last[-1]
        return TrialScore(validation, epochs, True, time.perf_counter() - started)
    # Epochs of the start are a part of it; of equals the fewest epochs are taken.
    is_free = search.searches_epochs and task.number > 0
    epochs = max(scores, key=lambda epoch: (scores[epoch], -epoch)) if is_free else max(scores)
    return TrialScore(scores[epochs], epochs, False, time.perf_counter() - started)


def score_settings(
    problem: Problem,
    search: Search,
    settings: dict[str, Any],
    tell: Callable[[int, float], None],
) -> dict[int, float]:
    """Mean validation accuracy over the seeds at every rung and at the end, by epoch.

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
    return {epoch: sum(curve[epoch] for curve in curves) / len(curves) for epoch in common}


def _ignore(epoch: int, validation: float) -> None:
    """Nobody waits for it."""


def _curve(
    problem: Problem,
    search: Search,
    settings: dict[str, Any],
    seed: int,
    tell: Callable[[int, float], None],
) -> Iterator[tuple[int, float]]:
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


@lru_cache(maxsize=1)  # a worker carries out many trials on one graph
def _problem(
    source: GraphSource,
    data_dir: str | None,
    sha256: str,
    splits: SplitName,
    splits_sha256: str | None,
    device: str,
) -> Problem:
    labelled = source.read(data_dir)
    found = content_sha256(labelled)
    if found != sha256:
        raise GraphError(
            f"The graph {source.name} changed during the search: its sha256 must be {sha256}. "
            f"Got {found}."
        )
    if published_sha256(splits, labelled.masks) != splits_sha256:
        raise GraphError(f"The splits of {source.name} changed during the search.")
    return Problem(
        labelled.graph.to(DTYPE).to(device),
        labelled.labels,
        tuple(make_splits(splits, labelled.labels, labelled.num_classes, masks=labelled.masks)),
        labelled.num_classes,
    )
