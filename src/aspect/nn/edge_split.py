"""A graph as its like and its unlike edges: views through a low pass and a high pass (HLCL)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.features import dense, mask_columns
from aspect.nn.augmentations import column_mask, entry_weights, isolate_nodes
from aspect.nn.edge_choice import choose_edges, edge_similarity
from aspect.nn.gcn import GCNStack
from aspect.nn.two_views import View, ViewSource

__all__ = ["EdgeSplit"]

# Similarities closer than this are equal but for rounding: binary features make many such.
STEP = 2**-20


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Two subgraphs on all nodes, as weights of the edge index: one for what is chosen.

    An edge may be in both, if one end counts it among its most similar and the other, or even the
    same, among its least similar; or in neither.
    """

    source: ViewSource
    like: Float[Tensor, " entries"]
    unlike: Float[Tensor, " entries"]
    unit_diagonal: bool = False  # the high pass has ones there; off: it is I minus the low pass

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        source: ViewSource,
        encoder: GCNStack | None = None,
        *,
        like_share: float,
        unlike_share: float,
        unit_diagonal: bool = False,
    ) -> EdgeSplit:
        """At every node, the share of neighbours most like it, and the share least like it.

        By features; or, with an encoder, by all that it makes of the two subgraphs which features
        would choose.
        """

        def split_by(x: Float[Tensor, "nodes dim"]) -> EdgeSplit:
            like, unlike = _most_and_least(source, x, like_share, unlike_share)
            return cls(source, like, unlike, unit_diagonal)

        split = split_by(dense(source.features))
        if encoder is None:
            return split
        seen = [encoder(view.features, view.operator) for view in (split.low(), split.high())]
        return split_by(torch.cat(seen, dim=1))

    def low(
        self,
        kept: Float[Tensor, " entries"] | None = None,
        columns: Float[Tensor, " features"] | None = None,
    ) -> View:
        """Smoothing along the like edges; all of them and all columns, or those with a one."""
        weights = self.like if kept is None else self.like * kept
        masked = mask_columns(self.source.features, columns)
        return View(masked, self.source.propagation.smoothing(weights))

    def high(
        self,
        kept: Float[Tensor, " entries"] | None = None,
        columns: Float[Tensor, " features"] | None = None,
    ) -> View:
        """Sharpening along the unlike edges; all of them and all columns, or those with a one."""
        weights = self.unlike if kept is None else self.unlike * kept
        masked = mask_columns(self.source.features, columns)
        along = self.source.propagation
        return View(masked, along.sharpening(weights, unit_diagonal=self.unit_diagonal))

    def draw_low(self, edge_drop: float, column_drop: float, generator: torch.Generator) -> View:
        """Edges dropped, each direction apart, then columns masked; zero draws nothing."""
        kept = entry_weights(self.source.graph, edge_drop, generator)
        return self.low(kept, self._draw_columns(column_drop, generator))

    def draw_high(self, node_drop: float, column_drop: float, generator: torch.Generator) -> View:
        """All edges of some nodes dropped, then columns masked; zero draws nothing."""
        kept = isolate_nodes(self.source.graph, node_drop, generator)
        return self.high(kept, self._draw_columns(column_drop, generator))

    def _draw_columns(
        self, drop: float, generator: torch.Generator
    ) -> Float[Tensor, " features"] | None:
        graph = self.source.graph
        return column_mask(graph.num_features, drop, generator, graph.dtype)


def _most_and_least(
    source: ViewSource, x: Float[Tensor, "nodes dim"], like_share: float, unlike_share: float
) -> tuple[Float[Tensor, " entries"], Float[Tensor, " entries"]]:
    """What every node chooses for being like it in x, and for being unlike it.

    Equally similar edges are told apart by the means around their ends, so that no numbering of
    nodes matters.
    """
    graph, around = source.graph, source.propagation.smoothing()(x)
    levels = (edge_similarity(graph, x.double()) / STEP).round()
    # A quarter of a cosine never reaches from one level to the next.
    likeness = levels + edge_similarity(graph, around.double()) / 4
    like = choose_edges(graph, likeness, like_share)
    unlike = choose_edges(graph, -likeness, unlike_share)
    return like.to(graph.dtype), unlike.to(graph.dtype)
