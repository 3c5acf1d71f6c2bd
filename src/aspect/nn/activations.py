"""Activations by name, as the papers' settings choose them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

__all__ = ["MEAN_SLOPE", "Activation", "ActivationName", "RandomLeaky"]

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
