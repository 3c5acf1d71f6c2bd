# ruff: noqa: ARG002, ARG005 - toys take what the contract gives them
from __future__ import annotations

import inspect
import math
from typing import ClassVar
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from aspect.data.synthetic import mixed_graph
from aspect.errors import CheckpointError, TrainingError
from aspect.estimator import Embedder
from aspect.methods.base import Group
from aspect.methods.registry import find_method, method_names
from aspect.nn.normalisation import BatchNorm
from aspect.training import trainer
from aspect.training.trainer import EarlyStopping, Snapshot, train
from training.toys import Collapsing, MemoryRecorder, Scripted, Toy, tiny_graph


def test_the_trainer_knows_no_method_and_asks_for_no_type():
    source = inspect.getsource(trainer)
    for word in ("isinstance", "hasattr", "getattr", "issubclass"):
        assert word not in source
    code_names = {f'"{name}"' for name in method_names()} | {f"'{name}'" for name in method_names()}
    assert not [name for name in code_names if name in source]
    assert "registry" not in source


def test_the_loss_is_the_sum_of_the_terms_and_falls():
    recorder = MemoryRecorder()
    result = train(Toy(epochs=60), tiny_graph(), seed=0, recorder=recorder)
    for report in recorder.reports:
        values = report.values
        assert values["loss"] == pytest.approx(values["fit"] + values["size"], rel=1e-6)
    assert [report.epoch for report in recorder.reports] == list(range(1, 61))
    assert {report.epochs for report in recorder.reports} == {60}
    assert recorder.reports[-1].values["loss"] < recorder.reports[0].values["loss"] / 2
    assert result == trainer.TrainingResult(60, False, recorder.reports[-1].values, kept=60)
    assert recorder.is_done


def test_a_method_is_trained_in_training_mode_and_handed_back_in_evaluation_mode():
    modes = []

    class Watching(Toy):
        def loss_terms(self, graph, step):
            modes.append(self.training)
            return super().loss_terms(graph, step)

    method = Watching(epochs=2).eval()
    train(method, tiny_graph(), seed=0)
    assert modes == [True, True]
    assert not method.training


# Epochs that a device is not waited for


def run_ahead(monkeypatch, seconds=math.inf):
    monkeypatch.setattr(trainer, "AHEAD_ON", ("cpu",))
    monkeypatch.setattr(trainer, "SECONDS_AHEAD", seconds)


class Looking(MemoryRecorder):
    """Takes a snapshot of every so many epochs."""

    def __init__(self, every):
        super().__init__()
        self.every = every

    def next_look(self, epoch):
        return epoch + self.every - epoch % self.every

    def epoch_done(self, report, snapshot):
        self.reports.append(report)
        if report.is_latest:
            self.snapshots.append(snapshot())


@pytest.mark.parametrize("every", [4, 100])
@pytest.mark.parametrize("stop_on_collapse", [True, False])
def test_epochs_run_ahead_are_the_same_epochs(every, stop_on_collapse, monkeypatch):
    waiting = MemoryRecorder()
    settings = {"epochs": 70, "stop_on_collapse": stop_on_collapse}
    result = train(Toy(**settings), tiny_graph(), seed=0, recorder=waiting)
    run_ahead(monkeypatch)
    ahead = Looking(every)
    assert train(Toy(**settings), tiny_graph(), seed=0, recorder=ahead) == result
    assert [report.values for report in ahead.reports] == [each.values for each in waiting.reports]
    looks = [report.epoch for report in ahead.reports if report.is_latest]
    assert set(range(every, 71, every)) <= set(looks)
    assert len(looks) < 40
    for epoch, snapshot in zip(looks, ahead.snapshots, strict=True):
        expected = waiting.snapshots[epoch - 1]
        assert snapshot.state == expected.state
        torch.testing.assert_close(snapshot.tensors, expected.tensors, rtol=0, atol=0)


def test_epochs_that_take_long_are_not_run_ahead(monkeypatch):
    run_ahead(monkeypatch, seconds=0.0)
    recorder = Looking(100)
    train(Toy(epochs=5), tiny_graph(), seed=0, recorder=recorder)
    assert all(report.is_latest for report in recorder.reports)


