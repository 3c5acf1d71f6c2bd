import numpy as np
import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.data.operators import (
    Propagation,
    largest_eigenvalue,
    leading_eigenvectors,
    normalised_adjacency,
)
from aspect.data.synthetic import mixed_graph
from aspect.errors import GraphError
from reference.graphs import path_graph, random_graph
from reference.spectrum import dense_laplacian, rescaled_laplacian


def matrix_of(operator, num_nodes):
    return operator(torch.eye(num_nodes, dtype=torch.float64))


@pytest.fixture
def graph():
    return random_graph(isolated=2)


@pytest.mark.parametrize(("self_loops", "lambda_max"), [(False, 2.0), (True, 1.6)])
def test_operator_is_the_rescaled_laplacian(graph, self_loops, lambda_max):
    operator = Propagation(graph, self_loops=self_loops, lambda_max=lambda_max).operator()
    expected = rescaled_laplacian(graph, self_loops=self_loops, lambda_max=lambda_max)
    assert_close(matrix_of(operator, graph.num_nodes), expected)


@pytest.mark.parametrize("self_loops", [False, True])
def test_edge_weights_enter_both_directions_and_the_degrees(graph, self_loops):
    weights = torch.rand(graph.num_edges, dtype=torch.float64) + 0.1
    operator = Propagation(graph, self_loops=self_loops).operator(weights)
    expected = rescaled_laplacian(graph, self_loops=self_loops, edge_weights=weights)
    assert_close(matrix_of(operator, graph.num_nodes), expected)


def test_a_dropped_edge_is_an_absent_edge(graph):
    keep = torch.arange(graph.num_edges) % 3 != 0
    pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    smaller = Graph.build(graph.features, pairs[:, keep])
    dropped = Propagation(graph, self_loops=True).operator(keep.double())
    absent = Propagation(smaller, self_loops=True).operator()
    assert_close(matrix_of(dropped, graph.num_nodes), matrix_of(absent, graph.num_nodes))


def test_unit_weights_are_no_weights_and_the_type_is_kept(graph):
    for kind in (torch.float64, torch.float32):
        typed = graph.to(kind)
        propagation = Propagation(typed, self_loops=True)
        ones, x = torch.ones(graph.num_edges, dtype=kind), typed.features
        product = propagation.operator()(x)
        assert product.dtype == kind
        assert_close(propagation.operator(ones)(x), product, rtol=0, atol=0)


def test_all_edges_dropped_leaves_finite_numbers(graph):
    none = torch.zeros(graph.num_edges, dtype=torch.float64)
    # L = I without loops, L = 0 with them: nothing to average with, or only oneself.
    without, looped = (
        Propagation(graph, self_loops=loops).operator(none) for loops in (False, True)
    )
    assert_close(without(graph.features), torch.zeros_like(graph.features))
    assert_close(looped(graph.features), -graph.features)


def test_constant_over_root_degrees_is_the_lowest_frequency():
    graph = path_graph(9)
    roots = graph.degrees().double().sqrt().unsqueeze(1)
    assert_close(Propagation(graph, self_loops=False).operator()(roots), -roots)


@pytest.mark.parametrize("self_loops", [False, True])
def test_dense_eigenvalues_confirm_the_largest_eigenvalue(self_loops):
    graph = random_graph(isolated=1)
    laplacian = dense_laplacian(graph, self_loops=self_loops)
    truth = float(torch.linalg.eigvalsh(laplacian)[-1])
    assert largest_eigenvalue(graph, self_loops=self_loops) == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("self_loops", [False, True])
