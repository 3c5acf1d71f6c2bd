"""One trial of a search: train with some settings and score the embedding on validation nodes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import optuna
import torch
from typing_extensions import override

from aspect.data.graph import Graph
from aspect.data.splits import Split, make_splits, published_sha256
from aspect.errors import TrainingError
from aspect.estimator import DTYPE, Embedder
from aspect.evaluation.linear_probe import Probe, probe_named, validation_scores
from aspect.evaluation.neutral_probe import NeutralProbe, on_faster_device
from aspect.experiment.run import read_graph
from aspect.experiment.search import Search
from aspect.experiment.spec import check_unchanged, method_source
from aspect.methods.base import Method
from aspect.training.health import Health
from aspect.training.trainer import EpochReport, Recorder, Snapshot, train

# User attributes of a trial in the study.
START, ERROR, SECONDS = "start", "error", "seconds"
VALIDATION, EPOCHS, HEALTH = "validation", "epochs", "health"


@dataclass(frozen=True)
class RungScore:
    """The score of an embedding after some epochs."""

    validation: float  # mean over splits and seeds by the metric of the search, in percent
    health: Health  # before any centring; of several seeds the worst

    @classmethod
    def over_seeds(cls, scores: Sequence[RungScore]) -> RungScore:
        """The mean score, and the health that is closest to collapse."""
        worst = max(
            (score.health for score in scores),
            key=lambda health: (health.is_collapsed, health.mean_cosine),
        )
        return cls(sum(score.validation for score in scores) / len(scores), worst)


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
        """Mean validation score over the splits, and health, of the embedding as it is now.

        This leaves no trace in a training: no step reads what is calibrated, and the trainer puts
        the method back into training mode in every epoch.
        """
        method.calibrate(self.graph)
        output = method.eval().output(self.graph)
        scores = validation_scores(
            on_faster_device(output.embedding),
            self.labels,
            self.splits,
            num_classes=self.num_classes,
            probe=self.probe,
        )
        mean = sum(scores) / len(scores)
        if math.isnan(mean):
            raise TrainingError("The score on validation nodes is not a number.")
        return RungScore(mean, Health.of(output.uncentred))


@lru_cache(maxsize=1)  # a worker carries out many trials of one search
def load_problem(search: str, data_dir: str | None) -> Problem:
    """Read the graph of a search, given as JSON; a graph that changed since is refused."""
    given = Search.model_validate_json(search)
    labelled = read_graph(given.source, data_dir, given.graph_sha256)
    labels, classes, masks = labelled.labels, labelled.num_classes, labelled.masks
    published = published_sha256(given.splits, masks)
    check_unchanged(f"The splits of {given.graph!r}", given.splits_sha256, published)
    source = method_source(given.method)
    check_unchanged(f"The source of {given.method}", given.source_sha256, source)
    splits = tuple(make_splits(given.splits, labels, classes, masks=masks))
    graph = labelled.graph.to(DTYPE).to(given.device)
    probe = probe_named(given.probe, given.metric)
    if isinstance(probe, NeutralProbe):
        probe = replace(probe, tolerance=given.tolerance)
    return Problem(graph, labels, splits, classes, probe)


Report = Callable[[int, RungScore], None]  # gets the score after an epoch; it may end the training


class RungRecorder(Recorder):
    """Scores a training at its rungs and reports each score."""

    def __init__(
        self, rungs: Sequence[int], score: Callable[[], RungScore], report: Report
    ) -> None:
        self.rungs, self.score, self.report = rungs, score, report
        self.scores: dict[int, RungScore] = {}

    @override
    def next_look(self, epoch: int) -> int:
        return min((rung for rung in self.rungs if rung > epoch), default=sys.maxsize)

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        if report.epoch in self.rungs:
            self.scores[report.epoch] = self.score()
            self.report(report.epoch, self.scores[report.epoch])


def score_settings(
    problem: Problem, search: Search, settings: Mapping[str, Any], report: Report
) -> dict[int, RungScore]:
    """The score over the seeds at every rung and at the end, by epoch.

    Only the first seed's scores are reported: they are comparable between trials, and a trial that
    is pruned is so before the other seeds are begun.
    """
    first, *others = search.seeds
    curves = [_curve(problem, search, settings, first, report)]
    curves += [_curve(problem, search, settings, seed, lambda *_: None) for seed in others]
    # With patience, every seed ends at another epoch: those that all of them reached count.
    common = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    if not common:
        raise TrainingError("Every training ended with the weights that it started from.")
    return {epoch: RungScore.over_seeds([curve[epoch] for curve in curves]) for epoch in common}


def _curve(
    problem: Problem, search: Search, settings: Mapping[str, Any], seed: int, report: Report
) -> dict[int, RungScore]:
    model = Embedder(search.method, seed=seed, device=search.device, **settings)
    config, method = model.config, model.untrained(problem.graph.num_features)
    early = [epoch for epoch in search.rungs if epoch < config.epochs]
    recorder = RungRecorder(early, lambda: problem.score(method), report)
    result = train(method, problem.graph, seed=seed, recorder=recorder)
    # Patience may bring back the weights from before the first epoch. They are no merit of
    # settings that were searched.
    if result.kept > 0 or settings == search.settings or not search.searches_epochs:
        recorder.scores[config.epochs] = problem.score(method)
        report(config.epochs, recorder.scores[config.epochs])
    return recorder.scores


def score_trial(trial: optuna.Trial, search: Search, data_dir: str | None = None) -> float:
    """Train and score at the trial's point of the space; trials that cannot be the best are pruned.

    A trial that a killed process had begun keeps what it had reported.
    """
    is_start = START in trial.user_attrs
    settings = search.settings if is_start else search.settings_at(trial.params)
    reported = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values.copy()

    def report(epoch: int, score: RungScore) -> None:
        if epoch not in reported:
            trial.report(score.validation, epoch)
        # The start is never pruned, since the others are compared with it. Nor is it asked for: by
        # halving, the better it is the fewer of the others would go on.
        is_prunable = search.first_pruned <= epoch < settings["epochs"]
        if is_prunable and not is_start and trial.should_prune():
            _keep(trial, epoch, score)
            raise optuna.TrialPruned

    problem = load_problem(search.model_dump_json(), data_dir)
    scores = score_settings(problem, search, settings, report)
    is_free = search.searches_epochs and not is_start  # the epochs of the start are part of it
    epochs = best_epoch(search, scores) if is_free else max(scores)
    _keep(trial, epochs, scores[epochs])
    fault = search.fault_of(scores[epochs].health)
    if fault:  # as a pruned trial it makes the sampler draw elsewhere
        trial.set_user_attr(ERROR, fault)
        raise optuna.TrialPruned
    return scores[epochs].validation


def best_epoch(search: Search, scores: Mapping[int, RungScore]) -> int:
    """The healthy one with the highest validation score; of equals the fewest epochs."""

    def rank(epoch: int) -> tuple[bool, float, int]:
        score = scores[epoch]
        return not search.fault_of(score.health), score.validation, -epoch

    return max(scores, key=rank)


def _keep(trial: optuna.Trial, epochs: int, score: RungScore) -> None:
    trial.set_user_attr(VALIDATION, score.validation)
    trial.set_user_attr(EPOCHS, epochs)
    trial.set_user_attr(HEALTH, score.health.to_dict())
