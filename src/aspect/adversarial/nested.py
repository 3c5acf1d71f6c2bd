"""A search that goes on from one budget to the next: what a smaller one flips stays flipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.adversarial.ascent import Ascent, ascend
from aspect.adversarial.candidates import EdgeCandidates
from aspect.adversarial.problem import InnerProblem
from aspect.data.operators import RescaledLaplacian

__all__ = ["nested_searches"]

MOST_SEARCHES = 3  # for a budget: one may end with fewer flips than are allowed


@dataclass(frozen=True, eq=False)
class HeldCandidates(EdgeCandidates):
    """Pairs some of which may not be flipped: no change reaches them, so that no slope does."""

    held: Bool[Tensor, " candidates"]

    @override
    def operator(self, flips: Float[Tensor, " candidates"]) -> RescaledLaplacian:
        return super().operator(flips.masked_fill(self.held, 0))


def nested_searches(
    problem: InnerProblem, budgets: Sequence[int], how: Ascent, generator: torch.Generator
) -> Iterator[Int[Tensor, "flips 2"]]:
    """For each budget at most so many flips, smaller node first, those of the one before included.

    The graph that a search begins with is the one that the last search ended with; what it climbs
    is still measured against the clean one. No node loses its last edge.

    Args:
        problem: On the clean graph; features are left alone, whatever it has candidates for.
        budgets: Flips in all, rising.
        how: Of every search, but for the budget.
        generator: On the problem's device.
    """
    edges, nodes = problem.edges, len(problem.projected)
    made = torch.zeros_like(edges.present, dtype=torch.bool)
    for budget in budgets:
        for _ in range(MOST_SEARCHES):
            left = replace(how, budget=budget - int(made.sum()), feature_step=0.0)
            further = _further(problem, made, left, generator) if left.budget > 0 else None
            if further is None:
                break
            made = made | further
        keys = edges.keys[made]
        yield torch.stack([keys // nodes, keys % nodes], dim=1)


def _further(
    problem: InnerProblem,
    made: Bool[Tensor, " candidates"],
    how: Ascent,
    generator: torch.Generator,
) -> Bool[Tensor, " candidates"] | None:
    """Flips beside those that are made; None where a search finds none that does harm."""
    edges, nodes = problem.edges, len(problem.projected)
    present = torch.where(made, 1 - edges.present, edges.present)
    held = made | _last_edges(edges.keys, present, nodes)
    own = HeldCandidates(edges.keys, present, edges.propagation, held)
    found = ascend(replace(problem, edges=own), how, generator)
    flips = _without_last_edges(found.change.flips > 0, edges.keys, present, nodes)
    does_harm = float(found.seen.objective) > float(found.before.objective)
    return flips if does_harm and bool(flips.any()) else None


def _degrees(
    keys: Int[Tensor, " pairs"], present: Float[Tensor, " pairs"], nodes: int
) -> Float[Tensor, " nodes"]:
    degrees = present.new_zeros(nodes)
    return degrees.index_add(0, keys // nodes, present).index_add(0, keys % nodes, present)


def _last_edges(
    keys: Int[Tensor, " pairs"], present: Float[Tensor, " pairs"], nodes: int
) -> Bool[Tensor, " pairs"]:
    """Edges that are all that one of their ends has."""
    degrees = _degrees(keys, present, nodes)
    fewest = torch.minimum(degrees[keys // nodes], degrees[keys % nodes])
    return (present > 0) & (fewest == 1)


def _without_last_edges(
    flips: Bool[Tensor, " pairs"],
    keys: Int[Tensor, " pairs"],
    present: Float[Tensor, " pairs"],
    nodes: int,
) -> Bool[Tensor, " pairs"]:
    """The flips but for removals, from the first to the last, that would leave a node alone."""
    is_edge = present > 0
    degrees = _degrees(keys, (is_edge | flips).to(present.dtype), nodes).tolist()
    removed = (flips & is_edge).nonzero().flatten()
    kept = flips & ~is_edge
    for place, key in zip(removed.tolist(), keys[removed].tolist(), strict=True):
        low, high = divmod(key, nodes)
        if min(degrees[low], degrees[high]) > 1:
            degrees[low] -= 1
            degrees[high] -= 1
            kept[place] = True
    return kept
