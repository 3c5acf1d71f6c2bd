"""InfoNCE of a batch of rows: its negatives are the rest of the batch and rows of past batches."""

from __future__ import annotations

import math
from collections.abc import Hashable

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.losses.info_nce import NodeLosses, in_safe_precision
from aspect.losses.similarity import directions

Pair = tuple[Float[Tensor, "past dim"], Float[Tensor, "past dim"]]


class PastRows:
    """Unit rows of both views in the last batches, by what they are embeddings of.

    A new epoch begins with none: so a resumed training needs none of an earlier one. They stay in
    the same memory, which a captured step reads and writes once the queue is full.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._kept: dict[Hashable, Pair] = {}  # as many rows as there may be
        self._length: dict[Hashable, int] = {}  # rows of this epoch

    def of(self, epoch: int, name: Hashable) -> Pair | None:
        """Those of one name, newest first; None at the beginning of an epoch."""
        self._begin(epoch)
        length = self._length.get(name)
        if length is None:
            return None
        one, other = self._kept[name]
        return one[:length], other[:length]

    def keep(self, name: Hashable, views: Pair, most: int) -> None:
        """Put a batch before those that are there; the oldest beyond `most` rows go."""
        if most == 0:
            return
        newest = tuple(directions(view.detach()) for view in views)
        shape = most, *newest[0].shape[1:]
        if name not in self._kept or self._kept[name][0].shape != shape:
            self._kept[name] = newest[0].new_empty(shape), newest[1].new_empty(shape)
        length = self._length.get(name, 0)
        for rows, place in zip(newest, self._kept[name], strict=True):
            joined = torch.cat([rows, place[:length]])[:most]
            place[: len(joined)].copy_(joined)
        self._length[name] = min(most, length + len(newest[0]))

    def is_growing(self, epoch: int) -> bool:
        """Whether the next step will find another number of rows than the one after it."""
        self._begin(epoch)
        return any(self._length.get(name, 0) < len(kept[0]) for name, kept in self._kept.items())

    def _begin(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._length = epoch, {}


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
    dtype = queries.dtype
    queries, keys = in_safe_precision(temperature, queries, keys)
    u, v = directions(queries), directions(keys)
    positive = torch.linalg.vecdot(u, v) / temperature
    # Nobody else sees the products, so that a row's own place can be cleared in them.
    within = ((u / temperature) @ v.t()).fill_diagonal_(-torch.inf).exp_()
    count = len(u) - 1 + (0 if past is None else len(past[0]))
    scale = math.log(max(1, whole - 1) / max(1, count))

    def loss(one: Tensor, negatives: Tensor, others: Tensor | None) -> Tensor:
        if others is not None:
            negatives = negatives + (one @ (others.to(one).t() / temperature)).exp_().sum(1)
        smallest = torch.finfo(negatives.dtype).tiny  # a sum over nothing has no slope
        sums = torch.logaddexp(positive, negatives.clamp(min=smallest).log() + scale)
        losses: Tensor = (sums - positive).to(dtype)
        return losses

    old_queries, old_keys = (None, None) if past is None else past
    return NodeLosses(loss(u, within.sum(1), old_keys), loss(v, within.sum(0), old_queries))
