"""What methods with patience that keep the weights before a step promise."""

import pytest

from aspect.methods.base import Step
from aspect.randomness import generator_for
from aspect.training.trainer import train
from training.toys import MemoryRecorder


def assert_ends_with_the_weights_of_the_lowest_loss(method, graph):
    recorder, patience = MemoryRecorder(), method.config.patience
    result = train(method, graph, seed=3, recorder=recorder)
    losses = [report.values["loss"] for report in recorder.reports]
    best = losses.index(min(losses)) + 1
    assert result.stopped_early
    assert best == result.epochs - patience
    assert best > 1
    again = method.loss_terms(graph, Step(best, generator_for(3, "epoch", best)))
    assert float(again["discrimination"].detach()) == pytest.approx(min(losses), abs=1e-12)
