"""A set of pairs to flip, and the graph after it: edges vanish, other pairs become edges."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.graph import Graph, flip_pairs
from aspect.errors import GraphError, shown

__all__ = ["apply_flips"]


def apply_flips(graph: Graph, flips: Int[Tensor, "flips 2"]) -> Graph:
    """The graph with every pair flipped: removed where it is an edge, added where it is none.

    Features, ids and notices are those of the graph before. Flipping the same pairs again gives
    the first graph back.
    """
    return flip_pairs(graph, _flip_keys(flips.to(graph.device), graph.num_nodes))


def _flip_keys(flips: Int[Tensor, "flips 2"], num_nodes: int) -> Int[Tensor, " flips"]:
    """One number per pair; refuse pairs that are none, or come twice."""
    outside = ((flips < 0) | (flips >= num_nodes)).any(dim=1) | (flips[:, 0] == flips[:, 1])
    if bool(outside.any()):
        raise GraphError(
            f"Flips must be pairs of two different nodes from 0 to {num_nodes - 1}. "
            f"Got {_pairs(flips[outside])}."
        )
    low, high = flips.long().sort(dim=1).values.unbind(dim=1)
    keys: Tensor
    keys, times = torch.unique(low * num_nodes + high, return_counts=True)
    if len(keys) < len(flips):
        twice = torch.stack([keys // num_nodes, keys % num_nodes], dim=1)[times > 1]
        raise GraphError(f"A pair can be flipped once. Got twice: {_pairs(twice)}.")
    return keys


def _pairs(flips: Int[Tensor, "flips 2"]) -> str:
    return shown(f"({a}, {b})" for a, b in flips.tolist())
