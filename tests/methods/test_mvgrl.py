import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.graph.features import dense, row_normalise
from aspect.graph.sparse import SparseMatrix
from aspect.methods.base import Step
from aspect.methods.dgi import DGI, DGIConfig
from aspect.methods.mvgrl import MVGRL, MVGRLConfig, Structure, scale_columns
from reference.graphs import random_graph


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def make(graph, **settings):
    torch.manual_seed(0)
    return MVGRL(MVGRLConfig(width=5, **settings), graph.num_features).double()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def loss_of(method, graph, seed=0):
    return method.loss_terms(graph, Step(1, generator(seed)))["discrimination"]


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

    def test_every_window_of_the_official_sampler_can_come(self, graph):
        method, starts = make(graph, sampling="windows", sample=17), set()
        for seed in range(30):
            for window in method._draw_windows(graph, generator(seed)):
                (start,) = window.edges.args[0][:1].tolist()
                assert window.edges.args[0].tolist() == list(range(start, start + 17))
                starts.add(start)
        assert starts == {0, 1, 2, 3}

    def test_a_scorer_of_zeros_cannot_tell(self, graph):
        method = make(graph)
        method.scorer.matrix.data.zero_()
        assert float(loss_of(method, graph).detach()) == pytest.approx(math.log(2), abs=1e-15)

    def test_one_view_twice_with_tied_weights_is_dgi(self, graph, monkeypatch):
        method = make(graph)
        ready = method._structure(graph)
        same = Structure(ready.features, ready.edges, ready.edges)
        monkeypatch.setattr(method, "_structure", lambda _: same)
        method.diffusion_encoder.load_state_dict(method.edge_encoder.state_dict())
        twin = DGI(DGIConfig(width=5), graph.num_features).double()
        twin.encoder.load_state_dict(method.edge_encoder.state_dict())
        twin.scorer.load_state_dict(method.scorer.state_dict())
        assert_close(loss_of(method, graph), loss_of(twin, graph))


class TestDiffusion:
    def test_it_is_symmetric_with_a_bounded_spectrum(self, graph):
        eye = torch.eye(graph.num_nodes, dtype=torch.float64)
        found = make(graph)._structure(graph).diffusion(eye)
        assert_close(found, found.t())
        values = torch.linalg.eigvalsh(found)
        assert float(values[0]) >= 0.2 / 1.8 - 1e-6
        assert float(values[-1]) == pytest.approx(1, abs=2e-6)
        roots = (graph.degrees() + 1).double().sqrt()
        assert_close(found @ roots, roots, rtol=1e-5, atol=1e-5)

    def test_its_loops_count_once_even_where_the_adjacencys_count_twice(self, graph):
        ready = make(graph, loop_weight=2.0)._structure(graph)
        eye = torch.eye(graph.num_nodes, dtype=torch.float64)
        assert_close(ready.diffusion(eye), diffusion(graph), rtol=0, atol=2e-6)
        assert_close(ready.edges.matrix.dense(), smoothing(graph, 2.0))

    def test_small_entries_go_and_columns_are_scaled(self, graph):
        found = make(graph, threshold=0.05)._structure(graph).diffusion.matrix.dense()
        kept = diffusion(graph)
        kept[kept < 0.05] = 0
        least, largest = kept.min(0).values, kept.max(0).values
        assert_close(found, (kept - least) / (largest - least), rtol=1e-5, atol=1e-5)
        assert bool((found.max(0).values == 1).all())

    def test_a_full_column_is_shifted_by_its_least_entry(self):
        matrix = torch.tensor([[2.0, 0.0, 3.0, 0.0], [4.0, 5.0, 3.0, 0.0], [3.0, 1.0, 3.0, 0.0]])
        found = scale_columns(SparseMatrix.from_dense(matrix)).dense()
        expected = [[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.5, 0.2, 0.0, 0.0]]
        assert_close(found, torch.tensor(expected))

    def test_windows_of_scaled_entries_are_cropped(self, graph):
        nodes, x = torch.tensor([7, 1, 12, 4]), torch.randn(4, 3, dtype=torch.float64)
        ready = make(graph, threshold=0.02)._structure(graph)
        matrix = ready.diffusion.matrix.dense()
        assert_close(ready.within(nodes).diffusion(x), matrix[nodes][:, nodes] @ x)


class TestEmbedding:
    def test_it_is_the_sum_of_both_views(self, graph):
        method, x = make(graph), dense(row_normalise(graph.features))
        along = encode(method.edge_encoder, x, smoothing(graph))
        spread = encode(method.diffusion_encoder, x, diffusion(graph))
        assert_close(method.embed(graph), along + spread, rtol=1e-5, atol=1e-5)

    def test_it_is_of_the_whole_graph_however_training_samples(self, graph):
        whole = make(graph).embed(graph)
        assert torch.equal(make(graph, sampling="random", sample=4).embed(graph), whole)

    def test_encoders_share_nothing(self, graph):
        method = make(graph)
        one, other = (
            {id(parameter) for parameter in encoder.parameters()}
            for encoder in (method.edge_encoder, method.diffusion_encoder)
        )
        assert len(one) == len(other) == 3
        assert not one & other
        assert not torch.equal(method.edge_encoder.weights[0], method.diffusion_encoder.weights[0])
