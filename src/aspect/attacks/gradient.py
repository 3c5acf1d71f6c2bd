"""Gradient search on a trained model: flips that move its bands far, found without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.attacks.base import Attack, OnFlips, Target
from aspect.attacks.projected_ascent import (
    Ascent,
    EdgeCandidates,
    SearchScope,
    ascend,
)
from aspect.attacks.registry import register_attack
from aspect.config import Config, Count
from aspect.data.operators import RescaledLaplacian
from aspect.errors import SettingsError
from aspect.randomness import generator_for

__all__ = ["GradientConfig", "GradientSearch"]

MOST_SEARCHES = 3  # for a budget: one may end with fewer flips than are allowed


class GradientConfig(Config):
    """Settings of the gradient search."""

    candidates: Annotated[float, Field(ge=0)] = 2.0
    """Pairs without an edge that may be joined, for each edge."""
    steps: Count = 5
    """Steps of the projected gradient ascent."""


@register_attack(
    "gradient",
    config=GradientConfig,
    title="projected gradient ascent on a trained model, without labels",
    nested=False,
    needs_labels=False,
    needs_model=True,
)
class GradientSearch(Attack):
    """Flips by ascent on the contrast of perturbed bands with the clean ones; no label is read.

    The model is searched as it embeds, with its gate frozen; features are left alone. No node loses
    its last edge. A larger budget goes on from a smaller one: its search begins with the graph that
    the last one ended with, and is still measured against the clean one.
    """

    surrogate = "the trained model, or an ASPECT trained on the same graph"

    def __init__(
        self,
        target: Target,
        config: GradientConfig,
        *,
        seed: int,
        state: Mapping[str, Tensor] | None = None,  # noqa: ARG002 - one search is not resumed
    ) -> None:
        if target.model is None:
            raise SettingsError("A gradient search needs a trained model. Got none.")
        # Each band is contrasted with itself: what moves is due to the edges.
        scope = SearchScope(
            candidates=config.candidates, feature_budget=0.0, target="band", rayleigh_weight=0.0
        )
        self._generator = generator_for(seed, "stability", "gradient", device=target.model.device)
        self._problem = target.model.search_problem(target.graph, scope, self._generator)
        self._made = torch.zeros_like(self._problem.edges.present, dtype=torch.bool)
        # A first step of one flips about as many pairs as are allowed; the largest fractions are
        # taken, so that the seed decides the candidates and no more.
        self._ascent = Ascent(
            steps=config.steps,
            budget=0,
            edge_step=1.0,
            step_rule="normalised",
            feature_step=0.0,
            feature_box=0.0,
            discretisation="largest",
            draws=1,
        )

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        before = self._made
        for _ in range(MOST_SEARCHES):
            left = most - int((self._made & ~before).sum())
            further = self._search(left) if left > 0 else None
            if further is None:
                break
            self._made = self._made | further
        return self._pairs(self._made & ~before)

    @override
    def find_each(
        self, counts: Sequence[int], on_flips: OnFlips | None = None
    ) -> Iterator[Int[Tensor, "flips 2"]]:
        for count in counts:
            self.advance(count - int(self._made.sum()))
            yield self._pairs(self._made)

    def _pairs(self, chosen: Bool[Tensor, " candidates"]) -> Int[Tensor, "flips 2"]:
        keys, nodes = self._problem.edges.keys[chosen], len(self._problem.projected)
        return torch.stack([keys // nodes, keys % nodes], dim=1)

    def _search(self, budget: int) -> Bool[Tensor, " candidates"] | None:
        """Flips beside those that are made; None where a search finds none that does harm."""
        problem, made = self._problem, self._made
        edges, nodes = problem.edges, len(problem.projected)
        present = torch.where(made, 1 - edges.present, edges.present)
        held = made | _last_edges(edges.keys, present, nodes)
        candidates = HeldCandidates(edges.keys, present, edges.propagation, held)
        ascent = replace(self._ascent, budget=budget)
        result = ascend(replace(problem, edges=candidates), ascent, self._generator)
        flips = _without_last_edges(result.change.flips > 0, edges.keys, present, nodes)
        does_harm = float(result.seen.objective) > float(result.before.objective)
        return flips if does_harm and bool(flips.any()) else None


@dataclass(frozen=True, eq=False)
class HeldCandidates(EdgeCandidates):
    """Pairs some of which may not be flipped: no change reaches them, so that no slope does."""

    held: Bool[Tensor, " candidates"]

    @override
    def operator(self, flips: Float[Tensor, " candidates"]) -> RescaledLaplacian:
        return super().operator(flips.masked_fill(self.held, 0))


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
