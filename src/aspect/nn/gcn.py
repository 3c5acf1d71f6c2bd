"""Graph convolutions in a row, over whatever operator they are given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.features import drop_entries, dropout
from aspect.data.graph import Features
from aspect.data.operators import Operator
from aspect.nn.mlp import Activation, ActivationName, check_widths
from aspect.nn.normalisation import BatchNorm, NormStatistics

# Glorot-uniform weights and biases of zero (the papers' usual), or both uniform within
# 1 / sqrt(output width) (ARIEL).
StartingWeights = Literal["glorot", "uniform"]


class GCNStack(nn.Module):
    """Layers `H <- dropout(activation(norm(G H W + b)))` for an operator G.

    A layer's norm, activation and dropout stand or fall together but for the last layer's: there
    `activate_last` decides on norm and activation, and `drop_last` on dropout. The bias comes after
    propagation, so that the product with W can be had alone (`project`): rows of features in
    another order give its rows in that order, and a corrupted graph needs no second product.
    """

    def __init__(  # noqa: PLR0913 - the settings of a layer, each on its own
        self,
        widths: Sequence[int],
        *,
        activation: ActivationName = "prelu",
        shared_activation: bool = False,
        batch_norm: bool = False,
        norm_statistics: NormStatistics = "recomputed",
        norm_momentum: float = 0.1,
        activate_last: bool = True,
        input_dropout: float = 0.0,
        dropout: float = 0.0,
        drop_last: bool = False,
        bias: bool = True,
        start: StartingWeights = "glorot",
    ) -> None:
        """Build from widths, the features' first and the embedding's last.

        Args:
            widths: Columns before, between and after the layers.
            activation: PReLU is one slope a layer, or one for all where it is shared.
            shared_activation: One module serves all layers (GRACE, GCA, ARIEL, SP-GCL).
            batch_norm: Whether each layer's outputs are normalised over the nodes.
            norm_statistics: What batch norm embeds by.
            norm_momentum: Rate of the newest batch in `running` statistics.
            activate_last: Whether norm and activation follow the last layer too.
            input_dropout: Of feature entries, before the first layer.
            dropout: Between the layers.
            drop_last: Whether the last layer's output is dropped out too (SP-GCL).
            bias: Whether there is a b.
            start: First weights.
        """
        super().__init__()
        check_widths(widths)
        layers = len(widths) - 1
        self.input_dropout, self.dropout, self.drop_last = input_dropout, dropout, drop_last
        self.activated = layers if activate_last else layers - 1
        self.weights = nn.ParameterList(
            torch.empty(narrow, wide) for narrow, wide in pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.zeros(width) for width in widths[1:] if bias)
        self.norms = nn.ModuleList(
            BatchNorm(width, statistics=norm_statistics, momentum=norm_momentum)
            for width in widths[1 : self.activated + 1]
            if batch_norm
        )
        distinct = min(1, self.activated) if shared_activation else self.activated
        self.activations = nn.ModuleList(Activation(activation) for _ in range(distinct))
        self._draw_weights(start)

    def _draw_weights(self, start: StartingWeights) -> None:
        for weight in self.weights:
            if start == "glorot":
                nn.init.xavier_uniform_(weight)
            else:
                bound = 1 / math.sqrt(weight.shape[1])
                nn.init.uniform_(weight, -bound, bound)
        for bias in self.biases:
            if start == "uniform":
                bound = 1 / math.sqrt(len(bias))
                nn.init.uniform_(bias, -bound, bound)

    @override
    def forward(
        self, features: Features, operator: Operator, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        """Embed every node; without a generator nothing is dropped and no slope drawn."""
        return self.propagate(self.project(features, generator), operator, generator)

    def project(
        self, features: Features, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes hidden"]:
        """The features times the first layer's weights: not yet propagated, without bias."""
        weight: Tensor = self.weights[0]
        return drop_entries(features, self.input_dropout, generator) @ weight

    def propagate(
        self,
        projected: Float[Tensor, "nodes hidden"],
        operator: Operator,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "nodes dim"]:
        """All that follows `project`."""
        hidden = operator(projected)
        for number in range(len(self.weights)):
            if number > 0:
                hidden = operator(hidden @ self.weights[number])
            if len(self.biases):
                hidden = hidden + self.biases[number]
            if number < self.activated:
                hidden = self._activate(hidden, number, generator)
            if number < len(self.weights) - 1 or self.drop_last:
                hidden = dropout(hidden, self.dropout, generator)
        return hidden

    def propagate_both(
        self,
        projected: Float[Tensor, "nodes hidden"],
        operator: Operator,
        order: Int[Tensor, " nodes"],
    ) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]]:
        """Embeddings of the nodes, and of the same nodes with each other's features."""
        real = self.propagate(projected, operator)
        return real, self.propagate(projected.index_select(0, order), operator)

    def _activate(
        self, hidden: Float[Tensor, "nodes dim"], number: int, generator: torch.Generator | None
    ) -> Float[Tensor, "nodes dim"]:
        if len(self.norms):
            hidden = self.norms[number](hidden)
        activation = self.activations[min(number, len(self.activations) - 1)]
        activated: Tensor = activation(hidden, generator)
        return activated
