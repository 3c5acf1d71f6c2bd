"""The settings of ASPECT, each declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.losses.info_nce import LOWEST_TEMPERATURE
from aspect.methods.base import BatchNormConfig
from aspect.nn.gate import Fusion, GateInput, Readout
from aspect.nn.spectral_encoder import BandActivation, LayerOrder

__all__ = ["AspectConfig"]


class AspectConfig(BatchNormConfig):
    """Symbols of the paper in parentheses.

    The defaults are for graphs that nobody has tuned for, chosen by validation accuracy over graphs
    of both kinds; `experiments/` ships better ones for known graphs.
    """

    # The graph and its features
    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes; off: raw, as in the paper."""
    self_loops: Annotated[bool, Choice((True, False))] = True
    """Add a self-loop to every node before propagation."""
    lambda_max: Literal["two", "power-iteration"] = "two"
    """Largest eigenvalue used to rescale the Laplacian: its bound, or its true value."""

    # The encoder
    order: Annotated[Count, Range(2, 10)] = 5
    """Order of the Chebyshev filters (K)."""
    width: Annotated[Count, Choice((512, 1024, 2048))] = 512
    """Dimensions of each band's embedding (Hidden Dim)."""
    learned_start: bool = True
    """Learn the filters' first value as well; off: PolyGCL's constants 2 and 0."""
    input_dropout: Annotated[Share, Range(0.0, 0.8)] = 0.3
    """Dropout of feature entries before the filter (DP Rate)."""
    dropout: Annotated[Share, Range(0.0, 0.7)] = 0.2
    """Dropout after the filter (Dropout)."""
    batch_norm: Annotated[bool, Choice((True, False))] = True
    """Batch norm before the linear layer, after it with `project-first` (Batch Norm)."""
    activation: Annotated[BandActivation, Choice(("relu", "prelu"))] = "prelu"
    """What follows the linear layer (Activation)."""
    layer_order: Annotated[LayerOrder, Choice(("filter-first", "project-first"))] = "filter-first"
    """Filter the features and project them, or the other way round, which is faster."""

    # The policy
    fusion: Fusion = "node-wise"
    """Who decides the mix: each node, one learned number for all (`global`), or nobody (`half`)."""
    gate_width: Count = 64
    """Hidden units of the gate."""
    gate_input: GateInput = "layer-norm"
    """What the gate reads: the bands' embeddings at one scale, or raw as in the paper."""
    gate_hops: Annotated[int, Field(ge=0), Range(0, 4)] = 1
    """Steps of the neighbourhood that decides together (ours; the paper has none)."""
    gate_gradient: bool = True
    """Let the gate's gradient reach the encoder through what the gate reads."""
    readout: Annotated[Readout, Choice(("fused", "weighted"))] = "weighted"
    """The embedding: the blend, the bands side by side with their gate weights, or without them
    (`concatenated`, an ablation: the gate does not reach it)."""
    centred: bool = True
    """Subtract each band's mean over the training graph before the readout; off as in the paper."""
    unit_rows: Annotated[bool, Choice((True, False))] = True
    """Bring each band's rows to length one before the readout, since InfoNCE compares directions
    alone; off as in the paper."""

    # The two views
    views: Annotated[Literal["one", "both"], Choice(("one", "both"))] = "one"
    """Augment one view and leave the other clean, as in the paper, or augment both."""
    edge_drop: Annotated[Share, Range(0.0, 0.7)] = 0.3
    """Share of edges dropped in an augmented view."""
    column_mask: Annotated[Share, Range(0.0, 0.7)] = 0.3
    """Share of feature columns masked in an augmented view."""

    # The objective
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE), Range(0.1, 1.0, log=True)] = 0.4
    """Temperature of InfoNCE (tau)."""
    symmetric: bool = True
    """Both directions of InfoNCE; off: the first view asks and the second one answers."""
    negatives: Count | None = None
    """Negatives drawn per step; none: all up to 50,000 nodes, 8,192 drawn beyond."""
    channel_weight: Annotated[Weight, Range(0.0, 4.0)] = 2.0
    """Weight of InfoNCE within each band, averaged over the bands (ours; the paper has none)."""
    policy_weight: Annotated[Weight, Range(0.01, 2.0, log=True)] = 1.0
    """Weight of the policy regulariser (lambda_pol)."""
    gate_temperature: Annotated[Positive, Range(0.1, 3.0, log=True)] = 0.3
    """Softness of the policy's target (tau_g)."""

    # The optimiser
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of encoder and gate (LR1)."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-3, log=True)] = 1e-4
    """Weight decay of encoder and gate (WD1)."""
    filter_learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 3e-3
    """Learning rate of the filters (LR)."""
    filter_weight_decay: Weight = 0.0
    """Weight decay of the filters (WD)."""
