"""Cosines of pairs of nodes: of some, over all of them, and relative to random pairs and edges."""

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
TOP = 0.9  # quantile of the edges' cosines that counts as one
LEAST = 0.01  # weight of an edge that scores no better than a random pair
TINY = 1e-12  # a smaller square length of sums of unit rows is rounding


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


def leftover_cosines(
    one: Float[Tensor, "pairs dim"], other: Float[Tensor, "pairs dim"]
) -> Float[Tensor, " pairs"]:
    """Row by row, of sums of unit rows from which a row was subtracted; near zero if one is."""
    lengths = (one.square().sum(1) * other.square().sum(1)).clamp(min=TINY).sqrt()
    return (one * other).sum(1) / lengths


def top_of(cosines: Float[Tensor, " edges"]) -> float:
    """The cosine of edges that counts as one."""
    # Not torch.quantile, which takes at most 2**24 numbers.
    return float(cosines.sort().values[int(TOP * len(cosines))]) if len(cosines) else 1.0


def relative(cosines: Tensor, scale: tuple[float, float]) -> Tensor:
    """Zero for a random pair, one for an edge of the top; never far below or above."""
    zero, one = scale
    return ((cosines - zero) / max(one - zero, TINY)).clamp(-0.5, 1)


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
