"""How much an edge seems to join like nodes, and the two filters that follow from it (GREET)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.features import seen_features
from aspect.data.graph import Features, Graph
from aspect.nn.diffusion import return_probabilities
from aspect.nn.propagation import MatrixOperator, SymmetricPropagation

__all__ = ["EdgeDiscriminator", "WalkedGraph"]

LEAST_NOISE = 1e-4  # uniform noise keeps so far from zero and one


@dataclass(frozen=True, eq=False)
class WalkedGraph:
    """A graph with what its edges are judged by, and the pattern along which it propagates."""

    graph: Graph
    features: Features
    walks: Float[Tensor, "nodes steps"]  # how likely a random walk is back after so many steps
    propagation: SymmetricPropagation

    @classmethod
    def of(cls, graph: Graph, *, normalise_rows: bool, walk_steps: int) -> WalkedGraph:
        """Walk from every node; rows of features divided by their sums, or as they are."""
        features = seen_features(graph.features, normalise_rows=normalise_rows)
        walks = return_probabilities(graph, walk_steps)
        return cls(graph, features, walks, SymmetricPropagation(graph))

    def filters(
        self, weights: Float[Tensor, " entries"], strength: float
    ) -> tuple[MatrixOperator, MatrixOperator]:
        """The low-pass operator along like edges, the high-pass one along the others.

        Args:
            weights: How like the ends of each entry are; the others have what is left of one.
            strength: How much of its unlike neighbours a node subtracts.
        """
        along = self.propagation
        high = along.sharpening(1 - weights, strength=strength, unit_diagonal=True)
        return along.smoothing(weights), high


class EdgeDiscriminator(nn.Module):
    """A weight in (0, 1) for every edge, near one where its ends seem alike.

    The raw score is `r_uv = (f[q_u; q_v] + f[q_v; q_u]) / 2` for q = relu(W [x; e] + b) of features
    and structural encoding, and a linear f: so r is the sum of one score for each end, and no pair
    of rows is ever gathered.
    """

    def __init__(self, num_features: int, walk_steps: int, width: int) -> None:
        super().__init__()
        self.num_features, self.width = num_features, width
        self.hidden = nn.Linear(num_features + walk_steps, width)
        self.scorer = nn.Linear(2 * width, 1)

    def scores(self, seen: WalkedGraph) -> Float[Tensor, " entries"]:
        """The raw score of every entry of the edge index; the same for both directions."""
        weight, columns = self.hidden.weight, self.num_features
        hidden = seen.features @ weight[:, :columns].t() + seen.walks @ weight[:, columns:].t()
        hidden = (hidden + self.hidden.bias).relu()
        halves = self.scorer.weight.view(2, self.width).mean(0)
        ends: Tensor = hidden @ halves
        source, target = seen.graph.edge_index
        return ends[source] + ends[target] + self.scorer.bias

    @override
    def forward(
        self, seen: WalkedGraph, generator: torch.Generator | None = None
    ) -> Float[Tensor, " entries"]:
        """Relaxed Bernoulli draws, apart for the two directions; without a generator the median.

        `w = sigmoid(log e - log(1 - e) + r)` for a uniform e: above a half as often as a coin that
        falls on its head with probability sigmoid(r), which is the median too.
        """
        scores = self.scores(seen)
        if generator is None:
            return scores.sigmoid()
        uniform = torch.empty_like(scores, requires_grad=False)
        uniform.uniform_(LEAST_NOISE, 1 - LEAST_NOISE, generator=generator)
        return (uniform.logit() + scores).sigmoid()
