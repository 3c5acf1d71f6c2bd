"""How much an edge seems to join like nodes: GREET's edge discriminator."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.graph.data import Features, Graph

__all__ = ["EdgeDiscriminator"]

LEAST_NOISE = 1e-4  # uniform noise keeps so far from zero and one


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

    def scores(
        self, features: Features, walks: Float[Tensor, "nodes steps"], graph: Graph
    ) -> Float[Tensor, " entries"]:
        """The raw score of every entry of the edge index; the same for both directions."""
        weight, columns = self.hidden.weight, self.num_features
        hidden = features @ weight[:, :columns].t() + walks @ weight[:, columns:].t()
        hidden = (hidden + self.hidden.bias).relu()
        halves = self.scorer.weight.view(2, self.width).mean(0)
        ends: Tensor = hidden @ halves
        source, target = graph.edge_index
        return ends[source] + ends[target] + self.scorer.bias

    @override
    def forward(
        self,
        features: Features,
        walks: Float[Tensor, "nodes steps"],
        graph: Graph,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " entries"]:
        """Relaxed Bernoulli draws, apart for the two directions; without a generator the median.

        `w = sigmoid(log e - log(1 - e) + r)` for a uniform e: above a half as often as a coin that
        falls on its head with probability sigmoid(r), which is the median too.
        """
        scores = self.scores(features, walks, graph)
        if generator is None:
            return scores.sigmoid()
        uniform = torch.empty_like(scores, requires_grad=False)
        uniform.uniform_(LEAST_NOISE, 1 - LEAST_NOISE, generator=generator)
        return (uniform.logit() + scores).sigmoid()