def test_epochs_are_not_run_ahead_where_patience_decides(monkeypatch):
    run_ahead(monkeypatch)
    recorder = Looking(100)
    train(Scripted([5.0, 3.0, 2.0, 4.0], patience=3), tiny_graph(), seed=0, recorder=recorder)
    assert all(report.is_latest for report in recorder.reports)


def test_a_loss_that_is_no_number_is_named_by_its_epoch_when_it_is_read(monkeypatch):
    run_ahead(monkeypatch)
    recorder = Looking(5)
    with pytest.raises(TrainingError, match="not a finite number at epoch 7 "):
        train(Scripted([1.0] * 6 + [math.nan] * 6), tiny_graph(), seed=0, recorder=recorder)
    assert [report.epoch for report in recorder.reports] == [1, 2, 3, 4, 5]


# Early stopping


def test_early_stopping_restores_the_state_of_the_best_epoch():
    script = [5.0, 3.0, 2.0, 4.0, 2.5, 2.0, 1.0, 0.5]
    method = Scripted(script, patience=3)
    recorder = MemoryRecorder()
    result = train(method, tiny_graph(), seed=0, recorder=recorder)
    assert (result.epochs, result.stopped_early) == (6, True)
    assert int(method.last_epoch) == 3
    kept = recorder.snapshots[2].tensors["method/weights"]
    torch.testing.assert_close(method.weights.detach(), kept, rtol=0, atol=0)


@pytest.mark.parametrize(("patience", "kept"), [(None, 4), (3, 2), (2, 2)])
def test_a_training_that_ends_by_itself_keeps_the_best_epoch_or_the_last(patience, kept):
    """Patience that runs out at the last epoch is no early stop."""
    method = Scripted([5.0, 1.0, 2.0, 3.0], patience=patience)
    result = train(method, tiny_graph(), seed=0)
    assert (result.epochs, result.stopped_early, result.kept) == (4, False, kept)
    assert int(method.last_epoch) == kept


@pytest.mark.parametrize("patience", [1, 5])
def test_stopping_is_due_after_exactly_so_many_epochs_without_a_lower_loss(patience):
    stopping = EarlyStopping(patience)
    assert stopping.observe(3, 2.0)
    assert stopping.observe(4, 1.0)
    assert not stopping.observe(5, 1.0)
    assert not stopping.observe(6, math.nan)
    assert (stopping.best, stopping.best_epoch) == (1.0, 4)
    assert [stopping.is_over(4 + patience + more) for more in (-1, 0, 1)] == [False, True, True]


@pytest.mark.parametrize("before_step", [False, True])
def test_it_is_told_when_the_weights_are_those_from_before_the_training(before_step):
    class Keeps(Scripted):
        keeps_before_step: ClassVar[bool] = before_step

    method = Keeps([1.0, 2.0, 3.0, 4.0], patience=2)
    assert train(method, tiny_graph(), seed=0).kept == (0 if before_step else 1)
    assert int(method.last_epoch) == (0 if before_step else 1)


def test_what_is_watched_is_the_methods_choice():
    class WatchesSize(Scripted):
        def watched(self, terms):
            return -terms["script"]

    method = WatchesSize([1.0, 2.0, 0.5, 0.5], patience=2)
    assert train(method, tiny_graph(), seed=0).epochs == 4
    assert int(method.last_epoch) == 2


# Statistics


class Normed(Toy):
    """Batch norm of what it embeds; its watched loss is written down beforehand."""

    def __init__(self, script, **settings):
        super().__init__(epochs=len(script), **settings)
        self.norm, self.script = BatchNorm(2), script

    def watched(self, terms):
        return torch.tensor(self.script[int(self.last_epoch) - 1])

    def embed(self, graph):
        return self.norm(graph.features * self.weights)


@pytest.mark.parametrize(
    ("script", "patience", "kept"), [([3, 1, 2, 2], 2, 2), ([3, 2, 1], None, 3)]
)
def test_statistics_are_those_of_the_weights_that_are_kept(script, patience, kept):
    method, recorder = Normed([float(loss) for loss in script], patience=patience), MemoryRecorder()
    result = train(method, tiny_graph(), seed=0, recorder=recorder)
    assert result.kept == kept
    weights = recorder.snapshots[kept - 1].tensors["method/weights"]
    torch.testing.assert_close(method.weights.detach(), weights, rtol=0, atol=0)
    rows = tiny_graph().features * weights
    torch.testing.assert_close(method.norm.running_mean, rows.mean(0, keepdim=True))
    torch.testing.assert_close(method.norm.running_var, rows.var(0, correction=0, keepdim=True))
    assert not method.training
    assert bool(method.norm.recorded)


