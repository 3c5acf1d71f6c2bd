"""S3GCL: an MLP without a graph is contrasted with spectrally filtered views of its input."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.features import seen_features
from aspect.data.graph import Graph
from aspect.losses.info_nce import LOWEST_TEMPERATURE, Positives, several_positives_info_nce
from aspect.methods.base import BatchNormConfig, Method, PerGraph, Step
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.filters import Band
from aspect.nn.mlp import MLP
from aspect.nn.neighbours import similar_positives
from aspect.nn.spectral_encoder import Signal, SpectralEncoder


class S3GCLConfig(BatchNormConfig):
    """Symbols of the paper in parentheses; the defaults lie between the two official settings."""

    epochs: Annotated[int, Field(ge=0)] = 200
    """Passes over the graph."""
    row_normalise: Annotated[bool, Choice((True, False))] = False
    """Divide each node's features by the sum of their sizes; official on wiki graphs alone."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 1024
    """Dimensions of the embedding and of all that it is compared with (h)."""
    projector_layers: Annotated[int, Field(ge=1, le=2)] = 1
    """Linear layers between the embedding and the loss."""
    order: Annotated[Count, Range(4, 12)] = 10
    """Order of the Chebyshev filters (K)."""
    input_dropout: Annotated[Share, Range(0.2, 0.8)] = 0.5
    """Dropout of feature entries before a filter."""
    dropout: Annotated[Share, Range(0.2, 0.8)] = 0.5
    """Dropout after a filter."""
    neighbours: Annotated[int, Field(ge=0), Range(3, 30, log=True)] = 5
    """Nodes of the nearest features that are positives in the high pass (k)."""
    low_weight: Annotated[float, Field(ge=0, le=1), Choice((0.0, 0.25, 0.5, 0.75))] = 0.5
    """Weight of the low pass, whose positives are neighbours; high has the rest (gamma)."""
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE), Range(0.2, 1.0, log=True)] = 0.5
    """Temperature of InfoNCE (tau)."""
    learning_rate: Annotated[Positive, Range(1e-4, 3e-3, log=True)] = 5e-4
    """Learning rate."""
    weight_decay: Annotated[Weight, Range(1e-7, 1e-4, log=True)] = 1e-6
    """Weight decay."""


@register(
    "s3gcl",
    config=S3GCLConfig,
    paper=Citation(
        "G. Wan, Y. Tian, W. Huang, N. V. Chawla, M. Ye",
        "S3GCL: Spectral, Swift, Spatial Graph Contrastive Learning",
        "ICML",
        2024,
    ),
    family="spectral contrast",
)
class S3GCL(Method):
    """InfoNCE of an MLP with a high-pass and a low-pass branch, with several positives a node.

    Only the MLP embeds, so that the edges matter in training alone. A branch without weight is not
    built. The filters are a reconstruction: their module is missing from the official code, and
    what it builds but never uses is left out. Every node is contrasted with all others, where the
    official code contrasts within random batches of 10,000 nodes and mistakes their positives; a
    row of zeros has no nearest features and is its own positive alone.
    """

    cost: ClassVar[Cost] = "quadratic"

    def __init__(self, config: S3GCLConfig, num_features: int) -> None:
        super().__init__()
        self.config: S3GCLConfig = config
        width = config.width
        self.encoder = MLP([num_features, width, width], norm=config.norm_statistics)
        self.projector = MLP([width] * (config.projector_layers + 1))
        weights: dict[Band, float] = {"high": 1 - config.low_weight, "low": config.low_weight}
        self.weights = {band: weight for band, weight in weights.items() if weight > 0}
        self.branches = nn.ModuleDict(
            {
                band: SpectralEncoder(
                    num_features,
                    width,
                    bands=(band,),
                    order=config.order,
                    input_dropout=config.input_dropout,
                    dropout=config.dropout,
                    batch_norm=True,
                    activation="relu",
                    filter_kind="ramp",
                )
                for band in self.weights
            }
        )
        self._signal = PerGraph(partial(Signal.of, normalise_rows=config.row_normalise))
        self._positives = PerGraph(self._find_positives)

    def _find_positives(self, graph: Graph) -> dict[Band, Positives]:
        """Of every branch: the nearest by features (high), or the neighbours (low)."""
        positives: dict[Band, Positives] = {}
        if "high" in self.weights:
            features = self._signal(graph).features
            positives["high"] = similar_positives(features, self.config.neighbours)
        if "low" in self.weights:
            positives["low"] = Positives.from_graph(graph)
        return positives

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        signal, positives = self._signal(graph), self._positives(graph)
        queries = self.projector(self.encoder(signal.features))
        terms: dict[str, Tensor] = {}
        for band, weight in self.weights.items():
            keys = self.branches[band](signal, step.generator)[0]
            losses = several_positives_info_nce(
                queries, keys, self.config.temperature, positives[band]
            )
            terms[band] = weight * losses.rows.mean()
        return terms

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        # Without edges: nothing is prepared for a graph that is only embedded.
        rows = self.config.row_normalise
        embedded: Tensor = self.encoder(seen_features(graph.features, normalise_rows=rows))
        return embedded
