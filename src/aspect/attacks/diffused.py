"""How well an edge fits what the rest of the graph says of its ends: the score `diffusion`.

Features are spread by personalised PageRank, `Z = a X + (1 - a) S Z`, and an edge scores the cosine
of its ends' rows without what the edge itself brought there. Edges that score low then weigh less,
features are spread anew, and so on: flips that mislead a node's row go, and others show. Last, a
pair is judged by the other edges at its ends as well, since attacks crowd around few nodes.

The rounds believe what features say of edges. Where edges hardly stand out from random pairs, as on
heterophilic graphs, they would only confirm themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aspect.attacks.cosines import (
    LEAST,
    compressed,
    cosines_of_pairs,
    mean_cosine,
    relative,
    top_of,
)
from aspect.data.graph import Features, Graph, edge_keys, values_of_pairs
from aspect.nn.propagation import SymmetricPropagation

RESTART = 0.3  # a: what a row keeps of its own features
STEPS = 5
ROUNDS = 8
POWER = 2  # of the relative score, as a weight
OTHER_EDGES = 0.5  # weight of the other edges at the ends, beside the pair's own cosine


@dataclass(frozen=True, eq=False)
class Diffused:
    """Rows spread over the graph, and what each edge and each node counted for."""

    rows: Float[Tensor, "nodes dim"]
    keys: Int[Tensor, " edges"]  # ascending
    couplings: Float[Tensor, " edges"]  # of an end's row, the part that is the other end's row
    sums: Float[Tensor, " nodes"]  # of the relative cosines of a node's edges
    degrees: Float[Tensor, " nodes"]
    scale: tuple[float, float]  # cosines that count as zero and as one
    typical: float  # mean relative cosine of an edge

    def closeness(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """Cosines of pairs, the edge between them left out.

        `z_u` holds `c z_v` of the edge, whose `z_v` holds `c z_u` in turn: without it they are
        `z_u - c z_v` and `z_v - c z_u`, up to their lengths and to what comes back over other
        nodes.
        """
        pairs = low * len(self.rows) + high
        coupling = values_of_pairs(self.keys, self.couplings, pairs)
        return _cavity_cosines(self.rows, low, high, coupling)

    def scores(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """Relative cosines, together with those of the other edges at both ends."""
        return self.beside_others(relative(self.closeness(low, high), self.scale), low, high)

    def beside_others(
        self,
        own: Float[Tensor, " pairs"],
        low: Int[Tensor, " pairs"],
        high: Int[Tensor, " pairs"],
    ) -> Float[Tensor, " pairs"]:
        """Relative cosines with the mean of the other edges at each end, a typical one included."""
        is_edge = torch.isin(low * len(self.rows) + high, self.keys).to(own)
        means = [
            (self.sums[end] - own * is_edge + self.typical) / (self.degrees[end] - is_edge + 1)
            for end in (low, high)
        ]
        return (own + OTHER_EDGES * (means[0] + means[1]) / 2) / (1 + OTHER_EDGES)

    def mean(self) -> float:
        """The mean cosine of all pairs of nodes."""
        return self.scale[0]


def diffuse(graph: Graph, features: Features, rounds: int = ROUNDS) -> Diffused:
    """Spread features over the graph in rounds, each with the last one's weights of edges.

    Takes O(edges * dim) time a step, and no label.
    """
    unit, keys = normalize(compressed(features), dim=1), edge_keys(graph)
    low, high = keys // graph.num_nodes, keys % graph.num_nodes
    pattern = SymmetricPropagation(graph.unweighted())
    found, own = _spread(pattern, unit, keys, torch.ones_like(low, dtype=unit.dtype))
    for _ in range(rounds - 1):
        weights = found.beside_others(own, low, high).clamp(LEAST, 1).pow(POWER)
        found, own = _spread(pattern, unit, keys, weights)
    return found


def _spread(
    pattern: SymmetricPropagation,
    unit: Float[Tensor, "nodes dim"],
    keys: Int[Tensor, " edges"],
    weights: Float[Tensor, " edges"],
) -> tuple[Diffused, Float[Tensor, " edges"]]:
    """One round, and the relative cosines of the edges in it."""
    low, high = keys // len(unit), keys % len(unit)
    smooth, rows = pattern.smoothing(pattern.both_ways(weights)), unit
    for _ in range(STEPS):
        rows = RESTART * unit + (1 - RESTART) * smooth(rows)
    weighted = 1 + _sums_at_ends(weights, low, high, len(unit))
    couplings = (1 - RESTART) * weights * (weighted[low] * weighted[high]).rsqrt()
    cosines = _cavity_cosines(rows, low, high, couplings)
    mean = mean_cosine(rows)
    scale = mean, top_of(cosines)
    own = relative(cosines, scale)
    found = Diffused(
        rows=rows,
        keys=keys,
        couplings=couplings,
        sums=_sums_at_ends(own, low, high, len(unit)),
        degrees=_sums_at_ends(torch.ones_like(weights), low, high, len(unit)),
        scale=scale,
        typical=float(own.mean()) if len(own) else 0.0,
    )
    return found, own


def _sums_at_ends(values: Tensor, low: Tensor, high: Tensor, nodes: int) -> Tensor:
    """For every node the sum over its edges."""
    zeros = values.new_zeros(nodes)
    return zeros.index_add(0, low, values).index_add(0, high, values)


def _cavity_cosines(rows: Tensor, low: Tensor, high: Tensor, couplings: Tensor) -> Tensor:
    def ends(part: Tensor) -> tuple[Tensor, Tensor]:
        one, other, coupling = rows[low[part]], rows[high[part]], couplings[part].unsqueeze(1)
        return one - coupling * other, other - coupling * one

    return cosines_of_pairs(len(low), ends, low.device)
