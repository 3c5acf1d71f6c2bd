import math

import pytest
import torch
from torch.testing import assert_close

from aspect.data.operators import Propagation
from aspect.nn.filters import chebyshev_basis, chebyshev_nodes, chebyshev_transform
from reference.graphs import random_graph
from reference.spectrum import coefficients_of, polynomial, rescaled_laplacian

ORDERS = [1, 2, 3, 5, 10, 17]


@pytest.mark.parametrize("order", ORDERS)
def test_nodes_rise_and_are_zeros_of_the_next_polynomial(order):
    nodes = chebyshev_nodes(order)
    assert nodes.dtype == torch.float64
    assert bool((nodes.diff() > 0).all())
    following = polynomial([0.0] * (order + 1) + [1.0], nodes.tolist())
    assert_close(torch.tensor(following), torch.zeros(order + 1), rtol=0, atol=1e-12)


def test_nodes_of_order_ten_are_those_of_polygcl():
    expected = [math.cos((10 - j + 0.5) * math.pi / 11) for j in range(11)]
    assert_close(chebyshev_nodes(10), torch.tensor(expected, dtype=torch.float64))
    assert float(chebyshev_nodes(10)[0]) == pytest.approx(-0.9898, abs=1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_polynomial_takes_its_values_at_the_nodes(order):
    values = torch.randn(
        order + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(order)
    )
    coefficients = chebyshev_transform(order) @ values
    taken = polynomial(coefficients.tolist(), chebyshev_nodes(order).tolist())
    assert_close(torch.tensor(taken, dtype=torch.float64), values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_transform_solves_for_the_coefficients(order):
    values = torch.randn(
        order + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(order)
    )
    expected = torch.tensor(coefficients_of(values.tolist()), dtype=torch.float64)
    assert_close(chebyshev_transform(order) @ values, expected, rtol=1e-9, atol=1e-12)


def test_a_constant_has_one_coefficient():
    coefficients = chebyshev_transform(6) @ torch.full((7,), 3.0, dtype=torch.float64)
    expected = torch.zeros(7, dtype=torch.float64)
    expected[0] = 3.0
    assert_close(coefficients, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 6])
def test_basis_is_the_polynomials_of_the_matrix(order):
    graph = random_graph(isolated=1)
    operator = Propagation(graph, self_loops=False).operator()
    matrix = rescaled_laplacian(graph, self_loops=False)
    basis = list(chebyshev_basis(operator, graph.features, order))
    assert len(basis) == order + 1
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    for degree, term in enumerate(basis):
        only = [0.0] * degree + [1.0]
        response = torch.tensor(polynomial(only, eigenvalues.tolist()), dtype=torch.float64)
        assert_close(term, vectors @ (response[:, None] * (vectors.t() @ graph.features)))


def test_basis_takes_one_propagation_per_degree_and_none_for_what_is_not_asked():
    calls = []

    def operator(x):
        calls.append(x.shape)
        return -x

    terms = chebyshev_basis(operator, torch.ones(3, 2), 5)
    assert len(list(terms)) == 6
    assert len(calls) == 5


def test_basis_passes_exact_gradients():
    graph = random_graph(num_nodes=8, num_edges=12, num_features=2)
    operator = Propagation(graph, self_loops=True).operator()
    x = graph.features.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda y: torch.stack(list(chebyshev_basis(operator, y, 4))), x)
