"""Both sides of the paper's inequalities, for given bands: regret and stability.

Theorem 2.1 (irreducible regret of global fusion) bounds from below what one mix for all nodes
costs. Theorem 2.2 (perturbation-aware risk upper bound) and Eq. (7), channel trade-off, bound from
above what perturbations add to a node's risk. A mix is the weight m of the low band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aspect.attacks.base import apply_flips
from aspect.attacks.drawn import mask_features, random_flips
from aspect.data.graph import Graph

PerturbationKind = Literal["edges", "features"]

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
    """The bound of Theorem 2.1, and the choice of growth and sets that gives it."""

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


def mix_risks(
    bands: Float[Tensor, "2 nodes dim"],
    draws: Sequence[Draw],
    temperature: float,
    mixes: Float[Tensor, " mixes"],
) -> Float[Tensor, "nodes mixes"]:
    """InfoNCE of every node at every mix of its bands, averaged over the draws: Eq. (2).

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
    """Risk of the best mix for all, less that of the best mix of each: Eq. (4)."""
    lowest = risks.min(dim=1, keepdim=True).values
    return float((risks - lowest).mean(dim=0).min())


def largest_bound(
    risks: Float[Tensor, "nodes mixes"], mixes: Float[Tensor, " mixes"]
) -> RegretBound:
    """The largest right side of Eq. (5), regret bound, on this grid of mixes.

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


def perturb(graph: Graph, kind: PerturbationKind, rate: float, generator: torch.Generator) -> Graph:
    """Flip random pairs, a ratio of the number of edges, or mask a ratio of the feature entries."""
    if kind == "features":
        return replace(graph, features=mask_features(graph.features, rate, generator))
    return apply_flips(graph, random_flips(graph, round(rate * graph.num_edges), generator))


@dataclass(frozen=True, eq=False)
class BandMoves:
    """The bands of a graph and of its perturbed copies: a finite set Q, the same for all nodes."""

    clean: Float[Tensor, "2 nodes dim"]
    perturbed: Sequence[Float[Tensor, "2 nodes dim"]]

    def distances(self) -> Float[Tensor, "2 nodes"]:
        """The furthest move of every node in every band: d_L and d_H."""
        moves = [(bands - self.clean).norm(dim=2) for bands in self.perturbed]
        return torch.stack(moves).amax(dim=0)

    def shifts(self, mixes: Float[Tensor, " mixes"]) -> Float[Tensor, "nodes mixes"]:
        """The furthest move of the blend at every mix, which is held fixed: S(m)."""
        furthest = self.clean.new_zeros(self.clean.shape[1], len(mixes))
        for bands in self.perturbed:
            low, high = bands - self.clean
            for place, mix in enumerate(mixes.tolist()):
                move = torch.lerp(high, low, mix).norm(dim=1)
                furthest[:, place] = torch.maximum(furthest[:, place], move)
        return furthest


@dataclass(frozen=True, eq=False)
class PerturbationRisk:
    """Risk of the clean and of the worst perturbed graph, and what bounds their difference."""

    clean: Float[Tensor, "nodes mixes"]  # E(m)
    worst: Float[Tensor, "nodes mixes"]  # R^Q(m)
    shift: Float[Tensor, "nodes mixes"]  # L S(m)
    bound: Float[Tensor, "nodes mixes"]  # L (m d_L + (1 - m) d_H)

    def of(self, nodes: Bool[Tensor, " nodes"]) -> PerturbationRisk:
        """The same of some nodes."""
        return PerturbationRisk(
            self.clean[nodes], self.worst[nodes], self.shift[nodes], self.bound[nodes]
        )

    @property
    def rise(self) -> Float[Tensor, "nodes mixes"]:
        """What the worst perturbation adds to the risk; below 0 where all of them help."""
        return self.worst - self.clean

    @property
    def tightest(self) -> float:
        """The largest rise as a share of its bound; where nothing moves it counts as 0."""
        return float(torch.where(self.bound > 0, self.rise / self.bound, 0.0).max())

    @property
    def moved(self) -> Bool[Tensor, " nodes"]:
        """Whose clean risk and whose bound on the worst risk are lowest at different mixes.

        This is the case of Proposition B.5 (standard-risk-optimal fusion can be
        stability-suboptimal), with m d_L + (1 - m) d_H for S(m).
        """
        return (self.clean + self.bound).argmin(dim=1) != self.clean.argmin(dim=1)

    def broken(self, tolerance: float) -> Bool[Tensor, "nodes mixes"]:
        """Where one of the two bounds does not hold."""
        return (self.rise > self.shift + tolerance) | (self.shift > self.bound + tolerance)


def perturbation_risk(
    moves: BandMoves, draws: Sequence[Draw], temperature: float, mixes: Float[Tensor, " mixes"]
) -> PerturbationRisk:
    """Both sides of Theorem 2.2 and of Eq. (7), channel trade-off, for L = 2 / tau.

    Keys and mix stay as they are while the graph is perturbed, as the theorems demand.
    """
    lipschitz = 2 / temperature
    worst = [mix_risks(bands, draws, temperature, mixes) for bands in moves.perturbed]
    low, high = moves.distances()
    return PerturbationRisk(
        clean=mix_risks(moves.clean, draws, temperature, mixes),
        worst=torch.stack(worst).amax(dim=0),
        shift=lipschitz * moves.shifts(mixes),
        bound=lipschitz * (low[:, None] * mixes + high[:, None] * (1 - mixes)),
    )
