"""What is done to a graph in a cell of the grid; how, is the attacks' business."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aspect.config import Config

__all__ = ["Budget", "Kind", "Mode", "Perturbation"]

Kind = Literal["random"]

# Poisoned graphs are trained and probed on; evasion perturbs what a trained model then embeds.
Mode = Literal["poison", "evade"]

Budget = Annotated[float, Field(gt=0, le=1)]  # a share of the edges


class Perturbation(Config):
    """One change of edges and features; the split that it is made for gives its seed."""

    kind: Kind
    """How the edges to flip are chosen."""
    solver: str = ""
    """Which variant of the kind, where there are several."""
    mode: Mode = "poison"
    """Whether the model is trained on the perturbed graph, or only embeds it."""
    budget: Budget = 0.1
    """Flips as a share of the edges, and masked entries as a share of the features."""
    features: bool = True
    """Mask features as well; off: edges alone."""

    @property
    def label(self) -> str:
        """A word for titles: `random 10%`."""
        solver = f" ({self.solver})" if self.solver else ""
        return f"{self.kind}{solver} {100 * self.budget:g}%"
