"""GREET: low-pass and high-pass views, along edges that a discriminator weighs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share
from aspect.data.features import dropout, mask_columns
from aspect.data.graph import Graph
from aspect.losses.edges import edge_ranking_loss, pair_cosines
from aspect.losses.info_nce import LOWEST_TEMPERATURE, Positives, several_positives_loss
from aspect.methods.base import Group, Method, MethodConfig, PerGraph, Step
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.augmentations import draw_batches, draw_pairs, exact_mask
from aspect.nn.mlp import MLP
from aspect.nn.neighbours import similar_positives
from aspect.nn.propagation import spread
from aspect.nn.scorers import EdgeDiscriminator, WalkedGraph

Margin = Annotated[float, Field(ge=0, le=2)]


class GREETConfig(MethodConfig):
    """Symbols of the paper in parentheses; defaults are the official ones for unnamed graphs."""

    epochs: Annotated[int, Field(ge=0)] = 400
    """Passes over the graph, each of so many contrasts and one ranking."""
    row_normalise: Annotated[bool, Choice((False, True))] = False
    """Divide each node's features by the sum of their sizes; off: raw."""

    # The networks
    width: Annotated[Count, Choice((128, 256, 512, 1024, 2048))] = 128
    """Dimensions of each of the two encodings."""
    hops: Count = 2
    """How often an encoder propagates (L)."""
    high_pass_strength: Annotated[float, Field(ge=0, le=1), Range(0.1, 0.5)] = 0.1
    """How much of its heterophilic neighbours a node subtracts (alpha)."""
    projector_layers: Annotated[int, Field(ge=1, le=2), Choice((1, 2))] = 1
    """Linear layers of each projector."""
    discriminator_width: Count = 128
    """Hidden units of the edge discriminator."""
    walk_steps: Count = 16
    """Numbers of the structural encoding: steps of a random walk (d_s)."""
    drawn_embedding: bool = False
    """Draw edge weights for the embedding too, from one seed; off: their median."""

    # The contrast
    neighbours: Annotated[int, Field(ge=0), Range(0, 30)] = 20
    """Positives of a node beside itself, the nearest by features (k)."""
    first_column_mask: Annotated[Share, Range(0.1, 0.8)] = 0.1
    """Mask rate of feature columns in the low-pass view (p_f,1)."""
    second_column_mask: Annotated[Share, Range(0.1, 0.8)] = 0.5
    """Mask rate of feature columns in the high-pass view (p_f,2)."""
    first_edge_dropout: Annotated[Share, Range(0.1, 0.8)] = 0.5
    """Dropout of the low-pass operator's entries, self-loops included (p_e,1)."""
    second_edge_dropout: Annotated[Share, Range(0.1, 0.8)] = 0.1
    """Dropout of the high-pass operator's entries, self-loops included (p_e,2)."""
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE)] = 0.2
    """Temperature of the contrast (tau)."""
    batch_size: Count | None = None
    """Nodes that are contrasted with each other; none: all at once, exactly."""
    contrast_rounds: Count = 2
    """Contrasts in every epoch."""

    # The ranking
    like_margin: Annotated[Margin, Range(0.1, 0.5)] = 0.5
    """By how much ends of homophilic edges should be nearer than random pairs (gamma_hom)."""
    unlike_margin: Annotated[Margin, Range(0.1, 0.5)] = 0.5
    """By how much ends of heterophilic edges should be farther than random pairs (gamma_het)."""

    # The optimisers
    learning_rate: Annotated[Positive, Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate of encoders and projectors."""
    discriminator_learning_rate: Annotated[Positive, Range(1e-4, 3e-3, log=True)] = 1e-3
    """Learning rate of the edge discriminator."""


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
    """Contrast of a low-pass view along homophilic edges with a high-pass view along the others.

    Every epoch trains the encoders first, with fixed edge weights, then the edge discriminator,
    with fixed encoders: ends of edges that it takes for homophilic should be more similar than
    random pairs, ends of the others less. The embedding is both encodings side by side.

    Where it differs from the official code: edge weights are drawn in training alone, and the
    embedding takes their median, so that it is the same every time (`drawn_embedding` draws as the
    official code does, from one seed); the last epoch is kept, not the one with the best validation
    score; edges are undirected, where the official code keeps the directions of some graphs. Nodes
    without neighbours have return probability zero, and positives are held as indices, not as
    n x n masks.
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
        self.ready = PerGraph(partial(WalkedGraph, walk_steps=steps, normalise_rows=rows))
        self.positives = PerGraph(self._find_positives)

    def _find_positives(self, graph: Graph) -> Positives:
        return similar_positives(self.ready(graph).features, self.config.neighbours)

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
            # After normalisation: degrees do not follow, survivors are scaled up.
            thinned = operator.with_values(dropout(operator.values, rates[number], generator))
            encoded = spread(hidden, thinned, config.hops)
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
        filters = ready.filters(weights, config.high_pass_strength)
        bands = [spread(h, op, config.hops) for h, op in zip(hidden, filters, strict=True)]
        return torch.cat(bands, dim=1)

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
