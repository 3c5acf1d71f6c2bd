import math

import pytest
import torch
from torch.testing import assert_close

from aspect.attacks import view_search
from aspect.config import make_config
from aspect.data.features import dense, row_normalise
from aspect.data.graph import Graph
from aspect.errors import SettingsError
from aspect.methods.ariel import ARIEL, ARIELConfig
from aspect.methods.base import Step
from aspect.methods.grace import GRACE, GRACEConfig
from aspect.nn.augmentations import View, sample_subgraph
from aspect.nn.propagation import SymmetricPropagation
from aspect.randomness import generator_for
from methods.building import (
    assert_captured_is_the_same,
    assert_unasked_is_the_same,
    build,
    generator,
    step,
)
from reference import contrast
from reference.graphs import random_graph
from reference.metattack import dense_adjacency, normalised

NETWORKS = {"width": 6, "projection_width": 5, "activation": "prelu", "temperature": 0.5}
RATES = {
    "first_edge_drop": 0.3,
    "second_edge_drop": 0.1,
    "first_column_mask": 0.2,
    "second_column_mask": 0.1,
}
SMALL = NETWORKS | RATES | {"row_normalise": True}
BINDING = 3e4  # a step over edges that takes all of the budget


@pytest.fixture(params=[0.15, 1.0], ids=["sparse", "dense"])
def graph(request):
    return random_graph(26, 60, 9, isolated=1, density=request.param)


def make(graph, kind=ARIEL, config=ARIELConfig, **settings):
    return build(kind, config(**(SMALL | settings)), graph)


def first_view(method, graph, seed=5):
    return method.corrupted(graph, generator(seed))[0]


def search(method, graph, seed=5):
    return method.search(graph, first_view(method, graph), generator(seed))


def slopes(method, hidden, draws):
    """One learned slope for both layers, or one drawn for every entry."""
    if method.config.activation == "rrelu":
        return torch.empty_like(hidden).uniform_(1 / 8, 1 / 3, generator=draws)
    return method.encoder.activations[0].function.weight


def plain_projections(method, features, matrix, draws=None):
    """Encoder and projector written out."""
    hidden = features
    for weight, bias in zip(method.encoder.weights, method.encoder.biases, strict=True):
        hidden = matrix @ (hidden @ weight) + bias
        hidden = torch.where(hidden >= 0, hidden, hidden * slopes(method, hidden, draws))
    first, second = method.projector.layers
    hidden = torch.nn.functional.elu(hidden @ first.weight.t() + first.bias)
    return hidden @ second.weight.t() + second.bias


def plain_contrast(u, v, temperature):
    both = contrast.intra_view(u, v, temperature) + contrast.intra_view(v, u, temperature)
    return both.mean() / 2


def plain_budget(point, budget):
    """Bisection between the ends that the official code begins with."""
    if float(point.clamp(0, 1).sum()) <= budget:
        return point.clamp(0, 1)
    low, high = float(point.min()) - 1, float(point.max())
    for _ in range(200):
        middle = (low + high) / 2
        above = float((point - middle).clamp(0, 1).triu(1).sum()) > budget
        low, high = (middle, high) if above else (low, middle)
    return (point - high).clamp(0, 1).triu(1)


def unit_of(graph):
    """The mean size of the entries that are not zero, rows summing to one."""
    x = dense(row_normalise(graph.features))
    return x[x != 0].abs().mean()


