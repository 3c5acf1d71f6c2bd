"""GraphCL for nodes: DGI with the summaries of two augmented copies of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Share
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.data.sparse import SparseMatrix
from aspect.methods.base import PerGraph
from aspect.methods.dgi import DGI, DGIConfig
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import drop_nodes, exact_mask, grow_subgraph, rewire_edges
from aspect.nn.propagation import SymmetricPropagation
from aspect.nn.scorers import sigmoid_mean
from aspect.randomness import generator_for

Kind = Literal["node", "subgraph", "mask", "edge"]


class GraphCLConfig(DGIConfig):
    """Settings of GraphCL's node version; the defaults are those its paper's figures belong to."""

    augmentation: Annotated[Kind, Choice(("node", "subgraph", "mask", "edge"))] = "node"
    """How both views are drawn: drop nodes, grow a part, blank feature rows, or rewire edges."""
    ratio: Annotated[Share, Choice((0.1, 0.2))] = 0.2
    """Ratio of the graph that a view lacks; of the edges, a quarter of it is moved."""


@dataclass(frozen=True, eq=False)
class FixedView:
    """An augmented copy of a graph, as a one-layer encoder needs it."""

    nodes: Int[Tensor, " kept"]  # those it has, by their numbers in the whole graph
    present: Float[Tensor, " kept"]  # zero where a node's features are blanked, else one
    operator: SparseMatrix  # with its own degrees and self-loops


def draw_view(graph: Graph, kind: Kind, ratio: float, generator: torch.Generator) -> FixedView:
    """Draw an augmented copy: `node` and `subgraph` have fewer nodes, the others all of them."""
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    seen = graph
    if kind in ("node", "subgraph"):
        draw = drop_nodes if kind == "node" else grow_subgraph
        part = draw(graph, ratio, generator)
        nodes, seen = part.nodes, part.graph
    elif kind == "edge":
        seen = rewire_edges(graph, ratio, generator)
    blanked = ratio if kind == "mask" else 0.0
    present = exact_mask(len(nodes), blanked, generator, graph.dtype)
    return FixedView(nodes, present, SymmetricPropagation(seen).smoothing())


@register(
    "graphcl",
    config=GraphCLConfig,
    paper=Citation(
        "Y. You, T. Chen, Y. Sui, T. Chen, Z. Wang, Y. Shen",
        "Graph Contrastive Learning with Augmentations",
        "NeurIPS",
        2020,
    ),
    family="node against summary",
)
class GraphCL(DGI):
    """DGI whose summaries are those of two augmented copies of the graph.

    Encoder, scorer and corruption are DGI's; a node's logit is the sum over the summaries of both
    views, `u' M (c_1 + c_2) + 2 b`. Views are drawn once for a training, from a seed that belongs
    to the weights. The official code's node version is this, and not a contrast of views.

    Different from it: its second scorer, which it never uses, is left out; `edge` removes edges
    drawn uniformly, where it favours low node numbers and may draw one twice.
    """

    config: GraphCLConfig
    view_seed: Tensor

    def __init__(self, config: GraphCLConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        # A part of the state: a training that is resumed must see the same views again.
        self.register_buffer("view_seed", torch.randint(2**62, ()))
        self._views = PerGraph(self._draw_views)
        # Loaded weights come with a seed of their own.
        self.register_load_state_dict_post_hook(self._views.forget)  # type: ignore[no-untyped-call]  # torch

    def _draw_views(self, graph: Graph) -> tuple[FixedView, FixedView]:
        def draw(number: int) -> FixedView:
            generator = generator_for(int(self.view_seed), "view", number, device=graph.device)
            return draw_view(graph, self.config.augmentation, self.config.ratio, generator)

        return draw(1), draw(2)

    @override
    def row_plan(self) -> RowPlan | None:
        return None  # its views are drawn from the whole graph

    @override
    def summaries(
        self, graph: Graph, projected: Float[Tensor, "nodes dim"], real: Float[Tensor, "nodes dim"]
    ) -> Sequence[Float[Tensor, " dim"]]:
        """Of the two views."""
        return [self._summary(projected, view) for view in self._views(graph)]

    def _summary(
        self, projected: Float[Tensor, "nodes dim"], view: FixedView
    ) -> Float[Tensor, " dim"]:
        # Features were divided row by row, and X W is linear in rows: no product is made anew.
        rows = projected.index_select(0, view.nodes) * view.present.unsqueeze(1)
        return sigmoid_mean(self.encoder.propagate(rows, view.operator))
