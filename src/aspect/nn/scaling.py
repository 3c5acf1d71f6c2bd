"""Embeddings brought to a place and size where other tools expect them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Normalisation", "Scaling"]

Normalisation = Literal["none", "centre", "standard", "unit"]

# Contrastive losses leave the size of an embedding free, but a penalised reader with its default
# settings (scikit-learn's logistic regression, C = 1) does not: this length suits it.
MEAN_LENGTH = 4.0


@dataclass(frozen=True, eq=False)
class Scaling:
    """Where the training graph's embeddings lie; embeddings of other graphs are moved alike."""

    mean: Float[Tensor, " dim"]
    std: Float[Tensor, " dim"]
    length: Float[Tensor, ""]  # mean length of the centred rows

    @classmethod
    def of(cls, embeddings: Float[Tensor, "nodes dim"]) -> Scaling:
        """Measured in double precision."""
        rows = embeddings.double()
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        length = (rows - mean).norm(dim=1).mean()
        return cls(*(part.to(embeddings.dtype) for part in (mean, variance.sqrt(), length)))

    def apply(
        self, embeddings: Float[Tensor, "nodes dim"], how: Normalisation
    ) -> Float[Tensor, "nodes dim"]:
        """Shift and scale the rows.

        `centre` subtracts the mean and divides by one number, so that the mean length is
        `MEAN_LENGTH`: distances keep their proportions. `standard` divides each column by its own
        standard deviation, `unit` each centred row by its length. What is constant becomes zero.
        """
        if how == "none":
            return embeddings
        centred = embeddings - self.mean
        if how == "centre":
            return centred * (MEAN_LENGTH / _or_one(self.length))
        if how == "standard":
            return centred / _or_one(self.std)
        return centred / _or_one(centred.norm(dim=1, keepdim=True))


def _or_one(divisor: Tensor) -> Tensor:
    return torch.where(divisor > 0, divisor, 1)
