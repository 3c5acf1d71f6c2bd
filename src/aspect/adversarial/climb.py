"""Steps up a slope, and the searches of RDGI that keep the best point."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.adversarial.flippable import Flippable, within_budget
from aspect.data.operators import Operator

__all__ = ["best_on_the_way", "slopes_of", "worst_features", "worst_flips"]

Objective = Callable[..., Float[Tensor, ""]]


def slopes_of(
    objective: Objective, *points: Tensor
) -> tuple[Float[Tensor, ""], tuple[Tensor, ...]]:
    """An objective at some points and its gradient for them; no parameter gets any."""
    held = tuple(point.detach().requires_grad_() for point in points)
    with torch.enable_grad():
        value = objective(*held)
        slopes = torch.autograd.grad(value, held)
    return value.detach(), slopes


@torch.no_grad()
def best_on_the_way(
    start: Tensor,
    objective: Objective,
    climb: Callable[[Tensor, Tensor], Tensor],
    steps: int,
    last: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Of the start and of what each step comes to, the point where the objective is highest.

    Args:
        start: Where the ascent begins.
        objective: It may draw: of two values at one point the higher counts.
        climb: From a point and the objective's slope there to the next point.
        steps: How many.
        last: What the last point is judged by; the point itself where it is not given.
    """
    point = best = start
    highest = -math.inf
    for _ in range(steps):
        value, (slope,) = slopes_of(objective, point)
        if float(value) > highest:
            best, highest = point, float(value)
        point = climb(point, slope)
    judged = point if last is None else last(point)
    return point if float(objective(judged)) > highest else best


def worst_flips(
    pairs: Flippable,
    loss: Callable[[Operator], Float[Tensor, ""]],
    budget: int,
    *,
    step: float,
    steps: int,
    generator: torch.Generator,
) -> Int[Tensor, " flips"]:
    """Flips that raise a loss of the graph's convolution, drawn by the best shares on the way.

    Args:
        pairs: What may be flipped; nothing is at the start.
        loss: To be raised.
        budget: The most that shares may sum to, and so the most flips on average.
        step: Of the gradient of an entry of the adjacency matrix. A share stands for two, whose
            gradients its own adds up.
        steps: How many, all of one size.
        generator: On the graph's device.
    """

    def objective(shares: Tensor) -> Tensor:
        return loss(pairs.smoothing(shares))

    def climb(shares: Tensor, slope: Tensor) -> Tensor:
        return within_budget(shares + step / 2 * slope, budget)

    def draw(shares: Tensor) -> Tensor:
        return torch.bernoulli(shares, generator=generator)

    return pairs.keys(draw(best_on_the_way(pairs.nothing(), objective, climb, steps, draw)))


def worst_features(
    features: Float[Tensor, "nodes features"],
    loss: Objective,
    *,
    box: float,
    step: float,
    steps: int,
) -> Float[Tensor, "nodes features"]:
    """Features that raise a loss, every entry moved by steps of one size and no further than a box.

    They stay in [0, 1], or in the range that they have where it is wider.
    """
    lowest, highest = min(0.0, float(features.min())), max(1.0, float(features.max()))

    def climb(x: Tensor, slope: Tensor) -> Tensor:
        moves = (x - features + step * slope.sign()).clamp(-box, box)
        return (features + moves).clamp(lowest, highest)

    return best_on_the_way(features, loss, climb, steps)
