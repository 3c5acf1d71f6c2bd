"""Adversarial views in training: flips and then features (RDGI), or both at once (ARIEL).

Pairs are flipped by fractions during the ascent, all of a graph's or some, and drawn at its end.
The search of ASPECT-S is in `projected_ascent.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.attacks.projected_ascent import (
    EdgeCandidates,
    draw_pairs,
    edge_candidates,
    project_to_budget,
    slopes_of,
)
from aspect.data.features import dense, mean_size
from aspect.data.graph import Features, Graph, count_pairs, flip_pairs, with_pairs
from aspect.data.operators import Operator
from aspect.losses.blocked import refuse_second_derivative
from aspect.nn.augmentations import View
from aspect.nn.propagation import SymmetricPropagation

Loss = Callable[[Float[Tensor, "nodes hidden"], Operator], Float[Tensor, ""]]

# Devices that are asked for nothing on the way: all shapes are known before, as a CUDA graph needs
# them, and flips stay in a matrix. A CPU lists them, since its sparse products are the faster ones.
UNASKED = ("cuda",)
HALVED_EVERY = 8  # steps of Newton's method
MATRIX = 2  # dimensions of shares that hold every pair twice


@dataclass(frozen=True, eq=False)
class AdversarialView:
    """The perturbed graph that a search ended with."""

    view: View
    num_flips: Float[Tensor, ""]
    pairs: AllPairs | EdgeCandidates | None = None  # that were searched
    drawn: Float[Tensor, "*pairs"] | None = None  # one for each of them that is flipped
    shares: Float[Tensor, "*pairs"] | None = None  # the probabilities that it was drawn by

    @property
    def flips(self) -> Int[Tensor, " flips"]:
        """Its pairs, smaller end * nodes + larger end."""
        if self.pairs is None or self.drawn is None:
            return torch.empty(0, dtype=torch.long, device=self.num_flips.device)
        return self.pairs.flipped(self.drawn)


@runtime_checkable
class _SearchReach(Protocol):
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
class _WideSearchReach(_SearchReach, Protocol):
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

    Shares are a symmetric matrix with an empty diagonal. Both entries of a pair hold its share, and
    of a gradient both hold the pair's: what the two would have one by one, added up.
    """

    num_nodes: int
    places: Int[Tensor, " entries"]  # of the edges in a matrix, flattened
    dtype: torch.dtype  # of shares
    weights: Float[Tensor, " entries"] | None = None  # of the edges; of other pairs, their mean

    @classmethod
    def of(cls, graph: Graph) -> AllPairs:
        """The pairs of all nodes."""
        source, target = graph.edge_index
        weights = graph.weights if graph.num_edges else None
        return cls(graph.num_nodes, source * graph.num_nodes + target, graph.dtype, weights)

    def nothing(self) -> Float[Tensor, "nodes nodes"]:
        """Shares of zero: the graph as it is."""
        shape = self.num_nodes, self.num_nodes
        return torch.zeros(shape, dtype=self.dtype, device=self.places.device)

    def smoothing(self, shares: Float[Tensor, "nodes nodes"], *, added: bool = False) -> Operator:
        """`D^(-1/2) (A + I) D^(-1/2)` of the flipped graph, degrees following; differentiable.

        With `added`, the share of an edge is added to it (RDGI's `official_additions`).
        """
        matrix: Tensor = _Smoothing.apply(shares, self, 1 if added else -1)  # type: ignore[no-untyped-call]  # torch
        return matrix.matmul

    def flipped(self, flips: Float[Tensor, "nodes nodes"]) -> Int[Tensor, " flips"]:
        """The pairs whose share is not zero, as smaller end * nodes + larger end."""
        return flips.triu(1).flatten().nonzero().squeeze(1)


class _Smoothing(torch.autograd.Function):
    """The matrix of `AllPairs.smoothing`, in few passes over all entries and mostly in place.

    The entries S_ij = r_i L_ij r_j, for L = A + I and r_i = L_i^(-1/2) of its row sums L_i, have a
    gradient G. With N = G + G', that of the pair is `r_i r_j N_ij + v_i + v_j`, where
    `v_i = -r_i^2 / 2 sum_j S_ij N_ij` is what comes by way of a degree.
    """

    @staticmethod
    @override
    def forward(ctx: Any, shares: Tensor, pairs: AllPairs, direction: int) -> Tensor:
        looped = shares.clone(memory_format=torch.contiguous_format)
        of_edges = 1 + direction * looped.view(-1)[pairs.places]
        if pairs.weights is not None:
            looped.mul_(pairs.weights.mean())
            of_edges = of_edges * pairs.weights
        looped.view(-1).scatter_(0, pairs.places, of_edges)
        scale = looped.fill_diagonal_(1).sum(1).rsqrt_()
        smoothing = looped.mul_(scale[:, None]).mul_(scale)
        ctx.save_for_backward(smoothing, scale)
        ctx.pairs, ctx.direction = pairs, direction
        return smoothing

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_derivative("A convolution of all pairs")
        smoothing, scale = ctx.saved_tensors
        pairs: AllPairs = ctx.pairs
        both = gradient + gradient.t()
        of_degrees = torch.linalg.vecdot(smoothing, both) * scale.square() / -2
        slopes = both.mul_(scale[:, None]).mul_(scale)
        slopes.add_(of_degrees[:, None]).add_(of_degrees)
        of_edges = ctx.direction * slopes.view(-1)[pairs.places]
        if pairs.weights is not None:
            slopes.mul_(pairs.weights.mean())
            of_edges = of_edges * pairs.weights
        slopes.view(-1).scatter_(0, pairs.places, of_edges)
        return slopes.fill_diagonal_(0), None, None


