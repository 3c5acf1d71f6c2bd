"""Pairs as numbers: there and back, in the order in which a graph keeps its edges."""

from dataclasses import replace

import torch

from aspect.data.graph import Graph
from aspect.data.pairs import count_pairs, edge_index_of, edge_keys, flip_pairs
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


def some_pairs(graph):
    """Two edges and two pairs that are none."""
    edges = edge_keys(graph)
    low, high = torch.triu_indices(graph.num_nodes, graph.num_nodes, 1)
    every = low * graph.num_nodes + high
    return torch.cat([edges[[0, 5]], every[~torch.isin(every, edges)][[1, 9]]])


def test_pairs_are_counted_as_edges_and_as_keys():
    graph = random_graph(30, 60)
    keys = some_pairs(graph)
    every, counts = count_pairs(graph, keys)
    assert torch.equal(every, torch.cat([edge_keys(graph), keys]).unique())
    assert every[counts == 2].tolist() == keys[:2].tolist()
    assert int(counts.sum()) == graph.num_edges + len(keys)


def test_flips_are_the_symmetric_difference_and_all_else_stays():
    graph = replace(random_graph(30, 60), ids=tuple("n" + str(node) for node in range(30)))
    keys = some_pairs(graph)
    flipped = flip_pairs(graph, keys)
    assert set(edge_keys(flipped).tolist()) == set(edge_keys(graph).tolist()) ^ set(keys.tolist())
    assert flipped.ids == graph.ids
    assert flipped.features is graph.features


def test_flipping_twice_is_nothing():
    graph = random_graph(30, 60)
    keys = some_pairs(graph)
    assert torch.equal(flip_pairs(flip_pairs(graph, keys), keys).edge_index, graph.edge_index)
    assert torch.equal(flip_pairs(graph, keys[:0]).edge_index, graph.edge_index)
