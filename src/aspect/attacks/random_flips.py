"""The attacker that knows nothing: edges and non-edges at random."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.attacks.budget import check_flips
from aspect.attacks.drawing import Choices, draw_flips
from aspect.data.graph import Graph, edge_keys

__all__ = ["random_flips"]


def random_flips(
    graph: Graph, count: int, generator: torch.Generator, *, keep_last_edges: bool = True
) -> Int[Tensor, "flips 2"]:
    """Different pairs of nodes, smaller one first, in the order of their drawing.

    Each is with equal chance an edge to be removed or a pair to become one; where no edge or no
    pair is left, the other kind is taken. The first flips of a longer draw are those of a shorter
    one. With `keep_last_edges` no node loses its last edge, after however many of the flips.

    Args:
        graph: The graph before.
        count: Flips wanted; refused if there are not so many.
        generator: On the CPU.
        keep_last_edges: Off: nodes may become isolated.
    """
    check_flips(count, graph)
    nodes, edges = graph.num_nodes, edge_keys(graph).cpu()

    def propose(uniform: Iterator[float]) -> tuple[int, int]:
        return int(next(uniform) * nodes), int(next(uniform) * nodes)

    choices = Choices(
        removable=edges,
        edges=edges,
        addable=nodes * (nodes - 1) // 2 - len(edges),
        propose=propose,
        suits=lambda low, high: low < high,
    )
    return draw_flips(graph, count, choices, generator, keep_last_edges=keep_last_edges)