def plain_search(method, graph, against):
    """The relaxed adversary by dense matrices and the formula's own loss."""
    config, clean, nodes = method.config, dense_adjacency(graph), graph.num_nodes
    x = dense(row_normalise(graph.features))
    direction = 1 - 2 * clean - torch.eye(nodes)
    known = plain_projections(method, dense(against.features), against.operator.dense()).detach()
    shares, moves = torch.zeros(nodes, nodes, dtype=torch.float64), torch.zeros_like(x)
    unit = unit_of(graph)
    for number in range(1, config.perturbation_steps + 1):
        s, m = shares.clone().requires_grad_(), moves.clone().requires_grad_()
        changed = clean + (s.triu(1) + s.triu(1).t()) * direction
        seen = plain_projections(method, x + unit * m, normalised(changed))
        loss = plain_contrast(known, seen, config.temperature)
        to_shares, to_moves = torch.autograd.grad(loss, (s, m))
        up = shares + config.edge_step / math.sqrt(number) * to_shares
        shares = plain_budget(up, config.perturbation_budget * graph.num_edges)
        moves = (moves + config.feature_step * to_moves.sign()).clamp(
            -config.feature_box, config.feature_box
        )
    return shares, x + unit * moves


class TestSearch:
    @pytest.mark.parametrize("size", [5.0, BINDING], ids=["free", "binding"])
    @pytest.mark.parametrize("unasked", [(), ("cpu",)], ids=["cpu", "gpu"])
    def test_the_relaxed_point_is_that_of_the_plain_form(self, graph, size, unasked, monkeypatch):
        monkeypatch.setattr(view_search, "UNASKED", unasked)
        method = make(graph, edge_step=size, feature_step=0.003, feature_box=0.01)
        found = search(method, graph)
        shares, features = plain_search(method, graph, first_view(method, graph))
        budget = 0.2 * graph.num_edges
        assert (float(shares.sum()) > 0.99 * budget) == (size == BINDING)
        assert_close(found.shares, shares + shares.t(), rtol=1e-6, atol=1e-9)
        assert_close(found.view.features, features, rtol=1e-9, atol=1e-9)

    def test_parameters_are_left_alone(self, graph):
        method = make(graph).train()
        search(method, graph)
        assert all(p.grad is None and p.requires_grad for p in method.parameters())
        assert method.training

    def test_a_graph_without_edges_is_no_error(self, graph):
        lonely = Graph.build(dense(graph.features), torch.zeros(2, 0, dtype=torch.long))
        method = make(lonely, edge_step=1e6)
        assert search(method, lonely).flips.tolist() == []
        assert all(torch.isfinite(term) for term in method.loss_terms(lonely, step()).values())


class TestLoss:
    @pytest.mark.parametrize("size", [15, 26])
    def test_without_its_terms_it_is_grace_on_the_subgraph(self, graph, size):
        method = make(graph, sample=size, adversarial_weight=0.0)
        plain = make(graph, GRACE, GRACEConfig)
        plain.load_state_dict(method.state_dict())
        draws = generator()
        part = sample_subgraph(graph, size, draws).graph
        assert part.num_nodes == size
        expected = plain.loss_terms(part, Step(1, draws))
        found = method.loss_terms(graph, step())
        assert_close(found, expected, rtol=0, atol=0)
        assert method.monitors() == {}

    @pytest.mark.parametrize("activation", ["prelu", "rrelu"])
    def test_the_terms_are_those_of_the_formula(self, graph, activation):
        settings = {"adversarial_weight": 1.5, "information_weight": 2.0, "activation": activation}
        method = make(graph, sample=15, edge_step=BINDING, feature_step=0.003, **settings)
        draws = generator()
        part = sample_subgraph(graph, 15, draws).graph
        first, second = method.corrupted(part, draws)
        own = generator_for(draws.initial_seed(), "perturbation")
        third = method.search(part, first, own)
        clean = View(row_normalise(part.features), SymmetricPropagation(part).smoothing())
        one, other, adverse, plain = (
            plain_projections(method, dense(view.features), view.operator.dense(), draws)
            for view in (first, second, third.view, clean)
        )
        bound = sum(
            (torch.cosine_similarity(each, plain) / 0.5).exp().detach() for each in (one, other)
        )
        between = (torch.cosine_similarity(one, other) / 0.5).exp()
        expected = {
            "contrast": plain_contrast(one, other, 0.5),
            "adversarial": 1.5 * plain_contrast(one, adverse, 0.5),
            "information": 2.0 * (2 * between - bound).relu().mean(),
        }
        found = method.loss_terms(graph, step())
        assert_close(found, expected)
        assert int(method.monitors()["search_flips"]) == len(third.flips) > 0
        parameters = list(method.parameters())
        for name, term in expected.items():
            assert_close(
                torch.autograd.grad(found[name], parameters, retain_graph=True),
                torch.autograd.grad(term, parameters, retain_graph=True),
            )


