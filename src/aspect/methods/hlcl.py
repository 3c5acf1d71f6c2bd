"""HLCL: a low-pass view of homophilic edges, a high-pass view of heterophilic ones."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from functools import partial
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.graph import Graph
from aspect.losses.info_nce import LOWEST_TEMPERATURE, info_nce
from aspect.methods.base import OneEncoder, OneEncoderConfig, PerGraph, Step
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.gcn import GCNStack
from aspect.nn.mlp import MLP
from aspect.nn.neighbours import EdgeSplit

EdgeShare = Annotated[float, Field(gt=0, le=1)]


class HLCLConfig(OneEncoderConfig):
    """Symbols of the paper in parentheses; where it is silent, the values of its code."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """Passes over the graph."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of both layers and of the projector."""
    dropout: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Dropout of feature entries and between the layers."""
    like_share: Annotated[EdgeShare, Range(0.1, 1.0)] = 0.5
    """Ratio of its neighbours, the most similar, that a node keeps for the low pass (k1)."""
    unlike_share: Annotated[EdgeShare, Range(0.1, 1.0)] = 0.5
    """Ratio of its neighbours, the least similar, that a node keeps for the high pass (k2)."""
    interval: Count | None = 50
    """Epochs after which edges are chosen anew by the embeddings (T); none: by features alone."""
    edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Drop rate of edges, each direction apart, in a low-pass view."""
    node_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Ratio of nodes that lose all edges in a high-pass view."""
    column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Mask rate of feature columns in every view."""
    unit_diagonal: bool = False
    """A high pass with ones on its diagonal, as in the code; off: I minus the low pass."""
    simplified: bool = False
    """The appendix's variant: one low-pass view against one high-pass view, at half the cost."""
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE), Range(0.1, 1.0, log=True)] = 0.2
    """Temperature of InfoNCE (tau)."""
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-3, log=True)] = 5e-5
    """Weight decay."""


@register(
    "hlcl",
    config=HLCLConfig,
    paper=Citation(
        "W. Yang, B. Mirzasoleiman",
        "Graph Contrastive Learning under Heterophily via Graph Filters",
        "UAI",
        2024,
    ),
    family="spectral contrast",
)
class HLCL(OneEncoder):
    """InfoNCE between two low-pass views, and between two high-pass views.

    The low pass is along homophilic edges, the high pass along heterophilic ones. It follows the
    paper: the released code does not run. Similarity is the cosine, edges are chosen for both
    subgraphs among all (the code takes dot products, lets heterophilic edges be chosen among what
    homophilic ones leave, and counts an edge that both ends choose twice). Ties are broken by the
    means around the ends, so that no numbering of nodes matters. The embedding is the low pass of
    the clean graph; the code scores a randomly augmented one and keeps the checkpoint with the best
    test accuracy. Edges have both directions on every graph (there, those of the files), and
    weights start as of a graph convolution (there, of a layer).

    Edges are chosen anew by a copy of the encoder, kept with the weights, that embeds the subgraphs
    chosen by features. We read the paper as embedding the subgraphs in use; then a choice would
    depend on all choices before, and no saved model could embed another graph.
    """

    cost: ClassVar[Cost] = "quadratic"

    config: HLCLConfig
    has_chosen: Tensor

    def __init__(self, config: HLCLConfig, num_features: int) -> None:
        super().__init__(config)
        width, rate = config.width, config.dropout
        self.encoder = GCNStack(
            [num_features, width, width], activation="relu", input_dropout=rate, dropout=rate
        )
        self.projector = MLP([width, width, width], activation="elu")
        self.chooser = deepcopy(self.encoder).requires_grad_(False)
        self.register_buffer("has_chosen", torch.tensor(False))
        self.split = PerGraph(self._choose)
        # Loaded weights may choose otherwise.
        self.register_load_state_dict_post_hook(self.split.forget)  # type: ignore[no-untyped-call]  # torch

    def _choose(self, graph: Graph) -> EdgeSplit:
        config = self.config
        return EdgeSplit.of(
            self.source(graph),
            self.chooser if bool(self.has_chosen) else None,
            like_share=config.like_share,
            unlike_share=config.unlike_share,
            unit_diagonal=config.unit_diagonal,
        )

    def choose_anew(self) -> None:
        """From now on edges are chosen by the encoder as it is."""
        self.chooser.load_state_dict(self.encoder.state_dict())
        self.has_chosen.fill_(True)
        self.split.forget()

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        """How often edges were chosen before the step."""
        return 0 if self.config.interval is None else (step.epoch - 1) // self.config.interval

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, generator, done = self.config, step.generator, step.epoch - 1
        if config.interval is not None and done > 0 and done % config.interval == 0:
            self.choose_anew()
        split = self.split(graph)
        low = partial(split.low, config.edge_drop, config.column_mask, generator)
        high = partial(split.high, config.node_drop, config.column_mask, generator)
        pairs = {"low": (low, low), "high": (high, high)}
        if config.simplified:
            pairs = {"contrast": (low, high)}
        terms = {}
        for name, pair in pairs.items():
            one, other = (self.projector(self.encode(draw(), generator)) for draw in pair)
            terms[name] = info_nce(one, other, config.temperature).symmetric.mean() / len(pairs)
        return terms

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self.encode(self.split(graph).low())
