"""Edge pruning: a poisoned graph without the edges that have the least support.

The support of an edge is how well it fits the neighbourhoods at its ends, the edge itself left out.
Flips that mislead a classifier join nodes whose neighbourhoods have little in common. An attack
that knows of this measure can evade it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from aspect.data.features import dense
from aspect.data.graph import Graph, edge_index_of, edge_keys
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError

__all__ = ["check_prune_ratio", "edge_support", "prune_edges"]

EDGES_AT_ONCE = 2**14
LEVEL = 64  # roundings apart: two cosines that may be the same
TINY = 1e-12  # below every square length that is not rounding


def edge_support(graph: Graph) -> Float[Tensor, " edges"]:
    """The cosine between the two ends' neighbourhoods, for every edge in the order of its key.

    A neighbourhood is the sum of the features, at unit length, of a node and its neighbours without
    the other end of the edge. Takes O(edges * features) time and O(nodes * features) memory.
    """
    unit = normalize(dense(graph.features), dim=1)
    source, target = graph.edge_index
    ones = torch.ones(len(source), dtype=graph.dtype, device=graph.device)
    sums = unit + SparseMatrix.from_entries(source, target, ones, (len(unit), len(unit))) @ unit
    pairs = torch.split(graph.edge_index[:, source < target], EDGES_AT_ONCE, dim=1)
    return torch.cat([_cosines(unit, sums, low, high) for low, high in pairs])


def _cosines(unit: Tensor, sums: Tensor, low: Tensor, high: Tensor) -> Float[Tensor, " edges"]:
    one = sums[low] - unit[high]
    other = sums[high] - unit[low]
    lengths = (one.square().sum(1) * other.square().sum(1)).clamp(min=TINY).sqrt()
    return (one * other).sum(1) / lengths


def prune_edges(
    graph: Graph, ratio: float, support: Float[Tensor, " edges"] | None = None
) -> Graph:
    """The graph without at most this ratio of its edges: those with the least support.

    Edges that are level with one that stays do so too, so that nothing hangs on the order of nodes.
    A node may lose its last edge. The support is that of `edge_support`, if it is known already.
    """
    check_prune_ratio(ratio)
    count = round(ratio * graph.num_edges)
    if count == 0:
        return graph
    if support is None:
        support = edge_support(graph)
    first_kept = support.sort().values[min(count, len(support) - 1)]
    rounding = LEVEL * torch.finfo(support.dtype).eps
    keys = edge_keys(graph)[support >= first_kept - rounding]
    return replace(graph, edge_index=edge_index_of(keys, graph.num_nodes))


def check_prune_ratio(ratio: float) -> None:
    """Refuse what is no ratio of edges to prune."""
    if not 0 <= ratio < 1:
        raise SettingsError(
            f"The ratio of pruned edges must be at least 0 and below 1. Got {ratio}."
        )
