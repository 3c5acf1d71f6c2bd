"""Chebyshev polynomials of an operator, and filters in float64 against slow references."""

import pytest
import torch
from torch.testing import assert_close

from aspect.data.operators import Propagation
from aspect.nn.filters import (
    MonotoneFilter,
    RampFilter,
    chebyshev_basis,
    chebyshev_nodes,
    chebyshev_transform,
)
from reference.graphs import random_graph
from reference.spectrum import band_values, coefficients_of, polynomial, rescaled_laplacian

ORDERS = [1, 2, 10]


@pytest.mark.parametrize("order", ORDERS)
def test_nodes_rise_and_are_zeros_of_the_next_polynomial(order):
    nodes = chebyshev_nodes(order)
    assert nodes.dtype == torch.float64
    assert bool((nodes.diff() > 0).all())
    following = polynomial([0.0] * (order + 1) + [1.0], nodes.tolist())
    assert_close(torch.tensor(following), torch.zeros(order + 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_polynomial_takes_its_values_at_the_nodes(order):
    values = torch.randn(
        order + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(order)
    )
    coefficients = chebyshev_transform(order) @ values
    taken = polynomial(coefficients.tolist(), chebyshev_nodes(order).tolist())
    assert_close(torch.tensor(taken, dtype=torch.float64), values, rtol=0, atol=1e-12)


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


def with_increments(band, increments, *, start=None, learned_start=True):
    """A filter in float64 with these parameters."""
    made = MonotoneFilter(band, len(increments), learned_start=learned_start).double()
    with torch.no_grad():
        made.increments.copy_(torch.as_tensor(increments))
        if start is not None:
            made.start.fill_(start)
    return made


def random_increments(order, seed):
    return torch.randn(order, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("band", "sign"), [("low", -1), ("high", 1)])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_prefix_sums_of_positive_parts(band, sign, seed):
    increments = random_increments(6, seed)
    made = with_increments(band, increments, start=0.3)
    expected = band_values(0.3, increments.tolist(), sign)
    assert_close(made.values(), torch.tensor(expected, dtype=torch.float64))
    solved = torch.tensor(coefficients_of(expected), dtype=torch.float64)
    assert_close(made(), solved, rtol=1e-9, atol=1e-12)


def test_negative_increments_are_flat_and_get_no_gradient():
    made = with_increments("high", [-1.0, 0.5, -2.0])
    assert made.values().diff().tolist() == [0.0, 0.5, 0.0]
    made.values().sum().backward()
    assert made.increments.grad.tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("order", [1, 4, 10])
def test_polygcl_bands_add_up_to_twice_the_identity(order):
    both = sum(
        MonotoneFilter(band, order, learned_start=False).double()() for band in ("low", "high")
    )
    expected = torch.zeros(order + 1, dtype=torch.float64)
    expected[0] = 2
    assert_close(both, expected, rtol=0, atol=1e-12)


def test_learned_start_can_move_and_polygcl_start_cannot():
    for band in ("low", "high"):
        learned = MonotoneFilter(band, 3)
        learned().sum().backward()
        assert float(learned.start.detach()) > 0
        assert float(learned.start.grad.abs()) > 0
        fixed = MonotoneFilter(band, 3, learned_start=False)
        assert [name for name, _ in fixed.named_parameters()] == ["increments"]
        assert "start" in fixed.state_dict()
    assert float(MonotoneFilter("low", 3, learned_start=False).start) == 2
    assert float(MonotoneFilter("high", 3, learned_start=False).start) == 0


def test_order_zero_is_refused():
    with pytest.raises(
        ValueError, match=r"Order of MonotoneFilter must be an integer >= 1\. Got 0"
    ):
        MonotoneFilter("low", 0)


@pytest.mark.parametrize("band", ["low", "high"])
def test_gradients_are_exact(band):
    made = with_increments(band, [0.4, 0.2, 0.9, 0.1], start=0.6)

    def coefficients(start, increments):
        return torch.func.functional_call(made, {"start": start, "increments": increments}, ())

    inputs = tuple(p.detach().clone().requires_grad_() for p in (made.start, made.increments))
    assert torch.autograd.gradcheck(coefficients, inputs)


class TestRamp:
    def test_values_at_the_start_are_those_of_the_card(self):
        high = [0, 0.049, 0.191, 0.412, 0.691, 1, 1.309, 1.588, 1.809, 1.951, 2]
        assert RampFilter("high", 10).values().tolist() == pytest.approx(high, abs=6e-4)
        assert RampFilter("low", 10).values().tolist() == pytest.approx(high[::-1], abs=6e-4)

    @pytest.mark.parametrize("order", [1, 6, 10])
    def test_bands_add_up_to_two_and_so_to_twice_the_signal(self, order):
        total = RampFilter("low", order)() + RampFilter("high", order)()
        assert total.tolist() == pytest.approx([2.0] + [0.0] * order, abs=1e-6)
