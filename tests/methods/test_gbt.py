import math

import pytest
import torch
from torch.testing import assert_close

from aspect.methods.gbt import GBT, GBTConfig
from aspect.training.trainer import train
from methods.building import build, step
from reference import two_views
from reference.graphs import random_graph

SMALL = {"width": 5, "epochs": 20, "edge_drop": 0.4, "column_mask": 0.3}


@pytest.fixture
def graph():
    return random_graph(num_nodes=30, num_edges=70, isolated=1)


def make(graph, **changes):
    return build(GBT, GBTConfig(**(SMALL | changes)), graph)


def encode(method, features, operator, biases):
    """As the paper has it, biases included."""
    first, second = method.encoder.weights
    slope = method.encoder.activations[0].function.weight
    (norm,) = method.encoder.norms
    hidden = two_views.batch_norm(operator @ features @ first + biases[0])
    hidden = hidden * norm.weight + norm.bias
    return operator @ two_views.prelu(hidden, slope) @ second + biases[1]


@pytest.mark.parametrize("scale", [0.0, 3.0])
def test_the_loss_is_the_papers_whatever_its_biases(graph, scale):
    method, generator = make(graph), step().generator
    biases = [scale * torch.randn(width, dtype=graph.dtype) for width in (10, 5)]
    one, other = (
        encode(method, *two_views.corrupted(graph, 0.4, 0.3, generator), biases) for _ in range(2)
    )
    found = two_views.correlations(one, other)
    expected = 0.0
    for i in range(5):
        for j in range(5):
            expected += (1 - found[i, j]) ** 2 if i == j else found[i, j] ** 2 / 5
    assert_close(method.loss_terms(graph, step()), {"correlation": expected})


def test_the_embedding_is_by_the_statistics_of_the_clean_graph(graph):
    method = make(graph)
    train(method, graph, seed=0)
    clean = two_views.features_of(graph), two_views.smoothing(graph)
    assert_close(method.embed(graph), encode(method, *clean, [0.0, 0.0]))


class TestSchedule:
    def test_the_official_one_is_a_tenth_of_a_thousand_epochs(self, graph):
        method = make(graph, epochs=1000)
        assert method.learning_rate_factor(1) == 0
        assert method.learning_rate_factor(100) == method.learning_rate_factor(101) == 1
        assert method.learning_rate_factor(551) == pytest.approx(0.5)
        last = (1 + math.cos(math.pi * 899 / 900)) / 2
        assert method.learning_rate_factor(1000) == pytest.approx(last)

    def test_the_first_epoch_moves_statistics_alone(self, graph):
        settings = {"epochs": 1, "warm_up": 0.9, "weight_decay": 0.1}
        method = make(graph, norm_statistics="running", **settings)
        before = {name: value.clone() for name, value in method.state_dict().items()}
        train(method, graph, seed=0)
        for name, value in method.state_dict().items():
            is_statistic = "running" in name or "recorded" in name
            assert torch.equal(value, before[name]) != is_statistic, name


def test_decay_is_decoupled(graph):
    (group,) = make(graph).parameter_groups()
    assert group.decoupled
    assert group.weight_decay == 1e-5
