"""Signs that training went wrong although the loss looks fine."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["collapse_of"]

# Shares of the embeddings' energy. Rounding of float32 leaves about 1e-14; a spread of one part in
# ten thousand is already useless to any reader.
LEAST_SPREAD = 1e-8
LEAST_BEYOND_LINE = 1e-6

POWER_STEPS = 20


def collapse_of(embeddings: Float[Tensor, "nodes dim"]) -> str | None:
    """One sentence if all nodes share one embedding, or all lie on one line; None if they do not.

    Looked at in double precision. The largest singular value comes from a few power steps, which
    can only underestimate it, so that a healthy embedding is never called collapsed.
    """
    rows = embeddings.double()
    rows = rows / rows.abs().amax().clamp_min(torch.finfo(rows.dtype).tiny)
    centred = rows - rows.mean(dim=0)
    spread = float(centred.square().sum())
    if spread <= LEAST_SPREAD * float(rows.square().sum()):
        return (
            "The embeddings collapsed: every node has the same one. Try stronger augmentation, "
            "a lower temperature or a lower learning_rate."
        )
    if min(len(rows) - 1, rows.shape[1]) < 2:  # noqa: PLR2004 - nothing else than a line is possible
        return None
    if 1 - _share_of_longest_axis(centred, spread) < LEAST_BEYOND_LINE:
        return (
            "The embeddings collapsed to one line (rank 1). Try stronger augmentation, "
            "a lower temperature or a lower learning_rate."
        )
    return None


def _share_of_longest_axis(centred: Float[Tensor, "nodes dim"], spread: float) -> float:
    """How much of the spread lies along the direction in which the nodes differ most."""
    axis = centred[
        centred.square().sum(dim=1).argmax()
    ]  # of a rank 1 matrix, already the direction
    for _ in range(POWER_STEPS):
        axis = centred.t() @ (centred @ torch.nn.functional.normalize(axis, dim=0))
    along = centred @ torch.nn.functional.normalize(axis, dim=0)
    return float(along.square().sum()) / spread