def flippable_pairs(
    graph: Graph, reach: _WideSearchReach, generator: torch.Generator
) -> AllPairs | EdgeCandidates:
    """What may be flipped: every pair, or on a large graph every edge and some others."""
    if graph.num_nodes <= reach.exact_up_to:
        return AllPairs.of(graph)
    drawn = draw_pairs(graph, reach.candidates * graph.num_edges, generator)
    return edge_candidates(graph, *drawn, self_loops=True)


def _within_budget(shares: Float[Tensor, "*pairs"], budget: int | float) -> Float[Tensor, "*pairs"]:
    """The nearest shares in [0, 1] whose sum over the pairs does not exceed the budget.

    As `project_to_budget`, for as many pairs as a whole graph has. A CPU is asked whether clipping
    is enough; else it looks at what is above zero alone, and once at each pair.
    """
    entries = shares.ndim  # of a pair: a matrix has two
    if shares.device.type in UNASKED:
        return project_to_budget(shares.flatten(), entries * budget).view_as(shares)
    clipped = shares.clamp(0, 1)
    if float(clipped.sum(dtype=torch.float64)) <= entries * budget:
        return clipped
    rising = shares > 0
    if shares.ndim == MATRIX:
        rising.triu_(1)
    return torch.sub(shares, _newton_shift(shares[rising], budget), out=clipped).clamp_(0, 1)


def _newton_shift(values: Float[Tensor, " positive"], budget: int | float) -> float:
    """What positive values are lowered by before they are clipped, to sum to the budget then.

    Their clipped sum is piecewise linear in the shift. Newton's steps come from below, and what
    they leave behind counts no more: soon most of the values. On its upper parts the sum is not
    convex; there a step may leave the bounds that are known, and now and then one halves them.
    """
    precision = torch.finfo(values.dtype).eps
    low, high, shift = 0.0, float(values.max()), 0.0
    for number in count(1):
        lowered = values - shift
        over = float(lowered.clamp(0, 1).sum(dtype=torch.float64)) - budget
        if abs(over) <= precision * budget:
            break
        if over > 0:
            low, is_above = shift, lowered > 0
            values, lowered = values[is_above], lowered[is_above]
        else:
            high = shift
        if high - low <= precision * high:
            return high
        shift += over / max(1, int(((lowered > 0) & (lowered < 1)).sum()))
        if not low < shift < high or number % HALVED_EVERY == 0:
            shift = (low + high) / 2
    return shift


def _draw_flips(
    shares: Float[Tensor, "*pairs"], generator: torch.Generator
) -> Float[Tensor, "*pairs"]:
    """One with the probability of a share, else zero; of a matrix the upper triangle decides."""
    drawn = torch.bernoulli(shares, generator=generator)
    if shares.ndim != MATRIX:
        return drawn
    upper = drawn.triu_(1)
    return upper + upper.t()


def _flipped(
    graph: Graph,
    clean: View,
    pairs: AllPairs | EdgeCandidates,
    drawn: Float[Tensor, "*pairs"],
    *,
    official_additions: bool = False,
) -> Operator:
    """The convolution of the graph with the pairs flipped that were drawn."""
    if isinstance(pairs, AllPairs) and drawn.device.type in UNASKED:
        return pairs.smoothing(drawn, added=official_additions)
    keys = pairs.flipped(drawn)
    if len(keys) == 0:
        return clean.operator
    return _smoothing(graph, keys, official_additions=official_additions)


def _smoothing(
    graph: Graph, keys: Int[Tensor, " flips"], *, official_additions: bool = False
) -> Operator:
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
    reach: _WideSearchReach,
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
    budget = int(reach.perturbation_budget * graph.num_edges)
    features, operator = clean.features, clean.operator
    pairs, drawn = None, None
    num_flips = torch.zeros((), dtype=graph.dtype, device=graph.device)
    if budget > 0:
        pairs, projected = flippable_pairs(graph, reach, generator), project(features)
        drawn = _worst_flips(
            pairs, lambda operator: loss(projected, operator), budget, reach, generator
        )
        num_flips = drawn.sum() / drawn.ndim
        operator = _flipped(graph, clean, pairs, drawn, official_additions=reach.official_additions)
    if min(reach.feature_box, reach.feature_step) > 0:
        features = _worst_features(dense(features), lambda x: loss(project(x), operator), reach)
    return AdversarialView(View(features, operator), num_flips, pairs, drawn)


