"""Edges under attack: after any flips they are those of the graph that the flips make."""

import pytest
import torch

from aspect.attacks.adjacency import AttackedEdges
from aspect.attacks.flips import apply_flips
from aspect.data.graph import edge_keys
from reference.graphs import random_graph
from reference.metattack import dense_adjacency


def dense_of(pattern):
    matrix = torch.zeros(pattern.shape)
    matrix[pattern.rows, pattern.columns.long()] = 1
    return matrix


@pytest.mark.parametrize("seed", range(5))
def test_flips_give_the_same_matrix_as_building_the_graph_anew(seed):
    graph = random_graph(25, 60, seed=seed, isolated=2)
    edges = AttackedEdges(graph)
    low, high = torch.triu_indices(25, 25, offset=1)
    order = torch.randperm(len(low), generator=torch.Generator().manual_seed(seed))
    pairs = torch.stack([low, high], dim=1)[order]
    for start in range(0, 60, 15):
        done = pairs[: start + 15]
        edges.flip((done[:, 0] * 25 + done[:, 1])[start:])
        now = apply_flips(graph, done)
        looped = dense_adjacency(now) + torch.eye(25)
        scale = looped.sum(1).rsqrt()
        torch.testing.assert_close(edges.normalised().dense(), scale[:, None] * looped * scale)
        assert torch.equal(edges.degrees, now.degrees())
        keys = low * 25 + high
        assert torch.equal(edges.joined(keys), torch.isin(keys, edge_keys(now)))
        flipped = done[:, 0] * 25 + done[:, 1]
        clean = edge_keys(graph)
        assert torch.equal(edges.removable, clean[~torch.isin(clean, flipped)])
        closed = (dense_adjacency(graph) + dense_adjacency(now) + torch.eye(25)).sign()
        assert torch.equal(dense_of(edges.closed()), closed.float())


def test_the_graph_is_not_changed():
    graph = random_graph(25, 60)
    before, degrees = graph.edge_index.clone(), graph.degrees()
    edges = AttackedEdges(graph)
    edges.flip(edge_keys(graph)[:5])
    assert torch.equal(graph.edge_index, before)
    assert torch.equal(graph.degrees(), degrees)


def test_every_edge_may_go():
    graph = random_graph(6, 10)
    edges = AttackedEdges(graph)
    edges.flip(edge_keys(graph))
    torch.testing.assert_close(edges.normalised().dense(), torch.eye(6, dtype=torch.float64))
    assert len(edges.removable) == 0
    assert not bool(edges.joined(edge_keys(graph)).any())
    edges.flip(edge_keys(graph)[:0])
    assert int(edges.degrees.sum()) == 0
