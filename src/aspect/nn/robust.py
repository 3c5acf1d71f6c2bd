"""Edge weights from a robust penalty: an edge between unlike nodes counts for less.

Averaging minimises squared differences along edges, so that one odd neighbour moves a node as far
as it likes. A concave penalty bounds its pull (RUNG, Hou et al., NeurIPS 2024). RUNG finds new
weights at every propagation step; here they are found once for a graph, so that the operator stays
linear and a Chebyshev filter of it a polynomial.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from aspect.data.features import dense
from aspect.data.graph import Features, Graph
from aspect.nn.propagation import SymmetricPropagation

__all__ = ["robust_weights", "with_robust_weights"]

RESTART = 0.3  # what a row keeps of its own features
STEPS = 5
NEAREST = 0.05  # relative distance below which weights grow no further
LEAST_WEIGHT = 0.01  # relative to the mean: no edge goes
EDGES_AT_ONCE = 2**14
TINY = 1e-12  # below every mean that is not rounding


def robust_weights(pattern: SymmetricPropagation, features: Features) -> Float[Tensor, " edges"]:
    """`max(0, 1 / d - 1)`, the slope of a minimax concave penalty, for every edge; mean about one.

    d is the distance of the ends' rows at unit length, after propagation with a restart and without
    what the edge itself brought there. At one, the distance of two random nodes, the penalty is
    flat.
    """
    unit = normalize(dense(features), dim=1)
    smooth, rows = pattern.smoothing(), unit
    for _ in range(STEPS):
        rows = RESTART * unit + (1 - RESTART) * smooth(rows)
    is_upper = pattern.pattern.rows < pattern.pattern.columns  # in the order of the edges' keys
    low, high = pattern.pattern.rows[is_upper], pattern.pattern.columns[is_upper].long()
    couplings = (1 - RESTART) * smooth.matrix.values[is_upper].unsqueeze(1)
    cosines = []
    for part in torch.split(torch.arange(len(low), device=low.device), EDGES_AT_ONCE):
        one, other, coupling = rows[low[part]], rows[high[part]], couplings[part]
        cosines.append(cosine_similarity(one - coupling * other, other - coupling * one))
    squared = (1 - torch.cat(cosines)).clamp(min=0) / (1 - _mean_cosine(rows)).clamp(min=TINY)
    slopes = (1 / squared.sqrt().clamp(min=NEAREST) - 1).clamp(min=0)
    return (slopes / slopes.mean().clamp(min=TINY)).clamp(min=LEAST_WEIGHT)


def with_robust_weights(graph: Graph, features: Features) -> Graph:
    """The graph with every edge times its robust weight; a graph without edges as it is."""
    if graph.num_edges == 0:
        return graph
    pattern = SymmetricPropagation(graph)
    weights = pattern.both_ways(robust_weights(pattern, features))
    return replace(graph, weights=weights if graph.weights is None else weights * graph.weights)


def _mean_cosine(rows: Float[Tensor, "nodes dim"]) -> Float[Tensor, ""]:
    """Over all pairs of nodes, edges included."""
    unit = normalize(rows, dim=1)
    pairs = len(unit) * (len(unit) - 1)
    return (unit.sum(0).square().sum() - unit.square().sum()) / pairs
