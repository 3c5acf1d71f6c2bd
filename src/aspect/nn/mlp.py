"""Linear layers in a row: projectors, predictors, and encoders that see no graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix
from aspect.nn.activations import Activation, ActivationName
from aspect.nn.batch_norm import BatchNorm, NormStatistics

__all__ = ["MLP"]

FEWEST_WIDTHS = 2  # in and out


class MLP(nn.Module):
    """Linear layers with torch's first weights; norm and activation between them, never after.

    Two widths make a single linear layer. Features may be compressed. Batch norm stands before the
    activation.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        activation: ActivationName = "relu",
        norm: NormStatistics | None = None,
    ) -> None:
        super().__init__()
        if len(widths) < FEWEST_WIDTHS or min(widths) < 1:
            raise ValueError(f"Widths must be at least two integers >= 1. Got {list(widths)}.")
        self.layers = nn.ModuleList(nn.Linear(narrow, wide) for narrow, wide in pairwise(widths))
        self.norms = nn.ModuleList(
            BatchNorm(width, statistics=norm) for width in widths[1:-1] if norm is not None
        )
        self.activations = nn.ModuleList(Activation(activation) for _ in widths[1:-1])

    @override
    def forward(self, features: Features) -> Float[Tensor, "nodes dim"]:
        hidden = self._first(features)
        for number, activation in enumerate(self.activations):
            if len(self.norms):
                hidden = self.norms[number](hidden)
            hidden = self.layers[number + 1](activation(hidden))
        return hidden

    def _first(self, features: Features) -> Float[Tensor, "nodes dim"]:
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear)
        if isinstance(features, SparseMatrix):
            return features @ layer.weight.t() + layer.bias
        hidden: Tensor = layer(features)
        return hidden
