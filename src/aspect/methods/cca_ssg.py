"""CCA-SSG: columns of two corrupted views agree, and columns of one view are uncorrelated."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.losses.correlation import canonical_loss
from aspect.methods.base import BatchNormConfig, OneEncoder, OneEncoderConfig, Step
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import View
from aspect.nn.gcn import GCNStack
from aspect.nn.mlp import MLP


class CCASSGConfig(BatchNormConfig, OneEncoderConfig):
    """Symbols of the paper in parentheses; the defaults are those of the official code."""

    epochs: Annotated[int, Field(ge=0)] = 100
    """Passes over the graph; many decorrelate too much."""
    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes; officially off for Amazon's."""
    backbone: Annotated[Literal["gcn", "mlp"], Choice(("gcn", "mlp"))] = "gcn"
    """Graph convolutions, or an MLP without edges."""
    layers: Annotated[Count, Choice((1, 2))] = 2
    """Graph convolutions; a single one is linear. An MLP always has two."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of every layer; the weight of decorrelation belongs to a width."""
    column_mask: Annotated[Share, Range(0.0, 0.5)] = 0.2
    """Mask rate of feature columns in each view (p_f)."""
    edge_drop: Annotated[Share, Range(0.0, 0.5)] = 0.2
    """Drop rate of edges in each view, either direction on its own (p_e)."""
    decorrelation: Annotated[Weight, Range(2e-4, 5e-3, log=True)] = 1e-3
    """Weight of the correlation between columns of one view (lambda)."""
    learning_rate: Annotated[Positive, Range(5e-5, 3e-3, log=True)] = 1e-3
    """Learning rate."""
    weight_decay: Weight = 0.0
    """Weight decay."""


@register(
    "cca-ssg",
    config=CCASSGConfig,
    paper=Citation(
        "H. Zhang, Q. Wu, J. Yan, D. Wipf, P. S. Yu",
        "From Canonical Correlation Analysis to Self-supervised Graph Neural Networks",
        "NeurIPS",
        2021,
    ),
    family="redundancy reduction",
)
class CCASSG(OneEncoder):
    """Soft canonical correlation analysis of two views; no negatives, no projector.

    The embedding is the encoder's output, not standardised. Where we differ from the official
    code: a constant column counts as uncorrelated instead of giving NaN; in a view whose directions
    differ, both ends of an edge are normalised by what they receive (there the source by what it
    sends); all is computed in one precision (there the decorrelation in float64). An MLP's batch
    norm embeds by the statistics of the training graph; there by those of the graph at hand
    (`norm_statistics`).
    """

    config: CCASSGConfig

    def __init__(self, config: CCASSGConfig, num_features: int) -> None:
        super().__init__(config)
        self.encoder: MLP | GCNStack
        if config.backbone == "mlp":
            self.encoder = MLP(
                [num_features, config.width, config.width], norm=config.norm_statistics
            )
        else:
            widths = [num_features, *[config.width] * config.layers]
            self.encoder = GCNStack(widths, activation="relu", activate_last=False)

    @override
    def encode(
        self, view: View, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        if not isinstance(self.encoder, MLP):
            return super().encode(view, generator)
        embeddings: Tensor = self.encoder(view.features)
        return embeddings

    @override
    def row_plan(self) -> RowPlan | None:
        if self.config.backbone == "mlp":
            return self.smoothed_rows(0, 0.0, 0.0)
        return self.smoothed_rows(self.config.layers, *[self.config.edge_drop] * 2)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, source = self.config, self.source(graph)
        # An MLP has no edges to drop.
        edge_drop = config.edge_drop if config.backbone == "gcn" else 0.0
        views = (source.corrupted(edge_drop, config.column_mask, step.generator) for _ in range(2))
        one, other = (step.gather(self.encode(view), 0) for view in views)
        return {"correlation": canonical_loss(one, other, config.decorrelation)}
