import math

import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.nn.neighbours import choose_edges, edge_similarity
from reference.graphs import random_graph


@pytest.fixture
def graph():
    return random_graph(num_nodes=25, num_edges=80, isolated=2)


def test_similarity_is_the_cosine_of_the_ends(graph):
    row, column = graph.edge_index
    expected = torch.cosine_similarity(graph.features[row], graph.features[column])
    assert_close(edge_similarity(graph, graph.features), expected)


def chosen_by_loop(graph, similarity, share):
    """Pairs that one of their ends has among its most similar ones."""
    pairs = {}
    for (row, column), value in zip(graph.edge_index.t().tolist(), similarity, strict=True):
        pairs.setdefault(row, []).append((-float(value), column))
    chosen = set()
    for row, others in pairs.items():
        for _, column in sorted(others)[: math.ceil(round(share * len(others), 9))]:
            chosen |= {(row, column), (column, row)}
    return chosen


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("sign", [1, -1], ids=["most", "least"])
def test_they_are_those_of_the_loop(graph, share, sign):
    similarity = sign * edge_similarity(graph, graph.features)
    weights = choose_edges(graph, similarity, share)
    found = {tuple(pair) for pair in graph.edge_index.t()[weights.bool()].tolist()}
    assert found == chosen_by_loop(graph, similarity, share)
    assert set(weights.tolist()) <= {0.0, 1.0}


def test_the_whole_share_is_the_whole_graph(graph):
    similarity = edge_similarity(graph, graph.features)
    assert bool(choose_edges(graph, similarity, 1.0).all())


@pytest.mark.parametrize("share", [0.01, 0.4])
def test_no_node_with_a_neighbour_is_left_alone(graph, share):
    weights = choose_edges(graph, edge_similarity(graph, graph.features), share)
    degrees = torch.zeros(25, dtype=torch.float64).index_add(0, graph.edge_index[0], weights)
    assert bool((degrees >= torch.ceil(share * graph.degrees())).all())
    assert bool(((degrees > 0) == (graph.degrees() > 0)).all())


def test_a_share_that_is_whole_but_for_rounding_is_whole():
    every = torch.combinations(torch.arange(26)).t()
    graph = Graph.build(torch.ones(26, 2, dtype=torch.float64), every)
    assert 0.28 * 25 > 7  # of 25 neighbours each node still chooses 7, the first of equals
    weights = choose_edges(graph, edge_similarity(graph, graph.features), 0.28)
    assert_close(weights, (graph.edge_index.amin(0) < 7).double())
