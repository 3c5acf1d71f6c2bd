import itertools
from copy import deepcopy

import pytest
import torch
from torch.nn.functional import cosine_similarity, elu
from torch.testing import assert_close

from aspect.data.features import dropout
from aspect.methods.base import Step
from aspect.methods.hlcl import HLCL, HLCLConfig
from aspect.nn.augmentations import ViewSource
from aspect.nn.neighbours import EdgeSplit
from aspect.training.trainer import train
from methods.building import assert_same_with_gradients
from reference.graphs import random_graph
from reference.two_views import features_of, smoothing

STILL = {"dropout": 0.0, "edge_drop": 0.0, "node_drop": 0.0, "column_mask": 0.0}


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


@pytest.fixture
def full():
    """Features without ties."""
    return random_graph(num_edges=60, num_features=12, isolated=1)


def make(graph, **settings):
    torch.manual_seed(5)
    shares = {"like_share": 0.4, "unlike_share": 0.7}
    method = HLCL(HLCLConfig(**{"width": 6} | shares | settings), graph.num_features)
    for bias in method.encoder.biases:
        bias.data.normal_()
    return method.double().train()


def step(epoch=1, seed=0):
    return Step(epoch, torch.Generator().manual_seed(seed))


def chosen_of(method, graph):
    return method.split(graph)


def operators(graph, chosen, *, unit_diagonal=False):
    """The low pass of the like edges and the high pass of the unlike ones, as matrices."""
    own = torch.eye(graph.num_nodes, dtype=torch.float64)
    high = own - smoothing(graph, chosen.heterophilic)
    high = torch.where(own == 1, own, high) if unit_diagonal else high
    return smoothing(graph, chosen.homophilic), high


def encode(method, graph, operator, draws=None):
    """Dropout comes before both layers, where there is something to draw it by."""
    x = features_of(graph)
    for weight, bias in zip(method.encoder.weights, method.encoder.biases, strict=True):
        x = (operator @ (dropout(x, method.config.dropout, draws) @ weight) + bias).relu()
    return x


def project(method, x):
    first, second = method.projector.layers
    return second(elu(first(x)))


def plain_contrast(one, other, temperature):
    """Both directions of InfoNCE, node by node."""
    nodes, total = len(one), 0.0
    for asking, answering in ((one, other), (other, one)):
        for i in range(nodes):
            scores = cosine_similarity(asking[i : i + 1], answering) / temperature
            total = total + scores.logsumexp(0) - scores[i]
    return total / (2 * nodes)


@pytest.mark.parametrize("unit_diagonal", [False, True])
def test_loss_and_gradients_are_those_of_the_formula(graph, unit_diagonal):
    method = make(graph, unit_diagonal=unit_diagonal, **STILL)
    terms = method.loss_terms(graph, step())
    views = operators(graph, chosen_of(method, graph), unit_diagonal=unit_diagonal)
    low, high = (project(method, encode(method, graph, each)) for each in views)
    # Nothing is drawn, so that the two views of a kind are the same.
    expected = (plain_contrast(low, low, 0.2) + plain_contrast(high, high, 0.2)) / 2
    assert_same_with_gradients(terms["low"] + terms["high"], expected, method)


def test_the_simplified_loss_holds_low_against_high(graph):
    method = make(graph, simplified=True, temperature=0.5, **STILL)
    (found,) = method.loss_terms(graph, step()).values()
    views = operators(graph, chosen_of(method, graph))
    low, high = (project(method, encode(method, graph, each)) for each in views)
    assert_same_with_gradients(found, plain_contrast(low, high, 0.5), method)


def test_features_and_what_the_first_layer_hands_on_are_dropped_out(full):
    method, draws = make(full, **STILL | {"dropout": 0.5}), step().generator
    terms = method.loss_terms(full, step())
    low, high = operators(full, chosen_of(method, full))
    for kind, operator in (("low", low), ("high", high)):
        one, other = (project(method, encode(method, full, operator, draws)) for _ in range(2))
        assert_close(terms[kind], plain_contrast(one, other, 0.2) / 2)


def test_edges_are_chosen_anew_by_the_encoder(full):
    method = make(full, interval=3)
    before = chosen_of(method, full)
    encoder, source = deepcopy(method.encoder), ViewSource(full)
    method.loss_terms(full, step(epoch=4))
    for parameter in method.encoder.parameters():
        parameter.data.normal_()  # it moves on, what it has chosen stays
    method.split.forget()
    chosen = chosen_of(method, full)
    expected = EdgeSplit.of(source, encoder, like_share=0.4, unlike_share=0.7)
    assert_close(
        (chosen.homophilic, chosen.heterophilic), (expected.homophilic, expected.heterophilic)
    )
    assert not torch.equal(chosen.homophilic, before.homophilic)


def test_the_choice_changes_after_every_interval_and_never_between(full):
    method = make(full, interval=3)
    choices = []
    for epoch in range(1, 9):
        method.loss_terms(full, step(epoch))
        choices.append(chosen_of(method, full))
    same = [one is other for one, other in itertools.pairwise(choices)]
    assert same == [True, True, False, True, True, False, True]
    never = make(full, interval=None)
    never.loss_terms(full, step(101))
    assert not bool(never.has_chosen)


def test_the_embedding_is_the_low_pass_of_the_like_edges(graph):
    method = make(graph).eval()
    low, _ = operators(graph, chosen_of(method, graph))
    assert_close(method.embed(graph), encode(method, graph, low))


def test_a_loaded_state_brings_its_choice_along(full):
    trained = make(full, interval=2, epochs=4, learning_rate=0.1)
    train(trained, full, seed=0)  # edges were last chosen before the third epoch
    # The encoder has moved on since: by itself it cannot tell which edges were chosen.
    assert not torch.equal(trained.chooser.weights[0], trained.encoder.weights[0])
    loaded = make(full, interval=2)
    loaded.eval().embed(full)  # it has chosen by features by now
    loaded.load_state_dict(trained.state_dict())
    assert_close(loaded.embed(full), trained.embed(full), rtol=0, atol=0)
    assert_close(
        chosen_of(loaded, full).homophilic, chosen_of(trained, full).homophilic, rtol=0, atol=0
    )
