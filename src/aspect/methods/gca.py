"""GCA: GRACE with adaptive augmentation, dropping the less central more often."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.methods.base import PerGraph
from aspect.methods.grace import GRACE, LaterGRACEConfig
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import (
    View,
    column_importance,
    drop_probabilities,
    eigenvector_centrality,
    pagerank_centrality,
)
from aspect.nn.mlp import ActivationName

Centrality = Literal["degree", "pagerank", "eigenvector"]

EDGE_STEPS, COLUMN_STEPS = 200, 10  # of the walk behind `pagerank`, in the official code
SMALLEST = 1e-8  # added to eigenvector centralities: a component may have none


class GCAConfig(LaterGRACEConfig):
    """Symbols of the paper in parentheses; defaults for graphs that the official code leaves out.

    They are the official script's with a lower learning rate and fewer epochs.
    """

    activation: Annotated[ActivationName, Choice(("prelu", "relu", "rrelu"))] = "prelu"
    """What follows both layers; `rrelu` always has its mean slope, as in the official code."""
    centrality: Annotated[Centrality, Choice(("degree", "pagerank", "eigenvector"))] = "degree"
    """Node centrality that decides what is dropped (phi)."""
    highest_drop: Annotated[float, Field(ge=0, le=1)] = 0.7
    """The most that the probability of a drop can be (p_tau)."""
    weigh_by_size: bool = False
    """Count a column by the sizes of its entries, for features without zeros; off: by presence."""
    official_nan: bool = False
    """On a graph with an empty column mask every column with `highest_drop`, whatever the rates."""


# With what probability each entry of the edge index and each column is dropped from a view.
Drops = tuple[Float[Tensor, " entries"], Float[Tensor, " features"]]


@register(
    "gca",
    config=GCAConfig,
    paper=Citation(
        "Y. Zhu, Y. Xu, F. Yu, Q. Liu, S. Wu, L. Wang",
        "Graph Contrastive Learning with Adaptive Augmentation",
        "WWW",
        2021,
    ),
    family="node contrast",
)
class GCA(GRACE):
    """GRACE whose views drop edges to less central nodes, and their columns, more often.

    Only the node that receives a message decides on an edge direction. The most important are
    never dropped; where all are equally important, it is GRACE.

    Where it differs from the official code: an empty column takes no part in the weights of the
    others (there it turns all of them into NaN, and every column is masked with probability 0.7:
    `official_nan`), and a regular graph is dropped uniformly (there it divides by zero).
    """

    config: GCAConfig

    def __init__(self, config: GCAConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.drops = PerGraph(self._weigh)

    def _weigh(self, graph: Graph) -> tuple[Drops, Drops]:
        """The drop probabilities of both views."""
        config, (for_edges, for_columns) = self.config, self._centralities(graph)
        edges = for_edges[graph.edge_index[0]].log()
        columns = column_importance(graph.features, for_columns, by_size=config.weigh_by_size)

        def drops(edge_drop: float, column_mask: float) -> Drops:
            cap, nan = config.highest_drop, config.official_nan
            return (
                drop_probabilities(edges, edge_drop, cap=cap),
                drop_probabilities(columns, column_mask, cap=cap, official_nan=nan),
            )

        return (
            drops(config.first_edge_drop, config.first_column_mask),
            drops(config.second_edge_drop, config.second_column_mask),
        )

    def _centralities(
        self, graph: Graph
    ) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
        """The official code weighs edges and columns by slightly different numbers."""
        if self.config.centrality == "degree":
            degrees = graph.degrees().to(graph.dtype)
            return degrees, degrees
        if self.config.centrality == "pagerank":
            return pagerank_centrality(graph, EDGE_STEPS), pagerank_centrality(graph, COLUMN_STEPS)
        leading = eigenvector_centrality(graph)
        return leading.clamp(min=0) + SMALLEST, leading

    @override
    def row_plan(self) -> RowPlan | None:
        return None  # its views are drawn from the whole graph

    @override
    def corrupted(self, graph: Graph, generator: torch.Generator) -> tuple[View, View]:
        source, (first, second) = self.source(graph), self.drops(graph)
        return source.corrupted(*first, generator), source.corrupted(*second, generator)
