"""PolyGCL: learned low-pass and high-pass filters, trained against a shuffled graph."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.features import permute_rows
from aspect.data.graph import Graph
from aspect.losses.mutual_information import two_group_loss
from aspect.methods.base import BatchNormConfig, FilterBank, Group, Method, PerGraph, Step
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import draw_order
from aspect.nn.scorers import BilinearScorer
from aspect.nn.spectral_encoder import BandActivation, Signal, SpectralEncoder


class PolyGCLConfig(BatchNormConfig):
    """Symbols of the paper in parentheses; the defaults are those of the official code."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """Passes over the graph at most."""
    patience: Count | None = 20
    """Epochs without a lower loss before stopping at the best; none: never stop early."""
    row_normalise: bool = True
    """Divide each node's features by the sum of their sizes."""
    order: Annotated[Count, Range(5, 15)] = 10
    """Order of the Chebyshev filters (K)."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of the embedding."""
    input_dropout: Annotated[Share, Range(0.0, 0.8)] = 0.5
    """Dropout of feature entries before the filter."""
    dropout: Annotated[Share, Range(0.0, 0.8)] = 0.5
    """Dropout after the filter."""
    batch_norm: Annotated[bool, Choice((True, False))] = False
    """Batch norm of the filtered features, before the linear layer."""
    activation: Annotated[BandActivation, Choice(("relu", "prelu"))] = "relu"
    """What follows the linear layer."""
    trains_norm: bool = False
    """Train batch norm's scale and shift and the slope of PReLU; off: they stay as they start."""
    learning_rate: Annotated[Positive, Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate of linear layer and scorer."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-2, log=True)] = 0.0
    """Weight decay of linear layer and scorer."""
    filter_learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-2
    """Learning rate of the filters and of the mixture."""
    filter_weight_decay: Annotated[Weight, Range(1e-6, 1e-2, log=True)] = 0.0
    """Weight decay of the filters and of the mixture."""


@register(
    "polygcl",
    config=PolyGCLConfig,
    paper=Citation(
        "J. Chen, R. Lei, Z. Wei",
        "PolyGCL: Graph Contrastive Learning via Learnable Spectral Polynomial Filters",
        "ICLR",
        2024,
    ),
    family="spectral contrast",
)
class PolyGCL(Method):
    """Both bands of every node against one summary, those of shuffled features as negatives.

    As in the official code, the first values of the filters, 2 and 0, are constants, and what
    belongs to batch norm and PReLU is in no optimiser (`trains_norm` puts it there). Differences:
    batch norm embeds by each band's statistics on the clean graph; officially by one running mean
    for both bands and for shuffled features, with momentum 0.01 (`norm_statistics`: `running`);
    rows of features are divided by their sum even where it is below one, and a feature counts by
    its size; that the official evaluation picks the best test accuracy is not followed.
    """

    def __init__(self, config: PolyGCLConfig, num_features: int) -> None:
        super().__init__()
        self.config: PolyGCLConfig = config
        self.encoder = SpectralEncoder(
            num_features,
            config.width,
            bands=("low", "high"),
            order=config.order,
            learned_start=False,
            input_dropout=config.input_dropout,
            dropout=config.dropout,
            batch_norm=config.batch_norm,
            norm_statistics=config.norm_statistics,
            activation=config.activation,
        )
        for part in (self.encoder.norm, self.encoder.activation):
            if part is not None:
                part.requires_grad_(config.trains_norm)
        self.mixture = nn.Parameter(torch.full((2,), 0.5))  # beta of low, alpha of high
        self.scorer = BilinearScorer(config.width, config.width, start="torch")
        self._signal = PerGraph(partial(Signal.of, normalise_rows=config.row_normalise))

    def _mix(
        self, low: Float[Tensor, "nodes dim"], high: Float[Tensor, "nodes dim"]
    ) -> Float[Tensor, "nodes dim"]:
        """`beta h_low + alpha h_high`."""
        beta, alpha = self.mixture.unbind()
        return beta * low + alpha * high

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        clean, generator = self._signal(graph), step.generator
        order = draw_order(graph.num_nodes, generator)
        shuffled = Signal(permute_rows(clean.features, order), clean.operator)
        real = self.encoder.embed_apart(clean, generator)
        corrupted = self.encoder.embed_apart(shuffled, generator)
        summary = self._mix(*real).mean(0).relu()
        scores = torch.stack([self.scorer(band, summary) for band in (*real, *corrupted)])
        return {"discrimination": two_group_loss(scores[:2], scores[2:])}

    @override
    def monitors(self) -> dict[str, Tensor]:
        low, high = self.mixture.detach()
        return {"mixture_low": low, "mixture_high": high}

    @override
    def parameter_groups(self) -> list[Group]:
        config = self.config
        slow = [*self.encoder.filters.parameters(), self.mixture]
        known = {id(parameter) for parameter in slow}
        rest = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        return [
            Group(slow, config.filter_learning_rate, config.filter_weight_decay),
            Group(rest, config.learning_rate, config.weight_decay),
        ]

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self._mix(*self.encoder(self._signal(graph)))

    @override
    def filter_bank(
        self, graph: Graph, frequencies: Float[Tensor, " frequencies"]
    ) -> FilterBank | None:
        low, high = self.encoder.responses(frequencies)
        return FilterBank({"low": low, "high": high}, self_loops=False)
