import numpy as np
import pytest
import torch

from aspect.data import eigenvectors
from aspect.data.eigenvectors import leading_eigenvectors, normalised_adjacency
from aspect.data.graph import Graph
from aspect.data.synthetic import mixed_graph
from aspect.errors import GraphError


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


@pytest.mark.parametrize("order", ["LA", "LM"])
@pytest.mark.parametrize("dense_up_to", [0, 256])
def test_vectors_are_those_of_the_whole_matrix(order, dense_up_to, monkeypatch):
    monkeypatch.setattr(eigenvectors, "DENSE_UP_TO", dense_up_to)
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
    monkeypatch.setattr(eigenvectors, "DENSE_UP_TO", 0)
    graph = Graph.build(torch.ones(12, 1), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match="No 3 eigenvectors of the adjacency were found"):
        leading_eigenvectors(normalised_adjacency(graph), 3, "LM")
