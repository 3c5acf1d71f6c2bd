"""Rayleigh energy: eigenvectors have their eigenvalues, and what has no direction has none."""

import pytest
import torch
from torch.testing import assert_close

from aspect.data.operators import Propagation
from aspect.losses.rayleigh import rayleigh_energy
from reference.graphs import path_graph, random_graph
from reference.inner_problem import energy, normalised_laplacian


def operator(graph, *, self_loops=False):
    return Propagation(graph, self_loops=self_loops).operator()


def adjacency(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.dtype)
    matrix[tuple(graph.edge_index)] = 1
    return matrix


@pytest.mark.parametrize("self_loops", [True, False])
def test_eigenvectors_have_their_eigenvalues(self_loops):
    graph = path_graph(9)
    laplacian = normalised_laplacian(adjacency(graph), self_loops=self_loops)
    values, vectors = torch.linalg.eigh(laplacian)
    found = [
        rayleigh_energy(operator(graph, self_loops=self_loops), vector[:, None])
        for vector in vectors.t()
    ]
    assert_close(torch.stack(found), values, rtol=0, atol=1e-12)


def test_the_ends_are_the_root_of_the_degrees_and_the_same_with_alternating_signs():
    graph = path_graph(10)  # bipartite
    smooth = graph.degrees().to(graph.dtype).sqrt()[:, None]
    rough = smooth * (-1.0) ** torch.arange(10, dtype=graph.dtype)[:, None]
    assert_close(rayleigh_energy(operator(graph), smooth).item(), 0.0, rtol=0, atol=1e-12)
    assert_close(rayleigh_energy(operator(graph), rough).item(), 2.0)


def test_many_columns_are_one_quotient_of_traces():
    graph = path_graph(12)
    z = torch.randn(12, 5, dtype=graph.dtype, generator=torch.Generator().manual_seed(0))
    laplacian = normalised_laplacian(adjacency(graph), self_loops=False)
    found = rayleigh_energy(operator(graph), z)
    assert_close(found, energy(laplacian, z))
    assert_close(rayleigh_energy(operator(graph), -3 * z), found)


def test_zeros_have_no_energy_and_no_slope():
    graph = path_graph(6)
    z = torch.zeros(6, 2, dtype=graph.dtype, requires_grad=True)
    found = rayleigh_energy(operator(graph), z)
    found.backward()
    assert float(found.detach()) == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_a_node_without_neighbours_counts_as_one():
    graph = random_graph(20, 30, isolated=3)
    alone = torch.zeros(20, 2, dtype=graph.dtype)
    alone[17:] = 5.0
    assert float(rayleigh_energy(operator(graph), alone)) == 1
