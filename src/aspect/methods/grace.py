"""GRACE: node-node InfoNCE between two corrupted views of a graph."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.losses.info_nce import LOWEST_TEMPERATURE, intra_view_info_nce
from aspect.methods.base import OneEncoder, OneEncoderConfig, Step
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.augmentations import View
from aspect.nn.gcn import GCNStack, StartingWeights
from aspect.nn.mlp import MLP, ActivationName


class GRACEConfig(OneEncoderConfig):
    """Symbols of the paper in parentheses; defaults are those of the official code."""

    # The networks
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 256
    """Dimensions of the embedding (d); the hidden layer has twice as many."""
    projection_width: Count = 256
    """Hidden units of the projector (d_p)."""
    activation: Annotated[ActivationName, Choice(("relu", "prelu"))] = "prelu"
    """What follows both layers of the encoder; the slope of PReLU is one number for both."""

    # The two views
    first_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Drop rate of edge directions in the first view (p_r,1)."""
    second_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.4
    """Drop rate of edge directions in the second view (p_r,2)."""
    first_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.3
    """Mask rate of feature columns in the first view (p_m,1)."""
    second_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.4
    """Mask rate of feature columns in the second view (p_m,2)."""

    # The objective and the optimiser
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE), Range(0.2, 0.9, log=True)] = 0.4
    """Temperature of InfoNCE (tau)."""
    learning_rate: Annotated[Positive, Range(5e-5, 2e-3, log=True)] = 1e-3
    """Learning rate of encoder and projector."""
    weight_decay: Weight = 1e-5
    """Weight decay of encoder and projector, by the gradient."""


class LaterGRACEConfig(GRACEConfig):
    """GRACE's settings with the defaults and ranges of GCA and ARIEL."""

    epochs: Annotated[int, Field(ge=0)] = 1000
    """Passes over the graph."""
    first_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.3
    """Drop rate of edge directions in the first view, on average (p_e,1)."""
    second_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.4
    """Drop rate of edge directions in the second view, on average (p_e,2)."""
    first_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.1
    """Mask rate of feature columns in the first view, on average (p_f,1)."""
    second_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.0
    """Mask rate of feature columns in the second view, on average (p_f,2)."""
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of encoder and projector."""


@register(
    "grace",
    config=GRACEConfig,
    paper=Citation(
        "Y. Zhu, Y. Xu, F. Yu, Q. Liu, S. Wu, L. Wang",
        "Deep Graph Contrastive Representation Learning",
        "ICML Workshop GRL+",
        2020,
    ),
    family="node contrast",
)
class GRACE(OneEncoder):
    """InfoNCE between two views; all other nodes of both views are a node's negatives.

    Every step drops edges, each direction on its own, and masks feature columns, twice. The
    embedding is the output of the encoder, a GCN of two layers, on the clean graph; the projector
    serves training alone.

    As the official code, but for memory: all negatives are kept, in blocks with exact gradients
    (the official blocks keep every exponential for the backward pass). Fixed epochs and the last
    state are official, too; `patience` stops earlier.
    """

    cost: ClassVar[Cost] = "quadratic"
    starting_weights: ClassVar[StartingWeights] = "glorot"  # of the encoder

    config: GRACEConfig

    def __init__(self, config: GRACEConfig, num_features: int) -> None:
        super().__init__(config)
        width = config.width
        self.encoder = GCNStack(
            [num_features, 2 * width, width],
            activation=config.activation,
            shared_activation=True,
            start=self.starting_weights,
        )
        self.projector = MLP([width, config.projection_width, width], activation="elu")

    @override
    def row_plan(self) -> RowPlan | None:
        drops = self.config.first_edge_drop, self.config.second_edge_drop
        return self.smoothed_rows(2, *drops)

    def corrupted(self, graph: Graph, generator: torch.Generator) -> tuple[View, View]:
        """Two views of the graph, drawn one after the other."""
        config, source = self.config, self.source(graph)
        first = config.first_edge_drop, config.first_column_mask
        second = config.second_edge_drop, config.second_column_mask
        return source.corrupted(*first, generator), source.corrupted(*second, generator)

    def projections(
        self, view: View, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        """A view's projections; without a generator `rrelu` has its mean slope (GCA)."""
        projected: Tensor = self.projector(self.encode(view, generator))
        return projected

    def contrast(
        self, one: Float[Tensor, "nodes dim"], other: Float[Tensor, "nodes dim"]
    ) -> Float[Tensor, ""]:
        """`1 / (2n) sum_i (l(u_i, v_i) + l(v_i, u_i))` for the projections u, v of two views."""
        return intra_view_info_nce(one, other, self.config.temperature).symmetric.mean()

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        first, second = self.corrupted(graph, step.generator)
        u, v = (step.gather(self.projections(view), 0) for view in (first, second))
        return {"contrast": self.contrast(u, v)}
