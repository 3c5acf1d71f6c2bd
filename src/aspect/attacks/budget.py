"""How much an attack may change: a share of the edges, as a whole number of flips."""

from __future__ import annotations

import math

from aspect.data.graph import Graph
from aspect.errors import GraphError, SettingsError

__all__ = ["check_flips", "flips_of", "flips_within", "least_share"]


def flips_within(share: float, graph: Graph) -> int:
    """The flips that a budget of so large a share of the edges allows, rounded."""
    count = flips_of(share, graph.num_edges)
    check_flips(count, graph)
    return count


def flips_of(share: float, edges: int) -> int:
    """A share of so many edges, rounded; one that comes to no flip is refused."""
    if not 0 < share <= 1:
        raise SettingsError(f"Attack budget must be a share in (0, 1]. Got {share}.")
    count = round(share * edges)
    if count == 0 and edges:
        raise SettingsError(
            f"Attack budget of {share:g} allows no flip of {edges} edges. "
            f"It must be {least_share(edges):g} or more."
        )
    return count


def least_share(count: int) -> float:
    """A share of so many that rounds to one, as small as two digits can say it.

    >>> least_share(20), round(0.025 * 20)
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
