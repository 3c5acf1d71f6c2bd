"""The gate, its global and equal baselines, and the fusion of bands."""

import math

import pytest
import torch
from torch.testing import assert_close

from aspect.data.operators import Propagation
from aspect.nn.gate import (
    GlobalPolicy,
    HalfPolicy,
    NodePolicy,
    fuse,
    neighbourhood_mean,
    read_out,
)
from reference.graphs import random_graph
from reference.losses import sigmoid
from reference.spectrum import rescaled_laplacian


@pytest.fixture(params=[1, 2, 3])
def bands(request):
    return request.param


@pytest.fixture
def views(bands):
    return torch.randn(bands, 5, 4, dtype=torch.float64)


@pytest.fixture
def weights(bands):
    return torch.rand(5, bands, dtype=torch.float64).softmax(1)


def test_fusion_is_the_weighted_sum_node_by_node(views, weights):
    expected = torch.stack(
        [sum(weights[v, b] * views[b, v] for b in range(len(views))) for v in range(5)]
    )
    assert_close(fuse(views, weights), expected)


def test_readouts(views, weights, bands):
    assert_close(read_out(views, weights, "fused"), fuse(views, weights), rtol=0, atol=0)
    side_by_side = read_out(views, weights, "concatenated")
    assert side_by_side.shape == (5, 4 * bands)
    weighted = read_out(views, weights, "weighted")
    for band in range(bands):
        columns = slice(4 * band, 4 * band + 4)
        assert_close(side_by_side[:, columns], views[band], rtol=0, atol=0)
        assert_close(weighted[:, columns], weights[:, band : band + 1] * views[band])


def unused(_):
    """An operator for policies that do not look at the neighbourhood."""
    raise AssertionError("the operator was applied")


@pytest.fixture
def gate_views():
    return torch.randn(2, 9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def node_policy(bands=2, gate_input="layer-norm", hops=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return NodePolicy(6, bands, 4, gate_input, hops).double()


@pytest.mark.parametrize("gate_input", ["layer-norm", "raw"])
def test_two_bands_give_the_papers_gate(gate_views, gate_input):
    policy = node_policy(gate_input=gate_input)
    low, high = gate_views
    if gate_input == "layer-norm":
        low, high = (
            (z - z.mean(1, keepdim=True)) / (z.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
            for z in (low, high)
        )
    logits = policy.network(torch.cat([low, high], dim=1)).squeeze(1)
    expected = torch.tensor(
        [sigmoid(float(logit)) for logit in logits.detach()], dtype=torch.float64
    )
    assert_close(policy(gate_views, unused).exp()[:, 0], expected)


@pytest.mark.parametrize("bands", [2, 3, 5])
def test_weights_of_any_number_of_bands_sum_to_one(bands):
    gate_views = torch.randn(bands, 7, 6, dtype=torch.float64)
    for policy in (node_policy(bands), GlobalPolicy(bands).double(), HalfPolicy()):
        weights = policy(gate_views, unused).exp()
        assert weights.shape == (7, bands)
        assert_close(weights.sum(1), torch.ones(7, dtype=torch.float64))


def test_a_normed_gate_does_not_see_the_scale(gate_views):
    policy = node_policy()
    assert_close(
        policy(gate_views, unused), policy(1000 * gate_views, unused), rtol=1e-4, atol=1e-4
    )
    raw = node_policy(gate_input="raw")
    tiny = raw(1e-9 * gate_views, unused).exp()[:, 0]
    assert tiny.std().item() < 1e-6  # this is how raw gates collapse
    assert raw(gate_views, unused).exp()[:, 0].std().item() > 1e-3


def test_global_policy_is_one_learned_number_that_starts_in_the_middle(gate_views):
    policy = GlobalPolicy(2).double()
    assert sum(p.numel() for p in policy.parameters()) == 1
    assert_close(policy(gate_views, unused).exp(), torch.full((9, 2), 0.5, dtype=torch.float64))
    with torch.no_grad():
        policy.logits.fill_(1.2)
    expected = torch.full((9,), sigmoid(1.2), dtype=torch.float64)
    assert_close(policy(gate_views, unused).exp()[:, 0], expected)


def test_half_policy_has_nothing_to_learn(gate_views):
    policy = HalfPolicy()
    assert list(policy.parameters()) == []
    assert_close(policy(gate_views, unused), torch.full((9, 2), math.log(0.5), dtype=torch.float64))


def test_log_weights_stay_finite_where_the_gate_is_certain():
    policy = GlobalPolicy(2)
    with torch.no_grad():
        policy.logits.fill_(500.0)
    log_weights = policy(torch.zeros(2, 3, 4), unused)
    assert torch.isfinite(log_weights).all()
    log_weights.sum().backward()
    assert torch.isfinite(policy.logits.grad).all()


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 3])
def test_neighbourhood_mean_is_a_mean(self_loops, hops):
    graph = random_graph(isolated=2)
    operator = Propagation(graph, self_loops=self_loops).operator()
    lazy = torch.eye(20, dtype=torch.float64) - rescaled_laplacian(graph, self_loops=self_loops)
    step = lazy / lazy.sum(1, keepdim=True)
    assert bool((step >= 0).all())
    expected = torch.linalg.matrix_power(step, hops) @ graph.features
    mean = neighbourhood_mean(graph.features, operator, hops)
    assert_close(mean, expected)
    assert_close(mean[-2:], graph.features[-2:])  # nobody to average with
    ones = torch.ones(20, 1, dtype=torch.float64)
    assert_close(neighbourhood_mean(ones, operator, hops), ones)


def test_hops_average_the_logits_over_the_neighbourhood():
    graph = random_graph(num_nodes=9, num_edges=12)
    operator = Propagation(graph, self_loops=True).operator()
    gate_views = torch.randn(2, 9, 6, dtype=torch.float64)
    weights = node_policy()(gate_views, unused).exp()
    logits = (weights[:, :1] / weights[:, 1:]).log()
    expected = neighbourhood_mean(logits, operator, 2).sigmoid()
    assert_close(node_policy(hops=2)(gate_views, operator).exp()[:, :1], expected)
