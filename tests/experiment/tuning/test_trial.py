"""One trial: what is scored, when, and that scoring leaves no trace."""

import math

import pytest
import torch

from aspect.config import make_config
from aspect.data.splits import make_splits
from aspect.data.synthetic import mixed_graph
from aspect.errors import RunError, TrainingError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import NeutralProbe, linear_probe, validation_scores
from aspect.experiment import trial as trial_module
from aspect.experiment.trial import (
    Problem,
    RungRecorder,
    RungScore,
    best_epoch,
    load_problem,
    score_settings,
)
from aspect.methods.base import Method
from aspect.methods.registry import find_method, method_names
from aspect.randomness import isolated_seed
from aspect.training.health import Health
from aspect.training.trainer import Recorder, train
from experiment.tuning.searches import QUICK, SMALL, small_search, write_graph

TRAINABLE = [name for name in method_names() if find_method(name).method.trainable]


@pytest.fixture
def labelled():
    return mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0)


@pytest.fixture
def problem(labelled):
    splits = make_splits("class-balanced", labelled.labels, 2, count=3)
    return Problem(labelled.graph, labelled.labels, tuple(splits), 2, QUICK)


@pytest.fixture
def search(tmp_path):
    return small_search(write_graph(tmp_path))


def mean_accuracy(problem, embeddings):
    values = validation_scores(
        embeddings, problem.labels, problem.splits, num_classes=2, probe=problem.probe
    )
    return sum(values) / len(values)


def score_of(problem, model):
    """What a model's user would find; unscaled, since rounding could turn a probe's answer."""
    embeddings = model.embed(problem.graph, normalise="none")
    return RungScore(mean_accuracy(problem, embeddings), model.health(problem.graph))


def health(mean_cosine, dim=8, effective_rank=4.0):
    return Health(mean_cosine, 0.5, effective_rank, 1.0, 2.0, 60, dim)


def ignore(epoch, score):
    pass


def test_a_rung_scores_what_a_training_of_so_many_epochs_gives(problem, search):
    told = []
    settings = {**search.settings, "epochs": 8}
    scores = score_settings(problem, search, settings, lambda *each: told.append(each))
    assert list(scores) == [3, 8]
    assert told == list(scores.items())
    for epochs, score in scores.items():
        model = Embedder("aspect", device="cpu", **{**settings, "epochs": epochs})
        assert score_of(problem, model.fit(problem.graph)) == score


def test_trials_are_scored_by_the_metric_of_the_search(labelled, tmp_path):
    path = write_graph(tmp_path)
    for metric in ("accuracy", "roc-auc"):
        search = small_search(path, metric=metric)
        problem = load_problem(search.model_dump_json(), None)
        found = score_settings(problem, search, search.settings, ignore)[3].validation
        model = Embedder("aspect", device="cpu", **search.settings).fit(labelled)
        probe = NeutralProbe(tolerance=search.tolerance)
        rows = model.embed(labelled, normalise="none")
        result = linear_probe(rows, labelled.labels, problem.splits, probe=probe, metric=metric)
        assert found == pytest.approx(result.validation.mean)
        assert result.metric == problem.probe.metric == metric


def small_method(name, epochs):
    entry = find_method(name)
    known = entry.config.model_fields
    settings = {key: value for key, value in {**SMALL, "epochs": epochs}.items() if key in known}
    with isolated_seed(0):
        return entry.method(make_config(entry.config, settings, owner=name), 8)


def test_scoring_on_the_way_leaves_no_trace_in_the_training(problem):
    def trained(name, make_recorder):
        method = small_method(name, epochs=3)
        train(method, problem.graph, seed=0, recorder=make_recorder(method))
        return method.state_dict()

    def scoring(method):
        return RungRecorder([1, 2], lambda: problem.score(method), ignore)

    for name in TRAINABLE:
        plain = trained(name, lambda _: Recorder())
        scored = trained(name, scoring)
        for key, value in plain.items():
            torch.testing.assert_close(scored[key], value, rtol=0, atol=0, msg=f"{name}: {key}")


def test_a_method_that_is_anytime_does_not_depend_on_the_epochs_to_come(problem):
    """The flag says that the first epochs of a long training are a short training."""

    class Keep(Recorder):
        def epoch_done(self, report, snapshot):
            if report.epoch == 2:
                self.tensors = snapshot().tensors

    for name in TRAINABLE:
        if not find_method(name).method.anytime:
            continue
        short, long = Keep(), Keep()
        for epochs, recorder in ((2, short), (4, long)):
            train(small_method(name, epochs), problem.graph, seed=0, recorder=recorder)
        for key, value in short.tensors.items():
            torch.testing.assert_close(long.tensors[key], value, rtol=0, atol=0)


