"""Views that agree column by column while columns say different things (GBT, CCA-SSG)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

ROUNDING = 4  # steps of a float: a column that varies by less, for its size, is constant


def standardise_columns(x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
    """Columns of mean 0 and of unbiased deviation 1.

    A constant column becomes zeros and gets no gradient; the official codes give NaN there, in the
    gradient (GBT) or at once (CCA-SSG), and elsewhere the same numbers.
    """
    centred = x - x.mean(0)
    smallest = ROUNDING * torch.finfo(x.dtype).eps * x.detach().abs().amax(0)
    varies = centred.detach().std(0) > smallest
    # Chosen before the root, whose slope at zero is infinite.
    variance = torch.where(varies, centred.var(0), 1)
    return centred * varies / variance.sqrt()


def barlow_loss(
    one: Float[Tensor, "nodes dim"], other: Float[Tensor, "nodes dim"]
) -> Float[Tensor, ""]:
    """`sum_i (1 - C_ii)^2 + (1 / dim) sum_(i != j) C_ij^2` for the cross-correlation C (GBT).

    C divides by the number of nodes but the deviations by one less, as in GBT's code: the diagonal
    cannot exceed (n - 1) / n.
    """
    correlation = standardise_columns(one).t() @ standardise_columns(other) / len(one)
    diagonal = correlation.diagonal()
    across = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + across / len(diagonal)


def canonical_loss(
    one: Float[Tensor, "nodes dim"], other: Float[Tensor, "nodes dim"], weight: float
) -> Float[Tensor, ""]:
    """`-tr(Z1' Z2) / n + weight (|I - Z1' Z1 / n|^2 + |I - Z2' Z2 / n|^2)` (CCA-SSG).

    Sums over columns, so that a weight belongs to a width.
    """
    first, second = standardise_columns(one), standardise_columns(other)
    agreement = (first * second).sum() / len(first)
    return weight * (_redundancy(first) + _redundancy(second)) - agreement


def _redundancy(x: Float[Tensor, "nodes dim"]) -> Float[Tensor, ""]:
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return (eye - x.t() @ x / len(x)).square().sum()
