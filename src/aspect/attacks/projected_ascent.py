"""Projected gradient ascent over flips of edges and moves of feature entries.

ASPECT-S searches with it in training (Eq. (18), perturbation objective), and the attack `gradient`
on a trained model: candidates are drawn, the objective is climbed with pairs flipped by fractions,
each step is projected to the budget, and the result is a graph whose pairs are flipped or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.features import mean_size, num_entries
from aspect.data.graph import Features, Graph, edge_index_of, edge_keys, pair_keys
from aspect.data.operators import Propagation, RescaledLaplacian
from aspect.data.sparse import SparseMatrix
from aspect.losses.edges import rayleigh_energy
from aspect.nn.spectral_encoder import FoldedEncoder

__all__ = [
    "Ascent",
    "AscentResult",
    "Change",
    "Discretisation",
    "EdgeCandidates",
    "FeatureCandidates",
    "InnerProblem",
    "SearchScope",
    "Seen",
    "StabilityTarget",
    "StepRule",
    "ascend",
    "draw_edges",
    "draw_entries",
    "project_to_budget",
    "stability",
]

StabilityTarget = Literal["fused", "band"]
StepRule = Literal["normalised", "raw"]
Discretisation = Literal["draws", "largest"]
Contrast = Callable[[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]], Tensor]

# Draws that turn out to be edges, loops or known pairs are lost: more are drawn than are wanted.
SURPLUS = 2
SPARE_BITS = 8  # of the shift of a projection, beyond those of a number's precision


@dataclass(frozen=True)
class SearchScope:
    """What a search may perturb, and what it maximises."""

    candidates: float  # pairs without an edge that may be joined, for each edge
    feature_budget: float  # entries that may be moved, as a ratio of those that are not zero
    target: StabilityTarget  # what a perturbed band is contrasted with
    rayleigh_weight: float  # lambda_ray


# Candidates: pairs whose edge may be flipped, and feature entries that may be moved


@dataclass(frozen=True, eq=False)
class EdgeCandidates:
    """Pairs that may be flipped: every edge of the graph, and some pairs that are none."""

    keys: Int[Tensor, " candidates"]  # smaller end * nodes + larger end, ascending
    present: Float[Tensor, " candidates"]  # one for an edge, zero for a pair that is none
    propagation: Propagation  # along all of them

    def operator(self, flips: Float[Tensor, " candidates"]) -> RescaledLaplacian:
        """The graph with every pair flipped by a share from 0 to 1, its degrees following."""
        return self.propagation.operator(self.present + (1 - 2 * self.present) * flips)


def draw_edges(
    graph: Graph, others: int, generator: torch.Generator, *, self_loops: bool
) -> EdgeCandidates:
    """All edges and up to so many other pairs, half of them two hops apart.

    Args:
        graph: The graph to be changed.
        others: Pairs without an edge to draw; a dense graph may hold fewer.
        generator: On the graph's device.
        self_loops: Of the propagation.
    """
    edges = edge_keys(graph)
    near = _absent(_two_hops(graph, SURPLUS * others, generator), edges)[: others // 2]
    wanted = others - others // 2
    far = _absent(_pairs(graph, SURPLUS * wanted, generator), torch.cat([edges, near]))[:wanted]
    keys = torch.cat([edges, near, far]).sort().values
    present = torch.isin(keys, edges, assume_unique=True).to(graph.dtype)
    together = Graph(graph.features, edge_index_of(keys, graph.num_nodes))
    return EdgeCandidates(keys, present, Propagation(together, self_loops=self_loops))


def _pairs(graph: Graph, count: int, generator: torch.Generator) -> Int[Tensor, " pairs"]:
    """Pairs of any two nodes; some may come twice, or be loops."""
    nodes = graph.num_nodes
    one, other = torch.randint(nodes, (2, count), generator=generator, device=graph.device)
    return _keys(one, other, nodes)


def _two_hops(graph: Graph, count: int, generator: torch.Generator) -> Int[Tensor, " pairs"]:
    """The ends of walks of two steps, whose first step is any edge."""
    source, target = graph.edge_index
    if graph.num_edges == 0:
        return edge_keys(graph)
    first = torch.randint(len(source), (count,), generator=generator, device=graph.device)
    middle = target[first]
    degrees = graph.degrees()
    begins = degrees.cumsum(0) - degrees  # where each node's edges stand
    draws = torch.rand(count, generator=generator, device=graph.device, dtype=torch.float64)
    second = begins[middle] + (draws * degrees[middle]).long()
    return _keys(source[first], target[second], graph.num_nodes)


def _keys(one: Tensor, other: Tensor, num_nodes: int) -> Int[Tensor, " pairs"]:
    return pair_keys(one, other, num_nodes)[one != other]


def _absent(drawn: Int[Tensor, " pairs"], known: Int[Tensor, " others"]) -> Int[Tensor, " left"]:
    """Each pair once, in the order of the draws, without those that are known."""
    every, places = torch.unique(drawn, return_inverse=True)
    order = torch.arange(len(drawn), device=drawn.device)
    first = torch.full_like(every, len(drawn)).scatter_reduce(0, places, order, "amin")
    fresh = first[~torch.isin(every, known)].sort().values
    return drawn[fresh]


@dataclass(frozen=True, eq=False)
class FeatureCandidates:
    """Feature entries that may be moved, up or down."""

    places: SparseMatrix  # ones where an entry may be moved
    size: float  # of an entry that is not zero, on average: the unit of moves

    @property
    def count(self) -> int:
        """How many entries may be moved."""
        return len(self.places.values)

    def moved(self, changes: Float[Tensor, " candidates"]) -> SparseMatrix:
        """The changes as a matrix; zeros outside of the candidates."""
        return self.places.with_values(changes)

    def applied(self, features: Features, changes: Float[Tensor, " candidates"]) -> Features:
        """The features with the changes added, dense or compressed as before."""
        moved = self.moved(changes)
        if not isinstance(features, SparseMatrix):
            return features + moved.dense()
        shape, columns = features.shape, features.shape[1]
        keys, values = [], []
        for part in (features, moved):
            keys.append(part.pattern.rows * columns + part.pattern.columns.long())
            values.append(part.values)
        every, places = torch.unique(torch.cat(keys), return_inverse=True)
        total = features.values.new_zeros(len(every)).index_add(0, places, torch.cat(values))
        return SparseMatrix.from_entries(every // columns, every % columns, total, shape)


def draw_entries(features: Features, share: float, generator: torch.Generator) -> FeatureCandidates:
    """Entries that may be moved: of compressed features as many absent ones as stored ones.

    Of dense features it may be any. There are fewer than wanted where few can be drawn.

    Args:
        features: As the encoder sees them.
        share: Entries that may be moved, as a share of those that are not zero.
        generator: On the features' device.
    """
    (nodes, columns), device = features.shape, features.device
    values = features.values if isinstance(features, SparseMatrix) else features.flatten()
    wanted = round(share * num_entries(features))
    if isinstance(features, SparseMatrix):
        stored = features.pattern.rows * columns + features.pattern.columns.long()
        kept = torch.randperm(len(stored), generator=generator, device=device)[: wanted // 2]
        wanted -= len(kept)
        known, chosen = stored, [stored[kept]]
    else:
        known, chosen = values.new_empty(0, dtype=torch.long), []
    drawn = torch.randint(nodes * columns, (SURPLUS * wanted,), generator=generator, device=device)
    chosen.append(_absent(drawn, known)[:wanted])
    keys = torch.cat(chosen)
    ones = torch.ones(len(keys), dtype=values.dtype, device=device)
    places = SparseMatrix.from_entries(keys // columns, keys % columns, ones, (nodes, columns))
    return FeatureCandidates(places, float(mean_size(features)))


# The inner problem: how far a perturbation moves a frozen model


@dataclass(frozen=True, eq=False)
class Change:
    """A point of the perturbation set."""

    flips: Float[Tensor, " pairs"]  # how far each pair is flipped, from 0 to 1
    moves: Float[Tensor, " entries"]  # by how much each feature entry is moved


@dataclass(frozen=True, eq=False)
class Seen:
    """A changed graph, as the frozen model sees it."""

    views: Float[Tensor, "bands nodes dim"]
    energies: Float[Tensor, " bands"]  # Rayleigh energy of each band on the changed graph
    objective: Float[Tensor, ""]

    def without_views(self) -> Seen:
        """The same without its embeddings, which are most of it."""
        return replace(self, views=self.views.new_empty(*self.views.shape[:2], 0))


@dataclass(frozen=True, eq=False)
class InnerProblem:
    """Maximise L_gen + lambda_ray * Phi_ray over changes (Eq. (18), perturbation objective).

    Encoder, keys and the gate's weights are those of the clean graph and stay as they are: only a
    change has gradients.
    """

    edges: EdgeCandidates
    entries: FeatureCandidates
    encoder: FoldedEncoder
    projected: Float[Tensor, "nodes signal"]  # the clean features, through the encoder's maps
    keys: Float[Tensor, "bands nodes dim"]  # what each band of a node should still be known by
    weights: Float[Tensor, "nodes bands"]  # gate weights on the clean graph
    contrast: Contrast  # loss of every node, queries first
    rayleigh_weight: float  # lambda_ray

    def nothing(self) -> Change:
        """The clean graph."""
        return Change(
            torch.zeros_like(self.edges.present), torch.zeros_like(self.entries.places.values)
        )

    def see(self, change: Change) -> Seen:
        """Embed the changed graph and judge it."""
        operator = self.edges.operator(change.flips)
        projected = self.projected + self.encoder.project(self.entries.moved(change.moves))
        views = self.encoder.embed(projected, operator)
        energies = torch.stack([rayleigh_energy(operator, band) for band in views])
        pairs = zip(views, self.keys, strict=True)
        losses = torch.stack([self.contrast(*pair) for pair in pairs])
        objective = stability(losses, self.weights)
        if self.rayleigh_weight > 0:
            # Lowest against highest: the profile that the bands' names promise, turned around.
            objective = objective + self.rayleigh_weight * (energies[0] - energies[-1])
        return Seen(views, energies, objective)


def stability(
    losses: Float[Tensor, "bands nodes"], weights: Float[Tensor, "nodes bands"]
) -> Float[Tensor, ""]:
    """Eq. (19), stability loss: every band's loss times its gate weight, a mean over nodes."""
    return (weights.t() * losses).sum(0).mean()


