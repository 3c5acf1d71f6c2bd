"""ARIEL's information regularisation: two views no closer to each other than to the original."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.losses.cosine import cosines

__all__ = ["information_hinge"]


def information_hinge(
    first: Float[Tensor, "nodes dim"],
    second: Float[Tensor, "nodes dim"],
    original: Float[Tensor, "nodes dim"],
    temperature: float,
) -> Float[Tensor, ""]:
    """`mean_i max(0, 2 q_i(1, 2) - q_i(1, o) - q_i(2, o))` for `q = exp(cosine / temperature)`.

    Gradients flow through the views' own similarity alone; those to the original are a bound.
    """
    with torch.no_grad():
        bound = sum((cosines(view, original) / temperature).exp() for view in (first, second))
    between = (cosines(first, second) / temperature).exp()
    return (2 * between - bound).relu().mean()
