"""Which of the best flips to take together, as if they had been taken one by one."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.attacks.adjacency import AttackedEdges
from aspect.attacks.scoring import Candidates
from aspect.attacks.unnoticeable import DegreeTest

__all__ = ["choose"]


def choose(
    candidates: Candidates,
    edges: AttackedEdges,
    most: int,
    keep_last_edges: bool,
    test: DegreeTest | None,
) -> Int[Tensor, " flips"]:
    """The best candidates, at most one per node, none that is not allowed; keys, best first.

    A flip changes what its ends' other flips are worth, so that a second one at the same node has
    to wait for the next gradient. A score of zero or below is taken only if there is none above.

    Args:
        candidates: Best first.
        edges: As they are now.
        most: How many at most.
        keep_last_edges: An edge stays if it is the last one of an end.
        test: Of the degrees; told of what is taken.
    """
    low, high = edges.ends(candidates.keys)
    change = torch.where(edges.joined(candidates.keys), -1, 1)
    ends = torch.stack([low, high, edges.degrees[low], edges.degrees[high], change], dim=1)
    taken: list[int] = []
    met: set[int] = set()
    for place, (score, (one, other, *degrees, by)) in enumerate(
        zip(candidates.scores.tolist(), ends.tolist(), strict=True)
    ):
        if len(taken) == most or (taken and score <= 0):
            break
        if one in met or other in met or (keep_last_edges and by < 0 and 1 in degrees):
            continue
        if test is not None and not test.take(degrees, by):
            continue
        taken.append(place)
        met |= {one, other}
    return candidates.keys[taken]
