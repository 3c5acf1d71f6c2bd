"""Adversarial views in training: flips and then features (RDGI), or both at once (ARIEL).

Pairs are flipped by fractions during the ascent, all of a graph's or some, and drawn at its end.
The search of ASPECT-S is in `projected_ascent.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aspect.attacks.projected_ascent import (
    EdgeCandidates,
    draw_edges,
    project_to_budget,
    slopes_of,
)
from aspect.data.features import dense, mean_size
from aspect.data.graph import Features, Graph, count_pairs, flip_pairs, with_pairs
from aspect.data.operators import Operator
from aspect.nn.augmentations import View
from aspect.nn.propagation import MatrixOperator, SymmetricPropagation, dense_smoothing

__all__ = [
    "AdversarialView",
    "AllPairs",
    "find_at_once",
    "find_in_turn",
    "flippable_pairs",
]

Loss = Callable[[Float[Tensor, "nodes hidden"], Operator], Float[Tensor, ""]]


@dataclass(frozen=True, eq=False)
class AdversarialView:
    """The perturbed graph that a search ended with."""

    view: View
    flips: Int[Tensor, " flips"]  # its pairs, smaller end * nodes + larger end
    shares: Float[Tensor, "nodes nodes"] | None = None  # probability of each flip, where drawn so


@runtime_checkable
class SearchReach(Protocol):
    """The settings of a method that a search reads."""

    @property
    def perturbation_budget(self) -> float: ...  # pairs flipped at most, per edge
    @property
    def perturbation_steps(self) -> int: ...
    @property
    def edge_step(self) -> float: ...
    @property
    def feature_step(self) -> float: ...
    @property
    def feature_box(self) -> float: ...  # the largest move of a feature entry


@runtime_checkable
class WideSearchReach(SearchReach, Protocol):
    """The settings of a search that large graphs have room for."""

    @property
    def exact_up_to(self) -> int: ...  # nodes of the largest graph whose pairs may all be flipped
    @property
    def candidates(self) -> int: ...  # on larger graphs, other pairs for each edge
    @property
    def official_additions(self) -> bool: ...  # whether pairs are added that were to be flipped


# Pairs that may be flipped by fractions


@dataclass(frozen=True, eq=False)
class AllPairs:
    """Every pair, with a share from 0 to 1 by which it is flipped, as `EdgeCandidates` have.

    Shares stand above the diagonal of a matrix, and what is below counts nothing.
    """

    present: Bool[Tensor, "nodes nodes"]  # the edges, in both directions
    dtype: torch.dtype  # of shares
    weights: Float[Tensor, "nodes nodes"] | None = None  # of pairs, if the graph is weighted

    @classmethod
    def of(cls, graph: Graph) -> AllPairs:
        """The pairs of all nodes."""
        nodes = graph.num_nodes
        present = torch.zeros(nodes, nodes, dtype=torch.bool, device=graph.device)
        source, target = graph.edge_index
        present[source, target] = True
        weights = None
        if graph.weights is not None and len(graph.weights):
            weights = graph.weights.mean().expand(nodes, nodes).clone()
            weights[source, target] = graph.weights
        return cls(present, graph.dtype, weights)

    def nothing(self) -> Float[Tensor, "nodes nodes"]:
        """Shares of zero: the graph as it is."""
        return torch.zeros_like(self.present, dtype=self.dtype)

    def smoothing(self, shares: Float[Tensor, "nodes nodes"]) -> Operator:
        """`D^(-1/2) (A + I) D^(-1/2)` of the flipped graph, degrees following; differentiable."""
        upper = shares.triu(1)
        symmetric = upper + upper.t()
        # A + S (1 - 2 A) entry by entry, of which nothing but one byte an entry is kept.
        adjacency = torch.where(self.present, 1 - symmetric, symmetric)
        if self.weights is not None:
            adjacency = adjacency * self.weights
        return dense_smoothing(adjacency).matmul

    def flipped(self, flips: Float[Tensor, "nodes nodes"]) -> Int[Tensor, " flips"]:
        """The pairs whose share is not zero, as smaller end * nodes + larger end."""
        return flips.triu(1).flatten().nonzero().squeeze(1)


def flippable_pairs(
    graph: Graph, reach: WideSearchReach, generator: torch.Generator
) -> AllPairs | EdgeCandidates:
    """What may be flipped: every pair, or on a large graph every edge and some others."""
    if graph.num_nodes <= reach.exact_up_to:
        return AllPairs.of(graph)
    return draw_edges(graph, reach.candidates * graph.num_edges, generator, self_loops=True)


def _within_budget(shares: Float[Tensor, "*pairs"], budget: int | float) -> Float[Tensor, "*pairs"]:
    """The nearest shares in [0, 1] whose sum does not exceed the budget.

    As `project_to_budget`, for as many pairs as a whole graph has: where clipping is enough, no
    more is done, and else what is not above zero, about half of all, is left out.
    """
    clipped = shares.clamp(0, 1)
    if float(clipped.sum(dtype=torch.float64)) <= budget:
        return clipped
    rising = shares > 0
    clipped[rising] = project_to_budget(shares[rising], budget)
    return clipped


def _smoothing(
    graph: Graph, keys: Int[Tensor, " flips"], *, official_additions: bool = False
) -> MatrixOperator:
    """The convolution's matrix with these pairs flipped: edges removed, others joined.

    With `official_additions` they are added, whether they are edges or not. So the official code of
    RDGI: an edge that it means to remove weighs two.
    """
    if not official_additions:
        return SymmetricPropagation(flip_pairs(graph, keys)).smoothing()
    every, counts = count_pairs(graph, keys)
    joined = SymmetricPropagation(with_pairs(graph, every))
    return joined.smoothing(joined.both_ways(counts.to(graph.dtype)))


# RDGI: flips, then features


@torch.no_grad()
def find_in_turn(
    graph: Graph,
    clean: View,
    project: Callable[[Features], Float[Tensor, "nodes hidden"]],
    loss: Loss,
    reach: WideSearchReach,
    generator: torch.Generator,
) -> AdversarialView:
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
    flips = _worst_flips(graph, lambda operator: loss(projected, operator), reach, generator)
    features, operator = clean.features, clean.operator
    if len(flips):
        operator = _smoothing(graph, flips, official_additions=reach.official_additions)
    if min(reach.feature_box, reach.feature_step) > 0:
        features = _worst_features(dense(features), lambda x: loss(project(x), operator), reach)
    return AdversarialView(View(features, operator), flips)


def _worst_flips(
    graph: Graph,
    loss: Callable[[Operator], Float[Tensor, ""]],
    reach: WideSearchReach,
    generator: torch.Generator,
) -> Int[Tensor, " flips"]:
    """Flips that raise a loss of the graph's convolution, drawn by the best shares on the way."""
    budget = int(reach.perturbation_budget * graph.num_edges)
    if budget == 0:
        return graph.edge_index.new_empty(0)
    pairs = flippable_pairs(graph, reach, generator)

    def climb(shares: Tensor, slope: Tensor) -> Tensor:
        # The step is one of an entry of the adjacency. A share stands for two entries, whose
        # gradients its own adds up.
        return _within_budget(shares + reach.edge_step / 2 * slope, budget)

    def draw(shares: Tensor) -> Tensor:
        return torch.bernoulli(shares, generator=generator)

    shares = _best_on_the_way(
        pairs.nothing(),
        lambda shares: loss(pairs.smoothing(shares)),
        climb,
        reach.perturbation_steps,
        draw,
    )
    return pairs.flipped(draw(shares))


