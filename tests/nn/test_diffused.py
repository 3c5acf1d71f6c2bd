import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense, row_normalise, take_rows
from aspect.data.sparse import SparseMatrix
from aspect.nn.diffusion import CroppedOperator, DiffusedGraph, scale_columns
from aspect.nn.propagation import SymmetricPropagation
from reference.graphs import random_graph
from reference.two_views import smoothing


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


def eye(graph):
    return torch.eye(graph.num_nodes, dtype=torch.float64)


def exact_diffusion(graph, restart=0.2):
    """`r (I - (1 - r) A-hat)^(-1)` by its definition."""
    return restart * torch.linalg.inv(eye(graph) - (1 - restart) * smoothing(graph))


class TestWhole:
    @pytest.mark.parametrize("restart", [0.2, 0.5])
    def test_both_operators_are_their_formulas(self, graph, restart):
        seen = DiffusedGraph.of(graph, restart=restart)
        assert_close(seen.edges(eye(graph)), smoothing(graph))
        found = seen.diffusion(eye(graph))
        assert_close(found, exact_diffusion(graph, restart), rtol=0, atol=2e-6)

    @pytest.mark.parametrize("normalise_rows", [True, False])
    def test_rows_of_features_may_be_normalised(self, graph, normalise_rows):
        seen = DiffusedGraph.of(graph, normalise_rows=normalise_rows)
        expected = row_normalise(graph.features) if normalise_rows else graph.features
        assert_close(dense(seen.features), dense(expected))
        assert seen.num_nodes == graph.num_nodes

    def test_the_diffusion_is_symmetric_with_a_bounded_spectrum(self, graph):
        found = DiffusedGraph.of(graph).diffusion(eye(graph))
        assert_close(found, found.t())
        values = torch.linalg.eigvalsh(found)
        assert float(values[0]) >= 0.2 / 1.8 - 1e-6
        assert float(values[-1]) == pytest.approx(1, abs=2e-6)
        roots = (graph.degrees() + 1).double().sqrt()
        assert_close(found @ roots, roots, rtol=1e-5, atol=1e-5)

    def test_its_loops_count_once_even_where_the_adjacencys_count_twice(self, graph):
        seen = DiffusedGraph.of(graph, loop_weight=2.0)
        assert_close(seen.diffusion(eye(graph)), exact_diffusion(graph), rtol=0, atol=2e-6)
        looped = eye(graph) * 2
        looped[tuple(graph.edge_index)] = 1
        roots = looped.sum(1).sqrt()
        assert_close(seen.edges(eye(graph)), looped / roots[:, None] / roots)

    def test_small_entries_go_and_columns_are_scaled(self, graph):
        found = DiffusedGraph.of(graph, threshold=0.05).diffusion(eye(graph))
        kept = exact_diffusion(graph)
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
    def test_operators_are_cut_out_and_not_normalised_anew(self, graph, threshold):
        whole = DiffusedGraph.of(graph, threshold=threshold)
        part, x = whole.within(self.nodes), torch.randn(4, 3, dtype=torch.float64)
        for one, other in ((part.edges, whole.edges), (part.diffusion, whole.diffusion)):
            assert_close(one(x), other(eye(graph))[self.nodes][:, self.nodes] @ x)

    def test_it_has_the_features_of_its_nodes(self, graph):
        whole = DiffusedGraph.of(graph)
        part = whole.within(self.nodes)
        assert part.num_nodes == 4
        assert_close(dense(part.features), dense(take_rows(whole.features, self.nodes)))

    def test_all_nodes_in_their_order_are_the_whole(self, graph):
        whole = DiffusedGraph.of(graph)
        every, x = whole.within(torch.arange(graph.num_nodes)), dense(graph.features)
        assert_close(every.edges(x), whole.edges(x), rtol=0, atol=0)
        assert_close(every.diffusion(x), whole.diffusion(x), rtol=0, atol=0)


def test_gradients_of_a_cropped_operator_are_exact(graph):
    along = SymmetricPropagation(graph).smoothing()
    cropped = CroppedOperator(along, torch.tensor([9, 0, 4]), graph.num_nodes)
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cropped, x)
