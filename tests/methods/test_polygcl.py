import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.methods.polygcl import PolyGCL, PolyGCLConfig
from aspect.training.trainer import train
from methods.building import assert_same_with_gradients, generator, step
from reference.graphs import random_graph
from reference.two_views import features_of

STILL = {"input_dropout": 0.0, "dropout": 0.0}
NORMED = {"batch_norm": True, "activation": "prelu"}


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=9, isolated=1, density=request.param)


def make(graph, **settings):
    torch.manual_seed(3)
    method = PolyGCL(PolyGCLConfig(**{"width": 6, "order": 4} | settings), graph.num_features)
    draw = torch.Generator().manual_seed(4)
    for band in method.encoder.filters:  # some increments below zero
        band.increments.data.normal_(0.3, 0.4, generator=draw)
    method.mixture.data.copy_(torch.tensor([0.7, -0.4]))
    return method.double().train()


def nodes_and_values(method):
    """Where the filters are given, by the paper's formulas, and what they are there: low, high."""
    order = method.config.order
    places = [math.cos((order - j + 0.5) * math.pi / (order + 1)) for j in range(order + 1)]
    both = []
    for start, sign, band in zip((2.0, 0.0), (-1, 1), method.encoder.filters, strict=True):
        values = [torch.tensor(start, dtype=torch.float64)]
        for increment in band.increments:
            values.append(values[-1] + sign * increment.relu())
        both.append(values)
    return places, both


def interpolated(places, values, x):
    """Lagrange's polynomial through the values, at x."""
    total = torch.zeros_like(x)
    for j, (place, value) in enumerate(zip(places, values, strict=True)):
        factor = torch.ones_like(x)
        for other in places[:j] + places[j + 1 :]:
            factor = factor * (x - other) / (place - other)
        total = total + value * factor
    return total


def normalised_adjacency(graph):
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    adjacency[tuple(graph.edge_index)] = 1
    scale = adjacency.sum(1).clamp(min=1).rsqrt()
    return scale[:, None] * adjacency * scale


def filtered(method, graph, x, band):
    """Through the eigenvectors of the Laplacian minus one."""
    places, both = nodes_and_values(method)
    frequencies, vectors = torch.linalg.eigh(-normalised_adjacency(graph))
    response = interpolated(places, both[band], frequencies)
    return vectors @ (response[:, None] * (vectors.t() @ x))


def encode(method, graph, x, band):
    hidden = filtered(method, graph, x, band)
    if method.config.batch_norm:
        spread = hidden.var(0, unbiased=False)
        hidden = (hidden - hidden.mean(0)) / (spread + 1e-5).sqrt()
    hidden = method.encoder.linear(hidden)
    slope = 0.25 if method.config.activation == "prelu" else 0.0
    return torch.where(hidden > 0, hidden, slope * hidden)


def plain_loss(method, graph, order):
    x = features_of(graph)
    low, high = (encode(method, graph, x, band) for band in (0, 1))
    shuffled = [encode(method, graph, x[order], band) for band in (0, 1)]
    beta, alpha = method.mixture
    summary = (alpha * high + beta * low).mean(0).relu().expand_as(low).contiguous()
    matrix, bias = method.scorer.matrix[None], method.scorer.bias[None]
    logits = [nn.functional.bilinear(h, summary, matrix, bias) for h in (low, high, *shuffled)]
    targets = torch.cat([torch.ones(2 * len(x)), torch.zeros(2 * len(x))]).double()
    together = torch.cat(logits).squeeze(1)
    return nn.functional.binary_cross_entropy_with_logits(together, targets)


@pytest.mark.parametrize("kind", [{}, NORMED], ids=["plain", "normed"])
def test_loss_and_gradients_are_those_of_the_formula(graph, kind):
    method = make(graph, **STILL, **kind)
    found = method.loss_terms(graph, step())["discrimination"]
    order = torch.randperm(graph.num_nodes, generator=generator())
    expected = plain_loss(method, graph, order)
    assert_same_with_gradients(found, expected, method)


