"""The kinds of attacks under one roof: begin one, ask it for flips, keep its state, go on later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor
from typing_extensions import override

from aspect.attacks.dice import dice
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.attacks.random_flips import random_flips
from aspect.attacks.scoring import ROWS_AT_ONCE
from aspect.attacks.surrogate import forms_rows
from aspect.attacks.trace import AttackKind
from aspect.config import Config, make_config
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.sparse import SparseMatrix
from aspect.data.splits import Split
from aspect.randomness import generator_for, seed_for

__all__ = [
    "STRATEGIES",
    "Attack",
    "DrawnConfig",
    "Sight",
    "Strategy",
    "mask_seed",
]

State = Mapping[str, Tensor]

# Bytes per item that an attack holds at its peak, counted in the code and rounded up.
FLOAT_BYTES = 4
EDGE_ENTRY_BYTES = 70  # sorted keys, and three compressed forms of the adjacency
FEATURE_ENTRY_BYTES = 24  # compressed rows and columns
DRAWN_EDGE_BYTES = 200  # in Python's own lists and sets


@runtime_checkable
class Attack(Protocol):
    """An attack under way."""

    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        """The next flips in order, at least one and at most so many."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that is needed to go on to the same flips."""
        ...


@dataclass(frozen=True, eq=False)
class Sight:
    """What an attacker sees: the whole graph, and the classes of one split's training nodes."""

    graph: Graph
    labels: Int[Tensor, " nodes"]  # UNLABELLED outside of the training nodes
    train: Int[Tensor, " train"]
    num_classes: int

    @classmethod
    def of(cls, labelled: LabelledGraph, split: Split) -> Sight:
        """Mask all other labels at the door: what is not here cannot be read."""
        graph, train = labelled.graph, split.train.to(labelled.labels.device)
        labels = torch.full_like(labelled.labels, UNLABELLED)
        labels[train] = labelled.labels[train]
        return cls(graph, labels.to(graph.device), train.to(graph.device), labelled.num_classes)


class Strategy(ABC):
    """A kind of attack with its settings."""

    kind: ClassVar[AttackKind]
    surrogate: ClassVar[str] = ""  # what the attacker trains, if anything
    solver: str = ""  # which variant, where there are several

    @abstractmethod
    def __init__(self, settings: Mapping[str, Any], graph: Graph) -> None:
        """Take settings from the command line, those left out at their defaults.

        What depends on the graph's size is fixed here, so that the record shows it.
        """

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All but the solver, as plain values."""

    @abstractmethod
    def begin(self, sight: Sight, seed: int, state: State | None) -> Attack:
        """Begin the attack, or go on where its state was taken."""

    @abstractmethod
    def working_bytes(self, sight: Sight) -> int:
        """Memory that the attack will take at most beside the graph, about."""


class MetattackStrategy(Strategy):
    """The meta-gradient of a surrogate's training, by either inner solver."""

    kind = "metattack"
    surrogate = "linear graph convolution of two layers"

    @override
    def __init__(self, settings: Mapping[str, Any], graph: Graph) -> None:
        config = make_config(MetattackConfig, settings, owner=self.kind)
        at_once = config.flips_at_once(graph)
        self.config = config.model_copy(update={"flips_per_gradient": at_once})
        self.solver = config.solver

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json", exclude={"solver"})

    @override
    def begin(self, sight: Sight, seed: int, state: State | None) -> Attack:
        seen = (sight.graph, sight.labels, sight.train, sight.num_classes, self.config)
        return Metattack(*seen, seed=seed, state=state)

    @override
    def working_bytes(self, sight: Sight) -> int:
        graph, classes, config = sight.graph, sight.num_classes, self.config
        nodes, features = graph.num_nodes, graph.num_features
        rank, history = 2 * classes, 0
        if self.solver == "unrolled":
            whole = classes * (2 * config.inner_steps + 1)
            rank = min(config.rank, nodes, features, whole)
            per_step = features * (config.hidden + classes) + 2 * len(sight.train) * classes
            history = 2 * whole * (nodes + features) + config.inner_steps * per_step
        factors = nodes * (6 * rank + 4 * (4 * rank + 2)) + 6 * features * classes
        block = 3 * nodes * min(nodes, ROWS_AT_ONCE[graph.device.type])
        formed = 3 * nodes * features if forms_rows((nodes, features), graph.device) else 0
        edges = EDGE_ENTRY_BYTES * (2 * graph.num_edges + nodes)
        return FLOAT_BYTES * (history + factors + block + formed) + edges + _feature_bytes(graph)


class DrawnConfig(Config):
    """Settings of an attack that draws its flips."""

    keep_last_edges: bool = True
    """No node loses its last edge."""


class DrawnAttack:
    """Flips that are drawn in one go: there is no state, for drawing them again is cheap."""

    def __init__(self, draw: Callable[[int], Int[Tensor, "flips 2"]]) -> None:
        self._draw = draw

    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        """All that are wanted."""
        return self._draw(most)

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}


class DrawnStrategy(Strategy):
    """An attacker that draws, by a seed of its kind."""

    @override
    def __init__(self, settings: Mapping[str, Any], graph: Graph) -> None:
        self.config = make_config(DrawnConfig, settings, owner=self.kind)

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    @override
    def begin(self, sight: Sight, seed: int, state: State | None) -> Attack:
        return DrawnAttack(
            lambda count: self.draw(
                sight, count, generator_for(seed, "perturbation", self.kind, "edges")
            )
        )

    @abstractmethod
    def draw(self, sight: Sight, count: int, generator: torch.Generator) -> Int[Tensor, "flips 2"]:
        """So many flips in order."""

    @override
    def working_bytes(self, sight: Sight) -> int:
        return DRAWN_EDGE_BYTES * sight.graph.num_edges


class RandomStrategy(DrawnStrategy):
    """The attacker that knows nothing."""

    kind = "random"

    @override
    def draw(self, sight: Sight, count: int, generator: torch.Generator) -> Int[Tensor, "flips 2"]:
        keep = self.config.keep_last_edges
        return random_flips(sight.graph, count, generator, keep_last_edges=keep)


class DiceStrategy(DrawnStrategy):
    """The attacker that knows classes and trains nothing."""

    kind = "dice"

    @override
    def draw(self, sight: Sight, count: int, generator: torch.Generator) -> Int[Tensor, "flips 2"]:
        keep = self.config.keep_last_edges
        seen = (sight.graph, sight.labels, sight.train)
        return dice(*seen, count, generator, keep_last_edges=keep)


STRATEGIES: dict[AttackKind, type[Strategy]] = {
    strategy.kind: strategy for strategy in (MetattackStrategy, RandomStrategy, DiceStrategy)
}


def mask_seed(seed: int, kind: AttackKind) -> int:
    """Seed of the feature mask that goes with an attack."""
    return seed_for(seed, "perturbation", kind, "features")


def _feature_bytes(graph: Graph) -> int:
    if isinstance(graph.features, SparseMatrix):
        return FEATURE_ENTRY_BYTES * len(graph.features.values)
    return FLOAT_BYTES * graph.num_nodes * graph.num_features
