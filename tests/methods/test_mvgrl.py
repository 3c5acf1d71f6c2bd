import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.features import dense, row_normalise
from aspect.methods.mvgrl import MVGRL, MVGRLConfig
from aspect.nn.diffusion import DiffusedGraph
from methods.building import build, generator, step
from reference.graphs import random_graph


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def make(graph, **settings):
    return build(MVGRL, MVGRLConfig(width=5, **settings), graph, seed=0)


def loss_of(method, graph, seed=5):
    return method.loss_terms(graph, step(seed))["discrimination"]


def smoothing(graph, loop_weight=1.0):
    looped = loop_weight * torch.eye(graph.num_nodes, dtype=torch.float64)
    looped[tuple(graph.edge_index)] = 1
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


def diffusion(graph, restart=0.2):
    eye = torch.eye(graph.num_nodes, dtype=torch.float64)
    return restart * torch.linalg.inv(eye - (1 - restart) * smoothing(graph))


def encode(encoder, x, matrix):
    (weight,), (bias,) = encoder.weights, encoder.biases
    return nn.functional.prelu(matrix @ x @ weight + bias, encoder.activations[0].function.weight)


def plain_loss(method, graph, windows, order, loop_weight=1.0, restart=0.2):
    """All four kinds of logits, window by window, from dense matrices that are cropped."""
    x, scorer, logits = dense(row_normalise(graph.features)), method.scorer, []
    matrices = smoothing(graph, loop_weight), diffusion(graph, restart)
    for nodes in windows:
        one, other = (matrix[nodes][:, nodes] for matrix in matrices)
        along = [encode(method.edge_encoder, z, one) for z in (x[nodes], x[nodes][order])]
        spread = [encode(method.diffusion_encoder, z, other) for z in (x[nodes], x[nodes][order])]
        for sign, left, right in ((-1, along[0], spread[0]), (1, along[1], spread[1])):
            for z, summary in ((right, along[0]), (left, spread[0])):
                repeated = summary.mean(0).sigmoid().expand_as(z).contiguous()
                found = nn.functional.bilinear(z, repeated, scorer.matrix[None], scorer.bias[None])
                logits.append(sign * found[:, 0])
    return nn.functional.softplus(torch.cat(logits)).mean()


def check(method, graph, windows, order, **options):
    method.scorer.bias.data.fill_(0.3)
    found = loss_of(method, graph)
    expected = plain_loss(method, graph, windows, order, **options)
    close = {"rtol": 1e-5, "atol": 1e-6}  # the diffusion is exact to 1e-6
    assert_close(found, expected, **close)
    parameters = list(method.parameters())
    gradients = (torch.autograd.grad(loss, parameters) for loss in (found, expected))
    assert_close(*gradients, **close)


class TestLoss:
    @pytest.mark.parametrize(("loop_weight", "restart"), [(1.0, 0.2), (2.0, 0.5)])
    def test_on_the_whole_graph(self, graph, loop_weight, restart):
        method = make(graph, loop_weight=loop_weight, restart=restart)
        order = torch.randperm(20, generator=generator())
        options = {"loop_weight": loop_weight, "restart": restart}
        check(method, graph, [torch.arange(20)], order, **options)

    def test_on_drawn_nodes(self, graph):
        draws = generator()
        nodes = torch.randperm(20, generator=draws)[:8]
        order = torch.randperm(8, generator=draws)
        check(make(graph, sampling="random", sample=8), graph, [nodes], order)

    def test_on_windows_of_consecutive_nodes_that_share_an_order(self, graph):
        draws = generator()
        first = torch.randint(20 - 8 + 1, (3, 1), generator=draws)
        windows = [start + torch.arange(8) for start in first.flatten()]
        order = torch.randperm(8, generator=draws)
        check(make(graph, sampling="windows", sample=8, windows=3), graph, windows, order)

    @pytest.mark.parametrize("sampling", ["random", "windows"])
    def test_a_small_graph_is_taken_whole(self, graph, sampling):
        whole, drawn = make(graph), make(graph, sampling=sampling, sample=20)
        assert_close(loss_of(drawn, graph), loss_of(whole, graph), rtol=0, atol=0)


def test_settings_of_the_two_views_are_heeded(graph):
    eye = torch.eye(graph.num_nodes, dtype=torch.float64)
    options = {"loop_weight": 2.0, "restart": 0.4, "threshold": 0.05}
    found = make(graph, row_normalise=False, **options)._views(graph)
    expected = DiffusedGraph.of(graph, normalise_rows=False, **options)
    assert_close(dense(found.features), dense(graph.features))
    assert_close(found.edges(eye), expected.edges(eye))
    assert_close(found.diffusion(eye), expected.diffusion(eye))


class TestEmbedding:
    def test_it_is_the_sum_of_both_views(self, graph):
        method, x = make(graph), dense(row_normalise(graph.features))
        along = encode(method.edge_encoder, x, smoothing(graph))
        spread = encode(method.diffusion_encoder, x, diffusion(graph))
        assert_close(method.embed(graph), along + spread, rtol=1e-5, atol=1e-5)

    def test_it_is_of_the_whole_graph_however_training_samples(self, graph):
        whole = make(graph).embed(graph)
        assert torch.equal(make(graph, sampling="random", sample=4).embed(graph), whole)