# The ascent


@dataclass(frozen=True)
class Ascent:
    """How the search is done."""

    steps: int
    budget: int  # pairs flipped at most
    edge_step: float  # alpha, at the first step
    step_rule: StepRule
    feature_step: float  # beta, in units of an entry's mean size
    feature_box: float  # the largest move of an entry, in the same units
    discretisation: Discretisation
    draws: int


@dataclass(frozen=True, eq=False)
class AscentResult:
    """The change that was found; pairs are flipped or not."""

    change: Change
    seen: Seen
    before: Seen  # the clean graph
    relaxed: float  # the best objective on the way, pairs flipped by shares


def ascend(problem: InnerProblem, how: Ascent, generator: torch.Generator) -> AscentResult:
    """Climb from the clean graph, then keep the best of several graphs without halves."""
    change = best = problem.nothing()
    before, relaxed = None, -math.inf
    for number in range(1, how.steps + 1):
        seen, slope = _slope(problem, change)
        before = before or seen
        if float(seen.objective) > relaxed:
            best, relaxed = change, float(seen.objective)
        change = _step(problem, change, slope, how, number)
    with torch.no_grad():
        seen = problem.see(change)
        if float(seen.objective) > relaxed:
            best, relaxed = change, float(seen.objective)
        tried = [(point, problem.see(point)) for point in _discrete(best, how, generator)]
    change, seen = max(tried, key=lambda pair: float(pair[1].objective))
    assert before is not None  # there is at least one step
    return AscentResult(change, seen, before, relaxed)


