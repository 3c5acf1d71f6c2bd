"""InfoNCE whose negatives are all other nodes of both views (GRACE, GCA, ARIEL)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.losses.blocked import KEPT_BYTES
from aspect.losses.cosine import cosines
from aspect.losses.info_nce import LOWEST_FLOAT32_TEMPERATURE, NodeLosses, info_nce
from aspect.losses.others import log_sum_of_others

__all__ = ["intra_view_info_nce"]


def intra_view_info_nce(
    queries: Float[Tensor, "nodes dim"],
    keys: Float[Tensor, "nodes dim"],
    temperature: float,
    *,
    block: int | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> NodeLosses:
    """`log(sum_j exp(u_i.v_j / t) + sum_(j != i) exp(u_i.u_j / t)) - u_i.v_i / t`, and exchanged.

    The positive stands once in the sum, a node beside itself in its own view never: 2n - 2
    negatives. Exact, and in blocks as `info_nce` is; GRACE's loss is the mean of `symmetric`.
    """
    dtype = queries.dtype
    if temperature < LOWEST_FLOAT32_TEMPERATURE:
        queries, keys = queries.double(), keys.double()
    between = info_nce(queries, keys, temperature, block=block, kept_bytes=kept_bytes)
    positive = cosines(queries, keys) / temperature
    directions = []
    for losses, view in ((between.rows, queries), (between.columns, keys)):
        within = log_sum_of_others(view, temperature, block=block)
        directions.append(torch.logaddexp(losses, within - positive).to(dtype))
    return NodeLosses(*directions)
