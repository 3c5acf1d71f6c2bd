"""Perturbations that are drawn: flips at random or by DICE, and masked entries of the features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.attacks.base import Attack, check_flips, pairs_of
from aspect.attacks.registry import register_attack
from aspect.config import Config
from aspect.data.graph import UNLABELLED, Features, Graph, edge_keys
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError
from aspect.randomness import generator_for, seed_for

# Numbers drawn at a time, whatever the number of flips, so that a longer draw begins as a shorter.
DRAWN_AT_ONCE = 4096


class DrawnConfig(Config):
    """Settings of an attack that draws its flips."""

    keep_last_edges: bool = True
    """No node loses its last edge."""


class DrawnAttack(Attack):
    """Flips that are drawn in one go: there is no state, for drawing them again is cheap."""

    config: DrawnConfig

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        generator = generator_for(self.seed, "perturbation", self.info.name, "edges")
        keep = self.config.keep_last_edges
        return _draw(self.target.graph, most, self.choices(), generator, keep_last_edges=keep)

    @abstractmethod
    def choices(self) -> Choices:
        """What may be flipped."""


@register_attack(
    "random",
    config=DrawnConfig,
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
            ends=(nodes.tolist(), nodes.tolist()),
            suits=lambda low, high: class_of[low] != class_of[high],
        )


def random_flips(
    graph: Graph, count: int, generator: torch.Generator, *, keep_last_edges: bool = True
) -> Int[Tensor, "flips 2"]:
    """So many random flips by a generator on the CPU; refused if there are not so many."""
    return _draw(graph, count, _all_pairs(graph), generator, keep_last_edges=keep_last_edges)


@dataclass(frozen=True, eq=False)
class Choices:
    """What an attack may flip."""

    removable: Int[Tensor, " removable"]  # keys of edges that may go
    edges: Int[Tensor, " edges"]  # keys of the pairs that may not be added
    addable: int  # how many pairs may be
    ends: tuple[Sequence[int], Sequence[int]]  # nodes that the two ends of an addition are drawn of
    suits: Callable[[int, int], bool]  # whether the attack may join two of them, edge or not


def _all_pairs(graph: Graph) -> Choices:
    """Every edge may go, every other pair may become one."""
    nodes, edges = graph.num_nodes, edge_keys(graph).cpu()
    return Choices(
        removable=edges,
        edges=edges,
        addable=nodes * (nodes - 1) // 2 - len(edges),
        ends=(range(nodes), range(nodes)),
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
    check_flips(count, graph)
    nodes, degrees = graph.num_nodes, graph.degrees().tolist()
    order = torch.randperm(len(choices.removable), generator=generator)
    least = 2 if keep_last_edges else 1
    removals = (  # an edge that must stay when its turn comes is not tried again
        key
        for key in choices.removable[order].tolist()
        if min(degrees[end] for end in divmod(key, nodes)) >= least
    )
    uniform = _uniform(generator)
    kinds = {-1: removals, 1: _additions(choices, uniform, nodes)}
    keys: list[int] = []
    while len(keys) < count:
        preferred = 1 if next(uniform) < 0.5 else -1  # noqa: PLR2004 - equal chances
        for change in (preferred, -preferred):
            key = next(kinds[change], None)
            if key is not None:
                break
        else:
            kept = ", or would take the last edge of a node" if keep_last_edges else ""
            raise SettingsError(
                f"Number of flips must be at most {len(keys)} here: every further one is not for "
                f"this attack to make{kept}. Got {count}."
            )
        for end in divmod(key, nodes):
            degrees[end] += change
        keys.append(key)
    return pairs_of(torch.tensor(keys), nodes)


def _additions(choices: Choices, uniform: Iterator[float], nodes: int) -> Iterator[int]:
    """Pairs that become an edge, each drawn until there is one that is none; graphs are sparse."""
    taken = set(choices.edges.tolist())
    for _ in range(choices.addable):
        while True:
            low, high = sorted(ends[int(next(uniform) * len(ends))] for ends in choices.ends)
            key = low * nodes + high
            if choices.suits(low, high) and key not in taken:
                break
        taken.add(key)
        yield key


def _uniform(generator: torch.Generator) -> Iterator[float]:
    """Numbers in [0, 1) without end."""
    while True:
        yield from torch.rand(DRAWN_AT_ONCE, generator=generator, dtype=torch.float64).tolist()


# The feature mask, which goes with every attack


@register_attack(
    "feature",
    config=Config,
    changes="features",
    stored=False,
    needs_labels=False,
)
class FeatureMask(Attack):
    """The mask alone: it flips nothing."""

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        return torch.empty(0, 2, dtype=torch.long)


def mask_seed(kind: str, seed: int) -> int:
    """Seed of the feature mask that goes with an attack; that of a bare mask is its own."""
    return seed_for(seed, "perturbation", kind, *(() if kind == "feature" else ("features",)))


def mask_graph(graph: Graph, rate: float, seed: int) -> Graph:
    """The graph with masked features, see `mask_features`; the seed is that of `mask_seed`."""
    generator = torch.Generator().manual_seed(seed)
    return replace(graph, features=mask_features(graph.features, rate, generator))


def mask_features(features: Features, rate: float, generator: torch.Generator) -> Features:
    """The matrix with about a rate of its non-zero entries masked, each drawn by itself.

    An entry is masked if its number in [0, 1) is below the rate: with the same generator, what is
    masked at a rate is masked at every higher one, and dense and compressed matrices lose the same.

    Args:
        features: Stays as it is; what is left of it is stored in the same way.
        rate: From 0 to 1.
        generator: On the CPU.
    """
    if not 0 <= rate <= 1:
        raise SettingsError(f"Rate of a feature mask must lie in [0, 1]. Got {rate}.")
    if not isinstance(features, SparseMatrix):
        return _masked(features, rate, generator)
    kept = _masked(features.values, rate, generator) != 0
    rows, columns = features.pattern.rows[kept], features.pattern.columns[kept]
    return SparseMatrix.from_entries(rows, columns, features.values[kept], features.shape)


def _masked(
    values: Float[Tensor, "*shape"], rate: float, generator: torch.Generator
) -> Float[Tensor, "*shape"]:
    """One draw for every value that is not zero, in the order of rows and columns."""
    present = values != 0
    draws = torch.rand(int(present.sum()), generator=generator, dtype=torch.float64)
    masked = values.clone()
    masked[present] *= (draws >= rate).to(values)
    return masked
