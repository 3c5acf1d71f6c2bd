"""The inner problem of a search on any model of ASPECT's kind, as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.adversarial.candidates import draw_edges, draw_entries
from aspect.adversarial.problem import InnerProblem
from aspect.data.graph import Graph
from aspect.methods.aspect import AspectMethod, SpectralEmbedding
from aspect.nn.spectral_encoder import fold
from aspect.randomness import generator_for

__all__ = ["SearchScope", "StabilityTarget", "inner_problem", "known_by"]

StabilityTarget = Literal["fused", "band"]


@dataclass(frozen=True)
class SearchScope:
    """What a search may change, and what it climbs."""

    candidates: float  # pairs without an edge that may be joined, for each edge
    feature_budget: float  # entries that may be moved, as a share of those that are not zero
    target: StabilityTarget  # what a changed band is held to: the clean blend, or the band itself
    rayleigh_weight: float  # lambda_ray


@torch.no_grad()
def inner_problem(
    method: AspectMethod, graph: Graph, scope: SearchScope, generator: torch.Generator
) -> InnerProblem:
    """The problem on the model as it embeds, with candidates drawn anew; the gate is frozen.

    Where the true largest eigenvalue rescales the clean graph, its bound does so here: flips can
    raise it, and both sides of a comparison are rescaled alike.
    """
    ready = method.ready(graph)
    encoder = fold(method.encoder)
    projected = encoder.project(ready.features)
    operator = ready.bounded.operator
    views = encoder.embed(projected, operator)
    clean = SpectralEmbedding(views, method.gate(views, operator))
    others = round(scope.candidates * graph.num_edges)
    seed = generator.initial_seed()

    def contrast(queries: Tensor, keys: Tensor) -> Float[Tensor, " nodes"]:
        # Negatives that are drawn are the same throughout a search: changes are compared.
        fixed = generator_for(seed, "negatives", device=graph.device)
        return method.node_losses(queries, keys, fixed).rows

    return InnerProblem(
        edges=draw_edges(graph, others, generator, self_loops=method.config.self_loops),
        entries=draw_entries(ready.features, scope.feature_budget, generator),
        encoder=encoder,
        projected=projected,
        keys=known_by(clean, scope.target),
        weights=clean.weights,
        contrast=contrast,
        rayleigh_weight=scope.rayleigh_weight,
    )


def known_by(clean: SpectralEmbedding, target: StabilityTarget) -> Float[Tensor, "bands nodes dim"]:
    """What every changed band of a node is to be recognised by."""
    return clean.views if target == "band" else clean.fused.expand_as(clean.views)
