"""GBT: the cross-correlation of two corrupted views is drawn to the identity (Barlow Twins)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.graph import Graph
from aspect.losses.correlation import barlow_loss
from aspect.methods.base import (
    BatchNormConfig,
    OneEncoder,
    OneEncoderConfig,
    Step,
    cosine_decay,
)
from aspect.methods.registry import Citation, register
from aspect.nn.gcn import GCNStack


class GBTConfig(BatchNormConfig, OneEncoderConfig):
    """Symbols of the paper in parentheses; the rates are near the mean of the official ones."""

    epochs: Annotated[int, Field(ge=0), Choice((50, 200, 500, 1000))] = 1000
    """Passes over the graph (T)."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 256
    """Dimensions of the embedding; the hidden layer has twice as many (d)."""
    norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Rate of the newest batch in `running` statistics; short trainings need more."""
    column_mask: Annotated[Share, Range(0.0, 0.5)] = 0.2
    """Mask rate of feature columns in each view (p_x)."""
    edge_drop: Annotated[Share, Range(0.0, 0.5)] = 0.4
    """Drop rate of edges in each view, either direction on its own (p_e)."""
    learning_rate: Annotated[Positive, Range(1e-4, 2e-3, log=True)] = 5e-4
    """Learning rate at its peak."""
    weight_decay: Weight = 1e-5
    """Decoupled weight decay (AdamW)."""
    warm_up: Share = 0.1
    """Ratio of epochs in which the learning rate rises; officially 100 of 1000 epochs."""


@register(
    "gbt",
    config=GBTConfig,
    paper=Citation(
        "P. Bielak, T. Kajdanowicz, N. V. Chawla",
        "Graph Barlow Twins: A self-supervised representation learning framework for graphs",
        "Knowledge-Based Systems",
        2022,
        in_journal=True,
    ),
    family="redundancy reduction",
)
class GBT(OneEncoder):
    """Barlow Twins on graphs; no negatives, no projector.

    The embedding is signed, neither activated nor normalised.

    As in the official code the first epoch has a learning rate of zero. Where we differ: batch
    norm embeds by the clean graph's statistics, not by running ones (`norm_statistics`); a constant
    column of an embedding counts as uncorrelated instead of giving NaN; the layers have no biases,
    since batch norm or the standardisation of columns would subtract each of them again; the
    warm-up is a ratio of the epochs, so that fewer epochs do not end in it.
    """

    anytime: ClassVar[bool] = False
    decoupled_decay: ClassVar[bool] = True

    config: GBTConfig

    def __init__(self, config: GBTConfig, num_features: int) -> None:
        super().__init__(config)
        self.encoder = GCNStack(
            [num_features, 2 * config.width, config.width],
            batch_norm=True,
            norm_statistics=config.norm_statistics,
            norm_momentum=config.norm_momentum,
            activate_last=False,
            bias=False,
        )

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, source = self.config, self.source(graph)
        one, other = (
            self.encode(source.corrupted(config.edge_drop, config.column_mask, step.generator))
            for _ in range(2)
        )
        return {"correlation": barlow_loss(one, other)}

    @override
    def learning_rate_factor(self, epoch: int) -> float:
        """A line from 0 to 1, which it reaches in the warm-up's last epoch; then half a cosine."""
        epochs, done = self.config.epochs, epoch - 1
        warm_up = round(self.config.warm_up * epochs)
        if done < warm_up:
            return done / max(1, warm_up - 1)
        return cosine_decay(done - warm_up, epochs - warm_up)
