import pytest
import torch
from torch.testing import assert_close
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from aspect.data.graph import edge_keys
from aspect.nn.propagation import (
    SymmetricPropagation,
    neighbour_mean,
    spread,
)
from reference.graphs import random_graph
from reference.spectrum import dense_laplacian


@pytest.fixture
def graph():
    return random_graph(isolated=2)


def adjacency(graph, weights=None):
    """Entry by entry, in the order of the edge index."""
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    weights = torch.ones(graph.edge_index.shape[1]) if weights is None else weights
    for (row, column), weight in zip(graph.edge_index.t().tolist(), weights, strict=True):
        dense[row, column] = weight
    return dense


def normalised(dense):
    """`D^(-1/2) A D^(-1/2)` for sums of rows, zero where there are none."""
    degrees = dense.sum(1)
    scale = torch.where(degrees > 0, degrees, 1).rsqrt() * (degrees > 0)
    return scale[:, None] * dense * scale[None, :]


def entry_weights(graph, seed=3):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(graph.edge_index.shape[1], dtype=torch.float64, generator=generator)
    return torch.where(weights < 0.3, 0, weights)


def eye(graph):
    return torch.eye(graph.num_nodes, dtype=torch.float64)


def test_smoothing_is_one_minus_the_laplacian(graph):
    expected = eye(graph) - dense_laplacian(graph, self_loops=True)
    assert_close(SymmetricPropagation(graph).smoothing().dense(), expected)


@pytest.mark.parametrize("loop_weight", [0.0, 1.0, 2.0])
def test_loops_weigh_what_is_asked(graph, loop_weight):
    propagation = SymmetricPropagation(graph, loop_weight=loop_weight)
    expected = normalised(adjacency(graph) + loop_weight * eye(graph))
    assert_close(propagation.smoothing()(eye(graph)), expected)


def test_it_is_what_pyg_does_with_messages_from_column_to_row(graph):
    weights = entry_weights(graph)
    row, column = graph.edge_index
    edges, values = gcn_norm(torch.stack([column, row]), weights, graph.num_nodes)
    expected = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    expected[edges[1], edges[0]] = values
    assert_close(SymmetricPropagation(graph).smoothing(weights).dense(), expected)


def test_undirected_weights_stand_in_both_directions(graph):
    propagation = SymmetricPropagation(graph)
    weights = torch.arange(1, graph.num_edges + 1, dtype=torch.float64)
    dense = adjacency(graph, propagation.both_ways(weights))
    assert_close(dense, dense.t())
    keys = edge_keys(graph)
    assert_close(dense[keys // graph.num_nodes, keys % graph.num_nodes], weights)


def test_gradients_reach_the_weights_through_the_degrees(graph):
    weights = (entry_weights(graph) + 0.1).requires_grad_()
    x = torch.randn(graph.num_nodes, 2, dtype=torch.float64)
    propagation = SymmetricPropagation(graph)
    assert torch.autograd.gradcheck(lambda w: propagation.smoothing(w)(x), weights)


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_a_unit_diagonal_leaves_the_node_itself_alone(graph, strength):
    propagation, weights = SymmetricPropagation(graph), entry_weights(graph)
    matrix = propagation.sharpening(weights, strength=strength, unit_diagonal=True).dense()
    assert_close(matrix.diagonal(), torch.ones(graph.num_nodes, dtype=torch.float64))
    low = propagation.smoothing(weights).dense()
    assert_close(matrix - torch.diag(matrix.diagonal()), -strength * low.fill_diagonal_(0))


def test_the_mean_over_neighbours_leaves_the_node_out(graph):
    found = neighbour_mean(graph)(graph.features)
    dense = adjacency(graph)
    for node in range(graph.num_nodes):
        neighbours = dense[node].nonzero().flatten()
        expected = graph.features[neighbours].mean(0) if len(neighbours) else 0 * found[node]
        assert_close(found[node], expected)


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_spreading_is_a_power_of_the_operator(graph, hops):
    operator, x = SymmetricPropagation(graph).smoothing(), graph.features
    expected = torch.linalg.matrix_power(operator.dense(), hops) @ x
    assert_close(spread(x, operator, hops), expected)
