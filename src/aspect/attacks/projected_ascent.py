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
from typing import Annotated, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.attacks.base import Attack, OnFlips, Target, pairs_of
from aspect.attacks.registry import register_attack
from aspect.config import Config, Count
from aspect.data.features import mean_size, num_entries
from aspect.data.graph import Features, Graph, edge_keys, pair_keys, with_pairs
from aspect.data.operators import Operator, Propagation, RescaledLaplacian
from aspect.data.sparse import SparseMatrix, run_numbers
from aspect.errors import SettingsError
from aspect.losses.edges import rayleigh_energy
from aspect.nn.spectral_encoder import FoldedEncoder
from aspect.randomness import generator_for

StabilityTarget = Literal["fused", "band"]
StepRule = Literal["normalised", "raw"]
Discretisation = Literal["draws", "largest"]
Contrast = Callable[[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]], Tensor]

# Draws that turn out to be edges, loops or known pairs are lost: more are drawn than are needed.
SURPLUS = 2
SPARE_BITS = 8  # of the shift of a projection, beyond those of a number's precision
DIGITS_AT_ONCE = 5  # of that shift, on a GPU, where a projection is of few values
MOST_AT_ONCE = 2**20  # values
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


def draw_pairs(
    graph: Graph, others: int, generator: torch.Generator
) -> tuple[Int[Tensor, " pairs"], Float[Tensor, " pairs"]]:
    """All edges and up to so many other pairs, half of them two hops apart; which are edges.

    A dense graph may hold fewer. The generator is on the graph's device.
    """
    edges, nodes = edge_keys(graph), graph.num_nodes
    near = _absent(_two_hops(graph, SURPLUS * others, generator), edges)[: others // 2]
    count = others - others // 2
    shape = 2, SURPLUS * count
    one, other = torch.randint(nodes, shape, generator=generator, device=graph.device)
    far = _absent(_keys(one, other, nodes), torch.cat([edges, near]))[:count]
    keys, order = torch.cat([edges, near, far]).sort()
    return keys, (order < len(edges)).to(graph.dtype)


def edge_candidates(
    graph: Graph,
    keys: Int[Tensor, " pairs"],
    present: Float[Tensor, " pairs"],
    *,
    self_loops: bool,
) -> EdgeCandidates:
    """Pairs that were drawn; nothing waits for a device."""
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
    absent: int  # of them, those that compressed features do not store
    size: Float[Tensor, ""]  # of an entry that is not zero, on average: the unit of moves

    @property
    def count(self) -> int:
        """How many entries may be moved."""
        return len(self.places.values)

    def moved(self, changes: Float[Tensor, " candidates"]) -> SparseMatrix:
        """The changes as a matrix; zeros outside of the candidates."""
        return self.places.with_values(changes)

    def applied(self, features: Features, changes: Float[Tensor, " candidates"]) -> Features:
        """The features with the changes added, dense or compressed as before."""
        columns, keys = features.shape[1], _entry_keys(self.places)
        if not isinstance(features, SparseMatrix):
            return features.flatten().index_add(0, keys, changes).view(features.shape)
        every, order = torch.cat([_entry_keys(features), keys]).sort()
        number = run_numbers(every)
        length = len(features.values) + self.absent
        values = torch.cat([features.values, changes])[order]
        total = values.new_zeros(length).index_add(0, number, values)
        known = every.new_zeros(length).scatter(0, number, every)
        return SparseMatrix.from_entries(known // columns, known % columns, total, features.shape)


def _entry_keys(matrix: SparseMatrix) -> Int[Tensor, " entries"]:
    return matrix.pattern.rows * matrix.shape[1] + matrix.pattern.columns.long()


def draw_entries(
    features: Features, share: float, generator: torch.Generator
) -> tuple[Int[Tensor, " entries"], int]:
    """Entries that may be moved, as row times columns plus column; how many are not stored.

    Of compressed features they are as many absent ones as stored ones, of dense features any. The
    share is one of the entries that are not zero; there are fewer where few can be drawn.
    """
    (nodes, columns), device = features.shape, features.device
    count = round(share * num_entries(features))
    known = chosen = torch.empty(0, dtype=torch.long, device=device)
    if isinstance(features, SparseMatrix):
        known = _entry_keys(features)
        chosen = known[torch.randperm(len(known), generator=generator, device=device)[: count // 2]]
        count -= len(chosen)
    drawn = torch.randint(nodes * columns, (SURPLUS * count,), generator=generator, device=device)
    absent = _absent(drawn, known)[:count]
    return torch.cat([chosen, absent]), len(absent)


def feature_candidates(
    features: Features, keys: Int[Tensor, " entries"], absent: int
) -> FeatureCandidates:
    """Entries that were drawn; nothing waits for a device."""
    (rows, columns), size = features.shape, mean_size(features)
    ones = torch.ones(len(keys), dtype=size.dtype, device=size.device)
    places = SparseMatrix.from_entries(keys // columns, keys % columns, ones, (rows, columns))
    return FeatureCandidates(places, absent, size)


@dataclass(frozen=True, eq=False)
class DrawnCandidates:
    """What a search draws before it begins; the sizes, but for a graph that holds fewer, are fixed.

    Drawing waits for a device, and nothing after it does.
    """

    pairs: Int[Tensor, " pairs"]  # the keys of `EdgeCandidates`
    present: Float[Tensor, " pairs"]  # which of them are edges
    entries: Int[Tensor, " entries"]  # row times columns plus column of feature entries
    absent: int  # of them, those that compressed features do not store

    @classmethod
    def of(
        cls, graph: Graph, features: Features, scope: SearchScope, generator: torch.Generator
    ) -> DrawnCandidates:
        """Draw for a graph, whose features may be normalised."""
        others = round(scope.candidates * graph.num_edges)
        pairs = draw_pairs(graph, others, generator)
        return cls(*pairs, *draw_entries(features, scope.feature_budget, generator))


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

    def embed(self, change: Change) -> tuple[RescaledLaplacian, Float[Tensor, "bands nodes dim"]]:
        """The changed graph, and its bands."""
        operator = self.edges.operator(change.flips)
        projected = self.projected + self.encoder.project(self.entries.moved(change.moves))
        return operator, self.encoder.embed(projected, operator)

    def see(self, change: Change) -> Seen:
        """Embed the changed graph and judge it."""
        operator, views = self.embed(change)
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
    """How the search is done; by default over edges alone."""

    steps: int
    budget: int  # pairs flipped at most
    edge_step: float = 1.0  # alpha, at the first step; one flips about as many as are allowed
    step_rule: StepRule = "normalised"
    feature_step: float = 0.0  # beta, in units of an entry's mean size
    feature_box: float = 0.0  # the largest move of an entry, in the same units
    discretisation: Discretisation = "largest"
    draws: int = 1


@dataclass(frozen=True, eq=False)
class AscentResult:
    """The change that was found; pairs are flipped or not."""

    change: Change
    seen: Seen
    before: Seen  # the clean graph
    relaxed: Float[Tensor, ""]  # the best objective on the way, pairs flipped by shares


def ascend(
    problem: InnerProblem, how: Ascent, generator: torch.Generator | Float[Tensor, "draws pairs"]
) -> AscentResult:
    """Climb from the clean graph, then keep the best of several graphs without halves.

    Without a step all pairs are equally likely to be flipped: a control of the search.
    Nothing waits for a device on the way, so that a search can be captured as a CUDA graph.

    Args:
        problem: What is maximised.
        how: Steps, budgets and draws.
        generator: For the draws; or numbers from 0 to 1 that were drawn before.
    """
    change = problem.nothing()
    before, slope = _slope(problem, change)
    best, relaxed = change, before.objective
    if how.steps == 0:
        best = replace(change, flips=change.flips + min(1, how.budget / max(1, len(change.flips))))
    for number in range(1, how.steps + 1):
        change = _step(problem, change, slope, how, number)
        if number < how.steps:
            seen, slope = _slope(problem, change)
        else:
            with torch.no_grad():
                seen = problem.see(change)
        is_higher = seen.objective > relaxed
        best = _either(is_higher, change, best)
        relaxed = torch.where(is_higher, seen.objective, relaxed)
    with torch.no_grad():
        (change, seen), *others = (
            (point, problem.see(point)) for point in _discrete(best, how, generator)
        )
        for other, looks in others:
            is_higher = looks.objective > seen.objective
            change, seen = _either(is_higher, other, change), _either(is_higher, looks, seen)
    return AscentResult(change, seen, before, relaxed)


Tensors = TypeVar("Tensors", "Change", "Seen")


def _either(is_first: Bool[Tensor, ""], first: Tensors, second: Tensors) -> Tensors:
    """One of two, chosen on the device."""
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return type(first)(*(torch.where(is_first, one, other) for one, other in pairs))


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
    if not budget or not len(slope):
        return slope.new_ones(())
    steepest = slope.clamp(min=0).topk(min(budget, len(slope))).values  # from the steepest down
    steep = (steepest > 0).sum()
    last = steepest.gather(0, (steep - 1).clamp(min=0).unsqueeze(0)).squeeze(0)
    return torch.where(steep > 0, last, 1)


def _discrete(
    change: Change, how: Ascent, generator: torch.Generator | Float[Tensor, "draws pairs"]
) -> Iterator[Change]:
    """Changes that flip a pair or do not: the largest shares, or drawn by their shares.

    A draw over the budget loses the pairs of the smallest shares.
    """
    if how.discretisation == "largest" and how.steps > 0:
        yield Change(_largest(change.flips, how.budget), change.moves)
        return
    if isinstance(generator, torch.Generator):
        generator = draw_numbers(how.draws, change.flips, generator)
    for numbers in generator[: None if how.steps > 0 else 1]:  # a control has no choice
        drawn = numbers < change.flips
        yield Change(_largest(drawn * change.flips, how.budget), change.moves)


def draw_numbers(
    draws: int, pairs: Tensor, generator: torch.Generator
) -> Float[Tensor, "draws pairs"]:
    """From 0 to 1, one for each draw and pair."""
    shape = draws, len(pairs)
    return torch.rand(shape, generator=generator, device=generator.device, dtype=pairs.dtype)


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
    high = _exceeded_by(values, allowed).clamp(min=0)
    low = (high - 1).clamp(min=0)
    # A small graph costs a device little but the number of operations: several digits at a time.
    digits = _digits_at_once(values)
    parts = torch.linspace(0, 1, 2**digits + 1, dtype=values.dtype, device=values.device)
    for _ in range(math.ceil(bits / digits)):
        shifts = torch.lerp(low, high, parts)
        sums = (values - shifts[1:-1, None]).clamp_(0, 1).sum(1)
        above = (sums > budget).sum()  # of them: sums fall as shifts rise
        low, high = shifts.gather(0, torch.stack([above, above + 1])).unbind()
    return (values - high * binds).clamp_(0, 1)


def _exceeded_by(values: Float[Tensor, " candidates"], others: int) -> Float[Tensor, ""]:
    """The value that so many others exceed, or equal."""
    if values.is_cuda and len(values) > MOST_AT_ONCE:
        # A GPU finds a k-th value with one block of threads, and the largest with many.
        return values.topk(others + 1, sorted=False).values.min()
    return values.kthvalue(len(values) - others).values


def _digits_at_once(values: Tensor) -> int:
    return DIGITS_AT_ONCE if values.is_cuda and len(values) <= MOST_AT_ONCE else 1


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

    @classmethod
    @override
    def working_bytes(cls, target: Target, config: GradientConfig) -> None:
        return None

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
        self._ascent = Ascent(config.steps, budget=0)  # the seed draws candidates alone

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
        return pairs_of(self._problem.edges.keys[chosen], len(self._problem.projected))

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
