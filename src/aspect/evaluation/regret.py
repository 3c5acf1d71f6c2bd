"""What one mix for all nodes costs: risks over a grid of mixes, the regret, and its lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "Draw",
    "RegretBound",
    "attractions",
    "crowding",
    "growth_bound",
    "largest_bound",
    "mix_risks",
    "regret",
]

ROWS = 512  # nodes whose similarities to all keys are held at a time
THRESHOLDS = 64  # growth constants that are tried at a time


@dataclass(frozen=True, eq=False)
class Draw:
    """What chance decides in the contrastive loss (T): keys, and which of them are positive."""

    keys: Float[Tensor, "keys dim"]  # of length one, the positive ones among them
    # The positive key of every node, or its mean over those that may be drawn: the loss is linear
    # in it, so that the mean gives the expectation.
    positives: Float[Tensor, "nodes dim"]


@dataclass(frozen=True)
class RegretBound:
    """The bound of `thm:static_regret`, and the choice of growth and sets that gives it."""

    value: float
    growth: float = 0.0  # mu
    prefers_high: float = 0.0  # p_-: share of nodes whose best mixes lie below the gap
    prefers_low: float = 0.0  # p_+: share of nodes whose best mixes lie above it
    gap_start: float = 0.0  # a_-
    gap_end: float = 0.0  # a_+

    @property
    def gap(self) -> float:
        """How far the two groups are apart (Delta)."""
        return self.gap_end - self.gap_start


def growth_bound(growth: float, prefers_high: float, prefers_low: float, gap: float) -> float:
    """The right side of `eq:global_regret_bound`; 0 where one of the groups is empty.

    >>> growth_bound(2.0, 0.5, 0.5, 1.0)  # all nodes in two equal groups: mu/2 r(1 - r)
    0.25
    """
    if prefers_high == 0 or prefers_low == 0:
        return 0.0
    return growth / 2 * prefers_high * prefers_low / (prefers_high + prefers_low) * gap**2


def mix_risks(
    bands: Float[Tensor, "2 nodes dim"],
    draws: Sequence[Draw],
    temperature: float,
    mixes: Float[Tensor, " mixes"],
) -> Float[Tensor, "nodes mixes"]:
    """InfoNCE of every node at every mix of its bands, averaged over the draws (`eq:clean_risk`).

    A mix is the weight m of the low band, which comes first. The query `m low + (1 - m) high` is
    taken as it is, not brought to length one: the loss is a log-sum-exp of linear functions less a
    linear one, hence convex in the query and, as the query is affine in m, in m. With rows of
    length one in bands and keys the query is at most one long, and the loss changes by at most
    2 / temperature times the query's move.
    """
    keys, positives = [draw.keys for draw in draws], [draw.positives for draw in draws]
    attraction = attractions(bands, positives, temperature, mixes)
    return crowding(bands, keys, temperature, mixes) - attraction


def crowding(
    bands: Float[Tensor, "2 nodes dim"],
    draws: Sequence[Float[Tensor, "keys dim"]],
    temperature: float,
    mixes: Float[Tensor, " mixes"],
) -> Float[Tensor, "nodes mixes"]:
    """The convex part of the risk, `log sum_k exp(query . k / temperature)`, mean over the draws.

    Rows of length one keep the exponentials within what float64 holds down to the lowest
    temperature of InfoNCE, so that no maximum has to be taken out.
    """
    total = bands.new_zeros(bands.shape[1], len(mixes))
    for keys in draws:
        scaled = keys.t() / temperature
        for start in range(0, bands.shape[1], ROWS):
            rows = slice(start, start + ROWS)
            low, high = bands[:, rows] @ scaled
            for place, mix in enumerate(mixes.tolist()):
                total[rows, place] += torch.lerp(high, low, mix).exp_().sum(dim=1).log_()
    return total / len(draws)


def attractions(
    bands: Float[Tensor, "2 nodes dim"],
    draws: Sequence[Float[Tensor, "nodes dim"]],
    temperature: float,
    mixes: Float[Tensor, " mixes"],
) -> Float[Tensor, "nodes mixes"]:
    """The linear part of the risk, `query . positive / temperature`, mean over the draws."""
    pulls: Tensor = (bands * torch.stack(list(draws)).mean(dim=0)).sum(dim=2) / temperature
    low, high = pulls[:, :, None]
    return torch.lerp(high, low, mixes)


def regret(risks: Float[Tensor, "nodes mixes"]) -> float:
    """Risk of the best mix for all, less that of the best mix of each (`eq:global_oracle_risk`)."""
    lowest = risks.min(dim=1, keepdim=True).values
    return float((risks - lowest).mean(dim=0).min())


def largest_bound(
    risks: Float[Tensor, "nodes mixes"], mixes: Float[Tensor, " mixes"]
) -> RegretBound:
    """The largest lower bound on the regret that the theorem gives on this grid of mixes.

    A node's growth is the largest mu with `R(m) - min R >= mu/2 dist(m, best mixes)^2` at every mix
    of the grid. The proof needs growth only from the nodes that it counts, since all others add
    something >= 0; so for every mu and gap the nodes that grow by mu at least and whose best mixes
    lie wholly on one side of the gap are valid groups. All growths and pairs of mixes are tried.

    The grid costs the bound no validity: the proof, with every minimum taken over the grid, gives
    it for the regret over the same grid.
    """
    growth, first, last = _growth(risks, mixes)
    order = growth.argsort(descending=True)
    below = _counts(last[order], len(mixes)).cumsum(dim=1)
    above = _counts(first[order], len(mixes)).flip(1).cumsum(dim=1).flip(1)
    gaps = (mixes[None, :] - mixes[:, None]).clamp(min=0).square()
    best, place = 0.0, (0, 0, 0)
    for begin in range(0, len(order), THRESHOLDS):
        tried = slice(begin, begin + THRESHOLDS)
        minus, plus = below[tried, :, None], above[tried, None, :]
        weights = minus * plus / (minus + plus).clamp(min=1)
        values = growth[order[tried], None, None] / 2 * weights / len(order) * gaps
        if float(values.max()) > best:
            best = float(values.max())
            row, start, end = torch.unravel_index(values.argmax(), values.shape)
            place = (begin + int(row), int(start), int(end))
    if best == 0:
        return RegretBound(0.0)
    count, start_of_gap, end_of_gap = place
    return RegretBound(
        best,
        growth=float(growth[order[count]]),
        prefers_high=float(below[count, start_of_gap]) / len(order),
        prefers_low=float(above[count, end_of_gap]) / len(order),
        gap_start=float(mixes[start_of_gap]),
        gap_end=float(mixes[end_of_gap]),
    )


def _growth(risks: Tensor, mixes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every node's growth, and the places of its first and its last best mix.

    A node to which all mixes are equal belongs to neither group; its growth is called 0.
    """
    rise = risks - risks.min(dim=1, keepdim=True).values
    is_best = rise == 0
    first = is_best.int().argmax(dim=1)
    last = len(mixes) - 1 - is_best.flip(1).int().argmax(dim=1)
    far = torch.maximum(mixes[first, None] - mixes, mixes - mixes[last, None])
    growth = torch.where(far > 0, 2 * rise / far.square(), torch.inf).min(dim=1).values
    return growth.nan_to_num(posinf=0.0), first, last


def _counts(places: Tensor, num_mixes: int) -> Tensor:
    """How many of the first nodes have their best mix at a place: [nodes, mixes]."""
    marks = torch.zeros(len(places), num_mixes, dtype=torch.float64)
    return marks.scatter(1, places[:, None], 1.0).cumsum(dim=0)
