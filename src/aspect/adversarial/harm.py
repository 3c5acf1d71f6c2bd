"""Graphs within reach that do harm: flips and then features (RDGI), or both at once (ARIEL)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.adversarial.candidates import draw_edges
from aspect.adversarial.climb import slopes_of, worst_features, worst_flips
from aspect.adversarial.flippable import (
    AllPairs,
    Flippable,
    SomePairs,
    added_smoothing,
    flipped_smoothing,
    within_budget,
)
from aspect.data.features import dense, mean_size
from aspect.data.graph import Features, Graph
from aspect.data.operators import Operator
from aspect.nn.augmentations import View

__all__ = [
    "DrawnHarm",
    "Harm",
    "Reach",
    "WideReach",
    "find_at_once",
    "find_in_turn",
    "flippable_pairs",
]

Loss = Callable[[Float[Tensor, "nodes hidden"], Operator], Float[Tensor, ""]]


@runtime_checkable
class Reach(Protocol):
    """The settings of a method that a search reads."""

    @property
    def perturbation_budget(self) -> float:
        """Pairs flipped at most, as a share of the edges."""

    @property
    def perturbation_steps(self) -> int:
        """Steps of ascent."""

    @property
    def edge_step(self) -> float:
        """Size of a step over edges."""

    @property
    def feature_step(self) -> float:
        """Size of a step over features."""

    @property
    def feature_box(self) -> float:
        """The largest move of a feature entry."""


@runtime_checkable
class WideReach(Reach, Protocol):
    """The settings of a search that large graphs have room for."""

    @property
    def exact_up_to(self) -> int:
        """Nodes of the largest graph of which every pair may be flipped."""

    @property
    def candidates(self) -> int:
        """On larger graphs, other pairs for each edge."""

    @property
    def official_additions(self) -> bool:
        """Whether pairs are added that were to be flipped."""


@dataclass(frozen=True, eq=False)
class Harm:
    """What a search found."""

    view: View  # the changed graph
    flips: Int[Tensor, " flips"]  # its pairs, smaller end * nodes + larger end


@dataclass(frozen=True, eq=False)
class DrawnHarm(Harm):
    """What a search found, and the point that it was drawn from."""

    shares: Float[Tensor, "nodes nodes"]  # above the diagonal: the probability of every flip


@torch.no_grad()
def find_in_turn(
    graph: Graph,
    clean: View,
    project: Callable[[Features], Float[Tensor, "nodes hidden"]],
    loss: Loss,
    reach: WideReach,
    generator: torch.Generator,
) -> Harm:
    """Climb over flips, keep the best point and draw from it; then climb over the features.

    Args:
        graph: The graph to be changed.
        clean: How an encoder sees it.
        project: The encoder's first product, which does not hang on edges.
        loss: To be raised, of projected features and an operator. It may draw.
        reach: How far and how fast; nothing is done about edges without a budget, nor about
            features without a box or a step.
        generator: On the graph's device.
    """
    projected = project(clean.features)
    flips = _flips(graph, lambda operator: loss(projected, operator), reach, generator)
    flip = added_smoothing if reach.official_additions else flipped_smoothing
    operator = flip(graph, flips) if len(flips) else clean.operator
    features = clean.features
    if min(reach.feature_box, reach.feature_step) > 0:
        features = worst_features(
            dense(features),
            lambda x: loss(project(x), operator),
            box=reach.feature_box,
            step=reach.feature_step,
            steps=reach.perturbation_steps,
        )
    return Harm(View(features, operator), flips)


def _flips(
    graph: Graph,
    loss: Callable[[Operator], Float[Tensor, ""]],
    reach: WideReach,
    generator: torch.Generator,
) -> Int[Tensor, " flips"]:
    budget = int(reach.perturbation_budget * graph.num_edges)
    if budget == 0:
        return graph.edge_index.new_empty(0)
    return worst_flips(
        flippable_pairs(graph, reach, generator),
        loss,
        budget,
        step=reach.edge_step,
        steps=reach.perturbation_steps,
        generator=generator,
    )


def flippable_pairs(graph: Graph, reach: WideReach, generator: torch.Generator) -> Flippable:
    """What may be flipped: every pair, or on a large graph every edge and some others."""
    if graph.num_nodes <= reach.exact_up_to:
        return AllPairs.of(graph)
    others = reach.candidates * graph.num_edges
    return SomePairs(draw_edges(graph, others, generator, self_loops=True))


@torch.no_grad()
def find_at_once(
    graph: Graph,
    features: Features,
    loss: Callable[[View], Float[Tensor, ""]],
    reach: Reach,
    generator: torch.Generator,
) -> DrawnHarm:
    """Climb over shares of all flips and moves of all feature entries, and draw from the last.

    Moves and their box are in units of the mean size of the entries that are not zero. Steps over
    edges shrink as `1 / sqrt(number)`.

    Args:
        graph: The graph to be changed, small enough for a few numbers for each pair of nodes.
        features: As an encoder sees them.
        loss: To be raised.
        reach: How far and how fast.
        generator: On the graph's device.
    """
    pairs, entries = AllPairs.of(graph), dense(features)
    unit, box = mean_size(entries), reach.feature_box
    shares, moves = pairs.nothing(), torch.zeros_like(entries)

    def objective(shares: Tensor, moves: Tensor) -> Tensor:
        return loss(View(entries + unit * moves, pairs.smoothing(shares)))

    for number in range(1, reach.perturbation_steps + 1):
        _, (over_edges, over_features) = slopes_of(objective, shares, moves)
        step = reach.edge_step / math.sqrt(number)
        budget = reach.perturbation_budget * graph.num_edges
        shares = within_budget(shares + step * over_edges, budget)
        moves = (moves + reach.feature_step * over_features.sign()).clamp(-box, box)
    flips = pairs.keys(torch.bernoulli(shares, generator=generator))
    view = View(entries + unit * moves, flipped_smoothing(graph, flips))
    return DrawnHarm(view, flips, shares)
