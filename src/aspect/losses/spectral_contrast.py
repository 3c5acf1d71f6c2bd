"""Squared similarities against random nodes, and the most similar as positives (SP-GCL)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.losses.cosine import directions

__all__ = ["top_similarity_loss"]


def top_similarity_loss(
    projected: Float[Tensor, "sample dim"],
    positives: int,
    negatives: int,
    generator: torch.Generator,
) -> Float[Tensor, ""]:
    """`-2 mean_i mean_(j in top k) S_ij + mean_i sum_(j in drawn) S_ij^2` for cosines S.

    The positive part is a mean over the top k, which hold the node itself; the negative part is a
    sum over nodes drawn with replacement, the node and its positives not excepted. Both are as in
    SP-GCL's code. The choice of nodes has no gradient, all chosen similarities do, on both sides.
    """
    sample = len(projected)
    if not 1 <= positives <= sample:
        raise ValueError(f"Positives must be between 1 and the sample's {sample}. Got {positives}.")
    unit = directions(projected)
    similarity = unit @ unit.t()
    alike = similarity.topk(positives).values
    shape = (sample, negatives)
    drawn = torch.randint(sample, shape, generator=generator, device=generator.device)
    others = similarity.gather(1, drawn)
    return others.square().sum(1).mean() - 2 * alike.mean()
