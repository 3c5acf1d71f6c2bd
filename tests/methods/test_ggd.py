import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.features import dense, row_normalise
from aspect.methods.ggd import GGD, GGDConfig
from methods.building import assert_same_with_gradients, build, generator, step
from reference.graphs import random_graph
from reference.two_views import smoothing


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def make(graph, **settings):
    return build(GGD, GGDConfig(width=5, **settings), graph, seed=0)


def loss_of(method, graph, seed=5):
    return method.loss_terms(graph, step(seed))["discrimination"]


def encode(method, x, graph):
    (weight,), (bias,) = method.encoder.weights, method.encoder.biases
    slope = method.encoder.activations[0].function.weight
    return nn.functional.prelu(smoothing(graph) @ x @ weight + bias, slope)


def plain_loss(method, graph, masked, order):
    """Every output of the projector, summed."""
    x = dense(row_normalise(graph.features)).clone()
    x[:, masked] = 0
    total = 0.0
    for nodes, sign in ((x, -1), (x[order], 1)):
        outputs = encode(method, nodes, graph)
        for layer in method.scorer.layers:
            outputs = layer(outputs)
        total = total + nn.functional.softplus(sign * outputs.sum(1)).sum()
    return total / (2 * graph.num_nodes)


@pytest.mark.parametrize("layers", [1, 3])
def test_loss_and_gradients_are_those_of_the_formula(graph, layers):
    method = make(graph, projector_layers=layers, column_mask=0.3)
    found = loss_of(method, graph)
    draws = generator()
    masked = torch.randperm(12, generator=draws)[:3]  # floor(0.3 * 12)
    order = torch.randperm(graph.num_nodes, generator=draws)
    expected = plain_loss(method, graph, masked, order)
    assert_same_with_gradients(found, expected, method)


@pytest.mark.parametrize(("rate", "count"), [(0.2, 2), (0.0, 0), (0.99, 11)])
def test_so_many_columns_are_masked_and_nothing_is_rescaled(graph, monkeypatch, rate, count):
    method, seen = make(graph, column_mask=rate), []
    inner = method.encoder.project

    def listen(features):
        seen.append(dense(features))
        return inner(features)

    monkeypatch.setattr(method.encoder, "project", listen)
    masked_columns = set()
    for seed in range(6):
        loss_of(method, graph, seed)
        whole = dense(row_normalise(graph.features))
        (found,) = seen  # one product serves both groups, so that they share the columns
        seen.clear()
        changed = (found != whole).any(0)
        assert int(changed.sum()) <= count  # a column of zeros may be among the masked
        assert_close(found, whole * ~changed)
        masked_columns |= set(changed.nonzero().flatten().tolist())
    assert len(masked_columns) > count or count in (0, 11)


@pytest.mark.parametrize("hops", [1, 5])
def test_what_is_added_is_the_smoothed_embedding_of_unmasked_features(graph, hops):
    method = make(graph, hops=hops)
    plain = encode(method, dense(row_normalise(graph.features)), graph)
    expected = torch.linalg.matrix_power(smoothing(graph), hops) @ plain
    assert_close(method.embed(graph) - plain, expected)


def test_without_hops_the_embedding_is_not_doubled(graph):
    method = make(graph, hops=0)
    assert_close(method.embed(graph), encode(method, dense(row_normalise(graph.features)), graph))
