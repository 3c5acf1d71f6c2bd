"""DICE: disconnect internally, connect externally (Waniek et al., Nature Human Behaviour 2018)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.attacks.budget import check_flips
from aspect.attacks.drawing import Choices, draw_flips
from aspect.attacks.knowledge import read_known
from aspect.data.graph import UNLABELLED, Graph, edge_keys

__all__ = ["dice"]


def dice(
    graph: Graph,
    labels: Int[Tensor, " nodes"],
    train: Int[Tensor, " train"],
    count: int,
    generator: torch.Generator,
    *,
    keep_last_edges: bool = True,
) -> Int[Tensor, "flips 2"]:
    """Different pairs of training nodes, smaller one first, in the order of their drawing.

    Each is with equal chance an edge within a class, which goes, or a pair of two classes, which
    becomes an edge; where one kind is used up, the other is taken. Only training labels are read,
    unlike in the original, which knows them all. The first flips of a longer draw are those of a
    shorter one.

    Args:
        graph: The graph before.
        labels: Classes; only those of `train` are read.
        train: The nodes whose classes the attacker knows.
        count: Flips wanted; refused if there are not so many.
        generator: On the CPU.
        keep_last_edges: Off: nodes may become isolated.
    """
    check_flips(count, graph)
    known = read_known(labels, train, graph)
    choices = _choices(graph, known.nodes.cpu(), known.classes.cpu())
    return draw_flips(graph, count, choices, generator, keep_last_edges=keep_last_edges)


def _choices(graph: Graph, nodes: Int[Tensor, " train"], classes: Int[Tensor, " train"]) -> Choices:
    """Edges within a class may go, pairs of two classes may come."""
    of_node = torch.full((graph.num_nodes,), UNLABELLED)
    of_node[nodes] = classes
    edges = edge_keys(graph).cpu()
    one, other = of_node[edges // graph.num_nodes], of_node[edges % graph.num_nodes]
    between = edges[(one != other) & (one >= 0) & (other >= 0)]
    pairs = (len(nodes) ** 2 - int(torch.bincount(classes).square().sum())) // 2
    known: list[int] = nodes.tolist()
    class_of: list[int] = of_node.tolist()

    def propose(uniform: Iterator[float]) -> tuple[int, int]:
        return known[int(next(uniform) * len(known))], known[int(next(uniform) * len(known))]

    return Choices(
        removable=edges[(one == other) & (one >= 0)],
        edges=between,
        addable=pairs - len(between),
        propose=propose,
        suits=lambda low, high: class_of[low] != class_of[high],
    )
