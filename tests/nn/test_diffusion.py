"""Personalised PageRank, return probabilities, and MVGRL's two views."""

import pytest
import torch
from torch.testing import assert_close

from aspect.data.sparse import SparseMatrix
from aspect.nn import diffusion as module
from aspect.nn.diffusion import (
    DiffusedGraph,
    PersonalisedPageRank,
    return_probabilities,
    scale_columns,
)
from aspect.nn.propagation import SymmetricPropagation
from reference.graphs import path_graph, random_graph
from reference.two_views import smoothing


@pytest.fixture
def graph():
    return random_graph(isolated=1)


def exact(graph, restart=0.2):
    """The matrix by its definition."""
    eye = torch.eye(graph.num_nodes, dtype=torch.float64)
    smoothing = SymmetricPropagation(graph).smoothing()(eye)
    return restart * torch.linalg.inv(eye - (1 - restart) * smoothing)


def made(graph, **options):
    return PersonalisedPageRank(SymmetricPropagation(graph).smoothing(), **options)


class TestPersonalisedPageRank:
    @pytest.mark.parametrize("restart", [0.05, 0.9])
    @pytest.mark.parametrize("tolerance", [1e-3, 1e-12])
    def test_it_is_the_inverse_within_the_tolerance(self, graph, restart, tolerance):
        eye = torch.eye(graph.num_nodes, dtype=torch.float64)
        found = made(graph, restart=restart, tolerance=tolerance)(eye)
        error = torch.linalg.matrix_norm(found - exact(graph, restart), ord=2)
        assert float(error) <= tolerance * 1.001 + 1e-14

    def test_a_bipartite_graph_reaches_the_lower_end_of_the_spectrum(self):
        # Without loops its spectrum is symmetric: the series must hold at -1 too.
        graph = path_graph(9)
        matrix = SymmetricPropagation(graph, loop_weight=0.0).smoothing()
        eye = torch.eye(9, dtype=torch.float64)
        expected = 0.2 * torch.linalg.inv(eye - 0.8 * matrix.dense())
        found = PersonalisedPageRank(matrix, tolerance=1e-10)(eye)
        assert_close(found, expected, rtol=0, atol=1e-9)

    def test_gradients_are_exact_and_nothing_is_kept(self, graph):
        x = graph.features.clone().requires_grad_()
        found = made(graph, tolerance=1e-12)(x)
        assert found.grad_fn.saved_tensors == ()
        weights = torch.randn_like(x)
        (gradient,) = torch.autograd.grad((weights * found).sum(), x)
        assert_close(gradient, exact(graph) @ weights)

    def test_small_entries_are_left_out(self, graph, monkeypatch):
        monkeypatch.setitem(module.BLOCK, "cpu", 7)
        whole = exact(graph)
        found = made(graph, tolerance=1e-12).sparse(threshold=0.03)
        assert_close(found.dense(), torch.where(whole >= 0.03, whole, 0))

    def test_the_store_of_entries_grows(self, graph, monkeypatch):
        roomy = made(graph).sparse(threshold=0.03)
        monkeypatch.setattr(module, "FIRST_ROOM", 1)
        monkeypatch.setattr(module, "BLOCK", {"cpu": 3})
        assert torch.equal(made(graph).sparse(threshold=0.03).dense(), roomy.dense())
        assert int((roomy.dense() != 0).sum()) > 8


class TestReturnProbabilities:
    @pytest.mark.parametrize("steps", [1, 16])
    def test_they_are_the_diagonals_of_the_walks_powers(self, graph, steps):
        adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        adjacency[tuple(graph.edge_index)] = 1
        degrees = adjacency.sum(1)
        walk = adjacency * torch.where(degrees > 0, 1 / degrees, 0)  # A D^-1
        expected, power = [], torch.eye(graph.num_nodes, dtype=torch.float64)
        for _ in range(steps):
            power = power @ walk
            expected.append(power.diagonal())
        assert_close(return_probabilities(graph, steps), torch.stack(expected, dim=1))

    def test_blocks_change_nothing(self, graph, monkeypatch):
        whole = return_probabilities(graph)
        assert graph.num_nodes < module.BLOCK["cpu"]
        monkeypatch.setitem(module.BLOCK, "cpu", 7)
        assert_close(return_probabilities(graph), whole)


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def diffused_graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def eye(diffused_graph):
    return torch.eye(diffused_graph.num_nodes, dtype=torch.float64)


def exact_diffusion(diffused_graph, restart=0.2):
    """`r (I - (1 - r) A-hat)^(-1)` by its definition."""
    return restart * torch.linalg.inv(
        eye(diffused_graph) - (1 - restart) * smoothing(diffused_graph)
    )


class TestWhole:
    def test_small_entries_go_and_columns_are_scaled(self, diffused_graph):
        found = DiffusedGraph.of(diffused_graph, threshold=0.05).diffusion(eye(diffused_graph))
        kept = exact_diffusion(diffused_graph)
        kept[kept < 0.05] = 0
        least, largest = kept.min(0).values, kept.max(0).values
        assert_close(found, (kept - least) / (largest - least), rtol=1e-5, atol=1e-5)
        assert bool((found.max(0).values == 1).all())


def test_a_full_column_is_shifted_by_its_least_entry():
    matrix = torch.tensor([[2.0, 0.0, 3.0, 0.0], [4.0, 5.0, 3.0, 0.0], [3.0, 1.0, 3.0, 0.0]])
    found = scale_columns(SparseMatrix.from_dense(matrix)).dense()
    expected = [[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.5, 0.2, 0.0, 0.0]]
    assert_close(found, torch.tensor(expected))


class TestWithin:
    nodes = torch.tensor([7, 1, 12, 4])

    @pytest.mark.parametrize("threshold", [None, 0.02])
    def test_operators_are_cut_out_and_not_normalised_anew(self, diffused_graph, threshold):
        whole = DiffusedGraph.of(diffused_graph, threshold=threshold)
        part, x = whole.within(self.nodes), torch.randn(4, 3, dtype=torch.float64)
        for one, other in ((part.edges, whole.edges), (part.diffusion, whole.diffusion)):
            assert_close(one(x), other(eye(diffused_graph))[self.nodes][:, self.nodes] @ x)
