"""Edges ranked against random pairs by how alike their ends are (GREET)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

__all__ = ["edge_ranking_loss"]

EVEN = 0.5  # the weight of an edge that joins like and unlike nodes equally


def edge_ranking_loss(
    joined: Float[Tensor, " edges"],
    random: Float[Tensor, " edges"],
    weights: Float[Tensor, " edges"],
    like_margin: float,
    unlike_margin: float,
) -> Float[Tensor, ""]:
    """Ends of like edges should be more alike than random pairs, ends of unlike edges less.

    `(mean relu(c_ab - c_uv + g) relu(w - 0.5) + mean relu(c_uv - c_ab + g') relu(0.5 - w)) / 2`.

    Args:
        joined: Cosine of the ends of every edge, c_uv.
        random: Cosine of the random pair that each edge is held against, c_ab; for both halves.
        weights: How much an edge joins like nodes, w in [0, 1].
        like_margin: By how much a like edge should win, g.
        unlike_margin: By how much an unlike edge should lose, g'.
    """
    like = (random - joined + like_margin).relu() * (weights - EVEN).relu()
    unlike = (joined - random + unlike_margin).relu() * (EVEN - weights).relu()
    return (like.mean() + unlike.mean()) / 2
