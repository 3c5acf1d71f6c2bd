"""Rayleigh energy: how rough embeddings are on a graph, by one sparse product."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.operators import Operator

__all__ = ["rayleigh_energy"]


def rayleigh_energy(
    shifted_laplacian: Operator, z: Float[Tensor, "nodes dim"]
) -> Float[Tensor, ""]:
    """Tr(Z' L Z) / Tr(Z' Z), from 0 to 2 (`eq:pert_objective`).

    It is 0 for the root of the degrees, 2 for the same with the signs of a bipartite graph's sides.
    The operator applies L - I, which is what rescaling by the bound 2 leaves of the Laplacian.
    Embeddings that are zero everywhere have no roughness: their energy is zero.
    """
    mass = z.square().sum()
    energy = mass + (z * shifted_laplacian(z)).sum()
    return energy / torch.where(mass > 0, mass, torch.ones_like(mass))
