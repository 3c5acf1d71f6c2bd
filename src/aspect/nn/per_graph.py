"""What a method computes once for a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from aspect.data.graph import Graph

__all__ = ["PerGraph"]

Prepared = TypeVar("Prepared")


class PerGraph(Generic[Prepared]):
    """Calls `make` for a graph and keeps the answer until another graph is given.

    A method's `prepare` calls it, and so do its loss and its embedding: the first one pays. It is
    no part of a method's state, since a graph gives the same again; who makes something by weights
    that change says `forget`.
    """

    def __init__(self, make: Callable[[Graph], Prepared]) -> None:
        self._make = make
        self._kept: tuple[Graph, Prepared] | None = None

    def __call__(self, graph: Graph) -> Prepared:
        """What was made for this very graph, made now if need be."""
        if self._kept is None or self._kept[0] is not graph:
            self._kept = (graph, self._make(graph))
        return self._kept[1]

    def forget(self, *_: object) -> None:
        """Make it anew at the next call: what it was made from has changed.

        It can be given to torch as a hook, whose arguments it ignores.
        """
        self._kept = None
