"""How far the bands move when the graph does, and what that may cost: the channel trade-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aspect.attacks.base import apply_flips
from aspect.attacks.feature_mask import mask_features
from aspect.attacks.random_flips import random_flips
from aspect.data.graph import Graph
from aspect.evaluation.regret import Draw, mix_risks

__all__ = ["Kind", "Moves", "Stability", "perturb", "stability"]

Kind = Literal["edges", "features"]


def perturb(graph: Graph, kind: Kind, rate: float, generator: torch.Generator) -> Graph:
    """Flip as many random pairs as a share of the edges, or mask a share of the feature entries."""
    if kind == "features":
        return replace(graph, features=mask_features(graph.features, rate, generator))
    return apply_flips(graph, random_flips(graph, round(rate * graph.num_edges), generator))


@dataclass(frozen=True, eq=False)
class Moves:
    """The bands of a graph and of its perturbed copies: a finite set Q, the same for all nodes."""

    clean: Float[Tensor, "2 nodes dim"]
    perturbed: Sequence[Float[Tensor, "2 nodes dim"]]

    def distances(self) -> Float[Tensor, "2 nodes"]:
        """The furthest move of every node in every band: d_L and d_H."""
        moves = [(each - self.clean).norm(dim=2) for each in self.perturbed]
        return torch.stack(moves).amax(dim=0)

    def shifts(self, mixes: Float[Tensor, " mixes"]) -> Float[Tensor, "nodes mixes"]:
        """The furthest move of the blend at every mix, which is held fixed: S(m)."""
        furthest = self.clean.new_zeros(self.clean.shape[1], len(mixes))
        for each in self.perturbed:
            low, high = each - self.clean
            for place, mix in enumerate(mixes.tolist()):
                move = torch.lerp(high, low, mix).norm(dim=1)
                furthest[:, place] = torch.maximum(furthest[:, place], move)
        return furthest


@dataclass(frozen=True, eq=False)
class Stability:
    """Risk of the clean and of the worst perturbed graph, and what bounds their difference."""

    clean: Float[Tensor, "nodes mixes"]  # E(m)
    worst: Float[Tensor, "nodes mixes"]  # R^Q(m)
    shift: Float[Tensor, "nodes mixes"]  # L S(m)
    bound: Float[Tensor, "nodes mixes"]  # L (m d_L + (1 - m) d_H)

    @property
    def rise(self) -> Float[Tensor, "nodes mixes"]:
        """What the worst perturbation adds to the risk; below 0 where all of them help."""
        return self.worst - self.clean

    @property
    def tightest(self) -> float:
        """The largest rise as a share of its bound; where nothing moves it counts as 0."""
        return float(torch.where(self.bound > 0, self.rise / self.bound, 0.0).max())

    @property
    def moved(self) -> Bool[Tensor, " nodes"]:
        """Whose clean risk and whose bound on the worst risk are lowest at different mixes.

        This is the case of `prop:clean_suboptimal_appendix`, with m d_L + (1 - m) d_H for S(m).
        """
        return (self.clean + self.bound).argmin(dim=1) != self.clean.argmin(dim=1)

    def broken(self, tolerance: float) -> Bool[Tensor, "nodes mixes"]:
        """Where one of the two bounds does not hold."""
        return (self.rise > self.shift + tolerance) | (self.shift > self.bound + tolerance)


def stability(
    moves: Moves, draws: Sequence[Draw], temperature: float, mixes: Float[Tensor, " mixes"]
) -> Stability:
    """Both sides of `thm:robust_upper_bound` and of `eq:channel_tradeoff_bound`, for L = 2 / tau.

    Keys and mix stay as they are while the graph is perturbed, as the theorems ask.
    """
    lipschitz = 2 / temperature
    worst = [mix_risks(bands, draws, temperature, mixes) for bands in moves.perturbed]
    low, high = moves.distances()
    return Stability(
        clean=mix_risks(moves.clean, draws, temperature, mixes),
        worst=torch.stack(worst).amax(dim=0),
        shift=lipschitz * moves.shifts(mixes),
        bound=lipschitz * (low[:, None] * mixes + high[:, None] * (1 - mixes)),
    )
