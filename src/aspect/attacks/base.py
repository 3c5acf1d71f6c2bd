"""What all attacks share: the target, the budget, flips applied to a graph, and the attack itself.

An attack is one file in this folder: a class below with `@register_attack` over it. It then works
in `aspect attack`, in plans, in `aspect stability` and in reports.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.registry import AttackInfo
from aspect.config import Config, make_config
from aspect.data.files import available_bytes
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph, flip_pairs
from aspect.data.splits import Split
from aspect.errors import GraphError, SettingsError, shown

if TYPE_CHECKING:
    from aspect.attacks.projected_ascent import InnerProblem, SearchScope

MIB = 2**20

# The budget: a ratio of flips to edges, as a whole number of flips; and the memory


def flips_within(budget: float, graph: Graph) -> int:
    """The flips that a budget allows on this graph, rounded."""
    count = flips_of(budget, graph.num_edges)
    check_flips(count, graph)
    return count


def flips_of(budget: float, edges: int) -> int:
    """The flips of a budget, rounded; one that comes to no flip is refused."""
    if not 0 < budget <= 1:
        raise SettingsError(f"Attack budget must be a ratio in (0, 1]. Got {budget}.")
    count = round(budget * edges)
    if count == 0 and edges:
        raise SettingsError(
            f"Attack budget of {budget:g} allows no flip of {edges} edges. "
            f"It must be {least_budget(edges):g} or more."
        )
    return count


def least_budget(count: int) -> float:
    """The smallest ratio of two digits that rounds to one of so many.

    >>> least_budget(20), round(0.025 * 20)
    (0.026, 0)
    """
    half = 0.5 / count  # rounds to the even side, which is none
    scale = 10.0 ** (1 - math.floor(math.log10(half)))
    return (math.floor(half * scale) + 1) / scale


def check_flips(count: int, graph: Graph) -> None:
    """Refuse a number of flips that this graph has no pairs for."""
    if graph.num_edges == 0:
        raise GraphError("An attack needs edges to flip, and the graph has none.")
    pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
    if not 1 <= count <= pairs:
        raise SettingsError(
            f"Number of flips must be from 1 to {pairs}, the pairs of nodes. Got {count}."
        )


def check_memory(num_bytes: int, device: torch.device, remedy: str) -> None:
    """Refuse what would take more memory than is free; a GPU's is refused by torch in time."""
    free = available_bytes()
    if device.type == "cpu" and num_bytes > free:
        raise SettingsError(
            f"This attack takes {num_bytes / MIB:.0f} MiB of memory or more, and {free / MIB:.0f} "
            f"MiB are free. {remedy}"
        )


# Flips: pairs of nodes whose edge vanishes, or that become an edge


def apply_flips(graph: Graph, flips: Int[Tensor, "flips 2"]) -> Graph:
    """The graph with every pair flipped: removed where it is an edge, added where it is none."""
    flips, num_nodes = flips.to(graph.device), graph.num_nodes
    outside = ((flips < 0) | (flips >= num_nodes)).any(dim=1) | (flips[:, 0] == flips[:, 1])
    if bool(outside.any()):
        raise GraphError(
            f"Flips must be pairs of two different nodes from 0 to {num_nodes - 1}. "
            f"Got {_shown_pairs(flips[outside])}."
        )
    low, high = flips.long().sort(dim=1).values.unbind(dim=1)
    keys: Tensor
    keys, times = torch.unique(low * num_nodes + high, return_counts=True)
    if len(keys) < len(flips):
        twice = _shown_pairs(pairs_of(keys[times > 1], num_nodes))
        raise GraphError(f"A pair can be flipped once. Got twice: {twice}.")
    return flip_pairs(graph, keys)