def _worst_features(
    features: Float[Tensor, "nodes features"],
    loss: Callable[[Tensor], Float[Tensor, ""]],
    reach: SearchReach,
) -> Float[Tensor, "nodes features"]:
    """Features that raise a loss, every entry moved by steps of one size and no further than a box.

    They stay in [0, 1], or in the range that they have where it is wider.
    """
    lowest, highest = min(0.0, float(features.min())), max(1.0, float(features.max()))
    step, box = reach.feature_step, reach.feature_box

    def climb(x: Tensor, slope: Tensor) -> Tensor:
        moves = (x - features + step * slope.sign()).clamp(-box, box)
        return (features + moves).clamp(lowest, highest)

    return _best_on_the_way(features, loss, climb, reach.perturbation_steps)


def _best_on_the_way(
    start: Tensor,
    objective: Callable[[Tensor], Float[Tensor, ""]],
    climb: Callable[[Tensor, Tensor], Tensor],
    steps: int,
    last: Callable[[Tensor], Tensor] = torch.Tensor.detach,
) -> Tensor:
    """Of the start and of what each step comes to, the point where the objective is highest.

    Args:
        start: Where the ascent begins.
        objective: It may draw: of two values at one point the higher counts.
        climb: From a point and the objective's slope there to the next point.
        steps: How many.
        last: What the last point is judged by; by default the point itself.
    """
    point = best = start
    highest = -math.inf
    for _ in range(steps):
        value, (slope,) = slopes_of(objective, point)
        if float(value) > highest:
            best, highest = point, float(value)
        point = climb(point, slope)
    return point if float(objective(last(point))) > highest else best


# ARIEL: flips and features at once


@torch.no_grad()
def find_at_once(
    graph: Graph,
    features: Features,
    loss: Callable[[View], Float[Tensor, ""]],
    reach: SearchReach,
    generator: torch.Generator,
) -> AdversarialView:
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
        shares = _within_budget(shares + step * over_edges, budget)
        moves = (moves + reach.feature_step * over_features.sign()).clamp(-box, box)
    flips = pairs.flipped(torch.bernoulli(shares, generator=generator))
    return AdversarialView(View(entries + unit * moves, _smoothing(graph, flips)), flips, shares)