def test_calibrating_a_model_in_training_leaves_it_in_training():
    method = Normed([1.0]).train()
    method.calibrate(tiny_graph())
    assert method.training
    assert method.norm.training
    assert not method.norm.is_recording


# Collapse


def test_a_collapse_ends_training_with_the_weights_of_the_last_healthy_check(caplog):
    method, recorder = Collapsing(range(26), epochs=60, stop_on_collapse=True), MemoryRecorder()
    result = train(method, tiny_graph(), seed=0, recorder=recorder)
    assert (result.epochs, result.stopped_early, result.kept) == (30, True, 20)
    assert int(method.last_epoch) == 20
    kept = recorder.snapshots[19].tensors["method/weights"]
    torch.testing.assert_close(method.weights.detach(), kept, rtol=0, atol=0)
    assert "stopped after epoch 30 with the weights after epoch 20. Representation collapse" in (
        caplog.text
    )


def test_a_collapse_is_not_checked_for_by_default():
    result = train(Collapsing(range(26), epochs=60), tiny_graph(), seed=0)
    assert (result.epochs, result.stopped_early, result.kept) == (60, False, 60)


def test_an_embedding_that_recovers_is_trained_to_the_end():
    method = Collapsing(range(26, 70), epochs=60, stop_on_collapse=True)
    assert train(method, tiny_graph(), seed=0).kept == 60


def test_a_collapse_counts_for_more_than_the_lowest_loss():
    method = Collapsing(range(26), epochs=60, stop_on_collapse=True, patience=50)
    result = train(method, tiny_graph(), seed=0)
    assert (result.epochs, result.kept) == (30, 20)
    assert int(method.last_epoch) == 20


