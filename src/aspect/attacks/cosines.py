"""Cosines over all pairs of nodes: their mean and deviation; rows of fewer numbers for them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from aspect.data.features import dense
from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix

COMPONENTS = 256  # of the features, if there are more
SUBSPACE_STEPS = 4  # towards the subspace of those components


def compressed(features: Features) -> Float[Tensor, "nodes dim"]:
    """Rows of few numbers with about the same cosines: those along the leading components."""
    if features.shape[1] <= COMPONENTS:
        return dense(features)
    generator = torch.Generator().manual_seed(0)  # one start, on every device
    start = torch.randn(features.shape[1], COMPONENTS, generator=generator)
    basis = start.to(features.device, features.dtype)
    back = features.transposed if isinstance(features, SparseMatrix) else features.t()
    for _ in range(SUBSPACE_STEPS):
        basis = torch.linalg.qr(back @ (features @ basis)).Q
    return features @ basis


def mean_cosine(rows: Float[Tensor, "nodes dim"]) -> float:
    """The mean over all pairs of nodes, edges included."""
    double = rows.to(torch.float64, copy=True)  # and no further copy: there may be many columns
    unit = normalize(double, dim=1, out=double)
    return float(unit.sum(0).square().sum() - unit.square_().sum()) / _pairs(rows)


def deviation_of_cosines(rows: Float[Tensor, "nodes dim"]) -> float:
    """The standard deviation over all pairs of nodes; takes O(nodes * dim^2) time."""
    unit = normalize(rows.double(), dim=1)
    of_itself = unit.square().sum(1)  # one, or zero for a row of zeros
    square = float((unit.t() @ unit).square().sum() - of_itself.square().sum()) / _pairs(rows)
    return math.sqrt(max(0.0, square - mean_cosine(rows) ** 2))


def _pairs(rows: Tensor) -> int:
    count = max(2, len(rows))
    return count * (count - 1)
