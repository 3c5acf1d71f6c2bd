"""DGI: nodes of the graph against nodes of a shuffled one, by a summary of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Weight
from aspect.data.graph import Graph
from aspect.data.operators import Operator
from aspect.data.rows import RowPlan
from aspect.losses.mutual_information import two_group_loss
from aspect.methods.base import OneEncoder, OneEncoderConfig, Step
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import View
from aspect.nn.gcn import GCNStack
from aspect.nn.scorers import BilinearScorer, sigmoid_mean


class DGIConfig(OneEncoderConfig):
    """Settings of DGI; the defaults are the official ones of Cora and Citeseer."""

    epochs: Annotated[int, Field(ge=0)] = 10_000
    """The most passes over the graph; patience ends the training long before."""
    patience: Annotated[Count | None, Choice((20, 50))] = 20
    """Epochs without a lower loss before stopping at the best; none: never stop early."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of the embedding (F')."""
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of all weights."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-2, log=True)] = 0.0
    """Weight decay of all weights."""


@register(
    "dgi",
    config=DGIConfig,
    paper=Citation(
        "P. Veličković, W. Fedus, W. L. Hamilton, P. Liò, Y. Bengio, R. D. Hjelm",
        "Deep Graph Infomax",
        "ICLR",
        2019,
    ),
    family="node against summary",
)
class DGI(OneEncoder):
    """Binary classification of pairs: a node, or a corrupted one, with the graph's summary.

    `H = PReLU(A-hat X W + b)` with one slope; the summary is `sigmoid(mean_i h_i)`; a corrupted
    graph has the rows of X in a fresh order at every step. Both are scored against the summary of
    the clean one, and gradients flow through all three. The embedding is H as it is.

    As the official code by default (its sparse path; the dense one adds self-loops twice), but for
    the graph's own self-loops, which are removed on reading.
    """

    keeps_before_step: ClassVar[bool] = True

    config: DGIConfig
    encoder: GCNStack

    def __init__(self, config: DGIConfig, num_features: int) -> None:
        super().__init__(config)
        self.encoder = GCNStack([num_features, config.width])
        self.scorer = BilinearScorer(config.width, config.width)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        clean = self.source(graph).clean
        return {"discrimination": self.discriminate(graph, clean, step)}

    @override
    def row_plan(self) -> RowPlan | None:
        return self.smoothed_rows(1, 0.0, "shuffled")

    def discriminate(self, graph: Graph, view: View, step: Step) -> Float[Tensor, ""]:
        """The loss on the graph as a view has it, with a corruption drawn for it."""
        projected = self.encoder.project(view.features)
        return self.tell_apart(graph, projected, view.operator, step)

    def tell_apart(
        self, graph: Graph, projected: Float[Tensor, "nodes dim"], operator: Operator, step: Step
    ) -> Float[Tensor, ""]:
        """As `discriminate`, from features times the encoder's weights."""
        both = self.embed_both(graph, projected, operator, step.generator)
        real, corrupted = (step.gather(rows, 0) for rows in both)
        summaries = self.summaries(graph, projected, real)
        return two_group_loss(self._score(real, summaries), self._score(corrupted, summaries))

    def summaries(
        self,
        graph: Graph,  # noqa: ARG002 - for subclasses that summarise other graphs
        projected: Float[Tensor, "nodes dim"],  # noqa: ARG002
        real: Float[Tensor, "nodes dim"],
    ) -> Sequence[Float[Tensor, " dim"]]:
        """What nodes are scored against: here their own graph's summary alone.

        Args:
            graph: The graph as it is.
            projected: Its features times the encoder's weights.
            real: Its nodes' embeddings.
        """
        return [sigmoid_mean(real)]

    def _score(
        self, nodes: Float[Tensor, "nodes dim"], summaries: Sequence[Float[Tensor, " dim"]]
    ) -> Float[Tensor, " nodes"]:
        """The sum of a node's logits over the summaries."""
        return torch.stack([self.scorer(nodes, summary) for summary in summaries]).sum(0)