def test_checking_for_a_collapse_leaves_no_trace():
    plain, watched = Toy(epochs=25), Toy(epochs=25, stop_on_collapse=True)
    for method in (plain, watched):
        train(method, tiny_graph(), seed=0)
    torch.testing.assert_close(watched.state_dict(), plain.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("epoch", [5, 25])
def test_a_training_resumed_before_its_collapse_ends_as_the_whole(epoch):
    def collapsing():
        return Collapsing(range(26), epochs=60, stop_on_collapse=True)

    whole, recorder = collapsing(), MemoryRecorder()
    result = train(whole, tiny_graph(), seed=0, recorder=recorder)
    resumed = collapsing()
    rest = MemoryRecorder(recorder.snapshots[epoch - 1])
    assert train(resumed, tiny_graph(), seed=0, recorder=rest) == result
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


# Optimisers


def test_groups_reach_the_optimiser_with_their_own_rates():
    class TwoGroups(Toy):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.other = nn.Parameter(torch.tensor([3.0]))

        def loss_terms(self, graph, step):
            return {"line": self.weights.sum() + self.other.sum()}

        def parameter_groups(self):
            return [Group([self.weights], 0.25), Group([self.other], 0.5)]

    method = TwoGroups(epochs=1)
    train(method, tiny_graph(), seed=0)
    # Adam's first step is the learning rate, whatever the gradient's size.
    torch.testing.assert_close(method.weights.detach(), torch.tensor([2.0 - 0.25, -1.0 - 0.25]))
    torch.testing.assert_close(method.other.detach(), torch.tensor([3.0 - 0.5]))


class Adversaries(Toy):
    """Two phases on two parameters: one pulls the product up, the other down."""

    phases: ClassVar[tuple[str, ...]] = ("critic", "encoder")

    def __init__(self, **settings):
        super().__init__(**settings)
        self.critic = nn.Parameter(torch.tensor([1.0, 1.0]))
        self.history: list[tuple[int, str]] = []
        self.stepped: list[tuple[int, str]] = []

    def loss_terms(self, graph, step):
        self.history.append((step.epoch, step.phase))
        product = (self.weights * self.critic).sum()
        return {"product": product if step.phase == "encoder" else -product}

    def parameter_groups(self):
        return [
            Group([self.weights], 0.1, phase="encoder"),
            Group([self.critic], 0.2, 0.0, "critic"),
        ]

    def after_step(self, step):
        self.stepped.append((step.epoch, step.phase))


def test_each_phase_steps_its_own_parameters_by_its_own_gradient():
    method = Adversaries(epochs=1)
    recorder = MemoryRecorder()
    train(method, tiny_graph(), seed=0, recorder=recorder)
    # The critic follows +weights = (2, -1); the encoder then descends along the moved critic.
    torch.testing.assert_close(method.critic.detach(), torch.tensor([1.2, 0.8]))
    torch.testing.assert_close(method.weights.detach(), torch.tensor([1.9, -1.1]))
    values = recorder.reports[0].values
    critic_loss, encoder_loss = -(2.0 - 1.0), 2 * 1.2 - 0.8
    assert values["critic/loss"] == values["critic/product"] == pytest.approx(critic_loss)
    assert values["encoder/loss"] == pytest.approx(encoder_loss)
    assert values["loss"] == pytest.approx(critic_loss + encoder_loss)


def test_phases_resume_as_if_nothing_had_happened():
    whole, recorder = Adversaries(epochs=6), MemoryRecorder()
    train(whole, tiny_graph(), seed=0, recorder=recorder)
    resumed = Adversaries(epochs=6)
    train(resumed, tiny_graph(), seed=0, recorder=MemoryRecorder(recorder.snapshots[2]))
    assert resumed.history[0] == (4, "critic")
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("phase", ["critik", "main"])
def test_a_group_of_an_unknown_phase_is_an_error(phase):
    class Misspelt(Adversaries):
        def parameter_groups(self):
            return [
                *super().parameter_groups(),
                Group([nn.Parameter(torch.ones(1))], 1.0, 0.0, phase),
            ]

    with pytest.raises(ValueError, match=rf"Every phase .* Got phases .*critic.* '{phase}'"):
        train(Misspelt(epochs=1), tiny_graph(), seed=0)


def test_a_phase_without_a_group_is_an_error():
    class Idle(Adversaries):
        def parameter_groups(self):
            return super().parameter_groups()[:1]

    with pytest.raises(ValueError, match="Every phase of a method needs a parameter group"):
        train(Idle(epochs=1), tiny_graph(), seed=0)


def test_a_method_without_weights_is_an_error():
    class Weightless(Toy):
        def parameter_groups(self):
            return [Group([], 1.0)]

    with pytest.raises(
        ValueError, match=r"Every phase .* Got phases \['main'\] and groups of \[\]"
    ):
        train(Weightless(epochs=1), tiny_graph(), seed=0)


# What must not happen


class Breaking(Toy):
    """One of its terms is no longer a number from some epoch on."""

    def __init__(self, bad: float, epoch: int, **settings):
        super().__init__(**settings)
        self.bad, self.epoch = bad, epoch

    def loss_terms(self, graph, step):
        terms = super().loss_terms(graph, step)
        if step.epoch >= self.epoch:
            terms["size"] = terms["size"] * self.bad
        return terms


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_names_epoch_and_term(bad):
    method, recorder = Breaking(bad, 4, epochs=9), MemoryRecorder()
    with pytest.raises(TrainingError, match=r"at epoch 4 \(term: size\).* learning_rate "):
        train(method, tiny_graph(), seed=0, recorder=recorder)
    assert len(recorder.reports) == 3
    assert not recorder.is_done
    kept = recorder.snapshots[-1].tensors["method/weights"]
    torch.testing.assert_close(method.weights.detach(), kept, rtol=0, atol=0)


def test_a_gradient_that_is_no_number_stops_before_it_spoils_the_weights():
    class Kinked(Toy):
        """A square root of zero: the value is fine, its slope is not."""

        def loss_terms(self, graph, step):
            terms = super().loss_terms(graph, step)
            if step.epoch == 3:
                terms["root"] = (self.weights - self.weights.detach()).square().sum().sqrt()
            return terms

    method, recorder = Kinked(epochs=5), MemoryRecorder()
    with pytest.raises(TrainingError, match=r"gradient is not finite at epoch 3 \(of: weights\)"):
        train(method, tiny_graph(), seed=0, recorder=recorder)
    assert len(recorder.reports) == 2
    assert bool(torch.isfinite(method.weights).all())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
)
def test_out_of_memory_is_told_in_a_sentence(error):
    class Hungry(Toy):
        def loss_terms(self, graph, step):
            if step.epoch == 2:
                raise error
            return super().loss_terms(graph, step)

    with pytest.raises(TrainingError, match=r"Out of memory at epoch 2\. ") as caught:
        train(Hungry(epochs=3), tiny_graph(), seed=0)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("aspect", "Lower order or width, set negatives, or choose another device."),
        ("gmi", "Lower width or negatives, set pairs_per_node, or choose another device."),
        ("greet", "Lower width, set batch_size, or choose another device."),
        ("dgi", "Lower width, or choose another device."),
        ("raw", "Choose another device."),
    ],
)
def test_out_of_memory_names_the_settings_that_a_method_has(name, advice):
    entry, graph = find_method(name), tiny_graph()
    method = entry.method(entry.config(), graph.num_features)
    method.prepare = Mock(side_effect=MemoryError)
    with pytest.raises(TrainingError) as caught:
        train(method, graph, seed=0)
    assert str(caught.value) == f"Out of memory before the first epoch. {advice}"


