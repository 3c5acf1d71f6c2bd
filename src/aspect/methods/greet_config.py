"""The settings of GREET, each declared once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from aspect.config import Choice, Count, Positive, Range, Share
from aspect.losses.info_nce import LOWEST_TEMPERATURE
from aspect.methods.base import MethodConfig

__all__ = ["GREETConfig"]

Margin = Annotated[float, Field(ge=0, le=2)]


class GREETConfig(MethodConfig):
    """Symbols of the paper in parentheses; defaults are the official ones for unnamed graphs."""

    epochs: Annotated[int, Field(ge=0)] = 400
    """Passes over the graph, each of so many contrasts and one ranking."""
    row_normalise: Annotated[bool, Choice((False, True))] = False
    """Divide each node's features by the sum of their sizes; off: raw."""

    # The networks
    width: Count = 128
    """Dimensions of each of the two encodings."""
    hops: Count = 2
    """How often an encoder propagates (L)."""
    high_pass_strength: Annotated[float, Field(ge=0, le=1), Range(0.1, 0.5)] = 0.1
    """How much of its unlike neighbours a node subtracts (alpha)."""
    projector_layers: Annotated[int, Field(ge=1, le=2), Choice((1, 2))] = 1
    """Linear layers of each projector."""
    discriminator_width: Count = 128
    """Hidden units of the edge discriminator."""
    walk_steps: Count = 16
    """Numbers of the structural encoding: steps of a random walk (d_s)."""
    drawn_embedding: bool = False
    """Draw edge weights for the embedding too, from one seed; off: their median."""

    # The contrast
    neighbours: Annotated[int, Field(ge=0), Range(0, 30)] = 20
    """Positives of a node beside itself, the nearest by features (k)."""
    first_column_mask: Annotated[Share, Range(0.1, 0.8)] = 0.1
    """Share of feature columns masked in the low-pass view (p_f,1)."""
    second_column_mask: Annotated[Share, Range(0.1, 0.8)] = 0.5
    """Share of feature columns masked in the high-pass view (p_f,2)."""
    first_edge_dropout: Annotated[Share, Range(0.1, 0.8)] = 0.5
    """Dropout of the low-pass operator's entries, self-loops included (p_e,1)."""
    second_edge_dropout: Annotated[Share, Range(0.1, 0.8)] = 0.1
    """Dropout of the high-pass operator's entries, self-loops included (p_e,2)."""
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE)] = 0.2
    """Temperature of the contrast (tau)."""
    batch_size: Count | None = None
    """Nodes that are contrasted with each other; none: all at once, exactly."""
    contrast_rounds: Count = 2
    """Contrasts in every epoch."""

    # The ranking
    like_margin: Annotated[Margin, Range(0.1, 0.5)] = 0.5
    """By how much ends of like edges should be nearer than random pairs (gamma_hom)."""
    unlike_margin: Annotated[Margin, Range(0.1, 0.5)] = 0.5
    """By how much ends of unlike edges should be farther than random pairs (gamma_het)."""

    # The optimisers
    learning_rate: Annotated[Positive, Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate of encoders and projectors."""
    discriminator_learning_rate: Annotated[Positive, Range(1e-4, 3e-3, log=True)] = 1e-3
    """Learning rate of the edge discriminator."""
