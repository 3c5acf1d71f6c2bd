"""GREET: edges told apart by whom they join, feeding a low-pass and a high-pass view."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.features import mask_columns
from aspect.data.graph import Graph
from aspect.losses.edges import edge_ranking_loss, pair_cosines
from aspect.losses.info_nce import Positives, several_positives_loss
from aspect.methods.base import Group, Method, Step
from aspect.methods.citation import Citation
from aspect.methods.greet_config import GREETConfig
from aspect.methods.registry import Cost, register
from aspect.nn.augmentations import draw_batches, draw_pairs, exact_mask
from aspect.nn.mlp import MLP
from aspect.nn.neighbours import similar_positives
from aspect.nn.per_graph import PerGraph
from aspect.nn.propagation import spread
from aspect.nn.scorers import EdgeDiscriminator, WalkedGraph

__all__ = ["GREET", "GREETConfig"]


@register(
    "greet",
    config=GREETConfig,
    paper=Citation(
        "Y. Liu, Y. Zheng, D. Zhang, V. C. S. Lee, S. Pan",
        "Beyond Smoothing: Unsupervised Graph Representation Learning with Edge "
        "Heterophily Discriminating",
        "AAAI",
        2023,
    ),
    family="spectral contrast",
)
class GREET(Method):
    """Like edges feed a low-pass encoder, unlike ones a high-pass one; both are contrasted.

    Every epoch trains the encoders first, edges as they are, then the discriminator of edges,
    encoders as they are: edges that it takes for like should join nodes that are more alike than
    random pairs, the others nodes that are less so. The embedding is both encodings side by side.

    Where it differs from the official code: edge weights are drawn in training alone, and the
    embedding takes their median, so that it is the same every time (`drawn_embedding` draws as the
    official code does, from one seed); the last epoch is kept, not the one with the best validation
    score; edges are undirected, where the official code keeps the directions of some graphs. Nodes
    without neighbours never come back on a walk, and positives are held as indices, not as n x n
    masks.
    """

    cost: ClassVar[Cost] = "quadratic"
    phases: ClassVar[tuple[str, ...]] = ("contrast", "ranking")

    noise_seed: Tensor

    def __init__(self, config: GREETConfig, num_features: int) -> None:
        super().__init__()
        self.config: GREETConfig = config
        width = config.width
        self.discriminator = EdgeDiscriminator(
            num_features, config.walk_steps, config.discriminator_width
        )
        self.encoders = nn.ModuleList(MLP([num_features, width]) for _ in range(2))
        widths = [width] * (config.projector_layers + 1)
        self.projectors = nn.ModuleList(MLP(widths) for _ in range(2))
        self.register_buffer("noise_seed", torch.randint(2**31, ()))
        steps, rows = config.walk_steps, config.row_normalise
        self.ready = PerGraph(partial(WalkedGraph.of, walk_steps=steps, normalise_rows=rows))
        self.positives = PerGraph(self._find_positives)

    def _find_positives(self, graph: Graph) -> Positives:
        return similar_positives(self.ready(graph).features, self.config.neighbours)

    @override
    def prepare(self, graph: Graph) -> None:
        self.positives(graph)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        if step.phase == "contrast":
            return {"contrast": self._contrast(graph, step.generator)}
        return {"ranking": self._ranking(graph, step.generator)}

    def _contrast(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, ""]:
        ready, config = self.ready(graph), self.config
        with torch.no_grad():
            weights = self.discriminator(ready, generator)
        masks = config.first_column_mask, config.second_column_mask
        rates = config.first_edge_dropout, config.second_edge_dropout
        projected = []
        for number, operator in enumerate(ready.filters(weights, config.high_pass_strength)):
            kept = exact_mask(graph.num_features, masks[number], generator, graph.dtype)
            hidden = self.encoders[number](mask_columns(ready.features, kept)).relu()
            encoded = spread(hidden, operator.thinned(rates[number], generator), config.hops)
            projected.append(self.projectors[number](encoded))
        low, high = projected
        batches = draw_batches(graph.num_nodes, config.batch_size, generator)
        return several_positives_loss(low, high, config.temperature, self.positives(graph), batches)

    def _ranking(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, ""]:
        weights: Tensor = self.discriminator(self.ready(graph), generator)
        if graph.num_edges == 0:
            return weights.sum()  # zero, and so is its gradient
        embedding = self._embedding(graph, weights)
        pairs = draw_pairs(len(weights), graph.num_nodes, generator)
        joined, random = (pair_cosines(embedding, *ends) for ends in (graph.edge_index, pairs))
        config = self.config
        return edge_ranking_loss(joined, random, weights, config.like_margin, config.unlike_margin)

    def _embedding(
        self, graph: Graph, weights: Float[Tensor, " entries"]
    ) -> Float[Tensor, "nodes dim"]:
        """Both encodings side by side; gradients reach the weights, not the encoders."""
        ready, config = self.ready(graph), self.config
        with torch.no_grad():
            hidden = [encoder(ready.features).relu() for encoder in self.encoders]
        both = zip(hidden, ready.filters(weights, config.high_pass_strength), strict=True)
        return torch.cat([spread(each, operator, config.hops) for each, operator in both], dim=1)

    @override
    def rounds(self, phase: str) -> int:
        return self.config.contrast_rounds if phase == "contrast" else 1

    @override
    def parameter_groups(self) -> list[Group]:
        config = self.config
        contrasted = [*self.encoders.parameters(), *self.projectors.parameters()]
        ranked = list(self.discriminator.parameters())
        return [
            Group(contrasted, config.learning_rate, phase="contrast"),
            Group(ranked, config.discriminator_learning_rate, phase="ranking"),
        ]

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        generator = None
        if self.config.drawn_embedding:
            generator = torch.Generator(device=graph.device).manual_seed(int(self.noise_seed))
        return self._embedding(graph, self.discriminator(self.ready(graph), generator))
