"""From a perturbation's description to the perturbed graph."""

from __future__ import annotations

from dataclasses import replace

from aspect.attacks.budget import flips_within
from aspect.attacks.feature_mask import mask_features
from aspect.attacks.flips import apply_flips
from aspect.attacks.random_flips import random_flips
from aspect.benchmark.perturbation import Perturbation
from aspect.graph.data import Graph
from aspect.randomness import generator_for

__all__ = ["perturb"]


def perturb(graph: Graph, perturbation: Perturbation, split: int) -> Graph:
    """The graph perturbed for a split.

    Split and kind alone decide what is drawn: all methods and seeds meet the same graph, and a
    smaller budget's changes are among those of a larger one.
    """
    flips = random_flips(
        graph,
        flips_within(perturbation.budget, graph),
        generator_for(split, "perturbation", perturbation.kind, "edges"),
    )
    flipped = apply_flips(graph, flips)
    if not perturbation.features:
        return flipped
    generator = generator_for(split, "perturbation", perturbation.kind, "features")
    return replace(flipped, features=mask_features(graph.features, perturbation.budget, generator))
