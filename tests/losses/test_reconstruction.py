import math

import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.losses.reconstruction import Reconstruction
from reference import contrast
from reference.graphs import random_graph


@pytest.fixture
def graph():
    return random_graph(isolated=1)


def embeddings(graph, scale=0.7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = scale * torch.randn(graph.num_nodes, 5, dtype=dtype, generator=generator)
    return x.requires_grad_()


@pytest.mark.parametrize("block", [1, 7, 20, None])
def test_value_and_gradient_equal_the_dense_form(graph, block):
    x = embeddings(graph)
    found, expected = Reconstruction(graph).exact(x, block=block), contrast.reconstruction(graph, x)
    assert_close(found, expected)
    assert_close(torch.autograd.grad(3 * found, x), torch.autograd.grad(3 * expected, x))


def test_zeros_have_a_closed_form(graph):
    nodes, half = graph.num_nodes, graph.num_edges + graph.num_nodes / 2
    expected = math.log(2) * (3 * nodes**2 - 4 * half) / (nodes**2 - half)
    found = Reconstruction(graph).exact(torch.zeros(nodes, 3, dtype=torch.float64))
    assert found.item() == pytest.approx(expected)


def test_saturated_pairs_cost_no_more_than_the_official_cap_and_have_no_slope():
    graph = Graph.build(torch.eye(3), torch.tensor([[0], [1]]))
    x = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0]], requires_grad=True)
    found = Reconstruction(graph).exact(x)
    # Four ordered pairs are wrongly sure, at 23.03 each; half of the sum of B is 2.5.
    assert found.item() == pytest.approx(4 * 23.0259 / (9 - 2.5), rel=1e-3)
    assert not bool(torch.autograd.grad(found, x)[0].any())


def test_the_sample_is_unbiased(graph):
    x, loss = embeddings(graph), Reconstruction(graph)
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([loss.sampled(x.detach(), 50, generator) for _ in range(500)])
    error = (draws.mean() - loss.exact(x.detach())) / (draws.std() / 500**0.5)
    assert abs(error.item()) < 4
    assert draws.std().item() > 0


def test_the_sample_has_the_gradient_of_its_value(graph):
    loss = Reconstruction(graph)

    def sampled(x):
        return loss.sampled(x, 30, torch.Generator().manual_seed(1))

    assert torch.autograd.gradcheck(sampled, embeddings(graph))


def test_no_second_derivative(graph):
    x = embeddings(graph)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(Reconstruction(graph).exact(x), x, create_graph=True)
