import pytest
import torch
from torch.testing import assert_close

from aspect.losses import edges as objective
from aspect.methods.gmi import GMI, GMIConfig
from aspect.nn.augmentations import draw_others
from methods.building import step
from reference import two_views
from reference.contrast import reconstruction
from reference.graphs import random_graph

SMALL = {
    "width": 6,
    "feature_weight": 0.8,
    "neighbour_weight": 1.3,
    "edge_weight": 0.7,
    "negatives": 3,
}


@pytest.fixture
def graph():
    return random_graph(num_nodes=25, num_edges=45, isolated=2)


def make(graph, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = GMI(GMIConfig(**(SMALL | changes)), graph.num_features)
        for parameter in method.parameters():
            torch.nn.init.normal_(parameter)  # zeros and equal slopes would hide their places
    return method.to(graph.dtype).train()


def divergence(true, false):
    return sum(torch.log(1 + torch.exp(-torch.sigmoid(score))) for score in true) / len(true) + sum(
        torch.log(1 + torch.exp(torch.sigmoid(score))) for score in false
    ) / len(false)


def encode(method, graph):
    operator, hidden = two_views.smoothing(graph), two_views.features_of(graph)
    layers = (method.encoder.weights, method.encoder.biases, method.encoder.activations)
    for weight, bias, activation in zip(*layers, strict=True):
        slope = activation.function.weight
        hidden = two_views.prelu(operator @ hidden @ weight + bias, slope)
    return hidden


def neighbour_vectors(method, graph):
    """Node by node, over the first layer's transformed features."""
    transformed = two_views.features_of(graph) @ method.encoder.weights[0]
    source, target = graph.edge_index
    rows = []
    for node in range(graph.num_nodes):
        around = transformed[target[source == node]]
        mean = around.mean(0) if len(around) else torch.zeros_like(transformed[0])
        rows.append(two_views.prelu(mean, method.neighbour_activation.function.weight))
    return torch.stack(rows)


def score(scorer, left, right):
    return left @ scorer.matrix @ right + scorer.bias


@pytest.mark.parametrize("layers", [1, 2])
def test_the_loss_is_the_papers(graph, layers):
    method, generator = make(graph, layers=layers), step().generator
    x, h, around = (
        two_views.features_of(graph),
        encode(method, graph),
        neighbour_vectors(method, graph),
    )
    terms = []
    for scorer, left, right in (
        (method.feature_scorer, x, h),
        (method.neighbour_scorer, h, around),
    ):
        nodes = range(graph.num_nodes)
        drawn = draw_others(torch.arange(25).expand(3, -1), 25, generator)
        true = [score(scorer, left[i], right[i]) for i in nodes]
        false = [score(scorer, left[row[i]], right[i]) for row in drawn for i in nodes]
        terms.append(divergence(true, false))
    expected = {
        "features": 0.8 * terms[0],
        "neighbours": 1.3 * terms[1],
        "edges": 0.7 * reconstruction(graph, h),
    }
    found = method.loss_terms(graph, step())
    assert_close(found, {name: value.reshape(()) for name, value in expected.items()})
    parameters = list(method.parameters())
    assert_close(
        torch.autograd.grad(sum(found.values()), parameters),
        torch.autograd.grad(sum(expected.values()), parameters),
    )


@pytest.mark.parametrize("layers", [1, 2])
def test_the_embedding_is_the_encoders(graph, layers):
    method = make(graph, layers=layers)
    assert_close(method.eval().embed(graph), encode(method, graph))


class TestPairs:
    def edges(self, graph, seed=5, **changes):
        return make(graph, **changes).loss_terms(graph, step(seed))["edges"].detach()

    def test_as_many_as_nodes_are_all(self, graph):
        expected = self.edges(graph)
        assert_close(self.edges(graph, pairs_per_node=25), expected, rtol=0, atol=0)

    def test_very_large_graphs_draw_by_themselves(self, graph, monkeypatch):
        monkeypatch.setattr(objective, "EXACT_UP_TO", 24)
        monkeypatch.setattr(objective, "DRAWN_BEYOND", 3)
        assert_close(self.edges(graph), self.edges(graph, pairs_per_node=3), rtol=0, atol=0)
        monkeypatch.setattr(objective, "EXACT_UP_TO", 25)
        assert not torch.equal(self.edges(graph), self.edges(graph, pairs_per_node=3))
