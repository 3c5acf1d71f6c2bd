import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.methods.cca_ssg import CCASSG, CCASSGConfig
from aspect.training.trainer import train
from methods.building import step
from reference import two_views
from reference.graphs import random_graph

SMALL = {"width": 5, "edge_drop": 0.4, "column_mask": 0.3, "decorrelation": 0.2}


@pytest.fixture
def graph():
    return random_graph(num_nodes=30, num_edges=70, isolated=1)


def make(graph, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = CCASSG(CCASSGConfig(**(SMALL | changes)), graph.num_features)
        for parameter in method.parameters():
            if parameter.dim() == 1:  # biases of zero would hide their place
                torch.nn.init.normal_(parameter)
    return method.to(graph.dtype).train()


def convolutions(method, features, operator):
    """ReLU between layers, none after the last."""
    hidden = features
    pairs = list(zip(method.encoder.weights, method.encoder.biases, strict=True))
    for number, (weight, bias) in enumerate(pairs):
        hidden = operator @ hidden @ weight + bias
        if number < len(pairs) - 1:
            hidden = hidden.clamp(min=0)
    return hidden


def perceptron(method, features, _operator):
    first, second = method.encoder.layers
    (norm,) = method.encoder.norms
    hidden = two_views.batch_norm(features @ first.weight.t() + first.bias)
    return (hidden * norm.weight + norm.bias).clamp(min=0) @ second.weight.t() + second.bias


def canonical(one, other, weight):
    loss = -two_views.correlations(one, other).trace()
    for view in (one, other):
        repeated = torch.eye(5, dtype=view.dtype) - two_views.correlations(view, view)
        loss = loss + weight * repeated.square().sum()
    return loss


@pytest.mark.parametrize(
    ("changes", "encode"),
    [
        ({"layers": 1}, convolutions),
        ({"layers": 2}, convolutions),
        ({"layers": 3}, convolutions),
        ({"backbone": "mlp", "edge_drop": 0.0}, perceptron),
    ],
)
def test_the_loss_is_the_papers(graph, changes, encode):
    method, generator = make(graph, **changes), step().generator
    views = []
    for _ in range(2):
        if "backbone" in changes:  # no edges are drawn for it
            keep = torch.empty(graph.num_features, dtype=graph.dtype)
            keep.bernoulli_(0.7, generator=generator)
            views.append(encode(method, two_views.features_of(graph) * keep, None))
        else:
            views.append(encode(method, *two_views.corrupted(graph, 0.4, 0.3, generator)))
    expected = canonical(*views, 0.2)
    assert_close(method.loss_terms(graph, step()), {"correlation": expected})


def test_the_embedding_is_the_encoders_and_not_standardised(graph):
    method = make(graph)
    clean = two_views.features_of(graph), two_views.smoothing(graph)
    assert_close(method.eval().embed(graph), convolutions(method, *clean))


class TestPerceptron:
    def test_edges_do_not_matter(self, graph):
        method = make(graph, backbone="mlp")
        other = Graph.build(graph.features, torch.tensor([[0, 3], [1, 2]]))
        assert torch.equal(method.embed(graph), method.embed(other))
        losses = [method.loss_terms(each, step())["correlation"] for each in (graph, other)]
        assert torch.equal(*losses)

    @pytest.mark.parametrize("training", [True, False])
    def test_it_takes_the_statistics_of_the_graph_it_embeds(self, graph, training):
        method = make(graph, backbone="mlp", norm_statistics="graph").train(training)
        method.loss_terms(graph, step())
        few = Graph.build(graph.features[:7], torch.zeros(2, 0, dtype=torch.long))
        for other in (graph, few):
            expected = perceptron(method, two_views.features_of(other), None)
            assert_close(method.embed(other), expected)

    def test_it_embeds_by_the_statistics_of_the_training_graph(self, graph):
        method = make(graph, backbone="mlp", epochs=3)
        train(method, graph, seed=0)
        expected = perceptron(method, two_views.features_of(graph), None)
        assert_close(method.embed(graph), expected)
        few = Graph.build(graph.features[:2], torch.zeros(2, 0, dtype=torch.long))
        assert_close(method.embed(few), expected[:2])