def _worst_flips(
    pairs: AllPairs | EdgeCandidates,
    loss: Callable[[Operator], Float[Tensor, ""]],
    budget: int,
    reach: _WideSearchReach,
    generator: torch.Generator,
) -> Float[Tensor, "*pairs"]:
    """Flips that raise a loss of the graph's convolution, drawn by the best shares on the way."""

    def climb(shares: Tensor, slope: Tensor) -> Tensor:
        # The step is one of an entry of the adjacency. A share stands for two entries, whose
        # gradients its own adds up.
        return _within_budget(torch.add(shares, slope, alpha=reach.edge_step / 2), budget)

    def draw(shares: Tensor) -> Tensor:
        return _draw_flips(shares, generator)

    shares = _best_on_the_way(
        pairs.nothing(),
        lambda shares: loss(pairs.smoothing(shares)),
        climb,
        reach.perturbation_steps,
        draw,
    )
    return draw(shares)


def _worst_features(
    features: Float[Tensor, "nodes features"],
    loss: Callable[[Tensor], Float[Tensor, ""]],
    reach: _SearchReach,
) -> Float[Tensor, "nodes features"]:
    """Features that raise a loss, every entry moved by steps of one size and no further than a box.

    They stay in [0, 1], or in the range that they have where it is wider.
    """
    lowest, highest = features.min().clamp(max=0), features.max().clamp(min=1)
    bounds = (
        (features - reach.feature_box).clamp_(min=lowest),
        (features + reach.feature_box).clamp_(max=highest),
    )

    def climb(x: Tensor, slope: Tensor) -> Tensor:
        return _moved(x, slope, reach.feature_step, bounds)

    return _best_on_the_way(features, loss, climb, reach.perturbation_steps)


def _moved(
    x: Float[Tensor, "nodes features"],
    slope: Float[Tensor, "nodes features"],
    step: float | Float[Tensor, ""],
    bounds: tuple[Float[Tensor, "nodes features"], Float[Tensor, "nodes features"]],
) -> Float[Tensor, "nodes features"]:
    """Every entry one step up its slope, between the bounds."""
    return slope.sign().mul_(step).add_(x).clamp_(*bounds)


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
        steps: How many, at least one.
        last: What the last point is judged by; by default the point itself.
    """
    highest, (slope,) = slopes_of(objective, start)
    best, point = start, climb(start, slope)
    for _ in range(steps - 1):
        value, (slope,) = slopes_of(objective, point)
        best = either(value > highest, point, best)
        highest = torch.maximum(value, highest)
        point = climb(point, slope)
    return either(objective(last(point)) > highest, point, best)


def either(
    is_first: Bool[Tensor, ""], first: Float[Tensor, "*shape"], second: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """One of two; where a device chooses unasked, the other has gradients of zero."""
    if is_first.device.type in UNASKED:
        return torch.where(is_first, first, second)
    return first if bool(is_first) else second


# ARIEL: flips and features at once


@torch.no_grad()
def find_at_once(
    graph: Graph,
    clean: View,
    loss: Callable[[View], Float[Tensor, ""]],
    reach: _SearchReach,
    generator: torch.Generator,
) -> AdversarialView:
    """Climb over shares of all flips and moves of all feature entries, and draw from the last.

    Moves and their box are in units of the mean size of the entries that are not zero. Steps over
    edges shrink as `1 / sqrt(number)`.

    Args:
        graph: The graph to be changed, small enough for a few numbers for each pair of nodes.
        clean: How an encoder sees it.
        loss: To be raised.
        reach: How far and how fast.
        generator: On the graph's device.
    """
    pairs, x, unit = AllPairs.of(graph), dense(clean.features), mean_size(clean.features)
    budget, box = reach.perturbation_budget * graph.num_edges, reach.feature_box * unit
    shares, bounds = pairs.nothing(), (x - box, x + box)

    def objective(shares: Tensor, x: Tensor) -> Tensor:
        return loss(View(x, pairs.smoothing(shares)))

    for number in range(1, reach.perturbation_steps + 1):
        _, (over_edges, over_features) = slopes_of(objective, shares, x)
        step = reach.edge_step / math.sqrt(number)
        shares = _within_budget(torch.add(shares, over_edges, alpha=step), budget)
        x = _moved(x, over_features, reach.feature_step * unit, bounds)
    drawn = _draw_flips(shares, generator)
    view = View(x, _flipped(graph, clean, pairs, drawn))
    return AdversarialView(view, drawn.sum() / drawn.ndim, pairs, drawn, shares)
