"""GRACE: two corrupted copies of a graph, told apart node by node."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.blocks.activations import ActivationName
from aspect.blocks.gcn import GCNStack, StartingWeights
from aspect.blocks.mlp import MLP
from aspect.blocks.per_graph import PerGraph
from aspect.blocks.views import View, ViewSource
from aspect.config import Choice, Range
from aspect.graph.data import Graph
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.citation import Citation
from aspect.methods.registry import register
from aspect.objectives.info_nce import LOWEST_TEMPERATURE
from aspect.objectives.intra_view import intra_view_info_nce

__all__ = ["Grace", "GraceConfig"]

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]


class GraceConfig(MethodConfig):
    """Symbols of the paper in parentheses; defaults are those of the official code."""

    row_normalise: bool = True
    """Divide each node's features by the sum of their sizes."""

    # The networks
    width: Annotated[int, Field(ge=1)] = 256
    """Dimensions of the embedding (d); the hidden layer has twice as many."""
    projection_width: Annotated[int, Field(ge=1)] = 256
    """Hidden units of the projector (d_p)."""
    activation: Annotated[ActivationName, Choice(("relu", "prelu"))] = "prelu"
    """What follows both layers of the encoder; the slope of PReLU is one number for both."""

    # The two views
    first_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Share of edge directions dropped in the first view (p_r,1)."""
    second_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.4
    """Share of edge directions dropped in the second view (p_r,2)."""
    first_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.3
    """Share of feature columns masked in the first view (p_m,1)."""
    second_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.4
    """Share of feature columns masked in the second view (p_m,2)."""

    # The objective and the optimiser
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE), Range(0.2, 0.9, log=True)] = 0.4
    """Temperature of InfoNCE (tau)."""
    learning_rate: Annotated[Positive, Range(2e-4, 2e-3, log=True)] = 1e-3
    """Learning rate of encoder and projector."""
    weight_decay: Weight = 1e-5
    """Weight decay of encoder and projector, by the gradient."""


@register(
    "grace",
    config=GraceConfig,
    paper=Citation(
        "Y. Zhu, Y. Xu, F. Yu, Q. Liu, S. Wu, L. Wang",
        "Deep Graph Contrastive Representation Learning",
        "ICML Workshop GRL+",
        2020,
    ),
    family="node contrast",
)
class Grace(Method):
    """InfoNCE between two views; all other nodes of both views are a node's negatives.

    Every step drops edges, each direction on its own, and masks feature columns, twice. The
    embedding is what the encoder, a GCN of two layers, makes of the clean graph; the projector is
    for training alone.

    As the official code, but for memory: all negatives are kept, in blocks with exact gradients
    (the official blocks keep every exponential for the backward pass). Fixed epochs and the last
    state are official, too; `patience` stops earlier.
    """

    cost: ClassVar[Literal["linear", "quadratic"]] = "quadratic"
    starting_weights: ClassVar[StartingWeights] = "glorot"  # of the encoder

    def __init__(self, config: GraceConfig, num_features: int) -> None:
        super().__init__()
        self.config: GraceConfig = config
        width = config.width
        self.encoder = GCNStack(
            [num_features, 2 * width, width],
            activation=config.activation,
            shared_activation=True,
            start=self.starting_weights,
        )
        self.projector = MLP([width, config.projection_width, width], activation="elu")
        self.source = PerGraph(partial(ViewSource, normalise_rows=config.row_normalise))

    @override
    def prepare(self, graph: Graph) -> None:
        self.source(graph)

    def corrupted(self, graph: Graph, generator: torch.Generator) -> tuple[View, View]:
        """Two views of the graph, drawn one after the other."""
        config, source = self.config, self.source(graph)
        first = config.first_edge_drop, config.first_column_mask
        second = config.second_edge_drop, config.second_column_mask
        return source.corrupted(*first, generator), source.corrupted(*second, generator)

    def see(self, view: View) -> Float[Tensor, "nodes dim"]:
        """What the encoder makes of a view."""
        # Without a generator: the encoder has no dropout, and `rrelu` its mean slope (GCA).
        encoded: Tensor = self.encoder(view.features, view.operator)
        return encoded

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        first, second = self.corrupted(graph, step.generator)
        queries, keys = self.projector(self.see(first)), self.projector(self.see(second))
        losses = intra_view_info_nce(queries, keys, self.config.temperature)
        return {"contrast": losses.symmetric.mean()}

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self.see(self.source(graph).clean)
