"""Flips that are drawn: at random, or by DICE from the classes of training nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from typing_extensions import override

from aspect.attacks.base import Attack, Target, check_flips
from aspect.attacks.registry import register_attack
from aspect.config import Config
from aspect.data.graph import UNLABELLED, Graph, edge_keys
from aspect.errors import SettingsError
from aspect.randomness import generator_for

__all__ = ["Dice", "DrawnConfig", "RandomFlips", "random_flips"]

# Numbers drawn at a time, whatever the number of flips, so that a longer draw begins as a shorter.
DRAWN_AT_ONCE = 4096


class DrawnConfig(Config):
    """Settings of an attack that draws its flips."""

    keep_last_edges: bool = True
    """No node loses its last edge."""


class DrawnAttack(Attack):
    """Flips that are drawn in one go: there is no state, for drawing them again is cheap."""

    def __init__(
        self,
        target: Target,
        config: DrawnConfig,
        *,
        seed: int,
        state: Mapping[str, Tensor] | None = None,  # noqa: ARG002 - drawn anew
    ) -> None:
        self.target, self.config, self.seed = target, config, seed

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        check_flips(most, self.target.graph)
        generator = generator_for(self.seed, "perturbation", self.info.name, "edges")
        keep = self.config.keep_last_edges
        return _draw(self.target.graph, most, self.choices(), generator, keep_last_edges=keep)

    @abstractmethod
    def choices(self) -> Choices:
        """What may be flipped."""


@register_attack(
    "random",
    config=DrawnConfig,
    title="edges and non-edges at random",
    stored=False,
    needs_labels=False,
)
class RandomFlips(DrawnAttack):
    """The attacker that knows nothing."""

    @override
    def choices(self) -> Choices:
        return _all_pairs(self.target.graph)


@register_attack(
    "dice",
    config=DrawnConfig,
    title="edges within a class removed, nodes of two classes joined, at random",
)
class Dice(DrawnAttack):
    """Disconnect internally, connect externally (Waniek et al., Nature Human Behaviour 2018).

    The attacker knows the classes of training nodes and trains nothing. An edge within a class
    goes, or a pair of two classes becomes an edge. Both ends are training nodes: only their labels
    are read, unlike in the original, which knows them all.
    """

    @override
    def choices(self) -> Choices:
        graph, known = self.target.graph, self.target.known
        nodes, classes = known.nodes.cpu(), known.classes.cpu()
        of_node = torch.full((graph.num_nodes,), UNLABELLED)
        of_node[nodes] = classes
        edges = edge_keys(graph).cpu()
        one, other = of_node[edges // graph.num_nodes], of_node[edges % graph.num_nodes]
        between = edges[(one != other) & (one >= 0) & (other >= 0)]
        pairs = (len(nodes) ** 2 - int(torch.bincount(classes).square().sum())) // 2
        class_of: list[int] = of_node.tolist()
        return Choices(
            removable=edges[(one == other) & (one >= 0)],
            edges=between,
            addable=pairs - len(between),
            nodes=nodes.tolist(),
            suits=lambda low, high: class_of[low] != class_of[high],
        )


def random_flips(
    graph: Graph, count: int, generator: torch.Generator, *, keep_last_edges: bool = True
) -> Int[Tensor, "flips 2"]:
    """So many random flips by a generator on the CPU; refused if there are not so many."""
    check_flips(count, graph)
    return _draw(graph, count, _all_pairs(graph), generator, keep_last_edges=keep_last_edges)


@dataclass(frozen=True, eq=False)
class Choices:
    """What an attack may flip."""

    removable: Int[Tensor, " removable"]  # keys of edges that may go
    edges: Int[Tensor, " edges"]  # keys of the pairs that may not be added
    addable: int  # how many pairs may be
    nodes: list[int]  # ends of added edges
    suits: Callable[[int, int], bool]  # whether the attack may join two of them, edge or not


def _all_pairs(graph: Graph) -> Choices:
    """Every edge may go, every other pair may become one."""
    nodes, edges = graph.num_nodes, edge_keys(graph).cpu()
    return Choices(
        removable=edges,
        edges=edges,
        addable=nodes * (nodes - 1) // 2 - len(edges),
        nodes=list(range(nodes)),
        suits=lambda low, high: low < high,
    )


def _draw(
    graph: Graph,
    count: int,
    choices: Choices,
    generator: torch.Generator,
    *,
    keep_last_edges: bool,
) -> Int[Tensor, "flips 2"]:
    """Different pairs, smaller node first, in the order of their drawing.

    Each is with equal chance an edge to be removed or a pair to become one; where one kind is used
    up, the other is taken. The first flips of a longer draw are those of a shorter one. With
    `keep_last_edges` no node loses its last edge, after however many of the flips.
    """
    draw = _Draw(graph, choices, generator, keep_last_edges)
    keys: list[int] = []
    while len(keys) < count:
        key = draw.next_key()
        if key is None:
            kept = ", or would take the last edge of a node" if keep_last_edges else ""
            raise SettingsError(
                f"Number of flips must be at most {len(keys)} here: every further one is not for "
                f"this attack to make{kept}. Got {count}."
            )
        keys.append(key)
    pairs = torch.tensor(keys)
    return torch.stack([pairs // graph.num_nodes, pairs % graph.num_nodes], dim=1)


class _Draw:
    """One flip after the other, with what the flips so far have left of the graph."""

    def __init__(
        self, graph: Graph, choices: Choices, generator: torch.Generator, keep_last_edges: bool
    ) -> None:
        self.num_nodes, self.keep_last_edges = graph.num_nodes, keep_last_edges
        self.choices, self.addable = choices, choices.addable
        order = torch.randperm(len(choices.removable), generator=generator)
        self.removable = iter(choices.removable[order].tolist())
        self.taken = set(choices.edges.tolist())  # edges, and pairs that became one
        self.degrees: list[int] = graph.degrees().tolist()
        self.uniform = _uniform(generator)

    def next_key(self) -> int | None:
        first, second = self._removed, self._added
        if next(self.uniform) < 0.5:  # noqa: PLR2004 - equal chances
            first, second = second, first
        key = first()
        return second() if key is None else key

    def _removed(self) -> int | None:
        """An edge that may go; one that must stay now is not tried again."""
        for key in self.removable:
            low, high = divmod(key, self.num_nodes)
            if not self.keep_last_edges or min(self.degrees[low], self.degrees[high]) > 1:
                self.degrees[low] -= 1
                self.degrees[high] -= 1
                return int(key)
        return None

    def _added(self) -> int | None:
        """A pair that is no edge, drawn until there is one; graphs are sparse."""
        if self.addable == 0:
            return None
        self.addable -= 1
        nodes = self.choices.nodes
        while True:
            low, high = sorted(nodes[int(next(self.uniform) * len(nodes))] for _ in range(2))
            key = low * self.num_nodes + high
            if self.choices.suits(low, high) and key not in self.taken:
                self.taken.add(key)
                self.degrees[low] += 1
                self.degrees[high] += 1
                return key


def _uniform(generator: torch.Generator) -> Iterator[float]:
    """Numbers in [0, 1) without end."""
    while True:
        yield from torch.rand(DRAWN_AT_ONCE, generator=generator, dtype=torch.float64).tolist()
