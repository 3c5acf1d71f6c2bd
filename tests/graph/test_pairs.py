"""Pairs as numbers: there and back, in the order in which a graph keeps its edges."""

import torch

from aspect.graph.data import Graph
from aspect.graph.pairs import edge_index_of, edge_keys
from reference.graphs import random_graph


def test_every_edge_has_one_number_and_the_numbers_give_the_edges_back():
    graph = random_graph(30, 60, isolated=2)
    keys = edge_keys(graph)
    assert len(keys) == graph.num_edges
    assert torch.equal(keys, keys.unique())  # ascending, each once
    assert bool((keys // 30 < keys % 30).all())
    assert torch.equal(edge_index_of(keys, 30), graph.edge_index)


def test_no_edges_are_no_numbers():
    graph = Graph.build(torch.rand(4, 2), torch.empty(2, 0, dtype=torch.long))
    assert torch.equal(edge_index_of(edge_keys(graph), 4), graph.edge_index)
    assert edge_keys(graph).dtype == torch.long
