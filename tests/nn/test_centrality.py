import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.nn.augmentations import (
    column_importance,
    degree_centrality,
    drop_probabilities,
    edge_importance,
    eigenvector_centrality,
    pagerank_centrality,
)
from reference.graphs import path_graph, random_graph


@pytest.fixture
def graph():
    return random_graph(isolated=1)


def ring(nodes=8):
    number = torch.arange(nodes)
    features = torch.ones(nodes, 2, dtype=torch.float64)
    return Graph.build(features, torch.stack([number, (number + 1) % nodes]))


def test_degrees(graph):
    assert degree_centrality(graph).tolist() == graph.degrees().tolist()


@pytest.mark.parametrize("steps", [1, 10])
def test_pagerank_equals_the_loop(graph, steps):
    x = [1.0] * graph.num_nodes
    degrees = graph.degrees().tolist()
    for _ in range(steps):
        y = [0.15 * value for value in x]
        for source, target in graph.edge_index.t().tolist():
            y[target] += 0.85 * x[source] / degrees[source]
        x = y
    assert_close(pagerank_centrality(graph, steps), torch.tensor(x, dtype=torch.float64))


def test_pagerank_ends_in_proportion_to_degrees():
    graph = random_graph(num_nodes=15, num_edges=60)
    centrality, degrees = pagerank_centrality(graph, 500), degree_centrality(graph)
    assert_close(centrality / centrality.sum(), degrees / degrees.sum(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("make", [lambda: random_graph(isolated=1), lambda: path_graph(7)])
def test_the_eigenvector_is_that_of_the_dense_matrix(make):
    graph = make()
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    adjacency[tuple(graph.edge_index)] = 1
    leading = torch.linalg.eigh(adjacency)[1][:, -1].abs()
    assert_close(eigenvector_centrality(graph), leading, rtol=1e-5, atol=1e-6)


def test_an_edge_matters_as_the_node_that_it_reaches(graph):
    centrality = degree_centrality(graph)
    expected = [centrality[row].log() for row in graph.edge_index[0].tolist()]
    assert_close(edge_importance(graph, centrality), torch.stack(expected))


@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_a_column_matters_as_its_carriers(compress, by_size):
    features = torch.tensor([[0.5, 0.0, 0.0], [-2.0, 1.0, 0.0]], dtype=torch.float64)
    centrality = torch.tensor([3.0, 5.0], dtype=torch.float64)
    given = SparseMatrix.from_dense(features) if compress else features
    found = column_importance(given, centrality, by_size=by_size)
    sums = [11.5, 5.0, 0.0] if by_size else [8.0, 5.0, 0.0]
    assert_close(found, torch.tensor(sums, dtype=torch.float64).log())


class TestProbabilities:
    def test_they_equal_the_definition_and_their_mean_is_the_rate(self, graph):
        importance = edge_importance(graph, degree_centrality(graph))
        found = drop_probabilities(importance, 0.1)
        weights = (importance.max() - importance) / (importance.max() - importance.mean())
        assert_close(found, (0.1 * weights / weights.mean()).clamp(max=0.7))
        assert float(found.max()) < 0.7
        assert_close(found.mean().item(), 0.1)

    def test_the_cap_holds(self, graph):
        found = drop_probabilities(edge_importance(graph, degree_centrality(graph)), 0.6)
        assert float(found.max()) == pytest.approx(0.7)
        assert float(found.min()) == 0
        assert float(found.mean()) < 0.6

    def test_they_fall_with_importance_to_zero(self, graph):
        importance = edge_importance(graph, degree_centrality(graph))
        found = drop_probabilities(importance, 0.3)
        assert bool((found[importance.argsort()].diff() <= 1e-12).all())
        assert not bool(found[importance == importance.max()].any())

    @pytest.mark.parametrize(
        "centrality", [degree_centrality, pagerank_centrality, eigenvector_centrality]
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_regular_graph_is_dropped_uniformly(self, centrality, dtype):
        graph = ring().to(dtype)
        found = drop_probabilities(edge_importance(graph, centrality(graph)), 0.3)
        assert_close(found, torch.full_like(found, 0.3))

    def test_an_empty_column_spoils_nothing(self):
        importance = torch.tensor([0.0, 1.0, -torch.inf, 2.0], dtype=torch.float64)
        found = drop_probabilities(importance, 0.1)
        assert torch.isfinite(found).all()
        assert_close(found[[0, 1, 3]], drop_probabilities(importance[[0, 1, 3]], 0.1))
        assert_close(found[[0, 1, 3]].mean().item(), 0.1)

    def test_the_official_code_masks_every_column_then(self):
        importance = torch.tensor([0.0, 1.0, -torch.inf, 2.0])
        found = drop_probabilities(importance, 0.1, official_nan=True)
        assert_close(found, torch.full((4,), 0.7))
        full = importance[[0, 1, 3]]
        assert_close(
            drop_probabilities(full, 0.1, official_nan=True), drop_probabilities(full, 0.1)
        )

    def test_nothing_but_empty_columns(self):
        found = drop_probabilities(torch.full((3,), -torch.inf), 0.2)
        assert_close(found, torch.full((3,), 0.2))