def test_with_patience_the_way_counts_and_the_end_that_it_chose(problem, tmp_path):
    search = small_search(write_graph(tmp_path), {"patience": 8, "epochs": 300}, max_epochs=None)
    told = []
    scores = score_settings(problem, search, search.settings, lambda *each: told.append(each))
    model = Embedder("aspect", device="cpu", **search.settings).fit(problem.graph)
    assert model.result.stopped_early
    *rungs, end = scores
    assert end == told[-1][0] == 300
    assert scores[end] == score_of(problem, model)
    assert rungs == [epoch for epoch in search.rungs if epoch <= model.result.epochs]
    for epochs in rungs:
        settings = {**search.settings, "epochs": epochs, "patience": None}
        plain = Embedder("aspect", device="cpu", **settings).fit(problem.graph)
        assert scores[epochs] == score_of(problem, plain)


def test_weights_from_before_the_training_count_for_the_start_alone(problem, tmp_path):
    """A learning rate that only does harm: patience brings the first weights back."""
    wild = {"patience": 4, "epochs": 9, "learning_rate": 1e3}
    search = small_search(write_graph(tmp_path), wild, method="dgi", max_epochs=9)
    assert list(score_settings(problem, search, search.settings, ignore)) == [9]
    drawn = {**search.settings, "weight_decay": 1e-4}
    with pytest.raises(TrainingError, match="the weights that it started from"):
        score_settings(problem, search, drawn, ignore)


def test_seeds_are_averaged_and_the_first_is_told(problem, tmp_path):
    path = write_graph(tmp_path)
    settings = {**small_search(path).settings, "epochs": 8}
    told = []
    both = score_settings(
        problem, small_search(path, seeds=2), settings, lambda *each: told.append(each)
    )
    first, second = (
        score_settings(problem, small_search(path, seed=seed), settings, ignore) for seed in (0, 1)
    )
    assert first != second
    assert both == {epoch: RungScore.over_seeds([first[epoch], second[epoch]]) for epoch in first}
    assert told == list(first.items())


def test_over_seeds_accuracies_are_averaged_and_the_worst_health_is_kept():
    healthy, close, collapsed = health(0.1), health(0.97), health(0.5, effective_rank=0.1)
    scores = [RungScore(70.0, healthy), RungScore(80.0, close)]
    assert RungScore.over_seeds(scores) == RungScore(75.0, close)
    scores.append(RungScore(60.0, collapsed))
    assert RungScore.over_seeds(scores) == RungScore(70.0, collapsed)


def test_the_best_epoch_is_a_healthy_one_if_there_is_one(tmp_path):
    search = small_search(write_graph(tmp_path), max_cosine=0.9)
    scores = {
        2: RungScore(70.0, health(0.2)),
        4: RungScore(70.0, health(0.3)),
        8: RungScore(90.0, health(0.95)),
    }
    assert best_epoch(search, scores) == 2
    assert best_epoch(search, {8: scores[8]}) == 8


def test_a_look_on_the_way_is_calibrated(problem, search, monkeypatch):
    """What is scored is the function that is trained, not one with old statistics."""
    calls = []
    plain = Method.calibrate

    def spy(method, graph):
        calls.append("calibrate")
        plain(method, graph)

    monkeypatch.setattr(Method, "calibrate", spy)
    score_settings(
        problem, search, {**search.settings, "epochs": 8}, lambda *_: calls.append("told")
    )
    assert calls[:2] == ["calibrate", "told"]


def test_a_graph_that_changed_since_is_refused(search):
    other = search.model_copy(update={"graph_sha256": "0" * 64})
    with pytest.raises(RunError, match=r"changed since the command began.*Got"):
        load_problem(other.model_dump_json(), None)
    other = search.model_copy(update={"source_sha256": "0" * 64})
    with pytest.raises(RunError, match=r"source of aspect changed since the command began"):
        load_problem(other.model_dump_json(), None)


def test_a_score_that_is_no_number_fails_the_trial(problem, search, monkeypatch):
    """Optuna takes none: the search ended, and ended again whenever it was gone on with."""
    monkeypatch.setattr(trial_module, "validation_scores", lambda *_, **__: (50.0, math.nan))
    with pytest.raises(TrainingError, match=r"score on validation nodes is not a number"):
        score_settings(problem, search, search.settings, lambda *_: None)