def test_close_eigenvalues_are_told_apart(self_loops):
    """Weights of very different size bring eigenvalues together, near which iterations linger."""
    draw = np.random.default_rng(0)
    for size in (20, 20, 20, 20, 400):
        pairs = torch.from_numpy(draw.integers(0, size, (2, size + 8)))
        weights = torch.from_numpy(draw.choice([0.5, 1, 2, 0.01, 1e-3, 50], size + 8))
        graph = Graph.build(torch.ones(size, 1, dtype=torch.float64), pairs, weights=weights)
        adjacency = np.eye(size) * self_loops
        adjacency[tuple(graph.edge_index)] = graph.weights
        degrees = adjacency.sum(1)
        scale = np.where(degrees > 0, degrees, np.inf) ** -0.5
        laplacian = np.eye(size) - scale[:, None] * adjacency * scale
        truth = np.linalg.eigvalsh(laplacian)[-1]
        assert largest_eigenvalue(graph, self_loops=self_loops) == pytest.approx(truth, abs=1e-6)


def test_a_bipartite_graph_has_two():
    found = largest_eigenvalue(path_graph(6), self_loops=False)
    assert found == pytest.approx(2.0, abs=1e-6)
    assert found <= 2.0


def test_a_graph_without_edges_has_a_bound():
    graph = Graph.build(torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long))
    for self_loops in (False, True):
        lambda_max = largest_eigenvalue(graph, self_loops=self_loops)
        operator = Propagation(graph, self_loops=self_loops, lambda_max=lambda_max).operator()
        expected = -graph.features if self_loops else torch.zeros(3, 2)
        assert_close(operator(graph.features), expected)


def test_dropping_edges_leaves_the_spectrum_inside_whatever_the_largest_eigenvalue():
    graph = random_graph(num_nodes=40, num_edges=240)
    true = largest_eigenvalue(graph, self_loops=False)
    assert true < 1.9
    propagation = Propagation(graph, self_loops=False, lambda_max=true)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        weights = (torch.rand(graph.num_edges, generator=generator) < 0.3).double()
        matrix = matrix_of(propagation.operator(weights), graph.num_nodes)
        assert float(torch.linalg.eigvalsh(matrix).abs().max()) <= 1 + 1e-9


# Eigenvectors


def dense_adjacency(graph, added):
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    matrix[tuple(graph.edge_index.numpy())] = 1
    degrees = matrix.sum(1) + added
    scale = np.where(degrees > 0, degrees, np.inf) ** -0.5
    return scale[:, None] * matrix * scale[None, :]


@pytest.mark.parametrize("added", [0.0, 3.5])
def test_the_adjacency_is_normalised_by_the_degrees(added):
    graph = mixed_graph(num_nodes=40, degree=2.0, num_features=3, seed=2).graph
    assert int(graph.degrees().min()) == 0
    found = normalised_adjacency(graph, added).toarray()
    np.testing.assert_allclose(found, dense_adjacency(graph, added), atol=1e-14)


@pytest.mark.parametrize(("order", "dense_up_to"), [("LA", 0), ("LM", 0), ("LM", 256)])
def test_vectors_are_those_of_the_whole_matrix(order, dense_up_to, monkeypatch):
    monkeypatch.setattr("aspect.data.operators.DENSE_UP_TO", dense_up_to)
    graph = mixed_graph(num_nodes=60, degree=6.0, num_features=3, seed=2).graph
    matrix = normalised_adjacency(graph)
    values, vectors = leading_eigenvectors(matrix, 9, order)
    every = np.linalg.eigvalsh(matrix.toarray())
    expected = sorted(every, key=abs if order == "LM" else float, reverse=True)[:9]
    np.testing.assert_allclose(values, expected, atol=1e-6)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(9), atol=1e-10)
    assert (vectors.max(axis=0) >= 0.999 * -vectors.min(axis=0)).all()


def test_what_is_not_found_is_an_error(monkeypatch):
    monkeypatch.setattr("aspect.data.operators.DENSE_UP_TO", 0)
    graph = Graph.build(torch.ones(12, 1), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match="No 3 eigenvectors of the adjacency were found"):
        leading_eigenvectors(normalised_adjacency(graph), 3, "LM")
