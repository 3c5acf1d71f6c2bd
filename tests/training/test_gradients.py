"""Gradients of a phase: those of autograd, and on a GPU the same when they are replayed."""

import logging
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from aspect.data.synthetic import mixed_graph
from aspect.errors import TrainingError
from aspect.methods.base import Step
from aspect.methods.registry import find_method, method_names
from aspect.randomness import isolated_seed
from aspect.training import gradients
from aspect.training.gradients import Gradients, training_precision
from aspect.training.trainer import train
from training.toys import MemoryRecorder, Toy, tiny_graph

EPOCHS = 7


def test_gradients_are_those_of_a_backward_pass():
    toy, graph = Toy(), tiny_graph()
    numbers = (
        Gradients(toy, graph, list(toy.parameters()))
        .compute(Step(1, torch.Generator().manual_seed(2)))
        .read
    )
    found = toy.weights.grad.clone()
    toy.weights.grad = None
    terms = toy.loss_terms(graph, Step(1, torch.Generator().manual_seed(2)))
    sum(terms.values()).backward()
    assert torch.equal(found, toy.weights.grad)
    assert numbers.terms == ["fit", "size"]
    assert numbers.values["loss"] == pytest.approx(sum(float(term) for term in terms.values()))
    assert numbers.gradient == pytest.approx(float(found.norm()))


def test_only_the_given_parameters_get_a_gradient():
    toy = Toy()
    other = torch.nn.Parameter(torch.ones(2))
    Gradients(toy, tiny_graph(), [toy.weights, other]).compute(Step(1, torch.Generator()))
    assert toy.weights.grad is not None
    assert other.grad is None


NUMBER = torch.ones(())


@pytest.mark.parametrize(
    ("hook", "returned"),
    [
        ("loss_terms", NUMBER),
        ("loss_terms", {"fit": 1.0}),
        ("loss_terms", {"fit": torch.ones(1)}),
        ("loss_terms", {"loss": NUMBER, "size": NUMBER}),
        ("monitors", {"mean": 1.0}),
        ("monitors", {"epoch": NUMBER}),
        ("monitors", {"fit": NUMBER}),
    ],
)
def test_what_cannot_be_logged_is_refused(monkeypatch, hook, returned):
    toy = Toy()
    monkeypatch.setattr(toy, hook, lambda *_: returned)
    with pytest.raises(TrainingError, match=f"^{hook} of toy must return a dict of tensors"):
        Gradients(toy, tiny_graph(), [toy.weights]).compute(Step(1, torch.Generator()))


@pytest.mark.parametrize("terms", [{}, {"fit": NUMBER}])
def test_a_loss_that_no_weight_moves_is_refused(monkeypatch, terms):
    toy = Toy()
    monkeypatch.setattr(toy, "loss_terms", lambda *_: terms)
    with pytest.raises(TrainingError, match="No term of toy's loss depends on its weights"):
        Gradients(toy, tiny_graph(), [toy.weights]).compute(Step(1, torch.Generator()))


def test_the_precision_of_products_is_as_before_afterwards():
    before = torch.get_float32_matmul_precision()
    with training_precision(torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == gradients.PRECISION
    assert torch.get_float32_matmul_precision() == before


def test_a_held_generator_draws_what_a_fresh_one_would():
    step = Step(1, torch.Generator().manual_seed(7))
    held = step.seeded_apart("search", torch.Generator())
    expected = torch.rand(3, generator=step.apart("search"))
    assert replace(step, held={"search": held}).apart("search") is held
    assert torch.equal(torch.rand(3, generator=held), expected)


class Replayed:
    """In place of a CUDA graph."""

    def __init__(self):
        self.times = 0

    def replay(self):
        self.times += 1


def test_each_kind_of_step_is_captured_apart_and_the_last_ones_are_kept(monkeypatch):
    toy, captured = Toy(), []
    steps = Gradients(toy, tiny_graph(), list(toy.parameters()))
    steps.may_capture = True

    def capture(step, graph):
        captured.append(step.epoch)
        done = steps._run(step, graph)
        return None if step.epoch % 3 == 0 else replace(done, graph=Replayed())  # 0 mod 3 cannot be

    monkeypatch.setattr(steps, "_capture", capture)
    monkeypatch.setattr(toy, "capture_key", lambda step: step.epoch, raising=False)

    def take(*kinds):
        captured.clear()
        for kind in kinds:
            steps.compute(Step(kind, torch.Generator()))
        return list(captured)

    assert take(*[1, 2] * gradients.WARM_UP) == []
    assert take(1, 2, 1, 2) == [1, 2]
    assert [kind.captured.graph.times for kind in steps.kinds.values()] == [2, 2]
    assert take(*[3] * (gradients.WARM_UP + 3)) == [3]  # tried once, and run as it is from then on
    assert list(steps.kinds) == [2, 3]
    assert take(2) == []
    assert take(*[1] * (gradients.WARM_UP + 1)) == [1]  # it was let go of


def test_a_replay_draws_apart_what_its_step_would(monkeypatch):
    toy, apart = Toy(), {"search": torch.Generator()}
    steps = Gradients(toy, tiny_graph(), list(toy.parameters()))
    steps.may_capture = True

    def capture(step, graph):
        return replace(steps._run(step, graph), graph=Replayed(), apart=apart)

    monkeypatch.setattr(steps, "_capture", capture)
    for epoch in range(gradients.WARM_UP + 3):
        step = Step(epoch, torch.Generator().manual_seed(epoch))
        done = steps.compute(step)
    assert done.graph.times == 3
    assert apart["search"].initial_seed() == step.apart("search").initial_seed()


TRAINED = [name for name in method_names() if find_method(name).method.trainable]


SEARCHING = {"aspect-s": {"warm_up": 0, "interval": 1}}  # in every epoch, which repeats then


def losses_on_gpu(name, graph):
    known = find_method(name)
    settings = {"epochs": EPOCHS, "patience": None, **SEARCHING.get(name, {})}
    with isolated_seed(0):
        model = known.method(known.config(**settings), graph.num_features)
    recorder = MemoryRecorder()
    train(model.cuda(), graph, seed=0, recorder=recorder)
    return torch.tensor([snapshot.state["values"]["loss"] for snapshot in recorder.snapshots])


@pytest.mark.gpu
@pytest.mark.parametrize("name", TRAINED)
def test_a_replayed_training_is_the_same_training(name, monkeypatch, caplog):
    graph = mixed_graph(num_nodes=200, num_features=16, seed=0).graph.to("cuda")
    monkeypatch.setattr(gradients, "PRECISION", "highest")
    with caplog.at_level(logging.WARNING):
        replayed = losses_on_gpu(name, graph)
    assert "cannot be captured" not in caplog.text
    monkeypatch.setattr(gradients, "WARM_UP", EPOCHS)
    assert_close(replayed, losses_on_gpu(name, graph), rtol=1e-3, atol=1e-4)
