"""A graph as an encoder sees it, and corrupted copies of it: edges dropped, columns masked.

GRACE, GCA, ARIEL, BGRL, GBT, CCA-SSG and HLCL draw such copies, two at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.features import mask_columns, seen_features
from aspect.data.graph import Features, Graph
from aspect.data.operators import Operator
from aspect.nn.augmentations import column_mask, entry_weights, weighted_mask
from aspect.nn.propagation import SymmetricPropagation

__all__ = ["View", "ViewSource"]


@dataclass(frozen=True, eq=False)
class View:
    """Features and the operator that spreads them."""

    features: Features
    operator: Operator


class ViewSource:
    """Where views of one graph come from; the pattern of propagation is found once."""

    def __init__(self, graph: Graph, *, normalise_rows: bool = True) -> None:
        self.graph = graph
        self.features = seen_features(graph.features, normalise_rows=normalise_rows)
        self.propagation = SymmetricPropagation(graph)

    @property
    def clean(self) -> View:
        """The graph as it is."""
        return View(self.features, self.propagation.smoothing())

    def corrupted(
        self,
        edge_drop: float | Float[Tensor, " entries"],
        column_drop: float | Float[Tensor, " features"],
        generator: torch.Generator,
    ) -> View:
        """Each direction of each edge dropped, each column masked for all nodes, nothing rescaled.

        Args:
            edge_drop: A probability, or one for every entry of the edge index (GCA).
            column_drop: A probability, or one for every column (GCA).
            generator: Edges are drawn before columns; a probability of zero draws nothing.
        """
        graph = self.graph
        weights = (
            weighted_mask(edge_drop, generator)
            if isinstance(edge_drop, Tensor)
            else entry_weights(graph, edge_drop, generator)
        )
        kept = (
            weighted_mask(column_drop, generator)
            if isinstance(column_drop, Tensor)
            else column_mask(graph.num_features, column_drop, generator, graph.dtype)
        )
        return View(mask_columns(self.features, kept), self.propagation.smoothing(weights))
