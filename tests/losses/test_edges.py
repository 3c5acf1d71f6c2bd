"""Losses over edges: products of pairs, ranking, reconstruction, Rayleigh energy."""

import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.data.operators import Propagation
from aspect.losses import edges as module
from aspect.losses.edges import (
    Reconstruction,
    pair_cosines,
    pair_products,
    rayleigh_energy,
)
from reference import contrast
from reference.graphs import path_graph, random_graph
from reference.inner_problem import energy, normalised_laplacian


def rows(nodes=7, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, dim, dtype=torch.float64, generator=generator).requires_grad_()


def operator(graph, *, self_loops=False):
    return Propagation(graph, self_loops=self_loops).operator()


def adjacency(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.dtype)
    matrix[tuple(graph.edge_index)] = 1
    return matrix


class TestPairs:
    @staticmethod
    def some_pairs(count=80, nodes=7):
        """More than there are different ones: some come twice, and some join a row to itself."""
        return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(1))

    @pytest.mark.parametrize("block", [1, 7, 10**6])
    def test_products_and_gradients_are_those_of_gathered_rows(self, monkeypatch, block):
        monkeypatch.setattr(module, "PAIRS_AT_A_TIME", block)
        x, (one, other) = rows(), self.some_pairs()
        weights = torch.randn(80, dtype=torch.float64)
        found, expected = pair_products(x, one, other), (x[one] * x[other]).sum(1)
        assert_close(found, expected)
        assert_close(
            torch.autograd.grad((weights * found).sum(), x),
            torch.autograd.grad((weights * expected).sum(), x),
        )

    def test_cosines_and_their_gradients(self):
        x, (one, other) = rows(), self.some_pairs()
        assert_close(pair_cosines(x, one, other), torch.cosine_similarity(x[one], x[other]))
        assert torch.autograd.gradcheck(lambda y: pair_cosines(y, one, other), x)

    def test_no_pairs(self):
        x, none = rows(), torch.empty(0, dtype=torch.long)
        found = pair_products(x, none, none)
        assert found.shape == (0,)
        assert not bool(torch.autograd.grad(found.sum(), x)[0].any())


class TestReconstruction:
    @pytest.fixture
    def graph(self):
        return random_graph(isolated=1)

    @staticmethod
    def embeddings(graph):
        x = 0.7 * rows(graph.num_nodes, 5)
        return x.detach().requires_grad_()

    @pytest.mark.parametrize("block", [1, 7, 20, None])
    def test_value_and_gradient_equal_the_dense_form(self, graph, block):
        x = self.embeddings(graph)
        found, expected = (
            Reconstruction(graph).exact(x, block=block),
            contrast.reconstruction(graph, x),
        )
        assert_close(found, expected)
        assert_close(torch.autograd.grad(3 * found, x), torch.autograd.grad(3 * expected, x))

    def test_saturated_pairs_cost_no_more_than_the_official_cap_and_have_no_slope(self):
        graph = Graph.build(torch.eye(3), torch.tensor([[0], [1]]))
        x = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0]], requires_grad=True)
        found = Reconstruction(graph).exact(x)
        # Four ordered pairs are wrongly sure, at 23.03 each; half of the sum of B is 2.5.
        assert found.item() == pytest.approx(4 * 23.0259 / (9 - 2.5), rel=1e-3)
        assert not bool(torch.autograd.grad(found, x)[0].any())

    def test_the_sample_is_unbiased(self, graph):
        x, loss = self.embeddings(graph), Reconstruction(graph)
        generator = torch.Generator().manual_seed(0)
        draws = torch.stack([loss.sampled(x.detach(), 50, generator) for _ in range(500)])
        error = (draws.mean() - loss.exact(x.detach())) / (draws.std() / 500**0.5)
        assert abs(error.item()) < 4
        assert draws.std().item() > 0

    def test_the_sample_has_the_gradient_of_its_value(self, graph):
        loss = Reconstruction(graph)

        def sampled(x):
            return loss.sampled(x, 30, torch.Generator().manual_seed(1))

        assert torch.autograd.gradcheck(sampled, self.embeddings(graph))

    def test_no_second_derivative(self, graph):
        x = self.embeddings(graph)
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(Reconstruction(graph).exact(x), x, create_graph=True)


class TestRayleighEnergy:
    @pytest.mark.parametrize("self_loops", [True, False])
    def test_eigenvectors_have_their_eigenvalues(self, self_loops):
        graph = path_graph(9)
        laplacian = normalised_laplacian(adjacency(graph), self_loops=self_loops)
        values, vectors = torch.linalg.eigh(laplacian)
        found = [
            rayleigh_energy(operator(graph, self_loops=self_loops), vector[:, None])
            for vector in vectors.t()
        ]
        assert_close(torch.stack(found), values, rtol=0, atol=1e-12)

    def test_many_columns_are_one_quotient_of_traces(self):
        graph = path_graph(12)
        z = torch.randn(12, 5, dtype=graph.dtype, generator=torch.Generator().manual_seed(0))
        laplacian = normalised_laplacian(adjacency(graph), self_loops=False)
        found = rayleigh_energy(operator(graph), z)
        assert_close(found, energy(laplacian, z))
        assert_close(rayleigh_energy(operator(graph), -3 * z), found)

    def test_zeros_have_no_energy_and_no_slope(self):
        graph = path_graph(6)
        z = torch.zeros(6, 2, dtype=graph.dtype, requires_grad=True)
        found = rayleigh_energy(operator(graph), z)
        found.backward()
        assert float(found.detach()) == 0
        assert torch.equal(z.grad, torch.zeros_like(z))

    def test_a_node_without_neighbours_counts_as_one(self):
        graph = random_graph(20, 30, isolated=3)
        alone = torch.zeros(20, 2, dtype=graph.dtype)
        alone[17:] = 5.0
        assert float(rayleigh_energy(operator(graph), alone)) == 1
