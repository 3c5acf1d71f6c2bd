"""GGD: nodes of the graph against nodes of a shuffled one, without a summary."""

from __future__ import annotations

from typing import Annotated, ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.features import mask_columns
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.losses.mutual_information import two_group_loss
from aspect.methods.base import OneEncoder, OneEncoderConfig, Step
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import exact_mask
from aspect.nn.gcn import GCNStack
from aspect.nn.propagation import spread
from aspect.nn.scorers import SummedLinearScorer


class GGDConfig(OneEncoderConfig):
    """Settings of GGD; the defaults are the official ones of Cora."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """Passes over the graph."""
    patience: Count | None = 500
    """Epochs without a lower loss before stopping at the best; as many as epochs: never stop."""
    width: Annotated[Count, Choice((256, 512, 1024, 1536, 2048))] = 512
    """Dimensions of the embedding (D')."""
    projector_layers: Count = 1
    """Linear layers between an embedding and its score."""
    column_mask: Annotated[Share, Range(0.0, 0.4)] = 0.2
    """Mask rate of feature columns at a step, the same for both groups."""
    hops: Annotated[int, Field(ge=0), Choice((0, 5, 10))] = 5
    """Steps of smoothing in what is added to the embedding (n); 0: nothing is added."""
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of all weights."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-3, log=True)] = 0.0
    """Weight decay of all weights."""


@register(
    "ggd",
    config=GGDConfig,
    paper=Citation(
        "Y. Zheng, S. Pan, V. C. S. Lee, Y. Zheng, P. S. Yu",
        "Rethinking and Scaling Up Graph Contrastive Learning: An Extremely "
        "Efficient Approach with Group Discrimination",
        "NeurIPS",
        2022,
    ),
    family="group discrimination",
)
class GGD(OneEncoder):
    """Binary classification of nodes and corrupted nodes by the sum of their projections.

    `H = PReLU(A-hat X' W + b)` with one slope, where X' lacks exactly floor(rate * columns)
    columns; the corrupted group has the rows of the same X' in a fresh order. The embedding is
    `H + A-hat^n H` of the whole features.

    As the official code for citation graphs, but `hops` is a setting (there 5, or none at all for
    Citeseer), and 0 leaves H as it is rather than doubling it. The code for Amazon and Coauthor
    differs by a slope per column and by keeping weights after the best epoch's step, which is not
    followed here.
    """

    keeps_before_step: ClassVar[bool] = True

    config: GGDConfig
    encoder: GCNStack

    def __init__(self, config: GGDConfig, num_features: int) -> None:
        super().__init__(config)
        self.encoder = GCNStack([num_features, config.width])
        self.scorer = SummedLinearScorer(config.width, config.projector_layers)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        clean, rate = self.source(graph).clean, self.config.column_mask
        kept = exact_mask(graph.num_features, rate, step.generator, graph.dtype)
        projected = self.encoder.project(mask_columns(clean.features, kept))
        both = self.embed_both(graph, projected, clean.operator, step.generator, kept)
        real, corrupted = (step.gather(rows, 0) for rows in both)
        return {"discrimination": two_group_loss(self.scorer(real), self.scorer(corrupted))}

    @override
    def row_plan(self) -> RowPlan | None:
        return self.smoothed_rows(1, 0.0, "shuffled")

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        embedding = super().embed(graph)
        if self.config.hops == 0:
            return embedding
        return embedding + spread(embedding, self.source(graph).clean.operator, self.config.hops)
