"""Pairs of nodes as single numbers, smaller end * nodes + larger end: sets of them are cheap."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.graph.data import Graph

__all__ = ["edge_index_of", "edge_keys"]


def edge_keys(graph: Graph) -> Int[Tensor, " edges"]:
    """One number per undirected edge, ascending."""
    source, target = graph.edge_index
    keys: Tensor = source * graph.num_nodes + target
    return keys[source < target]


def edge_index_of(keys: Int[Tensor, " edges"], num_nodes: int) -> Int[Tensor, "2 entries"]:
    """Both directions of every pair, in the order in which a graph keeps its edges."""
    low, high = keys // num_nodes, keys % num_nodes
    both = torch.cat([keys, high * num_nodes + low]).sort().values
    return torch.stack([both // num_nodes, both % num_nodes])
