import math

import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.methods import greet as module
from aspect.methods.base import Step
from aspect.methods.greet import GREET, GREETConfig
from aspect.nn.propagation import spread
from aspect.training.trainer import train
from methods.building import build
from reference import contrast
from reference.edge_weights import plain_filters, plain_weights
from reference.graphs import random_graph

SMALL = {
    "width": 6,
    "discriminator_width": 5,
    "walk_steps": 4,
    "neighbours": 3,
    "projector_layers": 2,
    "high_pass_strength": 0.3,
}
CLEAN = {
    "first_column_mask": 0.0,
    "second_column_mask": 0.0,
    "first_edge_dropout": 0.0,
    "second_edge_dropout": 0.0,
}


@pytest.fixture(params=[0.15, 1.0], ids=["sparse", "dense"])
def graph(request):
    return random_graph(num_nodes=24, num_edges=50, isolated=1, density=request.param)


@pytest.fixture
def one_graph():
    return random_graph(num_nodes=24, num_edges=50, isolated=1)


def make(graph, **settings):
    return build(GREET, GREETConfig(**(SMALL | CLEAN | settings)), graph)


def draw(seed=5):
    return torch.Generator().manual_seed(seed)


def step(phase, seed=5):
    return Step(1, draw(seed), phase)


def copied(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def plain_encodings(method, graph, weights):
    matrices = plain_filters(graph, weights, method.config.high_pass_strength)
    found = []
    for encoder, matrix in zip(method.encoders, matrices, strict=True):
        (layer,) = encoder.layers
        hidden = torch.relu(dense(graph.features) @ layer.weight.t() + layer.bias)
        found.append(torch.linalg.matrix_power(matrix, method.config.hops) @ hidden)
    return found


def plain_positives(features, count):
    similar = contrast.unit(features) @ contrast.unit(features).t()
    similar.fill_diagonal_(-torch.inf)
    nearest = similar.topk(count).indices.tolist()
    return [{node, *others} for node, others in enumerate(nearest)]


class TestContrast:
    @pytest.mark.parametrize(("neighbours", "hops"), [(0, 2), (3, 3)])
    def test_it_equals_the_formula(self, one_graph, neighbours, hops):
        graph, method = one_graph, make(one_graph, neighbours=neighbours, hops=hops)
        weights = plain_weights(method.discriminator, graph, draw()).detach()
        low, high = plain_encodings(method, graph, weights)
        projected = []
        for projector, x in zip(method.projectors, (low, high), strict=True):
            first, second = projector.layers
            hidden = torch.relu(x @ first.weight.t() + first.bias)
            projected.append(hidden @ second.weight.t() + second.bias)
        positives = plain_positives(graph.features, neighbours)
        rows = contrast.several_positives(*projected, 0.2, positives)
        columns = contrast.several_positives(*projected[::-1], 0.2, positives)
        expected = (rows.mean() + columns.mean()) / 2
        found = method.loss_terms(graph, step("contrast"))["contrast"]
        assert_close(found, expected)
        trained = method.parameter_groups()[0].parameters
        assert_close(torch.autograd.grad(found, trained), torch.autograd.grad(expected, trained))

    def test_batches_count_their_own_negatives(self, one_graph):
        method = make(one_graph, neighbours=0, temperature=1e9, batch_size=10)
        loss = method.loss_terms(one_graph, step("contrast"))["contrast"]
        assert loss.item() == pytest.approx((20 * math.log(9) + 4 * math.log(3)) / 24)

    def test_columns_are_masked_exactly_and_entries_thinned(self, graph, monkeypatch):
        masks = {"first_column_mask": 0.5, "second_column_mask": 0.3}
        method = make(graph, first_edge_dropout=0.5, second_edge_dropout=0.25, **masks)
        seen, watched_operators = [], []
        for encoder in method.encoders:
            encoder.register_forward_pre_hook(lambda _, given: seen.append(dense(given[0])))

        def watched(hidden, operator, hops):
            watched_operators.append(operator.dense())
            return spread(hidden, operator, hops)

        monkeypatch.setattr(module, "spread", watched)
        method.loss_terms(graph, step("contrast"))
        given = dense(graph.features)
        for features, masked in zip(seen, (3, 2), strict=True):  # of 7 columns, none of them empty
            changed = (features != given).any(0)
            assert int(changed.sum()) == masked
            assert not bool(features[:, changed].any())
        weights = plain_weights(method.discriminator, graph, draw()).detach()
        whole = plain_filters(graph, weights, 0.3)
        for thinned, matrix, scale in zip(watched_operators, whole, (2, 4 / 3), strict=True):
            kept = thinned != 0
            assert_close(thinned[kept], scale * matrix[kept])
            assert not bool(kept.diagonal().all()), "self-loops are dropped too"


class TestRanking:
    def test_it_equals_the_loop(self, one_graph):
        graph, method = one_graph, make(one_graph, like_margin=0.4, unlike_margin=0.2)
        generator = draw()
        weights = plain_weights(method.discriminator, graph, generator)
        embedding = contrast.unit(torch.cat(plain_encodings(method, graph, weights), dim=1))
        source, target = graph.edge_index
        one = torch.randint(24, source.shape, generator=generator)
        other = torch.randint(23, source.shape, generator=generator)
        other = other + (other >= one)
        total = 0.0
        for i, weight in enumerate(weights):
            joined = embedding[source[i]] @ embedding[target[i]]
            random = embedding[one[i]] @ embedding[other[i]]
            total = total + (random - joined + 0.4).relu() * (weight - 0.5).relu()
            total = total + (joined - random + 0.2).relu() * (1 - weight - 0.5).relu()
        expected = total / len(weights) / 2
        found = method.loss_terms(graph, step("ranking"))["ranking"]
        assert_close(found, expected)
        trained = list(method.discriminator.parameters())
        assert_close(torch.autograd.grad(found, trained), torch.autograd.grad(expected, trained))

    def test_without_edges_there_is_nothing_to_rank(self, one_graph):
        bare = Graph.build(one_graph.features, one_graph.edge_index[:, :0])
        loss = make(bare).loss_terms(bare, step("ranking"))["ranking"]
        assert loss.item() == 0
        assert loss.requires_grad


class TestPhases:
    def test_rates_of_one_phase_move_its_parameters_alone(self, one_graph):
        tiny = 1e-300  # no step that a float would notice
        for setting, moved, still in (
            ("learning_rate", "discriminator", "encoders"),
            ("discriminator_learning_rate", "encoders", "discriminator"),
        ):
            method = make(one_graph, epochs=1, **{setting: tiny})
            before = copied(getattr(method, moved)), copied(getattr(method, still))
            train(method, one_graph, seed=0)
            after = copied(getattr(method, moved)), copied(getattr(method, still))
            assert_close(after[1], before[1], rtol=0, atol=0)
            assert not torch.equal(after[0][0], before[0][0])

    def test_rounds_are_contrasts_alone(self, one_graph):
        method = make(one_graph, contrast_rounds=3)
        assert [method.rounds(phase) for phase in method.phases] == [3, 1]


class TestEmbedding:
    @pytest.mark.parametrize("hops", [2, 3])
    def test_it_is_both_encodings_without_noise(self, graph, hops):
        method = make(graph, hops=hops)
        weights = method.discriminator(method.ready(graph))
        expected = plain_encodings(method, graph, weights)
        assert_close(method.embed(graph), torch.cat(expected, dim=1))

    def test_it_may_be_drawn_and_is_the_same_every_time(self, graph):
        method = make(graph, drawn_embedding=True)
        generator = draw(int(method.noise_seed))
        weights = plain_weights(method.discriminator, graph, generator)
        expected = plain_encodings(method, graph, weights)
        assert_close(method.embed(graph), torch.cat(expected, dim=1))
        assert_close(method.embed(graph), method.embed(graph), rtol=0, atol=0)
        assert "noise_seed" in method.state_dict()

    def test_rows_may_be_normalised(self, one_graph):
        method = make(one_graph, row_normalise=True)
        sums = dense(method.ready(one_graph).features).abs().sum(1)
        assert_close(sums, torch.ones_like(sums))
