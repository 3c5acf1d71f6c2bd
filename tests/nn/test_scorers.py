"""Scorers of the DGI family, and GREET's edge discriminator."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.nn.scorers import (
    BilinearScorer,
    EdgeDiscriminator,
    WalkedGraph,
)
from reference.graphs import random_graph


class TestBilinear:
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

    def test_torch_first_weights(self):
        ours = BilinearScorer(400, 300, start="torch")
        assert 0.999 / 20 < float(ours.matrix.detach().abs().max()) <= 1 / 20
        assert 0 < abs(ours.bias.item()) <= 1 / 20


def a_graph(density=1.0):
    return random_graph(num_nodes=24, num_edges=50, isolated=1, density=density)


@pytest.fixture(params=[0.15, 1.0], ids=["sparse", "dense"])
def graph(request):
    return a_graph(request.param)


def walked(graph, *, normalise_rows=False):
    return WalkedGraph(graph, normalise_rows=normalise_rows, walk_steps=4)


def make(graph):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return EdgeDiscriminator(graph.num_features, 4, 5).double()


def draw(seed=5):
    return torch.Generator().manual_seed(seed)


class TestWeights:
    def test_the_median_of_draws_is_the_weight_without_noise(self):
        judge, seen, generator = make(a_graph()), walked(a_graph()), draw()
        with torch.no_grad():
            draws = [judge(seen, generator) for _ in range(501)]
            expected = judge(seen)
        found = torch.stack(draws).median(0).values
        assert_close(found, expected, rtol=0, atol=0.1)