def pairs_of(keys: Int[Tensor, " pairs"], num_nodes: int) -> Int[Tensor, "pairs 2"]:
    """The nodes of every pair, smaller one first."""
    return torch.stack([keys // num_nodes, keys % num_nodes], dim=1)


def _shown_pairs(flips: Int[Tensor, "flips 2"]) -> str:
    return shown(f"({a}, {b})" for a, b in flips.tolist())


# The target: all that an attacker sees


# What a search by gradient on a trained model maximises, with candidates drawn by the generator,
# which is on the graph's device.
SearchProblem: TypeAlias = "Callable[[Graph, SearchScope, torch.Generator], InnerProblem]"


@dataclass(frozen=True, eq=False)
class Known:
    """The training nodes with their classes."""

    nodes: Int[Tensor, " train"]  # ascending
    targets: Float[Tensor, "train classes"]  # one in the column of the node's class

    @property
    def classes(self) -> Int[Tensor, " train"]:
        """The class of every training node."""
        return self.targets.argmax(dim=1)


@dataclass(frozen=True, eq=False)
class Target:
    """What an attacker sees: the whole graph, and the classes of one split's training nodes."""

    graph: Graph
    labels: Int[Tensor, " nodes"] | None = None  # only those of `train` are read
    train: Int[Tensor, " train"] | None = None  # different nodes, in any order
    num_classes: int | None = None  # None: as many as the training nodes show
    search_problem: SearchProblem | None = None  # for an attack that searches on a model

    @classmethod
    def of(cls, labelled: LabelledGraph, split: Split) -> Target:
        """Mask all labels but those of the split's training nodes."""
        graph, train = labelled.graph, split.train.to(labelled.labels.device)
        labels = torch.full_like(labelled.labels, UNLABELLED)
        labels[train] = labelled.labels[train]
        return cls(graph, labels.to(graph.device), train.to(graph.device), labelled.num_classes)

    @cached_property
    def known(self) -> Known:
        """The training nodes' labels, checked: the only place where an attack reads any."""
        graph = self.graph
        if self.labels is None or self.train is None or len(self.train) == 0:
            raise GraphError("An attack needs training nodes with labels. Got none.")
        train = self.train.to(graph.device).long()
        outside = train[(train < 0) | (train >= graph.num_nodes)]
        if len(outside):
            raise GraphError(
                f"Training nodes must be from 0 to {graph.num_nodes - 1}. "
                f"Got {shown(outside.tolist())}."
            )
        nodes: Tensor
        nodes, times = torch.unique(train, return_counts=True)
        if len(nodes) < len(train):
            twice = shown(nodes[times > 1].tolist())
            raise GraphError(
                f"Training nodes must be different from each other. Got twice: {twice}."
            )
        if len(self.labels) != graph.num_nodes:
            raise GraphError(
                f"An attack needs a label for each of the {graph.num_nodes} nodes. "
                f"Got {len(self.labels)}."
            )
        classes = self.labels.to(graph.device)[nodes].long()
        count = int(classes.max()) + 1 if self.num_classes is None else self.num_classes
        wrong = (classes < 0) | (classes >= count)
        if bool(wrong.any()):
            raise GraphError(
                f"Labels of training nodes must be classes 0 to {count - 1}. "
                f"Got {shown(torch.unique(classes[wrong]).tolist())}."
            )
        if len(torch.unique(classes)) < 2:  # noqa: PLR2004 - one class leaves nothing to confuse
            raise GraphError("An attack needs training nodes of at least 2 classes. Got 1 class.")
        return Known(nodes, torch.nn.functional.one_hot(classes, count).to(graph.dtype))


# The attack

OnFlips = Callable[[int], object]  # called with the number of flips so far


class Attack(ABC):
    """An attack under way: `advance` finds the next flips, `state` keeps what resuming needs.

    With a `state`, stored earlier, it goes on to the very flips that it would have found without
    the interruption; target, settings and seed must be as they were then.
    """

    info: ClassVar[AttackInfo]  # set by the registration
    config_type: ClassVar[type[Config]]  # set by the registration
    surrogate: ClassVar[str] = ""  # the model that the attacker trains, if any

    def __init__(
        self,
        target: Target,
        config: Any,  # noqa: ANN401 - of the attack's own type
        *,
        seed: int,
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Begin the attack, or go on where its state was taken."""
        self.target, self.config, self.seed = target, config, seed
        self.start(state)

    def start(self, state: Mapping[str, Tensor] | None) -> None:  # noqa: B027 - may do nothing
        """Prepare what `advance` needs; only an attack that has a state is given one."""

    @classmethod
    def begin(
        cls,
        target: Target,
        settings: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        state: Mapping[str, Tensor] | None = None,
    ) -> Attack:
        """Begin with settings by name; those left out keep their defaults."""
        return cls(target, cls.settle(settings or {}, target.graph), seed=seed, state=state)

    @classmethod
    def settle(cls, settings: Mapping[str, Any], graph: Graph) -> Config:  # noqa: ARG003
        """The settings in full; what depends on the graph's size is fixed here."""
        return make_config(cls.config_type, settings, owner=cls.info.title)

    @classmethod
    def count(cls, config: Any, graph: Graph) -> int | None:  # noqa: ANN401, ARG003
        """The flips that the settings themselves ask for; None: a budget says how many."""
        return None

    @classmethod
    def working_bytes(cls, target: Target, config: Any) -> int | None:  # noqa: ANN401, ARG003
        """Memory that the attack takes at most beside the graph, about; None: it is not known."""
        return 200 * target.graph.num_edges  # in lists and sets of Python

    @abstractmethod
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        """The next flips in order, smaller node first: at least one, and at most so many.

        An attack that is not nested over budgets is called once, and may find fewer.
        """

    def state(self) -> dict[str, Tensor]:
        """All that is needed to go on to the same flips; nothing where they are drawn again."""
        return {}

    def find(self, count: int, on_flips: OnFlips | None = None) -> Int[Tensor, "flips 2"]:
        """So many flips in order; fewer only of an attack that is not nested over budgets."""
        flips = torch.empty(0, 2, dtype=torch.long)
        with one_thread():
            while len(flips) < count:
                flips = torch.cat([flips, self.advance(count - len(flips)).cpu()])
                if on_flips is not None:
                    on_flips(len(flips))
                if not self.info.nested:
                    break
        return flips

    def find_each(
        self, counts: Sequence[int], on_flips: OnFlips | None = None
    ) -> Iterator[Int[Tensor, "flips 2"]]:
        """The flips of each of several budgets, given as rising numbers of flips."""
        if self.info.nested:
            flips = self.find(counts[-1], on_flips)
            yield from (flips[:count] for count in counts)
        else:
            yield from (self.find(count, on_flips) for count in counts)


@contextmanager
def one_thread() -> Iterator[None]:
    """Many products of an attack are too small for more, and rounding depends on the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