def test_other_errors_of_a_method_pass_unchanged():
    class Faulty(Toy):
        def loss_terms(self, graph, step):
            raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        train(Faulty(epochs=1), tiny_graph(), seed=0)


# Randomness and resuming


def test_an_epochs_randomness_depends_on_seed_and_epoch_alone():
    def drawn(seed):
        numbers = []

        class Drawing(Toy):
            def loss_terms(self, graph, step):
                numbers.append(float(torch.rand((), generator=step.generator)))
                return super().loss_terms(graph, step)

        train(Drawing(epochs=4), tiny_graph(), seed=seed)
        return numbers

    assert drawn(0) == drawn(0)
    assert len({*drawn(0), *drawn(1)}) == 8


def test_no_global_generator_is_touched(server):
    """In a process of its own, for run-time checks of types draw from Python's generator."""
    child = server.run("watch_generators")
    assert child.status == 0, child.words


@pytest.mark.parametrize("patience", [None, 4])
@pytest.mark.parametrize("epoch", [1, 9])
def test_any_snapshot_leads_to_the_same_end(patience, epoch):
    settings = {"epochs": 12, "patience": patience, "learning_rate": 1.5}
    whole, recorder = Toy(**settings), MemoryRecorder()
    result = train(whole, tiny_graph(), seed=1, recorder=recorder)
    epoch = min(epoch, result.epochs)
    start = recorder.snapshots[epoch - 1]
    copies = {name: tensor.clone() for name, tensor in start.tensors.items()}
    resumed, rest = Toy(**settings), MemoryRecorder(start)
    assert train(resumed, tiny_graph(), seed=1, recorder=rest) == result
    assert [report.values for report in rest.reports] == [
        report.values for report in recorder.reports[epoch:]
    ]
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(start.tensors, copies, rtol=0, atol=0)


def test_a_snapshot_does_not_change_as_training_goes_on():
    recorder = MemoryRecorder()
    train(Toy(epochs=3), tiny_graph(), seed=0, recorder=recorder)
    weights = [snapshot.tensors["method/weights"] for snapshot in recorder.snapshots]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tensors, state: (tensors | {"method/weights": torch.zeros(3)}, state),
        lambda tensors, state: ({"method/other": torch.zeros(2)}, state),
        lambda tensors, state: (tensors, {"epoch": 1}),
        lambda tensors, state: (tensors | {"optimiser/main/0/a/b": torch.zeros(1)}, state),
    ],
    ids=["shape", "names", "state", "optimiser"],
)
def test_a_snapshot_of_something_else_is_refused_in_a_sentence(spoil):
    recorder = MemoryRecorder()
    train(Toy(epochs=1), tiny_graph(), seed=0, recorder=recorder)
    wrong = Snapshot(*spoil(recorder.snapshots[0].tensors, recorder.snapshots[0].state))
    with pytest.raises(CheckpointError, match=r"does not fit toy .* graph with 2 features"):
        train(Toy(epochs=2), tiny_graph(), seed=0, recorder=MemoryRecorder(wrong))


