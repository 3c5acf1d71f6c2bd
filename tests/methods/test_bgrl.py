import math

import pytest
import torch
from torch.testing import assert_close

from aspect.methods.base import Step
from aspect.methods.bgrl import BGRL, BGRLConfig
from aspect.randomness import generator_for
from aspect.training.trainer import train
from methods.building import build
from reference import two_views
from reference.contrast import unit
from reference.graphs import random_graph

SMALL = {"hidden_width": 7, "width": 5, "prediction_width": 6, "epochs": 10, "momentum": 0.9}
RATES = {
    "first_edge_drop": 0.3,
    "second_edge_drop": 0.5,
    "first_column_mask": 0.4,
    "second_column_mask": 0.2,
}
CLEAN = dict.fromkeys(RATES, 0.0)


@pytest.fixture(params=[0.15, 1.0], ids=["sparse", "dense"])
def graph(request):
    return random_graph(num_nodes=20, num_features=9, isolated=1, density=request.param)


def make(graph, **settings):
    return build(BGRL, BGRLConfig(**(SMALL | RATES | settings)), graph)


def step(epoch=1, seed=5):
    return Step(epoch, torch.Generator().manual_seed(seed))


def copied(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def plain_network(network, features, matrix):
    """GCN, batch norm over the batch, PReLU, twice."""
    hidden = features
    layers = zip(network.weights, network.biases, network.norms, network.activations, strict=True)
    for weight, bias, norm, activation in layers:
        hidden = matrix @ (hidden @ weight) + bias
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
        hidden = hidden * norm.weight + norm.bias
        hidden = torch.where(hidden > 0, hidden, activation.function.weight * hidden)
    return hidden


def plain_prediction(predictor, x):
    first, second = predictor.layers
    hidden = x @ first.weight.t() + first.bias
    hidden = torch.where(hidden > 0, hidden, predictor.activations[0].function.weight * hidden)
    return hidden @ second.weight.t() + second.bias


def plain_views(graph, config):
    """The same draws as a step's, as dense features and matrices."""
    draws = torch.Generator().manual_seed(5)
    first = config.first_edge_drop, config.first_column_mask
    second = config.second_edge_drop, config.second_column_mask
    return [two_views.corrupted(graph, *rates, draws) for rates in (first, second)]


class TestLoss:
    def test_it_equals_the_formula_with_the_same_gradients(self, graph):
        method = make(graph)
        one, other = plain_views(graph, method.config)
        q1, q2 = (
            plain_prediction(method.predictor, plain_network(method.online, *view))
            for view in (one, other)
        )
        y1, y2 = (plain_network(method.target, *view).detach() for view in (one, other))
        expected = 2 - (unit(q1) * unit(y2)).sum(1).mean() - (unit(q2) * unit(y1)).sum(1).mean()
        found = sum(method.loss_terms(graph, step()).values())
        assert_close(found, expected)
        trained = method.parameter_groups()[0].parameters
        assert_close(
            torch.autograd.grad(found, trained),
            torch.autograd.grad(expected, trained),
            rtol=1e-6,
            atol=1e-9,
        )


class TestTarget:
    def test_it_starts_from_weights_of_its_own(self, graph):
        method = make(graph)
        for online, target in zip(method.online.weights, method.target.weights, strict=True):
            assert not torch.isclose(online, target).any()

    @pytest.mark.parametrize(("epoch", "momentum"), [(1, 0.9), (6, 0.95), (11, 1.0)])
    def test_it_follows_by_the_momentum_of_the_step(self, graph, epoch, momentum):
        method = make(graph)
        before = copied(method.target)
        method.after_step(step(epoch))
        expected = [
            momentum * old + (1 - momentum) * new
            for old, new in zip(before, method.online.parameters(), strict=True)
        ]
        assert_close(copied(method.target), expected)

    def test_training_moves_it_by_the_average_alone(self, graph):
        method = make(graph, momentum=1.0)
        before = copied(method.target), copied(method.online)
        train(method, graph, seed=0)
        assert_close(copied(method.target), before[0], rtol=0, atol=0)
        assert any(
            not torch.equal(old, new)
            for old, new in zip(before[1], copied(method.online), strict=True)
        )


class TestSchedule:
    def test_the_learning_rate_rises_and_falls(self, graph):
        method = make(graph, epochs=100, warm_up=0.2)
        factors = [method.learning_rate_factor(epoch) for epoch in range(1, 102)]
        assert factors[0] == 0
        assert factors[10] == pytest.approx(0.5)
        assert factors[20] == pytest.approx(1)
        assert factors[60] == pytest.approx(0.5)
        assert factors[100] == pytest.approx(0)
        assert factors[:21] == sorted(factors[:21])
        assert factors[20:] == sorted(factors[20:], reverse=True)

    def test_decay_is_decoupled_and_all_online_parameters_have_it(self, graph):
        method = make(graph, weight_decay=0.03)
        (group,) = method.parameter_groups()
        assert group.decoupled
        assert group.weight_decay == 0.03
        expected = {id(each) for each in method.parameters() if each.requires_grad}
        assert {id(each) for each in group.parameters} == expected


class TestTraining:
    def test_it_is_adamw_by_the_schedules_and_the_average_after_each_step(self, graph):
        epochs, warm_up, rate, decay, first = 8, 0.25 * 8, 0.02, 0.03, 0.9
        settings = {"epochs": epochs, "warm_up": 0.25, "momentum": first}
        settings |= {"learning_rate": rate, "weight_decay": decay}
        method, plain = make(graph, **settings), make(graph, **settings)
        train(method, graph, seed=7)
        trained = [parameter for parameter in plain.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(trained, weight_decay=decay)
        for done in range(epochs):
            cosine = math.cos(math.pi * (done - warm_up) / (epochs - warm_up))
            factor = done / warm_up if done < warm_up else (1 + cosine) / 2
            optimiser.param_groups[0]["lr"] = factor * rate
            optimiser.zero_grad()
            draws = generator_for(7, "epoch", done + 1)
            sum(plain.loss_terms(graph, Step(done + 1, draws)).values()).backward()
            optimiser.step()
            momentum = 1 - (1 - first) * (1 + math.cos(math.pi * done / epochs)) / 2
            followed = zip(plain.target.parameters(), plain.online.parameters(), strict=True)
            for average, online in followed:
                average.data = momentum * average.data + (1 - momentum) * online.data
        for found, expected in ((method.online, plain.online), (method.target, plain.target)):
            assert_close(copied(found), copied(expected))
        assert_close(copied(method.predictor), copied(plain.predictor))


class TestEmbedding:
    def test_running_statistics_are_those_of_the_second_view(self, graph):
        """A momentum of one leaves nothing of the first view."""
        method = make(graph, norm_statistics="running", norm_momentum=1.0)
        method.loss_terms(graph, step())
        _, (features, matrix) = plain_views(graph, method.config)
        hidden = matrix @ (features @ method.online.weights[0]) + method.online.biases[0]
        assert_close(method.online.norms[0].running_mean, hidden.mean(0, keepdim=True))

    def test_it_is_the_online_encoders_by_the_statistics_of_the_clean_graph(self, graph):
        method = make(graph)
        train(method, graph, seed=0)
        ((features, matrix), _) = plain_views(graph, BGRLConfig(**CLEAN))
        assert_close(method.embed(graph), plain_network(method.online, features, matrix))

    def test_the_target_embeds_nothing(self, graph):
        method = make(graph)
        method.calibrate(graph)
        assert bool(method.online.norms[0].running_mean.any())
        assert not bool(method.target.norms[0].running_mean.any())
