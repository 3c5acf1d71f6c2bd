"""Features that go missing: entries of the matrix set to zero."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError

__all__ = ["mask_features"]


def mask_features(features: Features, rate: float, generator: torch.Generator) -> Features:
    """The matrix without about a share `rate` of its non-zero entries, each drawn by itself.

    An entry goes if its number in [0, 1) is below the rate: with the same generator, what is masked
    at a rate is masked at every higher one, and dense and compressed matrices lose the same.

    Args:
        features: Stays as it is; what is left of it is stored in the same way.
        rate: From 0 to 1.
        generator: On the CPU.
    """
    if not 0 <= rate <= 1:
        raise SettingsError(f"Rate of a feature mask must lie in [0, 1]. Got {rate}.")
    if not isinstance(features, SparseMatrix):
        return _masked(features, rate, generator)
    kept = _masked(features.values, rate, generator) != 0
    rows, columns = features.pattern.rows[kept], features.pattern.columns[kept]
    return SparseMatrix.from_entries(rows, columns, features.values[kept], features.shape)


def _masked(
    values: Float[Tensor, "*shape"], rate: float, generator: torch.Generator
) -> Float[Tensor, "*shape"]:
    """One draw for every value that is not zero, in the order of rows and columns."""
    present = values != 0
    draws = torch.rand(int(present.sum()), generator=generator, dtype=torch.float64)
    masked = values.clone()
    masked[present] *= (draws >= rate).to(values)
    return masked
