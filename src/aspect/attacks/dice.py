"""DICE: disconnect internally, connect externally (Waniek et al., Nature Human Behaviour 2018)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from typing_extensions import override

from aspect.attacks.random_flips import Choices, DrawnAttack, DrawnConfig
from aspect.attacks.registry import register_attack
from aspect.data.graph import UNLABELLED, edge_keys

__all__ = ["Dice"]


@register_attack(
    "dice",
    config=DrawnConfig,
    title="edges within a class removed, nodes of two classes joined, at random",
)
class Dice(DrawnAttack):
    """The attacker that knows the classes of training nodes and trains nothing.

    Each flip is with equal chance an edge within a class, which goes, or a pair of two classes,
    which becomes an edge; where one kind is used up, the other is taken. Both ends are training
    nodes: only their labels are read, unlike in the original, which knows them all. The first flips
    of a longer draw are those of a shorter one.
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
        known_nodes: list[int] = nodes.tolist()
        class_of: list[int] = of_node.tolist()

        def propose(uniform: Iterator[float]) -> tuple[int, int]:
            first, second = next(uniform), next(uniform)
            return known_nodes[int(first * len(nodes))], known_nodes[int(second * len(nodes))]

        return Choices(
            removable=edges[(one == other) & (one >= 0)],
            edges=between,
            addable=pairs - len(between),
            propose=propose,
            suits=lambda low, high: class_of[low] != class_of[high],
        )
