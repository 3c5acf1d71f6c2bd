"""Pairs of nodes as single numbers, smaller end * nodes + larger end: sets of them are cheap."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.graph import Graph

__all__ = ["count_pairs", "edge_index_of", "edge_keys", "flip_pairs", "pair_keys"]


def pair_keys(
    one: Int[Tensor, " pairs"], other: Int[Tensor, " pairs"], num_nodes: int
) -> Int[Tensor, " pairs"]:
    """One number per pair, whichever end is given first."""
    keys: Tensor = torch.minimum(one, other) * num_nodes + torch.maximum(one, other)
    return keys


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


def count_pairs(
    graph: Graph, keys: Int[Tensor, " others"]
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """All pairs that are edges or among the keys, ascending, and of each how often it is either."""
    every: Tensor
    every, counts = torch.unique(torch.cat([edge_keys(graph), keys]), return_counts=True)
    return every, counts


def flip_pairs(graph: Graph, keys: Int[Tensor, " flips"]) -> Graph:
    """The graph with these pairs flipped, each given once: edges are removed, others joined."""
    every, counts = count_pairs(graph, keys)
    return replace(graph, edge_index=edge_index_of(every[counts == 1], graph.num_nodes))
