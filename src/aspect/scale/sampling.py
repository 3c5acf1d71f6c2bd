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
        near, _ = _neighbours(store, np.sort(ring))
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
    neighbours, owners = _neighbours(store, nodes)
    places = np.minimum(np.searchsorted(nodes, neighbours), len(nodes) - 1)
    kept = nodes[places] == neighbours
    edges = np.stack([owners[kept], places[kept]])
    features = torch.from_numpy(store.features[nodes].astype(np.float32))
    weights = None
    if store.facts.weight_scale is not None:
        weights = torch.from_numpy(_weights(store, nodes)[kept])
    return Graph(features, torch.from_numpy(edges), weights=weights)


def _entries(store: GraphStore, nodes: Nodes, part: int) -> tuple[NDArray[np.int64], Nodes]:
    """Where the entries of a block's nodes stand in it, and which of `nodes` each belongs to."""
    start, end = store.blocks[part]
    low, high = np.searchsorted(nodes, [start, end])
    pointers = store.adjacency(part).pointers
    first = pointers[nodes[low:high] - start]
    counts = pointers[nodes[low:high] - start + 1] - first
    owners = np.repeat(np.arange(low, high), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + within, owners


def _neighbours(store: GraphStore, nodes: Nodes) -> tuple[Nodes, Nodes]:
    """The neighbours of ascending nodes, one after the other, and whose each is."""
    found, owners = [], []
    for part in range(len(store.blocks)):
        places, of = _entries(store, nodes, part)
        found.append(store.adjacency(part).neighbours[places].astype(np.int64))
        owners.append(of)
    return np.concatenate(found), np.concatenate(owners)


def _weights(store: GraphStore, nodes: Nodes) -> NDArray[np.float32]:
    parts = []
    for part in range(len(store.blocks)):
        places, _ = _entries(store, nodes, part)
        weights = store.adjacency(part).weights
        assert weights is not None
        parts.append(np.asarray(weights[places], np.float32))
    return np.concatenate(parts)
