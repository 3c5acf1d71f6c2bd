"""Metattack: flips that make a surrogate's training go wrong, found by its meta-gradient.

Zügner & Günnemann, "Adversarial Attacks on Graph Neural Networks via Meta Learning", ICLR 2019.
Where we differ: the gradient is factorised, all pairs are scored without a matrix of all pairs,
several flips may be taken per gradient, and the default inner solver, `implicit`, trains a convex
surrogate with a ridge, which makes it another and usually stronger attack than the original, whose
training is kept as `unrolled`. The features are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Int
from pydantic import BeforeValidator, Field
from torch import Tensor
from typing_extensions import override

from aspect.attacks.adaptive import AdaptiveConfig
from aspect.attacks.base import Attack, Target, check_flips, one_thread, pairs_of
from aspect.attacks.flip_ranking import (
    ROWS_AT_ONCE,
    AttackedEdges,
    Candidates,
    DegreeTest,
    PairScores,
    best_flips,
    best_flips_among,
    choose,
)
from aspect.attacks.meta_gradient import (
    AttackLoss,
    ConstantFeatures,
    Descent,
    Effort,
    LowRank,
    Surrogate,
    compressed,
    conjugate_gradients,
    first_order_gradient,
    fit_ridge,
    forms_rows,
    implicit_gradient,
    pair_scores,
    ridge_curvature,
    row_softmax,
    unrolled_gradient,
)
from aspect.attacks.registry import register_attack
from aspect.config import Count, make_config
from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, SettingsError, TrainingError, UnknownNameError
from aspect.randomness import generator_for

Solver = Literal["implicit", "unrolled"]

FIRST_FIT = Effort(steps=30, products=100, tolerance=1e-2, gradient=1e-4)
REFIT = Effort(steps=2, products=10, tolerance=1e-2, gradient=0.0)

# Candidates ranked per flip wanted; many are refused by the test of degrees, or share their nodes.
RANKED_PER_FLIP, RANKED_PER_FLIP_PICKY = 4, 64
LARGER = 8  # times as many, where all were refused

SMALL, LARGE = 10_000, 100_000  # edges
MANY_NODES = 5_000

# Bytes per item that an attack holds at its peak, counted in the code and rounded up.
FLOAT_BYTES = 4
EDGE_ENTRY_BYTES = 70  # sorted keys, and three compressed forms of the adjacency
FEATURE_ENTRY_BYTES = 24  # compressed rows and columns


OBJECTIVES = {"meta-self": 0.0, "meta-both": 0.5, "meta-train": 1.0}


def _named_weight(given: object) -> object:
    """The weight of a named objective; numbers are left as they are."""
    if not isinstance(given, str):
        return given
    if given not in OBJECTIVES:
        raise UnknownNameError("objective of Metattack", given, OBJECTIVES)
    return OBJECTIVES[given]


class MetattackConfig(AdaptiveConfig):
    """Settings of Metattack; the same for all graphs."""

    solver: Solver = "implicit"
    """`implicit`: convex training with a ridge; `unrolled`: the original's gradient descent."""
    train_weight: Annotated[float, BeforeValidator(_named_weight), Field(ge=0, le=1)] = 0.0
    """Weight of the training nodes in the attack loss (lambda), or its name: meta-self is 0,
    meta-both 0.5, meta-train 1."""
    ridge: Annotated[float, Field(gt=0)] = 5e-3
    """Ridge of the implicit training, in units of the mean squared row of S."""
    pseudo_ridge: Annotated[float, Field(gt=0)] = 2e-4
    """Ridge of the fit that guesses the classes of unlabelled nodes, in the same units."""
    # None where it is off, so that files from before there was such a setting still fit.
    first_order: bool | None = None
    """Leave out how the training answers a flip: weights count as constants (A-Meta)."""
    flips_per_gradient: Count | None = None
    """Flips at most before the gradient is taken anew; none: a number by the graph's size."""
    keep_last_edges: bool = True
    """No node loses its last edge."""
    unnoticeable: bool = False
    """Take only flips that leave the degrees' power law as it was, by a likelihood-ratio test."""
    inner_steps: Count = 100
    """Steps of the unrolled training."""
    inner_rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate of the unrolled training."""
    inner_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of the unrolled training."""
    hidden: Count = 16
    """Width between the two weight matrices of the unrolled training."""
    rank: Count = 64
    """Rank to which the unrolled gradient is compressed."""

    def flips_at_once(self, graph: Graph) -> int:
        """Flips per gradient, which depend on the graph alone, so that budgets nest.

        More for a graph on which a gradient costs more; never above a hundredth of the edges.
        """
        if self.flips_per_gradient is not None:
            return self.flips_per_gradient
        small, many = graph.num_edges < SMALL, graph.num_nodes >= MANY_NODES
        if graph.num_edges >= LARGE:
            most = 100
        elif self.solver == "implicit":
            most = 20 if small else 50
        else:
            most = 10 if small else 50 if many else 30
        return max(1, min(most, graph.num_edges // 100))


@register_attack(
    "metattack",
    config=MetattackConfig,
    solvers={"unrolled": "the original's", "implicit": "stronger"},
)
class Metattack(Attack):
    """Metattack under way; its state is of the size of the flips and the surrogate's weights."""

    surrogate = "linear graph convolution of two layers"
    config: MetattackConfig
    made: int
    """Flips handed out so far."""

    @override
    def start(self, state: Mapping[str, Tensor] | None) -> None:
        graph = self.target.graph
        check_flips(1, graph)
        self._known = self.target.known
        if len(self._known.nodes) == graph.num_nodes and self.config.train_weight < 1:
            raise GraphError(
                "Metattack with a train_weight below 1 needs nodes outside of the training set, "
                "and there are none."
            )
        self._features = ConstantFeatures(graph.features)
        self._edges = AttackedEdges(graph)
        self._clean_degrees = graph.degrees()
        floor = self.config.floor(graph)
        self._allowed = None if floor is None else floor.allowed()
        self._at_once = self.config.flips_at_once(graph)
        self._keys, self.made = graph.edge_index.new_empty(0), 0
        if state is None:
            with one_thread():
                self._fit_first()
            return
        state = {name: tensor.to(graph.device) for name, tensor in state.items()}
        pairs = torch.cat([state["flips"], state["pending"]])
        self._keys = pairs[:, 0] * graph.num_nodes + pairs[:, 1]
        self.made = len(state["flips"])
        self._classes, self._mean_square = state["classes"], float(state["mean_square"])
        self._weights, self._adjoint = state["weights"], state["adjoint"]
        if len(self._keys):
            self._edges.flip(self._keys)

    @classmethod
    @override
    def settle(cls, settings: Mapping[str, Any], graph: Graph) -> MetattackConfig:
        config = make_config(MetattackConfig, settings, owner=cls.info.name)
        return config.model_copy(update={"flips_per_gradient": config.flips_at_once(graph)})

    @classmethod
    @override
    def working_bytes(cls, target: Target, config: MetattackConfig) -> int:
        graph, classes = target.graph, target.num_classes or 0
        nodes, features = graph.num_nodes, graph.num_features
        rank, history = 2 * classes, 0
        if config.solver == "unrolled":
            whole = classes * (2 * config.inner_steps + 1)
            rank = min(config.rank, nodes, features, whole)
            train = 0 if target.train is None else len(target.train)
            per_step = features * (config.hidden + classes) + 2 * train * classes
            history = 2 * whole * (nodes + features) + config.inner_steps * per_step
        factors = nodes * (6 * rank + 4 * (4 * rank + 2)) + 6 * features * classes
        block = 3 * nodes * min(nodes, ROWS_AT_ONCE[graph.device.type])
        formed = 3 * nodes * features if forms_rows((nodes, features), graph.device) else 0
        edges = EDGE_ENTRY_BYTES * (2 * graph.num_edges + nodes)
        kept = FLOAT_BYTES * nodes * features
        if isinstance(graph.features, SparseMatrix):
            kept = FEATURE_ENTRY_BYTES * len(graph.features.values)
        search = FLOAT_BYTES * (history + factors + block + formed)
        return max(search, config.floor_bytes(graph)) + edges + kept  # one after the other

    @property
    def flips(self) -> Int[Tensor, "flips 2"]:
        """All that were handed out, in order, smaller node first."""
        return pairs_of(self._keys[: self.made], self._edges.num_nodes)

    @override
    def state(self) -> dict[str, Tensor]:
        return {
            "flips": self.flips,
            "pending": pairs_of(self._keys[self.made :], self._edges.num_nodes),
            "classes": self._classes,
            "mean_square": torch.tensor(self._mean_square, dtype=torch.float64),
            "weights": self._weights,
            "adjoint": self._adjoint,
        }

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        if most < 1:
            raise SettingsError(f"Number of further flips must be 1 or more. Got {most}.")
        if self.made == len(self._keys):
            self._find_more()
        before, self.made = self.made, min(self.made + most, len(self._keys))
        return pairs_of(self._keys[before : self.made], self._edges.num_nodes)

    @torch.no_grad()
    def _fit_first(self) -> None:
        """Guess the classes of all other nodes on the clean graph, then fit for the attack."""
        surrogate = self._surrogate()
        self._mean_square = surrogate.mean_square()
        shape = self._features.shape[1], self._known.targets.shape[1]
        zero = torch.zeros(shape, dtype=self._features.dtype, device=self._features.device)
        ridge = self.config.pseudo_ridge * self._unit
        guess = fit_ridge(surrogate, self._known, ridge, zero, FIRST_FIT)
        self._classes = surrogate.logits(guess).argmax(dim=1)
        self._classes[self._known.nodes] = self._known.classes
        self._weights = self._adjoint = zero
        if self.config.solver == "implicit":
            ridge = self.config.ridge * self._unit
            self._weights = fit_ridge(surrogate, self._known, ridge, guess, FIRST_FIT)

    @property
    def _unit(self) -> float:
        """Of a ridge; one where all features are zero, and any ridge will do."""
        return self._mean_square or 1.0

    def _surrogate(self) -> Surrogate:
        return Surrogate(self._features, self._edges.normalised(), self._known.nodes)

    @torch.no_grad()
    def _find_more(self) -> None:
        """One gradient, and as many flips as may be taken by it."""
        surrogate = self._surrogate()
        loss = AttackLoss.build(
            self._classes, self._known.nodes, self.config.train_weight, self._features.dtype
        )
        inner = self._implicit if self.config.solver == "implicit" else self._unrolled
        scores = pair_scores(surrogate, self._edges.degrees, inner(surrogate, loss))
        if not bool(scores.left.isfinite().all()):
            raise TrainingError(
                f"Metattack's surrogate cannot be trained by the solver {self.config.solver!r}: "
                "the gradient is not finite. Scale the features down."
            )
        # The best of few pairs that may be flipped share nodes: further ones fill the batch.
        enough = 1 if self._allowed is None else self._at_once
        for candidates in self._ranked(scores):
            # By the degrees as they are, not by a running sum: one that goes on later starts so.
            test = None
            if self.config.unnoticeable:
                test = DegreeTest(self._clean_degrees, self._edges.degrees)
            keys = choose(candidates, self._edges, self._at_once, self.config.keep_last_edges, test)
            if len(keys) >= enough:
                break
        if len(keys) == 0:
            raise SettingsError(
                f"Number of flips must be at most {len(self._keys)} here: every further one would "
                "take the last edge of a node, flip a pair twice, be noticed or score too low."
            )
        self._edges.flip(keys)
        self._keys = torch.cat([self._keys, keys])

    def _ranked(self, scores: PairScores) -> Iterator[Candidates]:
        """The best flips that are left, ever more of them."""
        is_picky = self.config.unnoticeable or self._allowed is not None
        count = self._at_once * (RANKED_PER_FLIP_PICKY if is_picky else RANKED_PER_FLIP)
        while True:
            if self._allowed is None:
                best = best_flips(scores, self._edges, count, self._classes)
            else:
                best = best_flips_among(scores, self._edges, self._allowed, count)
            yield best
            if len(best.keys) < count:
                return
            count *= LARGER

    def _implicit(self, surrogate: Surrogate, loss: AttackLoss) -> LowRank:
        """Fit anew and solve for the adjoint, both from where the last gradient left them."""
        ridge = self.config.ridge * self._unit
        self._weights = fit_ridge(surrogate, self._known, ridge, self._weights, REFIT)
        logits = surrogate.logits(self._weights)
        outer = loss.gradient(logits)
        if self.config.first_order:
            return LowRank(outer, self._weights)
        curvature = ridge_curvature(surrogate, row_softmax(logits[self._known.nodes]), ridge)
        target, start = surrogate.pull_back(outer), self._adjoint
        self._adjoint = conjugate_gradients(
            curvature, target, start, REFIT.products, REFIT.tolerance
        )
        return implicit_gradient(surrogate, self._known, outer, self._weights, self._adjoint)

    def _unrolled(self, surrogate: Surrogate, loss: AttackLoss) -> LowRank:
        """Train from fresh weights, drawn on the CPU whatever the device."""
        generator = generator_for(self.seed, "metattack", len(self._keys))
        num_features, num_classes = self._weights.shape

        def uniform(rows: int, columns: int) -> Tensor:
            drawn = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
            spread: Tensor = (2 * drawn - 1) / columns**0.5
            return spread.to(self._weights)

        descent = Descent(
            first=uniform(num_features, self.config.hidden),
            second=uniform(self.config.hidden, num_classes),
            steps=self.config.inner_steps,
            rate=self.config.inner_rate,
            momentum=self.config.inner_momentum,
        )
        derive = first_order_gradient if self.config.first_order else unrolled_gradient
        gradient = derive(surrogate, self._known, loss, descent)
        rank = min(self.config.rank, *self._features.shape)
        return compressed(gradient, uniform(num_features, rank))
