"""How far a model's answers move from one graph to another with the same nodes.

Embeddings have no natural place or unit: what counts is how far a node moves beside how far nodes
lie apart. So rows are centred by the mean before the change, and distances are divided by the mean
distance of two nodes. Shifting, scaling or rotating all embeddings changes no measure, and a
collapsed embedding, whose nodes hardly differ, does not look stable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pdist

from aspect.data.graph import Graph
from aspect.errors import TrainingError
from aspect.estimator import Embedder
from aspect.evaluation.result import unit_rows
from aspect.methods.aspect import AspectMethod
from aspect.randomness import generator_for
from aspect.training.health import check_finite

__all__ = [
    "Look",
    "Movement",
    "Shift",
    "look_at",
    "mean_distance",
    "movement",
    "relative_shifts",
    "turns",
]

ROWS_AT_ONCE = 65_536  # float64 copies of more would cost more memory than the embeddings do
MOST_EXACT_NODES = 3_000  # beyond, the mean distance is that of a fixed sample of pairs
SAMPLED_PAIRS = 100_000  # their mean is off by about a tenth of a percent
PAIR_NUMBERS = 2**22  # of their rows at once
HIGH = 0.95  # of the nodes move less than the number called p95


@dataclass(frozen=True, eq=False)
class Look:
    """What a model makes of a graph."""

    embeddings: Float[Tensor, "nodes dim"]
    gate: Float[Tensor, " nodes"] | None  # weight of the low band; None without a gate
    bands: Mapping[str, Float[Tensor, "nodes width"]]  # lowest first; none without several bands

    @cached_property
    def distance(self) -> float:
        """The mean distance of two nodes: the unit in which they move."""
        distance = mean_distance(self.embeddings)
        if distance == 0:
            raise TrainingError(
                "All nodes have the same embedding (representation "
                "collapse), so that there is no distance between nodes to measure a shift by."
            )
        return distance


@torch.no_grad()
def look_at(model: Embedder, graph: Graph) -> Look:
    """Embed a graph, ask for the gate, and look into the bands where there are several."""
    seen, method = model.as_seen(graph), model.method
    embeddings = model.embed(seen, normalise="none")  # no measure depends on it
    check_finite(embeddings)
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        return Look(embeddings, model.policy(seen), {})
    answer = method.eval().encode(seen)  # bands and gate in one go: every look costs
    bands = dict(zip(method.bands, answer.bands.cpu(), strict=True))
    return Look(embeddings, answer.weights[:, 0].cpu(), bands)


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

    turn: Shift  # 1 - cosine of the centred embeddings before and after
    relative: Shift  # distance of the two, divided by the mean distance of two nodes before
    gate: float | None  # mean absolute change of the gate weight; None without a gate
    bands: Mapping[str, Shift]  # 1 - cosine of the centred rows, band by band

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
    relative = relative_shifts(before.embeddings, after.embeddings, before.distance)
    return Movement(
        turn=Shift.of(turns(before.embeddings, after.embeddings)),
        relative=Shift.of(relative),
        gate=gate,
        bands={
            band: Shift.of(turns(rows, after.bands[band])) for band, rows in before.bands.items()
        },
    )


def turns(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"]
) -> Float[Tensor, " nodes"]:
    """1 - cosine of every row, from 0 to 2, as half the squared distance of the unit rows.

    Both sides are centred by the mean of the rows before. This form is exactly 0 for rows that are
    the same, and exact for small turns. A row at the mean has no direction: it has turned by 1 if
    it was or comes there, by 0 if it stays there.
    """
    centre, parts = _mean(before), []
    for first, second in _chunks(before, after):
        old, new = first - centre, second - centre
        turn = (unit_rows(old) - unit_rows(new)).square().sum(dim=1) / 2
        was_mean, is_mean = ((rows == 0).all(dim=1) for rows in (old, new))
        parts.append(torch.where(was_mean != is_mean, 1.0, turn))
    return torch.cat(parts)


def relative_shifts(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"], distance: float
) -> Float[Tensor, " nodes"]:
    """The distance of every row before and after, divided by the mean distance of two nodes."""
    moves = [(second - first).norm(dim=1) for first, second in _chunks(before, after)]
    return torch.cat(moves) / distance


def mean_distance(rows: Float[Tensor, "nodes dim"]) -> float:
    """The mean distance of two different rows; from a fixed sample of pairs where many are.

    0 for a single row.
    """
    count = len(rows)
    if count == 1:
        return 0.0
    if count <= MOST_EXACT_NODES:
        return float(pdist(rows.double()).mean())
    generator = generator_for(0, "mean distance", count)
    first = torch.randint(count, (SAMPLED_PAIRS,), generator=generator)
    ahead = torch.randint(1, count, (SAMPLED_PAIRS,), generator=generator)
    second = (first + ahead) % count  # never the same node
    at_once = max(1, PAIR_NUMBERS // rows.shape[1])
    pairs = zip(torch.split(first, at_once), torch.split(second, at_once), strict=True)
    total = math.fsum(
        float((rows[some].double() - rows[others].double()).norm(dim=1).sum())
        for some, others in pairs
    )
    return total / SAMPLED_PAIRS


def _mean(rows: Float[Tensor, "nodes dim"]) -> Float[Tensor, " dim"]:
    parts = [some.double().sum(dim=0) for some in torch.split(rows, ROWS_AT_ONCE)]
    return torch.stack(parts).sum(dim=0) / len(rows)


def _chunks(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"]
) -> Iterator[tuple[Float[Tensor, "some dim"], Float[Tensor, "some dim"]]]:
    sides = (torch.split(rows, ROWS_AT_ONCE) for rows in (before, after))
    for first, second in zip(*sides, strict=True):
        yield first.double(), second.double()