def test_the_embedding_is_the_mixture_of_both_bands(graph):
    method = make(graph).eval()  # what is dropped in training is not dropped here
    x = features_of(graph)
    expected = 0.7 * encode(method, graph, x, 0) - 0.4 * encode(method, graph, x, 1)
    assert_close(method.embed(graph), expected, rtol=1e-6, atol=1e-7)  # 0.7 was a float32


def test_each_band_embeds_by_its_own_statistics_on_the_clean_graph(graph):
    method = make(graph, epochs=3, **NORMED)
    train(method, graph, seed=0)
    x, (beta, alpha) = features_of(graph), method.mixture.detach()
    expected = beta * encode(method, graph, x, 0) + alpha * encode(method, graph, x, 1)
    assert_close(method.embed(graph), expected, rtol=1e-6, atol=1e-7)


def test_every_view_is_dropped_out_by_itself(graph, monkeypatch):
    method = make(graph, input_dropout=0.5, dropout=0.0)
    for band in method.encoder.filters:  # high starts at 0 and low at 2
        band.increments.data.zero_()
    method.encoder.filters[1].start.fill_(2.0)
    seen = []
    score = method.scorer.forward
    monkeypatch.setattr(method.scorer, "forward", lambda x, c: (seen.append(x), score(x, c))[1])
    method.loss_terms(graph, step())
    low, high, shuffled_low, shuffled_high = seen
    # The same filter and the same features: only the masks can differ.
    assert not torch.allclose(low, high)
    assert not torch.allclose(shuffled_low, shuffled_high)


@pytest.mark.parametrize("kind", [{}, NORMED], ids=["plain", "normed"])
def test_filters_and_mixture_have_a_learning_rate_of_their_own(kind):
    graph = random_graph()
    rates = {"filter_learning_rate": 0.3, "filter_weight_decay": 0.2}
    method = make(graph, learning_rate=0.1, weight_decay=0.05, **rates, **kind)
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    filters, rest = (
        ({names[id(p)] for p in group.parameters}, group.learning_rate, group.weight_decay)
        for group in method.parameter_groups()
    )
    increments = {"encoder.filters.0.increments", "encoder.filters.1.increments"}
    assert filters == (increments | {"mixture"}, 0.3, 0.2)
    layers = {"encoder.linear.weight", "encoder.linear.bias", "scorer.matrix", "scorer.bias"}
    assert rest == (layers, 0.1, 0.05)


@pytest.mark.parametrize("trains_norm", [False, True])
def test_norm_and_slope_are_trained_only_if_asked_for(trains_norm):
    graph = random_graph()
    method = make(graph, epochs=3, trains_norm=trains_norm, **NORMED)
    train(method, graph, seed=0)
    norm, slope = method.encoder.norm, method.encoder.activation.weight.item()
    moved = not torch.equal(norm.weight, torch.ones_like(norm.weight))
    assert moved == trains_norm
    assert (slope != 0.25) == trains_norm
    assert bool((norm.running_mean != 0).any())


def test_the_bank_takes_the_values_at_the_nodes():
    graph = random_graph()
    method = make(graph)
    places, both = nodes_and_values(method)
    bank = method.filter_bank(graph, torch.tensor(places, dtype=torch.float64) + 1)
    assert bank is not None
    assert not bank.self_loops
    assert list(bank.responses) == ["low", "high"]
    for found, expected in zip(bank.responses.values(), both, strict=True):
        assert_close(found, torch.stack(expected))


def test_rows_are_left_as_they_are_where_the_settings_say_so():
    graph = random_graph()
    raw, normalised = make(graph, row_normalise=False).eval(), make(graph).eval()
    other = random_graph()
    other.features.copy_(features_of(graph))
    assert_close(raw.embed(other), normalised.embed(graph))
    assert not torch.allclose(raw.embed(graph), normalised.embed(graph))
