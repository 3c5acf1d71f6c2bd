import math

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect.data.features import dense, drop_entries
from aspect.data.graph import Graph
from aspect.methods.s3gcl import S3GCL, S3GCLConfig
from aspect.training.trainer import train
from methods.building import step
from reference.graphs import random_graph
from reference.spectrum import rescaled_laplacian

STILL = {"input_dropout": 0.0, "dropout": 0.0}


@pytest.fixture(params=[1.0, 0.15], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def make(graph, **settings):
    torch.manual_seed(6)
    small = {"width": 7, "order": 4, "neighbours": 3, "low_weight": 0.3}
    method = S3GCL(S3GCLConfig(**small | settings), graph.num_features)
    return method.double().train()


def standardised(x, norm):
    centred = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    return centred * norm.weight + norm.bias


def embed(method, x):
    first, second = method.encoder.layers
    return second(standardised(first(x), method.encoder.norms[0]).relu())


def ramp(branch, band, order):
    """The values at the nodes, by the formula of the official code."""
    (a, b), sign = (branch.filters[0].start, branch.filters[0].height), 1 if band == "high" else -1
    cosines = [math.cos((1 + n / order) * math.pi) for n in range(order + 1)]
    return torch.stack([(a + sign * 0.5 * b * (1 + cosine)).relu() for cosine in cosines])


def branch_output(method, graph, band):
    """Through the eigenvectors, by Lagrange's polynomial."""
    branch, order = method.branches[band], method.config.order
    places = [math.cos((order - j + 0.5) * math.pi / (order + 1)) for j in range(order + 1)]
    frequencies, vectors = torch.linalg.eigh(rescaled_laplacian(graph, self_loops=False))
    response = torch.zeros_like(frequencies)
    for j, value in enumerate(ramp(branch, band, order)):
        others = places[:j] + places[j + 1 :]
        factors = [(frequencies - other) / (places[j] - other) for other in others]
        response = response + value * torch.stack(factors).prod(0)
    hidden = vectors @ (response[:, None] * (vectors.t() @ dense(graph.features)))
    return branch.linear(standardised(hidden, branch.norm)).relu()


def positives_of(graph, band, count):
    """Rows of ones and zeros, found by sorting."""
    nodes = graph.num_nodes
    found = torch.eye(nodes, dtype=torch.bool)
    if band == "low":
        found[tuple(graph.edge_index)] = True
        return found
    unit = normalize(dense(graph.features), dim=1)
    similar = unit @ unit.t()
    for i in range(nodes):
        if bool(unit[i].any()):
            others = sorted(
                (j for j in range(nodes) if j != i),
                key=lambda j: (-round(float(similar[i, j]), 9), j),
            )
            found[i, others[:count]] = True
    return found


def plain_loss(asking, answering, positive, temperature):
    scores = normalize(asking, dim=1) @ normalize(answering, dim=1).t() / temperature
    total = 0.0
    for row, chosen in zip(scores, positive, strict=True):
        total = total + row[~chosen].logsumexp(0) - row[chosen].mean()
    return total / len(scores)


@pytest.mark.parametrize("layers", [1, 2])
def test_loss_and_gradients_are_those_of_the_formula(graph, layers):
    method = make(graph, projector_layers=layers, **STILL)
    terms = method.loss_terms(graph, step())
    asking = embed(method, dense(graph.features))
    for number, layer in enumerate(method.projector.layers):
        asking = layer(asking if number == 0 else asking.relu())
    expected = {
        band: weight
        * plain_loss(asking, branch_output(method, graph, band), positives_of(graph, band, 3), 0.5)
        for band, weight in (("high", 0.7), ("low", 0.3))
    }
    assert_close(terms, expected)
    trained = list(method.parameters())
    assert_close(
        torch.autograd.grad(sum(terms.values()), trained),
        torch.autograd.grad(sum(expected.values()), trained),
    )


def test_entries_are_dropped_before_a_filter_and_for_each_branch_anew(graph):
    method, draws = make(graph, input_dropout=0.5, dropout=0.0), step().generator
    seen = []
    for branch in method.branches.values():
        branch.register_forward_hook(lambda _, __, output: seen.append(output[0]))
    method.loss_terms(graph, step())
    for band, found in zip(("high", "low"), seen, strict=True):
        left = dense(drop_entries(graph.features, 0.5, draws))
        expected = branch_output(method, Graph.build(left, graph.edge_index), band)
        assert_close(found, expected)


def test_positives_are_the_nearest_and_the_neighbours():
    graph = random_graph()
    positives = make(graph)._positives(graph)
    nearest, joined = (positives[band].matrix.dense() for band in ("high", "low"))
    assert_close(nearest, positives_of(graph, "high", 3).double())
    assert_close(nearest.sum(1), torch.full((20,), 4.0, dtype=torch.float64))
    assert_close(joined, positives_of(graph, "low", 3).double())
    assert_close(joined, joined.t())


@pytest.mark.parametrize(("low_weight", "bands"), [(0.0, ["high"]), (1.0, ["low"])])
def test_a_branch_without_weight_is_not_there(low_weight, bands):
    graph = random_graph()
    method = make(graph, low_weight=low_weight)
    assert list(method.branches) == bands
    assert list(method._positives(graph)) == bands
    assert list(method.loss_terms(graph, step())) == bands


@pytest.mark.parametrize("statistics", ["recomputed", "running", "graph"])
def test_edges_do_not_matter_once_it_is_trained(graph, statistics):
    method = make(graph, epochs=3, norm_statistics=statistics)
    train(method, graph, seed=0)
    without = Graph.build(graph.features, torch.zeros(2, 0, dtype=torch.long))
    assert_close(method.embed(without), method.embed(graph), rtol=0, atol=0)


def test_the_embedding_is_what_comes_before_the_projector(graph):
    method = make(graph, norm_statistics="graph").eval()
    assert_close(method.embed(graph), embed(method, dense(graph.features)))
    trained = make(graph, epochs=3)
    train(trained, graph, seed=0)
    assert_close(trained.embed(graph), embed(trained, dense(graph.features)))


def test_rows_are_normalised_where_the_settings_say_so():
    graph = random_graph()
    x = graph.features / graph.features.abs().sum(1, keepdim=True)
    method = make(graph, row_normalise=True, **STILL)
    other = Graph.build(x, graph.edge_index)
    expected = make(other, **STILL).loss_terms(other, step())
    assert_close(method.loss_terms(graph, step()), expected)
    method.calibrate(graph)
    assert_close(method.eval().embed(graph), embed(method, x))
