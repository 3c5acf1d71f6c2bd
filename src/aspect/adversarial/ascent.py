"""Projected gradient ascent over changes of a graph, and the way back to a graph without halves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.adversarial.problem import Change, InnerProblem, Seen
from aspect.adversarial.projection import project_to_budget

__all__ = ["Ascent", "Discretisation", "Found", "StepRule", "ascend"]

StepRule = Literal["normalised", "raw"]
Discretisation = Literal["draws", "largest"]


@dataclass(frozen=True)
class Ascent:
    """How the search is done."""

    steps: int
    budget: int  # pairs flipped at most
    edge_step: float  # alpha, at the first step
    step_rule: StepRule
    feature_step: float  # beta, in units of an entry's mean size
    feature_box: float  # the largest move of an entry, in the same units
    discretisation: Discretisation
    draws: int


@dataclass(frozen=True, eq=False)
class Found:
    """The change that was found; pairs are flipped or not."""

    change: Change
    seen: Seen
    before: Seen  # the clean graph
    relaxed: float  # the best objective on the way, pairs flipped by shares


def ascend(problem: InnerProblem, how: Ascent, generator: torch.Generator) -> Found:
    """Climb from the clean graph, then keep the best of several graphs without halves."""
    change = best = problem.nothing()
    before, relaxed = None, -math.inf
    for number in range(1, how.steps + 1):
        seen, slope = _slope(problem, change)
        before = before or seen
        if float(seen.objective) > relaxed:
            best, relaxed = change, float(seen.objective)
        change = _step(problem, change, slope, how, number)
    with torch.no_grad():
        seen = problem.see(change)
        if float(seen.objective) > relaxed:
            best, relaxed = change, float(seen.objective)
        tried = [(each, problem.see(each)) for each in _discrete(best, how, generator)]
    change, seen = max(tried, key=lambda pair: float(pair[1].objective))
    assert before is not None  # there is at least one step
    return Found(change, seen, before, relaxed)


def _slope(problem: InnerProblem, change: Change) -> tuple[Seen, Change]:
    """The graph as it is changed so far, and the objective's gradient there."""
    flips, moves = (each.detach().requires_grad_() for each in (change.flips, change.moves))
    with torch.enable_grad():
        seen = problem.see(Change(flips, moves))
        slope = torch.autograd.grad(seen.objective, (flips, moves))
    held = Seen(seen.views.detach(), seen.energies.detach(), seen.objective.detach())
    return held, Change(*slope)


def _step(problem: InnerProblem, change: Change, slope: Change, how: Ascent, number: int) -> Change:
    """One step up the slope, and back to the nearest change that is allowed."""
    slopes = slope.flips
    if how.step_rule == "normalised":
        slopes = slopes / _typical(slopes, how.budget)
    flips = change.flips + how.edge_step / math.sqrt(number) * slopes
    size = problem.entries.size
    box = how.feature_box * size
    moves = change.moves + how.feature_step * size * slope.moves.sign()
    return Change(project_to_budget(flips, how.budget), moves.clamp(-box, box))


def _typical(slope: Float[Tensor, " pairs"], budget: int) -> Float[Tensor, ""]:
    """The slope of the last pair that the budget has room for, were the steepest taken first.

    A step of one over it flips about as many pairs as are allowed, whatever the loss's scale; the
    slopes of a mean over thousands of nodes are tiny.
    """
    rising = slope.clamp(min=0)
    steepest = rising.topk(min(budget, len(rising))).values if budget else rising[:0]
    steep = steepest[steepest > 0]
    return steep[-1] if len(steep) else torch.ones_like(slope.sum())


def _discrete(change: Change, how: Ascent, generator: torch.Generator) -> Iterator[Change]:
    """Changes that flip a pair or do not: the largest shares, or drawn by their shares.

    A draw over the budget loses the pairs of the smallest shares.
    """
    if how.discretisation == "largest":
        yield Change(_largest(change.flips, how.budget), change.moves)
        return
    for _ in range(how.draws):
        drawn = torch.bernoulli(change.flips, generator=generator)
        yield Change(_largest(drawn * change.flips, how.budget), change.moves)


def _largest(shares: Float[Tensor, " pairs"], budget: int) -> Float[Tensor, " pairs"]:
    """One for the largest shares above zero, as many as are allowed, and zero for the rest."""
    best = shares.topk(min(budget, len(shares)))
    return torch.zeros_like(shares).scatter(0, best.indices, (best.values > 0).to(shares.dtype))
