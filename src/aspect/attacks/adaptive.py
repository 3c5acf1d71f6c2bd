"""Attackers that know how edges are pruned: they flip no pair that would look out of place.

A defence is worth what it keeps against such an attacker (Mujkanovic et al., NeurIPS 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from aspect.attacks.base import check_memory
from aspect.attacks.pruning import DEFAULT, check_score
from aspect.attacks.purification import Compared, compare, score_bytes
from aspect.config import Config
from aspect.data.graph import Graph, edge_keys
from aspect.data.sparse import LARGEST_INT32
from aspect.errors import SettingsError

PAIRS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class ScoreFloor:
    """The least score of a pair that may be flipped, by the clean graph."""

    profiles: Compared
    num_nodes: int
    edges: Int[Tensor, " edges"]  # keys, ascending
    is_allowed: Bool[Tensor, " edges"]  # which edges may be flipped
    least: Float[Tensor, ""]

    def allows(self, keys: Int[Tensor, " pairs"]) -> Bool[Tensor, " pairs"]:
        """Which pairs may be flipped; an absent one has the score that its edge would have."""
        ends = keys // self.num_nodes, keys % self.num_nodes
        is_allowed: Tensor = self.profiles.scores(*ends) >= self.least
        return is_allowed

    def allowed(self) -> Int[Tensor, " pairs"]:
        """All pairs that may be flipped, ascending; looks at every pair of nodes once."""
        n, nodes = self.num_nodes, torch.arange(self.num_nodes, device=self.least.device)
        kind = torch.int32 if n**2 <= LARGEST_INT32 else torch.int64
        found, held = list[Tensor](), 0
        for rows in torch.split(nodes, max(1, PAIRS_AT_ONCE // n)):
            is_pair = nodes > rows.unsqueeze(1)
            may = (is_pair & (self.profiles.block(rows) >= self.least)).flatten()
            edges = self.edges - rows[0] * n
            here = (edges >= 0) & (edges < len(may))
            may[edges[here]] = self.is_allowed[here]
            found.append((may.nonzero().squeeze(1) + rows[0] * n).to(kind))
            held += found[-1].nbytes  # and as much again where they are joined
            check_memory(held, nodes.device, "Raise avoid_below, which leaves too many pairs.")
        return torch.cat(found)


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

    @model_validator(mode="after")
    def _score_has_a_quantile(self) -> AdaptiveConfig:
        if self.avoid_score is not None and self.avoid_below is None:
            raise SettingsError(
                f"avoid_score is the edge score of avoid_below. Got {self.avoid_score!r} alone: "
                "set avoid_below as well."
            )
        return self

    def floor_bytes(self, graph: Graph) -> int:
        """Memory that finding the floor takes at most, about; the pairs above it come on top."""
        return 0 if self.avoid_below is None else score_bytes(graph)

    def floor(self, graph: Graph) -> ScoreFloor | None:
        """What pairs must reach on this graph; None: every pair may be flipped."""
        if self.avoid_below is None:
            return None
        profiles, scores = compare(graph, self.avoid_score or DEFAULT)
        # Not torch.quantile, which takes at most 2**24 numbers.
        least = scores.sort().values[int(self.avoid_below * len(scores))]
        return ScoreFloor(profiles, graph.num_nodes, edge_keys(graph), scores >= least, least)
