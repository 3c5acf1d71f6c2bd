"""Attackers that know how edges are pruned: they flip no pair that would look out of place.

A defence is worth what it keeps against such an attacker (Mujkanovic et al., NeurIPS 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator
from torch import Tensor

from aspect.attacks.pruning import DEFAULT, check_score
from aspect.attacks.purification import Compared, profiles_of
from aspect.config import Config
from aspect.data.graph import Graph, edge_keys

PAIRS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class ScoreFloor:
    """The least score of a pair that may be flipped, by the clean graph."""

    profiles: Compared
    num_nodes: int
    edges: Int[Tensor, " edges"]  # keys
    least: Float[Tensor, ""]

    def allows(self, keys: Int[Tensor, " pairs"]) -> Bool[Tensor, " pairs"]:
        """Which pairs may be flipped; an absent one has the score that its edge would have."""
        ends = keys // self.num_nodes, keys % self.num_nodes
        is_allowed: Tensor = self.profiles.scores(*ends) >= self.least
        return is_allowed

    def allowed(self) -> Int[Tensor, " pairs"]:
        """All pairs that may be flipped, ascending; looks at every pair of nodes once."""
        nodes = torch.arange(self.num_nodes, device=self.least.device)
        found = [nodes[:0]]
        for rows in torch.split(nodes, max(1, PAIRS_AT_ONCE // self.num_nodes)):
            keys = rows.unsqueeze(1) * self.num_nodes + nodes
            is_pair = nodes > rows.unsqueeze(1)
            found.append(keys[is_pair & (self.profiles.block(rows) >= self.least)])
        absent = torch.cat(found)
        absent = absent[~torch.isin(absent, self.edges)]
        return torch.cat([absent, self.edges[self.allows(self.edges)]]).sort().values


class AdaptiveConfig(Config):
    """Settings of an attacker who knows how edges are pruned."""

    # None where it is off, so that files from before there were such settings still fit.
    avoid_below: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Flip no pair that scores below this quantile of the clean graph's edges; none: any pair."""
    avoid_score: str | None = None
    """Edge score of avoid_below; none: that of edge pruning."""

    @field_validator("avoid_score")
    @classmethod
    def _known_score(cls, score: str | None) -> str | None:
        return None if score is None else check_score(score)

    def floor(self, graph: Graph) -> ScoreFloor | None:
        """What pairs must reach on this graph; None: every pair may be flipped."""
        if self.avoid_below is None:
            return None
        profiles, keys = profiles_of(graph, self.avoid_score or DEFAULT), edge_keys(graph)
        scores = profiles.scores(keys // graph.num_nodes, keys % graph.num_nodes)
        # Not torch.quantile, which takes at most 2**24 numbers.
        least = scores.sort().values[int(self.avoid_below * len(scores))]
        return ScoreFloor(profiles, graph.num_nodes, keys, least)
