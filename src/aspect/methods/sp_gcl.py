"""SP-GCL: the most similar nodes of a sample are positives; nothing is augmented."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.graph import Graph
from aspect.losses.similarity import top_similarity_loss
from aspect.methods.base import BatchNormConfig, OneEncoder, OneEncoderConfig, Step
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import draw_near, draw_order
from aspect.nn.gcn import GCNStack
from aspect.nn.mlp import MLP


class SPGCLConfig(BatchNormConfig, OneEncoderConfig):
    """Symbols of the paper in parentheses; the defaults are those of the official code."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """Passes over the graph; the official code sets its patience aside and runs them all."""

    # The encoder
    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes; off: raw."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 1024
    """Dimensions of both layers and of the projector."""
    batch_norm: Annotated[bool, Choice((True, False))] = True
    """Normalise each layer's outputs over the nodes before the activation."""
    dropout: Annotated[Share, Range(0.0, 0.7)] = 0.5
    """Dropout rate of each layer in training."""
    projector_activation: Annotated[Literal["prelu", "relu"], Choice(("prelu", "relu"))] = "prelu"
    """Between the projector's two layers."""

    # The sample
    sampling: Literal["near", "uniform"] = "near"
    """Draw from the neighbourhoods of seeds, with repetitions, or among all nodes, without."""
    seeds: Count = 128
    """Nodes whose neighbourhoods are sampled; at most all."""
    hops: Annotated[int, Field(ge=0), Range(1, 4)] = 4
    """How far those neighbourhoods reach (T)."""
    sample: Annotated[Count, Range(256, 1024)] = 512
    """Most nodes that are contrasted in an epoch."""

    # The objective
    positives: Annotated[Count, Range(3, 12)] = 5
    """Most similar nodes of the sample that are a node's positives, itself the first (K_pos)."""
    negatives: Annotated[Count, Range(50, 200)] = 100
    """Random nodes of the sample that are its negatives (K_neg)."""
    learning_rate: Annotated[Positive, Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-3, log=True)] = 1e-4
    """Decoupled weight decay (AdamW)."""


@register(
    "sp-gcl",
    config=SPGCLConfig,
    paper=Citation(
        "H. Wang, J. Zhang, Q. Zhu, W. Huang, K. Kawaguchi, X. Xiao",
        "Single-Pass Contrastive Learning Can Work for Both Homophilic and Heterophilic Graph",
        "TMLR",
        2023,
        in_journal=True,
    ),
    family="single-pass contrast",
)
class SPGCL(OneEncoder):
    """A spectral contrastive loss on a sample whose positives are found by similarity.

    Embeddings are the encoder's outputs in evaluation, neither projected nor activated once more.
    Where we differ from the official code: nodes without neighbours stay in the graph (there they
    are removed, which changes the splits); neighbourhoods are found for the seeds of an epoch alone
    (there for all nodes, up to n^2 numbers); seeds are no more than the nodes, and positives no
    more than the sample; convolutions with batch norm have no biases, since it would subtract them
    again, and it embeds by the statistics of the clean graph without dropout, not by running ones
    (`norm_statistics`).
    """

    decoupled_decay: ClassVar[bool] = True

    config: SPGCLConfig

    def __init__(self, config: SPGCLConfig, num_features: int) -> None:
        super().__init__(config)
        width = config.width
        self.encoder = GCNStack(
            [num_features, width, width],
            shared_activation=True,
            batch_norm=config.batch_norm,
            norm_statistics=config.norm_statistics,
            dropout=config.dropout,
            drop_last=True,
            bias=not config.batch_norm,
        )
        self.projector = MLP([width, width, width], activation=config.projector_activation)

    def draw_sample(self, graph: Graph, generator: torch.Generator) -> Int[Tensor, " sample"]:
        """The nodes contrasted in an epoch; near seeds, a node may come several times."""
        config = self.config
        if config.sampling == "uniform":
            return draw_order(graph.num_nodes, generator)[: config.sample]
        return draw_near(graph, config.seeds, config.hops, config.sample, generator)

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        # How many nodes lie near the seeds differs from draw to draw.
        return super().capture_key(step) if self.config.sampling == "uniform" else None

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, generator = self.config, step.generator
        embeddings = self.encode(self.source(graph).clean, generator)
        sample = self.draw_sample(graph, generator)
        projected = self.projector(embeddings[sample].relu())
        positives = min(config.positives, len(sample))
        contrast = top_similarity_loss(projected, positives, config.negatives, generator)
        return {"contrast": contrast}
