"""Nodes as rows: what their neighbours bring was propagated before, so that no edges are needed.

Filters are linear. Given the rows T_0(L)X, ..., T_K(L)X of some nodes, a method computes the loss
and the embedding of these nodes from them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Graph
from aspect.errors import SettingsError

# A view of a step: the rate of edges dropped before propagation (0: none), or `shuffled`, whose
# nodes have each other's features (the corruption of DGI and GGD).
RowView = float | Literal["shuffled"]


@dataclass(frozen=True)
class RowPlan:
    """What a method needs of a graph to be trained on rows of it."""

    order: int  # of the Chebyshev basis
    self_loops: bool
    normalise_rows: bool  # of the features, before propagation
    views: tuple[RowView, ...]  # of a step, in the order in which the method takes them
    smoothed: bool = False  # it takes S^order X alone: a graph convolution whose hops come first


@dataclass(frozen=True, eq=False)
class Rows(Graph):
    """Some nodes of a large graph, each with its propagated features and without an edge.

    `features` are those of the clean graph that a graph convolution without neighbours takes:
    S^order X where the plan is `smoothed`, else X.
    """

    views: tuple[Float[Tensor, "terms rows features"], ...] = ()  # as the plan lists them
    whole: int = 0  # nodes of the graph that the rows are of
    queue: int = 0  # past rows that a contrast may take as further negatives

    @classmethod
    def of(
        cls,
        views: tuple[Float[Tensor, "terms rows features"], ...],
        whole: int,
        queue: int = 0,
    ) -> Rows:
        """A batch; the first view has the features."""
        no_edges = torch.empty(2, 0, dtype=torch.long, device=views[0].device)
        return cls(views[0][0], no_edges, views=views, whole=whole, queue=queue)

    @property
    def shuffled(self) -> Float[Tensor, "rows features"]:
        """Features of the nodes of a shuffled graph: the last view."""
        if len(self.views) < 2:  # noqa: PLR2004 - the clean view and the shuffled one
            raise SettingsError("These rows have no view of a shuffled graph.")
        return self.views[-1][0]


def smoothing_coefficients(order: int) -> Float[Tensor, " terms"]:
    """What the terms T_0(-S), ..., T_order(-S) are multiplied by in the sum S^order.

    >>> smoothing_coefficients(2).tolist()
    [0.5, 0.0, 0.5]
    """
    power = np.zeros(order + 1)
    power[order] = (-1.0) ** order
    return torch.from_numpy(np.polynomial.chebyshev.poly2cheb(power))
