"""Projected gradient ascent over flips of edges and moves of feature entries.

ASPECT-S searches with it in training (Eq. (18), perturbation objective), and the attack `gradient`,
below, on a trained model: candidates are drawn, the objective is climbed with pairs flipped by
fractions, each step is projected to the budget, and the result is a graph whose pairs are flipped
or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.attacks.base import Attack, OnFlips
from aspect.attacks.registry import register_attack
from aspect.config import Config, Count
from aspect.data.features import mean_size, num_entries
from aspect.data.graph import Features, Graph, edge_keys, pair_keys, with_pairs
from aspect.data.operators import Operator, Propagation, RescaledLaplacian
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError
from aspect.losses.edges import rayleigh_energy
from aspect.nn.spectral_encoder import FoldedEncoder
from aspect.randomness import generator_for

__all__ = [
    "Ascent",
    "AscentResult",
    "Change",
    "Discretisation",
    "EdgeCandidates",
    "FeatureCandidates",
    "GradientConfig",
    "GradientSearch",
    "InnerProblem",
    "SearchScope",
    "Seen",
    "StabilityTarget",
    "StepRule",
    "ascend",
    "draw_edges",
    "draw_entries",
    "project_to_budget",
    "slopes_of",
    "stability",
]

StabilityTarget = Literal["fused", "band"]
StepRule = Literal["normalised", "raw"]
Discretisation = Literal["draws", "largest"]
Contrast = Callable[[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]], Tensor]

# Draws that turn out to be edges, loops or known pairs are lost: more are drawn than are needed.
SURPLUS = 2
SPARE_BITS = 8  # of the shift of a projection, beyond those of a number's precision
MOST_SEARCHES = 3  # for a budget: one may end with fewer flips than are allowed


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
    held: Bool[Tensor, " candidates"] | None = None  # pairs that no change reaches, and no slope

    def nothing(self) -> Float[Tensor, " candidates"]:
        """Shares of zero: the graph as it is."""
        return torch.zeros_like(self.present)

    def operator(self, flips: Float[Tensor, " candidates"]) -> RescaledLaplacian:
        """The graph with every pair flipped by a share from 0 to 1, its degrees following."""
        if self.held is not None:
            flips = flips.masked_fill(self.held, 0)
        return self.propagation.operator(self.present + (1 - 2 * self.present) * flips)

    def smoothing(self, flips: Float[Tensor, " candidates"]) -> Operator:
        """`D^(-1/2) (A + I) D^(-1/2)` of the flipped graph, for a propagation with self-loops."""
        rescaled = self.operator(flips)  # minus the normalised adjacency
        return lambda x: -rescaled(x)

    def flipped(self, flips: Float[Tensor, " candidates"]) -> Int[Tensor, " flips"]:
        """The pairs whose share is not zero, as smaller end * nodes + larger end."""
        return self.keys[flips > 0]


def draw_edges(
    graph: Graph, others: int, generator: torch.Generator, *, self_loops: bool
) -> EdgeCandidates:
    """All edges and up to so many other pairs, half of them two hops apart.

    A dense graph may hold fewer. The generator is on the graph's device.
    """
    edges, nodes = edge_keys(graph), graph.num_nodes
    near = _absent(_two_hops(graph, SURPLUS * others, generator), edges)[: others // 2]
    count = others - others // 2
    shape = 2, SURPLUS * count
    one, other = torch.randint(nodes, shape, generator=generator, device=graph.device)
    far = _absent(_keys(one, other, nodes), torch.cat([edges, near]))[:count]
    keys = torch.cat([edges, near, far]).sort().values
    present = torch.isin(keys, edges, assume_unique=True).to(graph.dtype)
    return EdgeCandidates(
        keys, present, Propagation(with_pairs(graph, keys), self_loops=self_loops)
    )


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
    """The pairs but for loops."""
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

    Of dense features it may be any. The share is one of the entries that are not zero; there are
    fewer where few can be drawn.
    """
    (nodes, columns), device = features.shape, features.device
    values = features.values if isinstance(features, SparseMatrix) else features.flatten()
    count = round(share * num_entries(features))
    if isinstance(features, SparseMatrix):
        stored = features.pattern.rows * columns + features.pattern.columns.long()
        kept = torch.randperm(len(stored), generator=generator, device=device)[: count // 2]
        count -= len(kept)
        known, chosen = stored, [stored[kept]]
    else:
        known, chosen = values.new_empty(0, dtype=torch.long), []
    drawn = torch.randint(nodes * columns, (SURPLUS * count,), generator=generator, device=device)
    chosen.append(_absent(drawn, known)[:count])
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
        return Change(self.edges.nothing(), torch.zeros_like(self.entries.places.values))

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
    seen: list[Seen] = []

    def objective(flips: Tensor, moves: Tensor) -> Tensor:
        seen.append(problem.see(Change(flips, moves)))
        return seen[0].objective

    value, slope = slopes_of(objective, change.flips, change.moves)
    return Seen(seen[0].views.detach(), seen[0].energies.detach(), value), Change(*slope)


def slopes_of(
    objective: Callable[..., Float[Tensor, ""]], *points: Tensor
) -> tuple[Float[Tensor, ""], tuple[Tensor, ...]]:
    """An objective at some points and its gradient for them; no parameter gets any."""
    held = tuple(point.detach().requires_grad_() for point in points)
    with torch.enable_grad():
        value = objective(*held)
        slopes = torch.autograd.grad(value, held)
    return value.detach(), slopes


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


# The attack


class GradientConfig(Config):
    """Settings of the gradient search."""

    candidates: Annotated[float, Field(ge=0)] = 2.0
    """Pairs without an edge that may be joined, for each edge."""
    steps: Count = 5
    """Steps of the projected gradient ascent."""


@register_attack(
    "gradient",
    config=GradientConfig,
    nested=False,
    needs_labels=False,
    needs_model=True,
)
class GradientSearch(Attack):
    """Flips by ascent on the contrast of perturbed bands with the clean ones; no label is read.

    The model is searched as it embeds, with its gate frozen; features are left alone. No node loses
    its last edge. A larger budget goes on from a smaller one: its search begins with the graph that
    the last one ended with, and is still measured against the clean one.
    """

    surrogate = "the trained model, or an ASPECT trained on the same graph"

    config: GradientConfig

    @override
    def start(self, state: Mapping[str, Tensor] | None) -> None:
        target, config = self.target, self.config
        if target.search_problem is None:
            raise SettingsError("A gradient search needs a trained model. Got none.")
        # Each band is contrasted with itself: what moves is due to the edges.
        scope = SearchScope(
            candidates=config.candidates, feature_budget=0.0, target="band", rayleigh_weight=0.0
        )
        self._generator = generator_for(
            self.seed, "stability", "gradient", device=target.graph.device
        )
        self._problem = target.search_problem(target.graph, scope, self._generator)
        self._made = torch.zeros_like(self._problem.edges.present, dtype=torch.bool)
        # A first step of one flips about as many pairs as are allowed; the largest fractions are
        # taken, so that the seed decides the candidates and no more.
        self._ascent = Ascent(
            steps=config.steps,
            budget=0,
            edge_step=1.0,
            step_rule="normalised",
            feature_step=0.0,
            feature_box=0.0,
            discretisation="largest",
            draws=1,
        )

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        before = self._made
        for _ in range(MOST_SEARCHES):
            left = most - int((self._made & ~before).sum())
            further = self._search(left) if left > 0 else None
            if further is None:
                break
            self._made = self._made | further
        return self._pairs(self._made & ~before)

    @override
    def find_each(
        self, counts: Sequence[int], on_flips: OnFlips | None = None
    ) -> Iterator[Int[Tensor, "flips 2"]]:
        for count in counts:
            self.advance(count - int(self._made.sum()))
            yield self._pairs(self._made)

    def _pairs(self, chosen: Bool[Tensor, " candidates"]) -> Int[Tensor, "flips 2"]:
        keys, nodes = self._problem.edges.keys[chosen], len(self._problem.projected)
        return torch.stack([keys // nodes, keys % nodes], dim=1)

    def _search(self, budget: int) -> Bool[Tensor, " candidates"] | None:
        """Flips beside those that are made; None where a search finds none that does harm."""
        problem, made = self._problem, self._made
        edges, nodes = problem.edges, len(problem.projected)
        present = torch.where(made, 1 - edges.present, edges.present)
        degrees = _degrees(edges.keys, present, nodes)
        fewest = torch.minimum(degrees[edges.keys // nodes], degrees[edges.keys % nodes])
        held = made | ((present > 0) & (fewest == 1))  # last edges stay
        candidates = replace(edges, present=present, held=held)
        ascent = replace(self._ascent, budget=budget)
        result = ascend(replace(problem, edges=candidates), ascent, self._generator)
        flips = _without_last_edges(result.change.flips > 0, edges.keys, present, nodes)
        does_harm = float(result.seen.objective) > float(result.before.objective)
        return flips if does_harm and bool(flips.any()) else None


def _degrees(keys: Tensor, present: Tensor, nodes: int) -> Float[Tensor, " nodes"]:
    degrees = present.new_zeros(nodes)
    return degrees.index_add(0, keys // nodes, present).index_add(0, keys % nodes, present)


def _without_last_edges(
    flips: Bool[Tensor, " pairs"],
    keys: Int[Tensor, " pairs"],
    present: Float[Tensor, " pairs"],
    nodes: int,
) -> Bool[Tensor, " pairs"]:
    """The flips but for removals, from the first to the last, that would leave a node alone."""
    is_edge = present > 0
    degrees = _degrees(keys, (is_edge | flips).to(present.dtype), nodes).tolist()
    removed = (flips & is_edge).nonzero().flatten()
    kept = flips & ~is_edge
    for place, key in zip(removed.tolist(), keys[removed].tolist(), strict=True):
        low, high = divmod(key, nodes)
        if min(degrees[low], degrees[high]) > 1:
            degrees[low] -= 1
            degrees[high] -= 1
            kept[place] = True
    return kept
