"""HLCL: like neighbours seen through a low-pass filter, unlike ones through a high-pass filter."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from aspect.blocks.augmentations import column_mask, entry_weights, isolate_nodes
from aspect.blocks.edge_choice import choose_edges, edge_similarity
from aspect.blocks.gcn import GCNStack
from aspect.blocks.mlp import MLP
from aspect.blocks.moving_average import follow
from aspect.blocks.per_graph import PerGraph
from aspect.blocks.propagation import MatrixOperator
from aspect.blocks.views import ViewSource
from aspect.config import Range
from aspect.graph.data import Features, Graph
from aspect.graph.features import dense, mask_columns
from aspect.methods.base import Group, Method, MethodConfig, Step
from aspect.methods.citation import Citation
from aspect.methods.registry import register
from aspect.objectives.info_nce import LOWEST_TEMPERATURE, info_nce

__all__ = ["HLCL", "HLCLConfig"]

# Similarities closer than this are equal but for rounding: binary features make many such.
STEP = 2**-20

EdgeShare = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]


class HLCLConfig(MethodConfig):
    """Symbols of the paper in parentheses; where it is silent, the values of its code."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """Passes over the graph."""
    row_normalise: bool = True
    """Divide each node's features by the sum of their sizes."""
    width: Annotated[int, Field(ge=1)] = 512
    """Dimensions of both layers and of the projector."""
    dropout: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Dropout of feature entries and between the layers."""
    like_share: Annotated[EdgeShare, Range(0.1, 1.0)] = 0.5
    """Share of its neighbours, the most similar, that a node keeps for the low pass (k1)."""
    unlike_share: Annotated[EdgeShare, Range(0.1, 1.0)] = 0.5
    """Share of its neighbours, the least similar, that a node keeps for the high pass (k2)."""
    interval: Annotated[int, Field(ge=1)] | None = 50
    """Epochs after which edges are chosen anew by the embeddings (T); none: by features alone."""
    edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Share of edges dropped, each direction apart, in a low-pass view."""
    node_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Share of nodes that lose all edges in a high-pass view."""
    column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Share of feature columns masked in every view."""
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


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Two subgraphs on all nodes, as weights of the edge index: one for what is chosen."""

    like: Float[Tensor, " entries"]
    unlike: Float[Tensor, " entries"]


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
class HLCL(Method):
    """InfoNCE between two low-pass views of like edges, and between two high-pass views of unlike.

    It follows the paper: the released code does not run. Similarity is the cosine, edges are chosen
    for both subgraphs among all (the code takes dot products, lets unlike edges be chosen among
    what like ones leave, and counts an edge that both ends choose twice). Equally similar edges
    are told apart by the means around their ends, so that no numbering of nodes matters. The
    embedding is the low pass of the clean graph; the code scores a randomly augmented one and
    keeps the checkpoint with the best test accuracy.

    Edges are chosen anew by a copy of the encoder, kept with the weights, that sees the subgraphs
    chosen by features. We read the paper as letting it see the subgraphs in use; then a choice
    would depend on all choices before, and no saved model and no other graph could be served.
    """

    cost: ClassVar[Literal["linear", "quadratic"]] = "quadratic"

    has_chosen: Tensor

    def __init__(self, config: HLCLConfig, num_features: int) -> None:
        super().__init__()
        self.config: HLCLConfig = config
        width = config.width
        self.encoder = GCNStack(
            [num_features, width, width],
            activation="relu",
            input_dropout=config.dropout,
            dropout=config.dropout,
        )
        self.projector = MLP([width, width, width], activation="elu")
        self.chooser = deepcopy(self.encoder).requires_grad_(False)
        self.register_buffer("has_chosen", torch.tensor(False))
        self._source = PerGraph(self._make_source)
        self._chosen = PerGraph(self._choose)
        self.register_load_state_dict_post_hook(_forget_choice)  # type: ignore[no-untyped-call]  # torch

    def _make_source(self, graph: Graph) -> ViewSource:
        return ViewSource(graph, normalise_rows=self.config.row_normalise)

    @override
    def prepare(self, graph: Graph) -> None:
        self._chosen(graph)

    @torch.no_grad()
    def _choose(self, graph: Graph) -> _Chosen:
        source = self._source(graph)
        chosen = self._split(source, dense(source.features))
        if not bool(self.has_chosen):
            return chosen
        low = self.chooser(source.features, self._low_pass(source, chosen.like))
        high = self.chooser(source.features, self._high_pass(source, chosen.unlike))
        return self._split(source, torch.cat([low, high], dim=1))

    def _split(self, source: ViewSource, x: Float[Tensor, "nodes dim"]) -> _Chosen:
        graph, around = source.graph, source.propagation.smoothing()(x)
        levels = (edge_similarity(graph, x.double()) / STEP).round()
        likeness = levels + edge_similarity(graph, around.double()) / 4
        like = choose_edges(graph, likeness, self.config.like_share)
        unlike = choose_edges(graph, -likeness, self.config.unlike_share)
        return _Chosen(like.to(graph.dtype), unlike.to(graph.dtype))

    def _low_pass(self, source: ViewSource, weights: Float[Tensor, " entries"]) -> MatrixOperator:
        return source.propagation.smoothing(weights)

    def _high_pass(self, source: ViewSource, weights: Float[Tensor, " entries"]) -> MatrixOperator:
        return source.propagation.sharpening(weights, unit_diagonal=self.config.unit_diagonal)

    def choose_anew(self) -> None:
        """From now on edges are chosen by the encoder as it is."""
        follow(self.chooser, self.encoder, momentum=0.0)
        self.has_chosen.fill_(True)
        self.forget_choice()

    def forget_choice(self) -> None:
        """What was chosen is no longer what the state says."""
        self._chosen = PerGraph(self._choose)

    def is_due(self, epoch: int) -> bool:
        """Whether an epoch begins with choosing edges: after every `interval` epochs."""
        interval = self.config.interval
        return interval is not None and epoch > 1 and (epoch - 1) % interval == 0

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        if self.is_due(step.epoch):
            self.choose_anew()
        generator, temperature = step.generator, self.config.temperature
        if self.config.simplified:
            pair = self._low_view(graph, generator), self._high_view(graph, generator)
            return {"contrast": info_nce(*pair, temperature).symmetric.mean()}
        terms = {}
        for name, view in (("low", self._low_view), ("high", self._high_view)):
            one, other = view(graph, generator), view(graph, generator)
            terms[name] = info_nce(one, other, temperature).symmetric.mean() / 2
        return terms

    def _low_view(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, "nodes dim"]:
        source, like = self._source(graph), self._chosen(graph).like
        kept = entry_weights(graph, self.config.edge_drop, generator)
        operator = self._low_pass(source, like if kept is None else like * kept)
        return self._project(self._masked(source, generator), operator, generator)

    def _high_view(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, "nodes dim"]:
        source, unlike = self._source(graph), self._chosen(graph).unlike
        kept = isolate_nodes(graph, self.config.node_drop, generator)
        operator = self._high_pass(source, unlike if kept is None else unlike * kept)
        return self._project(self._masked(source, generator), operator, generator)

    def _masked(self, source: ViewSource, generator: torch.Generator) -> Features:
        graph, rate = source.graph, self.config.column_mask
        keep = column_mask(graph.num_features, rate, generator, graph.dtype)
        return mask_columns(source.features, keep)

    def _project(
        self, features: Features, operator: MatrixOperator, generator: torch.Generator
    ) -> Float[Tensor, "nodes dim"]:
        projected: Tensor = self.projector(self.encoder(features, operator, generator))
        return projected

    @override
    def parameter_groups(self) -> list[Group]:
        config = self.config
        trained = [*self.encoder.parameters(), *self.projector.parameters()]
        return [Group(trained, config.learning_rate, config.weight_decay)]

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        source, chosen = self._source(graph), self._chosen(graph)
        embedded: Tensor = self.encoder(source.features, self._low_pass(source, chosen.like))
        return embedded


def _forget_choice(method: nn.Module, _keys: object) -> None:
    """Loaded weights may have chosen otherwise."""
    assert isinstance(method, HLCL)
    method.forget_choice()
