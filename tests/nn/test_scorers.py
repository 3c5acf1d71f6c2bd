"""Scorers of the DGI family, and GREET's edge discriminator."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.sparse import SparseMatrix
from aspect.nn.scorers import (
    BilinearScorer,
    EdgeDiscriminator,
    SummedLinearScorer,
    WalkedGraph,
)
from reference.edge_weights import plain_filters, plain_scores, plain_weights
from reference.graphs import random_graph


def rows(nodes, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, width, dtype=torch.float64, generator=generator)


def scorer(left=4, right=3, **options):
    torch.manual_seed(0)
    ours = BilinearScorer(left, right, **options).double()
    ours.bias.data.fill_(0.3)
    return ours


class TestBilinear:
    def test_it_is_torchs_bilinear_form(self):
        ours, nodes, summary = scorer(), rows(6, 4), rows(1, 3, seed=1)[0]
        expected = nn.functional.bilinear(
            nodes, summary.expand(6, 3).contiguous(), ours.matrix[None], ours.bias[None]
        )
        assert_close(ours(nodes, summary), expected[:, 0])

    def test_pairs_are_scored_row_by_row(self):
        ours, left, right = scorer(), rows(6, 4), rows(6, 3, seed=1)
        expected = nn.functional.bilinear(left, right, ours.matrix[None], ours.bias[None])[:, 0]
        assert_close(ours.pairs(ours.project(left), right), expected)
        assert_close(ours.pairs(ours.project(SparseMatrix.from_dense(left)), right), expected)

    def test_small_first_weights(self):
        ours = BilinearScorer(512, 512)
        bound = math.sqrt(6 / (512 * 512 + 512))
        assert bound == pytest.approx(0.00478, abs=1e-5)
        assert 0.999 * bound < float(ours.matrix.detach().abs().max()) <= bound
        assert ours.bias.item() == 0
        reference = nn.init.xavier_uniform_(torch.empty(1, 30, 20)).abs().max()
        assert float(reference) <= math.sqrt(6 / (30 * 20 + 20))
        assert float(BilinearScorer(30, 20).matrix.detach().abs().max()) == pytest.approx(
            float(reference), rel=0.02
        )


class TestSummedLinear:
    @pytest.mark.parametrize("layers", [1, 3])
    def test_it_is_the_sum_of_the_outputs(self, layers):
        torch.manual_seed(0)
        ours = SummedLinearScorer(5, layers).double()
        nodes = rows(7, 5)
        hidden = nodes
        for layer in ours.layers:
            hidden = layer(hidden)
        assert_close(ours(nodes), hidden.sum(1))

    def test_no_layers_are_refused(self):
        with pytest.raises(ValueError, match=r"must be an integer >= 1\. Got 0"):
            SummedLinearScorer(5, 0)


def a_graph(density=1.0):
    return random_graph(num_nodes=24, num_edges=50, isolated=1, density=density)


@pytest.fixture(params=[0.15, 1.0], ids=["sparse", "dense"])
def graph(request):
    return a_graph(request.param)


def walked(graph, *, normalise_rows=False):
    return WalkedGraph.of(graph, normalise_rows=normalise_rows, walk_steps=4)


def make(graph):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return EdgeDiscriminator(graph.num_features, 4, 5).double()


def draw(seed=5):
    return torch.Generator().manual_seed(seed)


class TestWeights:
    def test_scores_equal_the_formula_and_are_symmetric(self, graph):
        judge = make(graph)
        weights = judge(walked(graph))
        assert_close(weights, plain_scores(judge, graph).sigmoid())
        matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.dtype)
        matrix[tuple(graph.edge_index)] = weights.detach()
        assert_close(matrix, matrix.t())

    def test_gradients_equal_those_of_the_formula(self, graph):
        judge, generator = make(graph), draw(2)
        upstream = torch.randn(graph.edge_index.shape[1], dtype=graph.dtype, generator=generator)
        parameters = list(judge.parameters())
        found, expected = (
            torch.autograd.grad((upstream * scores).sum(), parameters)
            for scores in (judge.scores(walked(graph)), plain_scores(judge, graph))
        )
        assert_close(found, expected)

    def test_draws_equal_the_formula_and_lie_between_zero_and_one(self, graph):
        judge = make(graph)
        weights = judge(walked(graph), draw())
        assert_close(weights, plain_weights(judge, graph, draw()))
        assert bool(((weights > 0) & (weights < 1)).all())

    def test_the_median_of_draws_is_the_weight_without_noise(self):
        judge, seen, generator = make(a_graph()), walked(a_graph()), draw()
        with torch.no_grad():
            draws = [judge(seen, generator) for _ in range(501)]
            expected = judge(seen)
        found = torch.stack(draws).median(0).values
        assert_close(found, expected, rtol=0, atol=0.1)


class TestFilters:
    def test_like_edges_alone_are_a_graph_convolution(self):
        graph = a_graph()
        ones = torch.ones(graph.edge_index.shape[1], dtype=graph.dtype)
        low, high = (each.matrix.dense() for each in walked(graph).filters(ones, 0.3))
        assert_close(low, plain_filters(graph, ones, 0.3)[0])
        assert_close(high, torch.eye(graph.num_nodes, dtype=graph.dtype))

    def test_the_high_pass_has_a_unit_diagonal_and_subtracts(self):
        graph = a_graph()
        seen = walked(graph)
        with torch.no_grad():
            weights = make(graph)(seen, draw())
        low, high = (each.matrix.dense() for each in seen.filters(weights, 0.3))
        assert_close((low, high), plain_filters(graph, weights, 0.3))
        assert bool((high.diagonal() == 1).all())
        assert bool((high - torch.diag(high.diagonal()) <= 0).all())
