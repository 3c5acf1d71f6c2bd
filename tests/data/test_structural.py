"""Features made from edges: the same at every call, finite, and meaningful."""

import pytest
import torch

from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.structural import STRUCTURAL, structural_features, with_structural_features
from aspect.errors import GraphError, SettingsError


def ring(num_nodes: int, isolated: int = 0) -> Graph:
    nodes = torch.arange(num_nodes)
    pairs = torch.stack([nodes, (nodes + 1) % num_nodes])
    return Graph.build(torch.ones(num_nodes + isolated, 1), pairs)


@pytest.mark.parametrize("kind", STRUCTURAL)
@pytest.mark.parametrize("num_nodes", [3, 40, 300])  # dense and iterative eigenvectors
def test_same_at_every_call_and_finite(kind, num_nodes):
    graph = ring(num_nodes, isolated=2)
    first, second = (dense(structural_features(graph, kind)) for _ in range(2))
    assert first.shape[0] == num_nodes + 2
    assert torch.isfinite(first).all()
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_degree_is_one_hot_of_its_power_of_two():
    star = Graph.build(torch.ones(6, 1), torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]))
    features = dense(structural_features(star, "degree"))
    assert features.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_identity_tells_all_nodes_apart():
    torch.testing.assert_close(dense(structural_features(ring(5), "identity")), torch.eye(5))


@pytest.mark.parametrize("num_nodes", [30, 300])
def test_laplacian_vectors_are_eigenvectors_in_order(num_nodes):
    path = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    graph = Graph.build(torch.ones(num_nodes, 1), path)
    vectors = dense(structural_features(graph, "laplacian")).double()
    adjacency = torch.zeros(num_nodes, num_nodes, dtype=torch.double)
    adjacency[tuple(graph.edge_index)] = 1
    scale = adjacency.sum(1).rsqrt()
    normalised = scale[:, None] * adjacency * scale
    values = (vectors * (normalised @ vectors)).sum(0) / (vectors**2).sum(0)
    assert (values.diff() < 1e-6).all()
    torch.testing.assert_close(normalised @ vectors, vectors * values, rtol=0, atol=2e-3)
    torch.testing.assert_close((vectors**2).mean(0), torch.ones(vectors.shape[1]).double())
    for vector in vectors.T:
        first = (vector.abs() > 0.999 * vector.abs().max()).nonzero()[0]
        assert vector[first] > 0


def test_edges_and_names_stay():
    graph = Graph.build(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]), ["a", "b", "c"])
    changed = with_structural_features(graph, "random")
    assert changed.ids == graph.ids
    assert changed.edge_index is graph.edge_index
    assert changed.num_features == 32


def test_unknown_kind():
    with pytest.raises(
        SettingsError, match=r"degree, identity, random, laplacian\. Got 'pagerank'"
    ):
        structural_features(ring(4), "pagerank")


def test_laplacian_without_edges():
    empty = Graph.build(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match=r"need edges\. Got none; ask for degree or random"):
        structural_features(empty, "laplacian")
