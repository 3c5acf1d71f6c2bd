"""InfoNCE with several positives a node, none of them in the denominator (GREET, S3GCL)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.losses.blocked import KEPT_BYTES
from aspect.losses.cosine import directions
from aspect.losses.info_nce import LOWEST_FLOAT32_TEMPERATURE, NodeLosses
from aspect.losses.negatives import log_sum_of_negatives
from aspect.losses.positives import Positives

__all__ = ["several_positives_info_nce", "several_positives_loss"]


def several_positives_info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    positives: Positives,
    *,
    block: int | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> NodeLosses:
    """`log sum_(j not in P_i) exp(s_ij) - mean_(j in P_i) s_ij`, and with the views exchanged.

    Negatives alone stand in the sum, so that the loss can be negative. GREET takes `symmetric`,
    S3GCL `rows`. A node whose positives are all nodes is only drawn to them.
    """
    dtype = queries.dtype
    if temperature < LOWEST_FLOAT32_TEMPERATURE:
        queries, keys = queries.double(), keys.double()
    negatives = log_sum_of_negatives(
        queries, keys, temperature, positives, block=block, kept_bytes=kept_bytes
    )
    one, other = directions(queries), directions(keys)
    mean = positives.mean.to(one.dtype)
    rows = negatives.rows - torch.linalg.vecdot(one, mean @ other) / temperature
    columns = negatives.columns - torch.linalg.vecdot(other, mean @ one) / temperature
    return NodeLosses(rows.to(dtype), columns.to(dtype))


def several_positives_loss(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    positives: Positives,
    batches: Sequence[Int[Tensor, " _"]] | None = None,
) -> Float[Tensor, ""]:
    """The mean of `symmetric` over all nodes, each held against all or those of its batch (GREET).

    Batches hold every node once; positives outside a node's batch do not count.
    """
    if batches is None:
        return several_positives_info_nce(queries, keys, temperature, positives).symmetric.mean()
    total = queries.new_zeros(())
    for batch in batches:
        among = positives.among(batch)
        losses = several_positives_info_nce(queries[batch], keys[batch], temperature, among)
        total = total + losses.symmetric.sum()
    return total / len(queries)