def _slope(problem: InnerProblem, change: Change) -> tuple[Seen, Change]:
    """The graph as it is changed so far, and the objective's gradient there."""
    flips, moves = (part.detach().requires_grad_() for part in (change.flips, change.moves))
    with torch.enable_grad():
        seen = problem.see(Change(flips, moves))
        slope = torch.autograd.grad(seen.objective, (flips, moves))
    held = Seen(seen.views.detach(), seen.energies.detach(), seen.objective.detach())
    return held, Change(*slope)


def _step(problem: InnerProblem, change: Change, slope: Change, how: Ascent, number: int) -> Change:
    """One step up the slope, and back to the nearest change that is allowed."""
    slopes = slope.flips
    if how.step_rule == "normalised":
        slopes = slopes / _typical(slopes, how.budget)
    flips = change.flips + how.edge_step / math.sqrt(number) * slopes
    size = problem.entries.size
    box = how.feature_box * size
    moves = change.moves + how.feature_step * size * slope.moves.sign()
    return Change(project_to_budget(flips, how.budget), moves.clamp(-box, box))


def _typical(slope: Float[Tensor, " pairs"], budget: int) -> Float[Tensor, ""]:
    """The slope of the last pair that the budget has room for, were the steepest taken first.

    A step of one over it flips about as many pairs as are allowed, whatever the loss's scale; the
    slopes of a mean over thousands of nodes are tiny.
    """
    rising = slope.clamp(min=0)
    steepest = rising.topk(min(budget, len(rising))).values if budget else rising[:0]
    steep = steepest[steepest > 0]
    return steep[-1] if len(steep) else torch.ones_like(slope.sum())


