"""Cosine similarities of embeddings, and the losses made of them (BGRL, ARIEL, SP-GCL)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


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
    similarity: Tensor = torch.linalg.vecdot(directions(one), directions(other))
    return similarity


def bootstrap_loss(
    predicted: Float[Tensor, "nodes dim"], target: Float[Tensor, "nodes dim"]
) -> Float[Tensor, ""]:
    """`1 - mean_i cos(q_i, y_i)`, from 0 to 2; no gradient reaches the target (BGRL).

    BGRL's loss is the sum over both directions: 2 minus two mean cosines.
    """
    return 1 - cosines(predicted, target.detach()).mean()


def information_hinge(
    first: Float[Tensor, "nodes dim"],
    second: Float[Tensor, "nodes dim"],
    original: Float[Tensor, "nodes dim"],
    temperature: float,
) -> Float[Tensor, ""]:
    """`mean_i max(0, 2 q_i(1, 2) - q_i(1, o) - q_i(2, o))` for `q = exp(cosine / temperature)`.

    ARIEL's information regularisation: two views no closer to each other than to the original.
    Gradients flow through the views' similarity to each other alone; those to the original are a
    bound.
    """
    with torch.no_grad():
        bound = sum((cosines(view, original) / temperature).exp() for view in (first, second))
    between = (cosines(first, second) / temperature).exp()
    return (2 * between - bound).relu().mean()


def top_similarity_loss(
    projected: Float[Tensor, "sample dim"],
    positives: int,
    negatives: int,
    generator: torch.Generator,
) -> Float[Tensor, ""]:
    """`-2 mean_i mean_(j in top k) S_ij + mean_i sum_(j in drawn) S_ij^2` for cosines S (SP-GCL).

    The positive part is a mean over the top k, which hold the node itself; the negative part is a
    sum over nodes drawn with replacement, the node and its positives not excepted. Both are as in
    SP-GCL's code. The choice of nodes has no gradient, all chosen similarities do, on both sides.
    """
    sample = len(projected)
    if not 1 <= positives <= sample:
        raise ValueError(f"Positives must be between 1 and the sample's {sample}. Got {positives}.")
    unit = directions(projected)
    similarity = unit @ unit.t()
    top = similarity.topk(positives).values
    shape = (sample, negatives)
    drawn = torch.randint(sample, shape, generator=generator, device=generator.device)
    repulsion = similarity.gather(1, drawn).square().sum(1).mean()
    return repulsion - 2 * top.mean()