@pytest.mark.gpu
def test_a_training_on_a_gpu_resumes_within_rounding():
    """Sums on a GPU may run in another order, so what is promised is closeness, not equality."""
    graph = mixed_graph(num_nodes=200, num_features=16, seed=0)
    settings = {"epochs": 12, "width": 16, "order": 3, "device": "cuda"}
    recorder = MemoryRecorder()
    whole = Embedder("aspect", **settings).fit(graph, recorder=recorder)
    resumed = Embedder("aspect", **settings)
    resumed.fit(graph, recorder=MemoryRecorder(recorder.snapshots[6]))
    torch.testing.assert_close(resumed.embed(graph), whole.embed(graph), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("before", "expected"), [(True, 2.0), (False, 3.0)])
def test_a_method_chooses_whether_the_best_weights_are_those_before_or_after_the_step(
    before, expected
):
    class Counting(Toy):
        keeps_before_step: ClassVar[bool] = before

        def loss_terms(self, graph, step):
            best = 0.0 if step.epoch == 3 else 1.0
            return {"watched": best + 0 * self.weights.sum()}

        def after_step(self, step):
            with torch.no_grad():
                self.weights.fill_(float(step.epoch))

    method = Counting(epochs=6, patience=10)
    train(method, tiny_graph(), seed=0)
    assert method.weights.tolist() == [expected, expected]


def test_a_schedule_scales_the_learning_rate_of_every_epoch_from_the_full_one():
    class Pulled(Toy):
        def loss_terms(self, graph, step):
            return {"pull": self.weights.sum()}

        def learning_rate_factor(self, epoch):
            return [1.0, 0.0, 0.5][epoch - 1]

    recorder, method = MemoryRecorder(), Pulled(epochs=3)
    train(method, tiny_graph(), seed=0, recorder=recorder)
    weights = [snapshot.tensors["method/weights"][0].item() for snapshot in recorder.snapshots]
    steps = [before - after for before, after in zip([2.0, *weights], weights, strict=False)]
    # Adam's step under a constant gradient is the learning rate itself.
    assert steps == pytest.approx([0.1, 0.0, 0.05], abs=1e-6)


def test_a_phase_may_take_several_steps_an_epoch():
    taken = []

    class Eager(Toy):
        phases: ClassVar[tuple[str, ...]] = ("first", "second")

        def rounds(self, phase):
            return 3 if phase == "first" else 1

        def parameter_groups(self):
            return [Group([self.weights], 0.1, phase=phase) for phase in self.phases]

        def after_step(self, step):
            taken.append((step.epoch, step.phase))

    train(Eager(epochs=2), tiny_graph(), seed=0)
    assert taken == [(epoch, phase) for epoch in (1, 2) for phase in ("first",) * 3 + ("second",)]


@pytest.mark.parametrize("decoupled", [True, False])
def test_weight_decay_acts_on_the_weights_or_through_the_gradient(decoupled):
    class Still(Toy):
        def loss_terms(self, graph, step):
            return {"nothing": 0 * self.weights.sum()}

        def parameter_groups(self):
            return [Group([self.weights], 0.1, weight_decay=0.5, decoupled=decoupled)]

    method = Still(epochs=1)
    train(method, tiny_graph(), seed=0)
    # Through the gradient, Adam forgets the size of the decay: a step is the learning rate.
    expected = [2 * (1 - 0.05), -1 * (1 - 0.05)] if decoupled else [1.9, -0.9]
    assert method.weights.tolist() == pytest.approx(expected, abs=1e-5)


def test_terms_that_are_finite_but_not_together_are_named_so():
    class Huge(Toy):
        def loss_terms(self, graph, step):
            huge = self.weights.abs().sum() * 1e38
            return {"a": huge, "b": huge}

    with pytest.raises(TrainingError, match=r"at epoch 1 \(term: their sum\)"):
        train(Huge(epochs=2), tiny_graph(), seed=0)


def test_no_epochs_leave_the_first_weights():
    method = Toy(epochs=0)
    result = train(method, tiny_graph(), seed=0)
    assert result == trainer.TrainingResult(0, False, {}, kept=0)
    torch.testing.assert_close(method.weights.detach(), torch.tensor([2.0, -1.0]))
