"""The feature mask: entries of the feature matrix set to zero, which goes with every attack."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.attacks.base import Attack, Target
from aspect.attacks.registry import register_attack
from aspect.config import Config
from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError
from aspect.randomness import seed_for

__all__ = ["FeatureMask", "mask_features", "mask_generator", "mask_seed"]


@register_attack(
    "feature",
    config=Config,
    title="no flips: feature entries masked at random",
    changes="features",
    stored=False,
    needs_labels=False,
)
class FeatureMask(Attack):
    """The mask alone: it flips nothing."""

    @override
    def __init__(
        self,
        target: Target,
        config: Config,
        *,
        seed: int,
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        """There is nothing to begin."""

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        return torch.empty(0, 2, dtype=torch.long)


def mask_seed(kind: str, seed: int) -> int:
    """Seed of the feature mask that goes with an attack; that of a bare mask is its own."""
    return seed_for(seed, "perturbation", kind, *(() if kind == "feature" else ("features",)))


def mask_generator(kind: str, seed: int) -> torch.Generator:
    """What the mask of an attack is drawn from."""
    return torch.Generator().manual_seed(mask_seed(kind, seed))


def mask_features(features: Features, rate: float, generator: torch.Generator) -> Features:
    """The matrix with about a rate of its non-zero entries masked, each drawn by itself.

    An entry is masked if its number in [0, 1) is below the rate: with the same generator, what is
    masked at a rate is masked at every higher one, and dense and compressed matrices lose the same.

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
