"""BGRL: an online network predicts the EMA encoder's embedding of another view."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.losses.similarity import bootstrap_loss
from aspect.methods.base import (
    BatchNormConfig,
    OneEncoder,
    OneEncoderConfig,
    Step,
    cosine_decay,
)
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import View
from aspect.nn.gcn import GCNStack
from aspect.nn.mlp import MLP


class BGRLConfig(BatchNormConfig, OneEncoderConfig):
    """Symbols of the paper in parentheses; defaults are the official ones but for the epochs.

    The official 10,000 epochs are for graphs of 8,000 nodes and more. Both schedules stretch and
    shrink with the epochs, so that fewer of them need no other settings.
    """

    epochs: Annotated[int, Field(ge=0), Choice((50, 100, 300, 1000))] = 1000
    """Steps in all, which both schedules are stretched to (T)."""

    # The networks
    hidden_width: Count = 512
    """Dimensions between the encoder's two layers."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 256
    """Dimensions of the embedding."""
    prediction_width: Count = 512
    """Hidden units of the predictor."""
    norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Rate of the newest batch in `running` statistics; 0.99 officially, 0.1 is torch's usual."""
    momentum: Annotated[float, Field(ge=0, le=1), Range(0.95, 0.999)] = 0.99
    """EMA momentum of the target at the first step, from where it rises to one (tau)."""

    # The two views
    first_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    """Drop rate of edge directions in the first view (p_e,1)."""
    second_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.3
    """Drop rate of edge directions in the second view (p_e,2)."""
    first_column_mask: Annotated[Share, Range(0.0, 0.5)] = 0.2
    """Mask rate of feature columns in the first view (p_f,1)."""
    second_column_mask: Annotated[Share, Range(0.0, 0.5)] = 0.1
    """Mask rate of feature columns in the second view (p_f,2)."""

    # The optimiser
    learning_rate: Annotated[Positive, Range(1e-5, 5e-3, log=True)] = 5e-4
    """Highest learning rate, of encoder and predictor (eta)."""
    weight_decay: Weight = 1e-5
    """Weight decay of encoder and predictor, of the weights themselves."""
    warm_up: Share = 0.1
    """Ratio of epochs in which the learning rate rises; then it falls to zero as a cosine."""


@register(
    "bgrl",
    config=BGRLConfig,
    paper=Citation(
        "S. Thakoor, C. Tallec, M. G. Azar, M. Azabou, E. L. Dyer, R. Munos, "
        "P. Veličković, M. Valko",
        "Large-Scale Representation Learning on Graphs via Bootstrapping",
        "ICLR",
        2022,
    ),
    family="bootstrap",
)
class BGRL(OneEncoder):
    """Bootstrapped latents: no negatives, and no gradient for the target.

    The online network and a predictor embed one view, the target network the other, and then the
    views are exchanged. The target, a momentum encoder, starts from weights of its own and is an
    EMA of the online network. The embedding is the online encoder's of the clean graph.

    As the official code in all but the number of epochs, and so are its peculiarities: the first
    step has a learning rate of zero. Its embedding is normalised by the statistics of the last
    corrupted view almost alone; ours by those of the clean graph, unless `norm_statistics` is
    `running`. Both schedules depend on the number of epochs, so that a longer training is not a
    shorter one continued.
    """

    anytime: ClassVar[bool] = False
    decoupled_decay: ClassVar[bool] = True

    config: BGRLConfig

    def __init__(self, config: BGRLConfig, num_features: int) -> None:
        super().__init__(config)
        widths = [num_features, config.hidden_width, config.width]
        self.online, self.target = (
            GCNStack(
                widths,
                batch_norm=True,
                norm_statistics=config.norm_statistics,
                norm_momentum=config.norm_momentum,
            )
            for _ in range(2)
        )
        self.target.requires_grad_(False)
        self.predictor = MLP(
            [config.width, config.prediction_width, config.width], activation="prelu"
        )

    @override
    def encode(
        self, view: View, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        """The online network is the encoder; it draws nothing."""
        embeddings: Tensor = self.online(view.features, view.operator, generator)
        return embeddings

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, source = self.config, self.source(graph)
        first = config.first_edge_drop, config.first_column_mask
        second = config.second_edge_drop, config.second_column_mask
        views = [source.corrupted(*rates, step.generator) for rates in (first, second)]
        # In this order: the second view leaves its statistics behind.
        predicted = [step.gather(self.predictor(self.encode(view)), 0) for view in views]
        targets = [step.gather(self.target(view.features, view.operator), 0) for view in views]
        return {
            "first": bootstrap_loss(predicted[0], targets[1]),
            "second": bootstrap_loss(predicted[1], targets[0]),
        }

    @override
    def row_plan(self) -> RowPlan | None:
        return self.smoothed_rows(2, self.config.first_edge_drop, self.config.second_edge_drop)

    @override
    def learning_rate_factor(self, epoch: int) -> float:
        epochs = self.config.epochs
        warm_up, step = self.config.warm_up * epochs, epoch - 1
        if step < warm_up:
            return step / warm_up
        return cosine_decay(step - warm_up, epochs - warm_up)

    def momentum(self, epoch: int) -> float:
        """The target's EMA momentum; it rises from that of the settings to one as a cosine."""
        return 1 - (1 - self.config.momentum) * cosine_decay(epoch - 1, self.config.epochs)

    @override
    @torch.no_grad()
    def after_step(self, step: Step) -> None:
        """Move the target's parameters; those of norms are among them, statistics are not."""
        newest = 1 - self.momentum(step.epoch)
        for average, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
            average.lerp_(online, newest)
