"""Linear layers in a row (projectors, predictors, encoders without a graph) and activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix
from aspect.nn.normalisation import BatchNorm, NormStatistics

ActivationName = Literal["relu", "prelu", "rrelu", "leaky-relu", "elu", "none"]

LOWEST_SLOPE, HIGHEST_SLOPE = 1 / 8, 1 / 3
MEAN_SLOPE = (LOWEST_SLOPE + HIGHEST_SLOPE) / 2  # 11/48


class RandomLeaky(nn.Module):
    """RReLU: negative entries times slopes drawn from [1/8, 1/3] by a generator.

    Without a generator all slopes are the mean, 11/48. That is ARIEL's evaluation, and GCA at all
    times: its code calls the function without the flag of training.
    """

    @override
    def forward(
        self, x: Float[Tensor, "*shape"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*shape"]:
        if generator is None:
            return nn.functional.leaky_relu(x, MEAN_SLOPE)
        slopes = torch.empty_like(x, requires_grad=False)
        slopes.uniform_(LOWEST_SLOPE, HIGHEST_SLOPE, generator=generator)
        return torch.where(x >= 0, x, x * slopes)


# PReLU has one slope for all columns, from 0.25 on, in every method that names it.
MAKERS: dict[ActivationName, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "prelu": nn.PReLU,
    "rrelu": RandomLeaky,
    "leaky-relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "none": nn.Identity,
}


class Activation(nn.Module):
    """The activation of that name; only `rrelu` draws."""

    def __init__(self, name: ActivationName) -> None:
        super().__init__()
        self.function = MAKERS[name]()

    @override
    def forward(
        self, x: Float[Tensor, "*shape"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*shape"]:
        draws = isinstance(self.function, RandomLeaky)
        activated: Tensor = self.function(x, generator) if draws else self.function(x)
        return activated


def check_widths(widths: Sequence[int]) -> None:
    """Refuse what makes no layer: fewer widths than in and out, or empty ones."""
    if len(widths) < 2 or min(widths) < 1:  # noqa: PLR2004 - in and out
        raise ValueError(f"Widths must be at least two integers >= 1. Got {list(widths)}.")


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
        check_widths(widths)
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
