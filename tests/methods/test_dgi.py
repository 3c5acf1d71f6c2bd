import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.methods.base import Step
from aspect.methods.dgi import DGI, DGIConfig
from aspect.methods.registry import find_method
from aspect.randomness import generator_for
from aspect.training.trainer import train
from methods.building import assert_same_with_gradients, build, generator, step
from reference.graphs import random_graph
from reference.two_views import features_of, smoothing
from training.toys import MemoryRecorder


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def make(graph, **settings):
    return build(DGI, DGIConfig(width=5, **settings), graph, seed=0)


def encode(method, x, graph):
    (weight,), (bias,) = method.encoder.weights, method.encoder.biases
    (activation,) = method.encoder.activations
    return nn.functional.prelu(smoothing(graph) @ x @ weight + bias, activation.function.weight)


def plain_loss(method, graph, order):
    """Softplus by softplus, the summary repeated for every node as in the first implementations."""
    x, scorer = features_of(graph), method.scorer
    real, corrupted = encode(method, x, graph), encode(method, x[order], graph)
    summary = real.mean(0).sigmoid().expand_as(real).contiguous()
    total = 0.0
    for nodes, sign in ((real, -1), (corrupted, 1)):
        scores = nn.functional.bilinear(nodes, summary, scorer.matrix[None], scorer.bias[None])
        total = total + nn.functional.softplus(sign * scores).sum()
    return total / (2 * graph.num_nodes)


def test_loss_and_gradients_are_those_of_the_formula(graph):
    method = make(graph)
    method.scorer.bias.data.fill_(0.3)
    method.encoder.biases[0].data.normal_(generator=torch.Generator().manual_seed(1))
    found = method.loss_terms(graph, step())["discrimination"]
    expected = plain_loss(method, graph, torch.randperm(graph.num_nodes, generator=generator()))
    assert_same_with_gradients(found, expected, method)


def test_the_embedding_is_the_activated_layer_as_it_is(graph):
    method = make(graph)
    assert_close(method.embed(graph), encode(method, features_of(graph), graph))
    assert [tuple(p.shape) for p in method.encoder.activations.parameters()] == [(1,)]


def test_training_ends_with_the_weights_of_the_lowest_loss(graph):
    method = make(graph, epochs=300, patience=4, learning_rate=0.02)
    recorder = MemoryRecorder()
    result = train(method, graph, seed=3, recorder=recorder)
    losses = [report.values["loss"] for report in recorder.reports]
    best = losses.index(min(losses)) + 1
    assert result.stopped_early
    assert best == result.epochs - 4
    assert best > 1
    again = method.loss_terms(graph, Step(best, generator_for(3, "epoch", best)))
    assert float(again["discrimination"].detach()) == pytest.approx(min(losses), abs=1e-12)


@pytest.mark.parametrize("name", ["dgi", "ggd", "gmi", "graphcl", "rdgi"])
def test_the_family_keeps_the_weights_whose_loss_was_the_lowest(name):
    assert find_method(name).method.keeps_before_step
