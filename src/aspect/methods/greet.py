"""GREET: edges told apart by whom they join, feeding a low-pass and a high-pass view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.blocks.augmentations import exact_mask
from aspect.blocks.diffusion import return_probabilities
from aspect.blocks.drawing import draw_order, draw_others
from aspect.blocks.mlp import MLP
from aspect.blocks.neighbours import nearest_by_cosine
from aspect.blocks.per_graph import PerGraph
from aspect.blocks.propagation import MatrixOperator, SymmetricPropagation
from aspect.graph.data import Features, Graph
from aspect.graph.features import mask_columns, row_normalise
from aspect.graph.operators import Operator
from aspect.methods.base import Group, Method, Step
from aspect.methods.citation import Citation
from aspect.methods.greet_config import GreetConfig
from aspect.methods.greet_edges import EdgeDiscriminator
from aspect.methods.registry import register
from aspect.objectives.info_nce import row_ranges
from aspect.objectives.pairs import pair_cosines
from aspect.objectives.positives import Positives
from aspect.objectives.ranking import edge_ranking_loss
from aspect.objectives.several_positives import several_positives_info_nce

__all__ = ["Greet", "GreetConfig"]

SEEDS = 2**31


@dataclass(frozen=True, eq=False)
class Prepared:
    """What every step on one graph needs."""

    graph: Graph
    features: Features  # normalised as the settings say
    walks: Float[Tensor, "nodes steps"]  # how likely a random walk is back after so many steps
    propagation: SymmetricPropagation
    neighbours: int  # of each node, at most as many as there are others

    @cached_property
    def positives(self) -> Positives:
        """Every node and those with the most similar features; found for a training alone."""
        nearest = nearest_by_cosine(self.features, self.neighbours)
        return Positives.from_neighbours(nearest, self.graph.dtype)


@register(
    "greet",
    config=GreetConfig,
    paper=Citation(
        "Y. Liu, Y. Zheng, D. Zhang, V. C. S. Lee, S. Pan",
        "Beyond Smoothing: Unsupervised Graph Representation Learning with Edge "
        "Heterophily Discriminating",
        "AAAI",
        2023,
    ),
    family="spectral contrast",
)
class Greet(Method):
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

    cost: ClassVar[Literal["linear", "quadratic"]] = "quadratic"
    phases: ClassVar[tuple[str, ...]] = ("contrast", "ranking")

    noise_seed: Tensor

    def __init__(self, config: GreetConfig, num_features: int) -> None:
        super().__init__()
        self.config: GreetConfig = config
        width = config.width
        self.discriminator = EdgeDiscriminator(
            num_features, config.walk_steps, config.discriminator_width
        )
        self.encoders = nn.ModuleList(MLP([num_features, width]) for _ in range(2))
        widths = [width] * (config.projector_layers + 1)
        self.projectors = nn.ModuleList(MLP(widths) for _ in range(2))
        self.register_buffer("noise_seed", torch.randint(SEEDS, ()))
        self.ready = PerGraph(self._prepare)

    def _prepare(self, graph: Graph) -> Prepared:
        config = self.config
        return Prepared(
            graph,
            row_normalise(graph.features) if config.row_normalise else graph.features,
            return_probabilities(graph, config.walk_steps),
            SymmetricPropagation(graph),
            min(config.neighbours, graph.num_nodes - 1),
        )

    @override
    def prepare(self, graph: Graph) -> None:
        _ = self.ready(graph).positives

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        if step.phase == "contrast":
            return {"contrast": self._contrast(graph, step.generator)}
        return {"ranking": self._ranking(graph, step.generator)}

    def edge_weights(
        self, graph: Graph, generator: torch.Generator | None
    ) -> Float[Tensor, " entries"]:
        """How like the ends of each entry are: drawn, or without any noise."""
        ready = self.ready(graph)
        weights: Tensor = self.discriminator(ready.features, ready.walks, graph, generator)
        return weights

    def filters(
        self, graph: Graph, weights: Float[Tensor, " entries"]
    ) -> tuple[MatrixOperator, MatrixOperator]:
        """The low-pass operator along like edges, the high-pass one along the others."""
        along, strength = self.ready(graph).propagation, self.config.high_pass_strength
        high = along.sharpening(1 - weights, strength=strength, unit_diagonal=True)
        return along.smoothing(weights), high

    def _spread(
        self, hidden: Float[Tensor, "nodes dim"], operator: Operator
    ) -> Float[Tensor, "nodes dim"]:
        for _ in range(self.config.hops):
            hidden = operator(hidden)
        return hidden

    def _contrast(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, ""]:
        ready, config = self.ready(graph), self.config
        with torch.no_grad():
            weights = self.edge_weights(graph, generator)
        masks = config.first_column_mask, config.second_column_mask
        rates = config.first_edge_dropout, config.second_edge_dropout
        projected = []
        for number, operator in enumerate(self.filters(graph, weights)):
            kept = exact_mask(graph.num_features, masks[number], generator, graph.dtype)
            hidden = self.encoders[number](mask_columns(ready.features, kept)).relu()
            thinned = operator.thinned(rates[number], generator)
            projected.append(self.projectors[number](self._spread(hidden, thinned)))
        return self._batched(projected[0], projected[1], ready.positives, generator)

    def _batched(
        self,
        low: Float[Tensor, "nodes dim"],
        high: Float[Tensor, "nodes dim"],
        positives: Positives,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """The mean over all nodes, each contrasted with those of its batch alone."""
        nodes, size, temperature = len(low), self.config.batch_size, self.config.temperature
        if size is None or size >= nodes:
            return several_positives_info_nce(low, high, temperature, positives).symmetric.mean()
        total = low.new_zeros(())
        order = draw_order(nodes, generator)
        for rows in row_ranges(nodes, size):
            batch = order[rows]
            among = positives.among(batch)
            losses = several_positives_info_nce(low[batch], high[batch], temperature, among)
            total = total + losses.symmetric.sum()
        return total / nodes

    def _ranking(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, ""]:
        weights = self.edge_weights(graph, generator)
        if graph.num_edges == 0:
            return weights.sum()  # zero, and so is its gradient
        # The encoders are left as they are, but what they say depends on the weights.
        embedding = self._embedding(graph, weights)
        source, target = graph.edge_index
        shape, device = source.shape, source.device
        one = torch.randint(graph.num_nodes, shape, generator=generator, device=device)
        other = draw_others(one, graph.num_nodes, generator)
        joined, random = (
            pair_cosines(embedding, *pair) for pair in ((source, target), (one, other))
        )
        config = self.config
        return edge_ranking_loss(joined, random, weights, config.like_margin, config.unlike_margin)

    def _embedding(
        self, graph: Graph, weights: Float[Tensor, " entries"]
    ) -> Float[Tensor, "nodes dim"]:
        """Both encodings side by side; gradients reach the weights, not the encoders."""
        features = self.ready(graph).features
        with torch.no_grad():
            hidden = [encoder(features).relu() for encoder in self.encoders]
        both = zip(hidden, self.filters(graph, weights), strict=True)
        return torch.cat([self._spread(each, operator) for each, operator in both], dim=1)

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
        return self._embedding(graph, self.edge_weights(graph, generator))
