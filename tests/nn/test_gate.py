import math

import pytest
import torch
from torch.testing import assert_close

from aspect.data.operators import Propagation
from aspect.nn.gate import (
    GlobalPolicy,
    HalfPolicy,
    NodePolicy,
    make_policy,
    neighbourhood_mean,
    with_zero_logit,
)
from reference.graphs import random_graph
from reference.losses import sigmoid
from reference.spectrum import rescaled_laplacian


def unused(_):
    """An operator for policies that do not look at the neighbourhood."""
    raise AssertionError("the operator was applied")


@pytest.fixture
def views():
    return torch.randn(2, 9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def node_policy(bands=2, gate_input="layer-norm", hops=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return NodePolicy(6, bands, 4, gate_input, hops).double()


def test_softmax_over_a_logit_and_zero_is_the_sigmoid():
    logits = torch.linspace(-30, 30, 61, dtype=torch.float64).unsqueeze(1)
    weights = with_zero_logit(logits).log_softmax(1).exp()
    expected = torch.tensor(
        [sigmoid(float(logit)) for logit in logits.detach()], dtype=torch.float64
    )
    assert_close(weights[:, 0], expected)
    assert_close(weights[:, 1], 1 - expected, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("gate_input", ["layer-norm", "raw"])
def test_two_bands_give_the_papers_gate(views, gate_input):
    policy = node_policy(gate_input=gate_input)
    low, high = views
    if gate_input == "layer-norm":
        low, high = (
            (z - z.mean(1, keepdim=True)) / (z.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
            for z in (low, high)
        )
    logits = policy.network(torch.cat([low, high], dim=1)).squeeze(1)
    expected = torch.tensor(
        [sigmoid(float(logit)) for logit in logits.detach()], dtype=torch.float64
    )
    assert_close(policy(views, unused).exp()[:, 0], expected)


@pytest.mark.parametrize("bands", [2, 3, 5])
def test_weights_of_any_number_of_bands_sum_to_one(bands):
    views = torch.randn(bands, 7, 6, dtype=torch.float64)
    for policy in (node_policy(bands), GlobalPolicy(bands).double(), HalfPolicy()):
        weights = policy(views, unused).exp()
        assert weights.shape == (7, bands)
        assert_close(weights.sum(1), torch.ones(7, dtype=torch.float64))


def test_the_gate_differs_from_node_to_node(views):
    assert node_policy()(views, unused).exp()[:, 0].std().item() > 1e-3


def test_a_normed_gate_does_not_see_the_scale(views):
    policy = node_policy()
    assert_close(policy(views, unused), policy(1000 * views, unused), rtol=1e-4, atol=1e-4)
    raw = node_policy(gate_input="raw")
    tiny = raw(1e-9 * views, unused).exp()[:, 0]
    assert tiny.std().item() < 1e-6  # this is how raw gates collapse
    assert raw(views, unused).exp()[:, 0].std().item() > 1e-3


def test_global_policy_is_one_learned_number_that_starts_in_the_middle(views):
    policy = GlobalPolicy(2).double()
    assert sum(p.numel() for p in policy.parameters()) == 1
    assert_close(policy(views, unused).exp(), torch.full((9, 2), 0.5, dtype=torch.float64))
    with torch.no_grad():
        policy.logits.fill_(1.2)
    expected = torch.full((9,), sigmoid(1.2), dtype=torch.float64)
    assert_close(policy(views, unused).exp()[:, 0], expected)


def test_half_policy_has_nothing_to_learn(views):
    policy = HalfPolicy()
    assert list(policy.parameters()) == []
    assert_close(policy(views, unused), torch.full((9, 2), math.log(0.5), dtype=torch.float64))


@pytest.mark.parametrize(
    ("fusion", "bands", "kind"),
    [
        ("node-wise", 2, NodePolicy),
        ("node-wise", 3, NodePolicy),
        ("global", 2, GlobalPolicy),
        ("half", 2, HalfPolicy),
        ("node-wise", 1, HalfPolicy),
        ("global", 1, HalfPolicy),
    ],
)
def test_the_setting_names_the_policy(fusion, bands, kind):
    policy = make_policy(fusion, 6, bands, 4, "layer-norm", 0).double()
    assert type(policy) is kind
    views = torch.randn(bands, 5, 6, dtype=torch.float64)
    assert policy(views, unused).shape == (5, bands)


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
    views = torch.randn(2, 9, 6, dtype=torch.float64)
    weights = node_policy()(views, unused).exp()
    logits = (weights[:, :1] / weights[:, 1:]).log()
    expected = neighbourhood_mean(logits, operator, 2).sigmoid()
    assert_close(node_policy(hops=2)(views, operator).exp()[:, :1], expected)
