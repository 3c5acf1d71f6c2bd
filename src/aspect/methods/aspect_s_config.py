"""The settings of ASPECT-S, each declared once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from aspect.attacks.projected_ascent import Discretisation, StepRule
from aspect.config import Choice, Count, Positive, Range, Weight
from aspect.methods.aspect_config import AspectConfig
from aspect.methods.aspect_search import StabilityTarget

__all__ = ["AspectSConfig"]


class AspectSConfig(AspectConfig):
    """The settings of ASPECT, and those of the branch for stability.

    The defaults of the branch are for graphs that nobody has tuned for.
    """

    # When
    warm_up: Annotated[int, Field(ge=0)] = 20
    """Epochs of plain ASPECT (T_warm); the first search comes `interval` epochs later."""
    interval: Annotated[Count, Choice((1, 2, 5, 10))] = 10
    """Epochs from one search to the next (r)."""

    # What is minimised
    stability_weight: Annotated[Weight, Range(0.1, 4.0, log=True)] = 1.0
    """Weight of the stability loss (lambda_stab; epsilon in the paper's table)."""
    stability_target: Annotated[StabilityTarget, Choice(("fused", "band"))] = "fused"
    """What a changed band is held to: the clean blend, as in the paper, or the band itself."""
    sensitivity_weight: Annotated[Weight, Range(0.0, 2.0)] = 1.0
    """Weight of a band's sensitivity in the policy's target (lambda_s)."""

    # What may be changed
    perturbation_budget: Annotated[float, Field(gt=0, le=1), Range(0.05, 0.5)] = 0.2
    """Pairs flipped at most, as a share of the edges (Perturbation Budget)."""
    candidates: Annotated[float, Field(ge=0)] = 1.0
    """Pairs without an edge that the search may join, for each edge; half are two hops apart."""
    feature_budget: Annotated[float, Field(ge=0, le=1), Range(0.0, 0.3)] = 0.1
    """Feature entries that may be moved, as a share of those that are not zero."""
    feature_box: Weight = 1.0
    """The largest move of an entry, as a multiple of their mean size."""

    # How it is searched
    perturbation_steps: Annotated[Count, Range(3, 10)] = 5
    """Steps of ascent in a search (Perturbation Steps)."""
    edge_step: Annotated[Positive, Range(0.1, 2.0, log=True)] = 0.5
    """Size of the first step over pairs (LR_alpha)."""
    step_rule: StepRule = "normalised"
    """`normalised`: a step of one flips about as many pairs as are allowed; `raw`: the paper's."""
    feature_step: Positive = 0.25
    """Size of a step over feature entries, as a multiple of their mean size (LR_beta)."""
    rayleigh_weight: Annotated[Weight, Range(0.0, 2.0)] = 0.5
    """Weight of the Rayleigh term that guides the search (lambda_ray)."""
    discretisation: Discretisation = "draws"
    """From shares to flips: the best of several draws, or the largest shares."""
    draws: Count = 3
    """Draws to choose from."""
