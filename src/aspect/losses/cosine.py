"""Rows of length one and their similarities, safe for rows of zeros."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["cosines", "directions"]


def directions(x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
    """Rows of length one; a row of zeros stays so and gets no gradient."""
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    has_direction = lengths > 0
    unit: Tensor = x / torch.where(has_direction, lengths, 1) * has_direction
    return unit


def cosines(
    one: Float[Tensor, "nodes dim"], other: Float[Tensor, "nodes dim"]
) -> Float[Tensor, " nodes"]:
    """The cosine of each row with its partner; zero where one of them is zero."""
    found: Tensor = torch.linalg.vecdot(directions(one), directions(other))
    return found