def test_the_embedding_is_the_whole_clean_graph_s(graph):
    method = make(graph, sample=5, perturbation_steps=1)
    before = method.embed(graph)
    method.loss_terms(graph, step())
    assert_close(method.embed(graph), before, rtol=0, atol=0)
    clean = View(row_normalise(graph.features), SymmetricPropagation(graph).smoothing())
    assert_close(method.projector(before), method.projections(clean))


@pytest.mark.parametrize("temperature", [0.01, 0.0249])
def test_exponentials_that_float32_cannot_hold_are_refused(temperature):
    given = {"temperature": temperature, "information_weight": 0.5}
    with pytest.raises(SettingsError) as refused:
        make_config(ARIELConfig, given, "ariel")
    assert str(refused.value) == (
        "Setting 'settings' of ariel: temperature must be at least 0.025 where information_weight "
        f"is above 0, since float32 cannot hold its exponentials below. Got {given}."
    )
    assert ARIELConfig(temperature=temperature).information_weight == 0


def test_the_lowest_temperature_with_the_information_term_is_finite():
    graph = random_graph(20, 40, dtype=torch.float32)
    settings = {"temperature": 2 / 80, "information_weight": 2.0, "adversarial_weight": 0.0}
    method = make(graph, **settings)
    loss = sum(method.loss_terms(graph, step()).values())
    loss.backward()
    assert float(loss.detach()) > 0
    assert all(bool(torch.isfinite(p.grad.square()).all()) for p in method.parameters())


@pytest.mark.parametrize("activation", ["prelu", "rrelu"])
def test_a_step_on_the_whole_graph_asks_a_gpu_for_nothing(graph, activation, monkeypatch):
    settings = {"activation": activation, "edge_step": BINDING, "information_weight": 1.0}
    method = make(graph, feature_step=0.003, **settings)
    assert_unasked_is_the_same(method, graph, monkeypatch)


def test_steps_on_the_whole_graph_alone_are_captured(graph):
    for size, key in ((25, None), (26, ())):
        method = make(graph, sample=size)
        method.before_step(graph, step())
        assert method.capture_key(step()) == key


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["prelu", "rrelu"])
def test_a_captured_step_is_the_same(graph, activation, monkeypatch):
    method = make(graph, activation=activation, edge_step=BINDING, information_weight=1.0)
    assert_captured_is_the_same(method.to("cuda"), graph.to("cuda"), monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["prelu", "rrelu"])
def test_a_step_on_a_gpu(graph, activation):
    placed = graph.to("cuda")
    method = make(graph, activation=activation, sample=20, information_weight=1.0).to("cuda")
    terms = method.loss_terms(placed, Step(1, torch.Generator("cuda").manual_seed(0)))
    torch.stack(list(terms.values())).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())
    assert method.embed(placed).device.type == "cuda"


def test_first_weights_are_uniform_within_the_output_s_root():
    graph = random_graph(20, 40, 300)
    method = ARIEL(ARIELConfig(width=32), graph.num_features)
    layers = zip(method.encoder.weights, method.encoder.biases, strict=True)
    for (weight, bias), width in zip(layers, (64, 32), strict=True):
        for parameter in (weight, bias):
            bound = 1 / math.sqrt(width)
            assert 0.8 * bound < float(parameter.detach().abs().max()) <= bound
