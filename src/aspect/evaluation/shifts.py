"""How far a model's answers move from one graph to another with the same nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aspect.estimator import Embedder
from aspect.evaluation.inputs import unit_rows
from aspect.graph.data import Graph
from aspect.methods.aspect import AspectMethod
from aspect.provenance import check_finite

__all__ = ["Look", "Movement", "Shift", "look_at", "movement", "relative_shifts", "turns"]

ROWS_AT_ONCE = 65_536  # float64 copies of more would cost more memory than the embeddings do
HIGH = 0.95  # of the nodes move less than the number called p95


@dataclass(frozen=True, eq=False)
class Look:
    """What a model makes of a graph."""

    embeddings: Float[Tensor, "nodes dim"]
    gate: Float[Tensor, " nodes"] | None  # trust in the low band; None without a policy
    bands: Mapping[str, Float[Tensor, "nodes dim"]]  # lowest first; none without several bands


@torch.no_grad()
def look_at(model: Embedder, graph: Graph) -> Look:
    """Embed a graph, ask for the policy, and look into the bands where there are several."""
    own, method = model.as_seen(graph), model.method
    embeddings = model.embed(own)
    check_finite(embeddings)
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        return Look(embeddings, model.policy(own), {})
    seen = method.eval().see(own)  # bands and policy in one go: every look costs
    bands = dict(zip(method.bands, seen.views.cpu(), strict=True))
    return Look(embeddings, seen.weights[:, 0].cpu(), bands)


@dataclass(frozen=True)
class Shift:
    """A move of every node, in three numbers."""

    mean: float
    median: float
    p95: float  # the 95th percentile

    @classmethod
    def of(cls, moves: Float[Tensor, " nodes"]) -> Shift:
        """Over the nodes."""
        values = moves.double().numpy()
        median, high = np.quantile(values, [0.5, HIGH]).tolist()
        return cls(float(values.mean()), median, high)

    def to_dict(self) -> dict[str, float]:
        """Plain numbers under the names of the fields."""
        return asdict(self)


@dataclass(frozen=True)
class Movement:
    """How far a model's answers moved."""

    turn: Shift  # 1 - cosine of the embeddings before and after
    relative: Shift  # distance of the two, in lengths of the one before
    gate: float | None  # mean absolute change of the gate; None without one
    bands: Mapping[str, Shift]  # 1 - cosine, band by band

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "shift": self.turn.to_dict(),
            "relative_shift": self.relative.to_dict(),
            "gate_shift": self.gate,
            "band_shift": {band: shift.to_dict() for band, shift in self.bands.items()},
        }


def movement(before: Look, after: Look) -> Movement:
    """Compare two looks of one model at the same nodes."""
    gate = None
    if before.gate is not None and after.gate is not None:
        gate = float((after.gate - before.gate).abs().double().mean())
    return Movement(
        turn=Shift.of(turns(before.embeddings, after.embeddings)),
        relative=Shift.of(relative_shifts(before.embeddings, after.embeddings)),
        gate=gate,
        bands={
            band: Shift.of(turns(rows, after.bands[band])) for band, rows in before.bands.items()
        },
    )


def turns(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"]
) -> Float[Tensor, " nodes"]:
    """1 - cosine of every row, from 0 to 2, as half the squared distance of the unit rows.

    This form is exactly 0 for rows that are the same, and exact for small turns. A row of zeros has
    no direction: it has turned by 1 if it was or becomes one, by 0 if it stays one.
    """
    found = []
    for first, second in _chunks(before, after):
        turn = (unit_rows(first) - unit_rows(second)).square().sum(dim=1) / 2
        is_zero, becomes_zero = ((rows == 0).all(dim=1) for rows in (first, second))
        found.append(torch.where(is_zero != becomes_zero, 1.0, turn))
    return torch.cat(found)


def relative_shifts(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"]
) -> Float[Tensor, " nodes"]:
    """The distance of every row before and after, in lengths of the row before.

    Where that length is 0, the mean length of all rows stands in for it.
    """
    parts = [
        (first.norm(dim=1), (second - first).norm(dim=1))
        for first, second in _chunks(before, after)
    ]
    lengths, distances = (torch.cat(part) for part in zip(*parts, strict=True))
    typical = lengths.mean() if bool((lengths > 0).any()) else lengths.new_ones(())
    return distances / torch.where(lengths > 0, lengths, typical)


def _chunks(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"]
) -> Iterator[tuple[Float[Tensor, "some dim"], Float[Tensor, "some dim"]]]:
    sides = (torch.split(rows, ROWS_AT_ONCE) for rows in (before, after))
    for first, second in zip(*sides, strict=True):
        yield first.double(), second.double()
