"""GMI: mutual information of an embedding with features and neighbours, and reconstructed edges."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Weight
from aspect.data.graph import Graph
from aspect.losses.edges import Reconstruction
from aspect.losses.mutual_information import squashed_divergence
from aspect.methods.base import OneEncoder, OneEncoderConfig, PerGraph, Step
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.augmentations import draw_others
from aspect.nn.gcn import GCNStack
from aspect.nn.mlp import Activation
from aspect.nn.propagation import neighbour_mean
from aspect.nn.scorers import BilinearScorer


class GMIConfig(OneEncoderConfig):
    """Symbols of the paper in parentheses; the defaults are those of the official code."""

    epochs: Annotated[int, Field(ge=0)] = 550
    """Most passes over the graph."""
    patience: Count | None = 20
    """Epochs without a lower loss before stopping at the best; none: never stop early."""
    layers: Annotated[Count, Choice((1, 2))] = 1
    """Graph convolutions; officially two for Cora and one for other graphs."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of every layer."""
    feature_weight: Annotated[Weight, Range(0.2, 2.0, log=True)] = 0.8
    """Weight of the mutual information with the node's own features (alpha)."""
    neighbour_weight: Annotated[Weight, Range(0.2, 2.0, log=True)] = 1.0
    """Weight of the mutual information with its neighbours' transformed features (beta)."""
    edge_weight: Annotated[Weight, Range(0.2, 2.0, log=True)] = 1.0
    """Weight of the reconstruction of edges (gamma)."""
    negatives: Count = 5
    """Other nodes drawn for every node and each of the first two terms."""
    pairs_per_node: Count | None = None
    """Pairs drawn for those without an edge; none: all up to 50,000 nodes, 64 a node beyond."""
    learning_rate: Annotated[Positive, Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate."""
    weight_decay: Weight = 0.0
    """Weight decay."""


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
class GMI(OneEncoder):
    """GMI-mean: two bounds on mutual information and the reconstruction of the graph.

    Scores pass a sigmoid before they enter the bounds, and probabilities of edges are kept off 0
    and 1 by 1e-10 within the logarithm, as in the official code: both decide how the three terms
    balance. Where we differ: the reconstruction is computed in blocks of rows, with the same value
    and gradient, where the code holds several n by n matrices; on very large graphs, or with
    `pairs_per_node`, pairs without an edge are sampled. The official probe chooses its length by
    test accuracy, ours never does.
    """

    cost: ClassVar[Cost] = "quadratic"
    keeps_before_step: ClassVar[bool] = True

    config: GMIConfig
    encoder: GCNStack

    def __init__(self, config: GMIConfig, num_features: int) -> None:
        super().__init__(config)
        self.encoder = GCNStack([num_features, *[config.width] * config.layers])
        self.neighbour_activation = Activation("prelu")
        self.feature_scorer = BilinearScorer(num_features, config.width)
        self.neighbour_scorer = BilinearScorer(config.width, config.width)
        self.neighbour_mean = PerGraph(neighbour_mean)  # without the node itself
        self.reconstruction = PerGraph(Reconstruction)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, generator = self.config, step.generator
        clean = self.source(graph).clean
        transformed = self.encoder.project(clean.features)
        embeddings = self.encoder.propagate(transformed, clean.operator)
        # Of the first layer's transformed features, however many layers there are.
        means = self.neighbour_activation(self.neighbour_mean(graph)(transformed))
        left = self.feature_scorer.project(clean.features)
        features = self._divergence(self.feature_scorer, left, embeddings, generator)
        # The embedding is exchanged, the neighbours stay.
        left = self.neighbour_scorer.project(embeddings)
        neighbours = self._divergence(self.neighbour_scorer, left, means, generator)
        edges = self.reconstruction(graph)(embeddings, config.pairs_per_node, generator)
        return {
            "features": config.feature_weight * features,
            "neighbours": config.neighbour_weight * neighbours,
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
