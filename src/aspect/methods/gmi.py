"""GMI: an embedding should tell of its node's features, its neighbours and its edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.blocks.activations import Activation
from aspect.blocks.drawing import draw_others
from aspect.blocks.gcn import GCNStack
from aspect.blocks.per_graph import PerGraph
from aspect.blocks.propagation import MatrixOperator, neighbour_mean
from aspect.blocks.scorers import BilinearScorer
from aspect.blocks.views import View, ViewSource
from aspect.config import Choice, Range
from aspect.graph.data import Graph
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.citation import Citation
from aspect.methods.registry import register
from aspect.objectives.mutual_information import squashed_divergence
from aspect.objectives.reconstruction import Reconstruction

__all__ = ["GMIConfig", "GraphicalMutualInformation"]

# Time grows with the square of the nodes: beyond so many, pairs without an edge are drawn.
EXACT_UP_TO = 50_000
DRAWN_BEYOND = 64

Weight = Annotated[float, Field(ge=0)]


class GMIConfig(MethodConfig):
    """Symbols of the paper in parentheses; the defaults are those of the official code."""

    epochs: Annotated[int, Field(ge=0)] = 550
    """Most passes over the graph."""
    patience: Annotated[int, Field(ge=1)] | None = 20
    """Epochs without a lower loss before stopping at the best; none: never stop early."""
    row_normalise: bool = True
    """Divide each node's features by the sum of their sizes, as the official code does."""
    layers: Annotated[int, Field(ge=1), Choice((1, 2))] = 1
    """Graph convolutions; officially two for Cora and one for other graphs."""
    width: Annotated[int, Field(ge=1)] = 512
    """Dimensions of every layer."""
    feature_weight: Annotated[Weight, Range(0.2, 2.0, log=True)] = 0.8
    """Weight of what the embedding tells of the node's own features (alpha)."""
    neighbour_weight: Annotated[Weight, Range(0.2, 2.0, log=True)] = 1.0
    """Weight of what it tells of its neighbours' transformed features (beta)."""
    edge_weight: Annotated[Weight, Range(0.2, 2.0, log=True)] = 1.0
    """Weight of the reconstruction of edges (gamma)."""
    negatives: Annotated[int, Field(ge=1)] = 5
    """Other nodes drawn for every node and each of the first two terms."""
    pairs_per_node: Annotated[int, Field(ge=1)] | None = None
    """Pairs drawn for those without an edge; none: all up to 50,000 nodes, 64 a node beyond."""
    learning_rate: Annotated[float, Field(gt=0), Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate."""
    weight_decay: Weight = 0.0
    """Weight decay."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """What every epoch on one graph needs."""

    view: View  # normalised features and the operator of the convolutions
    mean: MatrixOperator  # over neighbours, the node itself left out
    reconstruction: Reconstruction


@register(
    "gmi",
    config=GMIConfig,
    paper=Citation(
        "Z. Peng, W. Huang, M. Luo, Q. Zheng, Y. Rong, T. Xu, J. Huang",
        "Graph Representation Learning via Graphical Mutual Information Maximization",
        "WWW",
        2020,
    ),
    family="mutual information",
)
class GraphicalMutualInformation(Method):
    """GMI-mean: two bounds on mutual information and the reconstruction of the graph.

    Scores pass a sigmoid before they enter the bounds, and probabilities of edges are kept off 0
    and 1 by 1e-10 within the logarithm, as in the official code: both decide how the three terms
    balance. Where we differ: the reconstruction is found in blocks of rows, with the same value and
    gradient, where the code holds several n by n matrices; on very large graphs, or where
    `pairs_per_node` asks for it, pairs without an edge are sampled. The official probe chooses its
    length by test accuracy, ours never looks there.
    """

    cost: ClassVar[Literal["linear", "quadratic"]] = "quadratic"
    keeps_before_step: ClassVar[bool] = True

    def __init__(self, config: GMIConfig, num_features: int) -> None:
        super().__init__()
        self.config: GMIConfig = config
        self.encoder = GCNStack([num_features, *[config.width] * config.layers])
        self.neighbour_activation = Activation("prelu")
        self.feature_scorer = BilinearScorer(num_features, config.width)
        self.neighbour_scorer = BilinearScorer(config.width, config.width)
        self.ready = PerGraph(self._prepare)

    def _prepare(self, graph: Graph) -> Prepared:
        view = ViewSource(graph, normalise_rows=self.config.row_normalise).clean
        return Prepared(view, neighbour_mean(graph), Reconstruction(graph))

    @override
    def prepare(self, graph: Graph) -> None:
        self.ready(graph)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, ready, generator = self.config, self.ready(graph), step.generator
        transformed = self.encoder.project(ready.view.features)
        embeddings = self.encoder.propagate(transformed, ready.view.operator)
        # Of the first layer's transformed features, however many layers there are.
        neighbours = self.neighbour_activation(ready.mean(transformed))
        own = self.feature_scorer.project(ready.view.features)
        features = self._divergence(self.feature_scorer, own, embeddings, generator)
        # The embedding is exchanged, the neighbours stay.
        left = self.neighbour_scorer.project(embeddings)
        around = self._divergence(self.neighbour_scorer, left, neighbours, generator)
        edges = self._reconstruct(ready.reconstruction, embeddings, generator)
        return {
            "features": config.feature_weight * features,
            "neighbours": config.neighbour_weight * around,
            "edges": config.edge_weight * edges,
        }

    def _divergence(
        self,
        scorer: BilinearScorer,
        projected: Float[Tensor, "nodes dim"],
        right: Float[Tensor, "nodes dim"],
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """Of pairs of a node with itself from pairs of another node with it."""
        nodes = torch.arange(len(right), device=right.device)
        drawn = draw_others(nodes.expand(self.config.negatives, -1), len(right), generator)
        false = torch.stack([scorer.pairs(projected[others], right) for others in drawn])
        return squashed_divergence(scorer.pairs(projected, right), false)

    def _reconstruct(
        self,
        reconstruction: Reconstruction,
        embeddings: Float[Tensor, "nodes dim"],
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        nodes, drawn = len(embeddings), self.config.pairs_per_node
        if drawn is None and nodes > EXACT_UP_TO:
            drawn = DRAWN_BEYOND
        if drawn is None or drawn >= nodes:
            return reconstruction.exact(embeddings)
        return reconstruction.sampled(embeddings, drawn * nodes, generator)

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        view = self.ready(graph).view
        embeddings: Tensor = self.encoder(view.features, view.operator)
        return embeddings
