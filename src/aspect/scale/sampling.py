"""A part of a store as a graph in memory: some nodes, what is near them, the edges between."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from aspect.data.graph import Graph
from aspect.scale.store import GraphStore

Nodes = NDArray[np.int64]

NODES_PER_SEED = 256


def sample_neighbourhood(store: GraphStore, nodes: int, drawn: np.random.Generator) -> Graph:
    """The graph of so many nodes around drawn ones, ring by ring; the last ring in part."""
    nodes = min(nodes, store.num_nodes)
    seeds = min(nodes, max(1, nodes // NODES_PER_SEED))
    ring: Nodes = drawn.choice(store.num_nodes, seeds, replace=False)
    taken = ring
    while len(taken) < nodes:
        near, *_ = _entries(store, np.sort(ring))
        ring = np.setdiff1d(near, taken)
        if len(ring) == 0:  # whole components are taken: go on elsewhere
            left = np.setdiff1d(
                drawn.choice(store.num_nodes, min(store.num_nodes, 2 * nodes)), taken
            )
            ring = left if len(left) else np.setdiff1d(np.arange(store.num_nodes), taken)
        room = nodes - len(taken)
        if len(ring) > room:
            ring = drawn.choice(ring, room, replace=False)
        taken = np.concatenate([taken, ring])
    return induced_graph(store, np.sort(taken))


def induced_graph(store: GraphStore, nodes: Nodes) -> Graph:
    """These nodes, ascending, numbered anew, with all edges between two of them."""
    neighbours, owners, weights = _entries(store, nodes)
    places = np.minimum(np.searchsorted(nodes, neighbours), len(nodes) - 1)
    kept = nodes[places] == neighbours
    edges = np.stack([owners[kept], places[kept]])
    return Graph(
        torch.from_numpy(store.features[nodes].astype(np.float32)),
        torch.from_numpy(edges),
        weights=None if weights is None else torch.from_numpy(weights[kept]),
    )


def _entries(store: GraphStore, nodes: Nodes) -> tuple[Nodes, Nodes, NDArray[np.float32] | None]:
    """The neighbours of ascending nodes, one after the other, whose each is, and the weights."""
    found, owners, weights = [], [], []
    for block, (start, end) in enumerate(store.blocks):
        low, high = np.searchsorted(nodes, [start, end])
        adjacency = store.adjacency(block)
        first = adjacency.pointers[nodes[low:high] - start]
        counts = adjacency.pointers[nodes[low:high] - start + 1] - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(first, counts) + within
        found.append(adjacency.neighbours[places].astype(np.int64))
        owners.append(np.repeat(np.arange(low, high), counts))
        if adjacency.weights is not None:
            weights.append(np.asarray(adjacency.weights[places], np.float32))
    joined = np.concatenate(weights) if weights else None
    return np.concatenate(found), np.concatenate(owners), joined
