"""The inner problem of ASPECT-S: how far a change of edges and features moves a frozen model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.adversarial.candidates import EdgeCandidates, FeatureCandidates
from aspect.losses.edges import rayleigh_energy
from aspect.nn.spectral_encoder import FoldedEncoder

__all__ = ["Change", "InnerProblem", "SearchScope", "Seen", "StabilityTarget"]

StabilityTarget = Literal["fused", "band"]
Contrast = Callable[[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]], Tensor]


@dataclass(frozen=True)
class SearchScope:
    """What a search may perturb, and what it maximises."""

    candidates: float  # pairs without an edge that may be joined, for each edge
    feature_budget: float  # entries that may be moved, as a ratio of those that are not zero
    target: StabilityTarget  # what a perturbed band is contrasted with
    rayleigh_weight: float  # lambda_ray


@dataclass(frozen=True, eq=False)
class Change:
    """A point of the perturbation set."""

    flips: Float[Tensor, " pairs"]  # how far each pair is flipped, from 0 to 1
    moves: Float[Tensor, " entries"]  # by how much each feature entry is moved


@dataclass(frozen=True, eq=False)
class Seen:
    """A changed graph, as the frozen model sees it."""

    views: Float[Tensor, "bands nodes dim"]
    energies: Float[Tensor, " bands"]  # Rayleigh energy of each band on the changed graph
    objective: Float[Tensor, ""]

    def without_views(self) -> Seen:
        """The same without its embeddings, which are most of it."""
        return replace(self, views=self.views.new_empty(*self.views.shape[:2], 0))


@dataclass(frozen=True, eq=False)
class InnerProblem:
    """Maximise L_gen + lambda_ray * Phi_ray over changes (Eq. (18), perturbation objective).

    Encoder, keys and the gate's weights are those of the clean graph and stay as they are: only a
    change has gradients.
    """

    edges: EdgeCandidates
    entries: FeatureCandidates
    encoder: FoldedEncoder
    projected: Float[Tensor, "nodes signal"]  # the clean features, through the encoder's maps
    keys: Float[Tensor, "bands nodes dim"]  # what each band of a node should still be known by
    weights: Float[Tensor, "nodes bands"]  # whom each node trusts on the clean graph
    contrast: Contrast  # loss of every node, queries first
    rayleigh_weight: float  # lambda_ray

    def nothing(self) -> Change:
        """The clean graph."""
        return Change(
            torch.zeros_like(self.edges.present), torch.zeros_like(self.entries.places.values)
        )

    def see(self, change: Change) -> Seen:
        """Embed the changed graph and judge it."""
        operator = self.edges.operator(change.flips)
        projected = self.projected + self.encoder.project(self.entries.moved(change.moves))
        views = self.encoder.embed(projected, operator)
        energies = torch.stack([rayleigh_energy(operator, band) for band in views])
        pairs = zip(views, self.keys, strict=True)
        losses = torch.stack([self.contrast(*pair) for pair in pairs])
        objective = stability(losses, self.weights)
        if self.rayleigh_weight > 0:
            # Lowest against highest: the profile that the bands' names promise, turned around.
            objective = objective + self.rayleigh_weight * (energies[0] - energies[-1])
        return Seen(views, energies, objective)


def stability(
    losses: Float[Tensor, "bands nodes"], weights: Float[Tensor, "nodes bands"]
) -> Float[Tensor, ""]:
    """Eq. (19), stability loss: every band's loss times its gate weight, a mean over nodes."""
    return (weights.t() * losses).sum(0).mean()
