"""Small graphs for attacks, drawn by hypothesis."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from aspect.data.graph import Graph


@st.composite
def shapes(draw, *, least_edges=1):
    """Up to nine nodes and any edges: what `build` makes a graph of."""
    num_nodes = draw(st.integers(3, 9))
    pairs = [(a, b) for a in range(num_nodes) for b in range(a)]
    return num_nodes, draw(st.lists(st.sampled_from(pairs), unique=True, min_size=least_edges))


def build(shape):
    """A graph with ids, and with zeros among its features."""
    num_nodes, pairs = shape
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    features = torch.arange(float(2 * num_nodes)).reshape(num_nodes, 2) % 3
    return Graph.build(features, edges, ids=[f"node {k}" for k in range(num_nodes)])


def edge_set(graph):
    return {tuple(sorted(pair)) for pair in graph.edge_index.t().tolist()}
