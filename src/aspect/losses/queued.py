"""InfoNCE of a batch of rows: its negatives are the rest of the batch and rows of past batches."""

from __future__ import annotations

import math
from collections.abc import Hashable

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.losses.info_nce import NodeLosses
from aspect.losses.similarity import directions

__all__ = ["PastRows", "queued_info_nce"]

Pair = tuple[Float[Tensor, "past dim"], Float[Tensor, "past dim"]]


class PastRows:
    """Unit rows of both views in the last batches, by what they are embeddings of.

    A new epoch begins with none: so a resumed training needs none of an earlier one.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._kept: dict[Hashable, Pair] = {}

    def of(self, epoch: int, name: Hashable) -> Pair | None:
        """Those of one name; None at the beginning of an epoch."""
        if epoch != self._epoch:
            self._epoch, self._kept = epoch, {}
        return self._kept.get(name)

    def keep(self, name: Hashable, views: Pair, most: int) -> None:
        """Put a batch before those that are there; the oldest beyond `most` rows go."""
        if most == 0:
            return
        before = self._kept.get(name)
        newest = tuple(directions(view.detach()) for view in views)
        joined = newest if before is None else map(torch.cat, zip(newest, before, strict=True))
        one, other = (rows[:most] for rows in joined)
        self._kept[name] = one, other


def queued_info_nce(
    queries: Float[Tensor, "rows dim"],
    keys: Float[Tensor, "rows dim"],
    temperature: float,
    whole: int,
    past: Pair | None = None,
) -> NodeLosses:
    """Loss of every row against its positive and all negatives at hand.

    Args:
        queries: one view's embeddings of the batch.
        keys: the other view's, in the same order.
        temperature: of the softmax.
        whole: nodes of the graph; the sum over the negatives at hand is scaled up to all of them,
            so that a batch has the loss of the whole graph, and its gradient, up to sampling. By
            Jensen's inequality the logarithm underestimates, less so with more negatives.
        past: unit rows of the queries' and of the keys' view in earlier batches.
    """
    u, v = directions(queries), directions(keys)
    positive = torch.linalg.vecdot(u, v) / temperature
    # Nobody else sees the products, so that a row's own place can be cleared in them.
    scores = ((u / temperature) @ v.t()).fill_diagonal_(-torch.inf)
    count = len(u) - 1 + (0 if past is None else len(past[0]))
    scale = math.log(max(1, whole - 1) / max(1, count))

    def loss(one: Tensor, within: Tensor, others: Tensor | None) -> Tensor:
        negatives = within.logsumexp(1)
        if others is not None:
            further = one @ (others.t() / temperature)
            negatives = torch.logaddexp(negatives, further.logsumexp(1))
        losses: Tensor = torch.logaddexp(positive, negatives + scale) - positive
        return losses

    old_queries, old_keys = (None, None) if past is None else past
    return NodeLosses(loss(u, scores, old_keys), loss(v, scores.t(), old_queries))