def _discrete(change: Change, how: Ascent, generator: torch.Generator) -> Iterator[Change]:
    """Changes that flip a pair or do not: the largest shares, or drawn by their shares.

    A draw over the budget loses the pairs of the smallest shares.
    """
    if how.discretisation == "largest":
        yield Change(_largest(change.flips, how.budget), change.moves)
        return
    for _ in range(how.draws):
        drawn = torch.bernoulli(change.flips, generator=generator)
        yield Change(_largest(drawn * change.flips, how.budget), change.moves)


def _largest(shares: Float[Tensor, " pairs"], budget: int) -> Float[Tensor, " pairs"]:
    """One for the largest shares above zero, as many as are allowed, and zero for the rest."""
    best = shares.topk(min(budget, len(shares)))
    return torch.zeros_like(shares).scatter(0, best.indices, (best.values > 0).to(shares.dtype))


def project_to_budget(
    values: Float[Tensor, " candidates"], budget: int | float
) -> Float[Tensor, " candidates"]:
    """The Euclidean projection onto {0 <= x <= 1, sum x <= budget}.

    Where clipping alone exceeds the budget, it is `clip(values - shift)` for the shift at which the
    sum is the budget. With a budget of b and a bit, the sum is at least b + 1 at one below the
    value that b others exceed, and at most b at that value: the shift lies between, and halving
    finds one binary digit of it at a time. Nothing waits for a device, and the operations are few,
    since small graphs cost a device little but their number.
    """
    allowed = int(budget)
    if len(values) <= allowed:
        return values.clamp(0, 1)
    binds = values.clamp(0, 1).sum() > budget
    bits = SPARE_BITS - round(math.log2(torch.finfo(values.dtype).eps))
    high = values.kthvalue(len(values) - allowed).values.clamp(min=0)
    low = (high - 1).clamp(min=0)
    for _ in range(bits):
        middle = torch.lerp(low, high, 0.5)
        is_above = (values - middle).clamp_(0, 1).sum() > budget
        low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
    return (values - high * binds).clamp_(0, 1)
