"""Similar nodes: nearest rows of features, and edges split by similarity (HLCL)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.features import dense, mask_columns, take_rows
from aspect.data.graph import Features, Graph
from aspect.data.operators import Propagation
from aspect.data.sparse import SparseMatrix
from aspect.losses.info_nce import Positives
from aspect.losses.similarity import directions
from aspect.nn.augmentations import View, ViewSource, column_mask, entry_weights, isolate_nodes
from aspect.nn.gcn import GCNStack

__all__ = ["EdgeSplit", "choose_edges", "edge_similarity", "nearest_by_cosine", "similar_positives"]

BLOCK_BYTES = 64 * 2**20  # of similarities, in float64
# Similarities are compared in steps of 2^-32: what is equal but for rounding counts as equal.
STEPS = 2**32


@torch.no_grad()
def nearest_by_cosine(
    features: Features, count: int, *, block: int | None = None
) -> Int[Tensor, "nodes count"]:
    """The most similar other rows of every row, each row's in ascending order.

    Of equally similar ones, and binary features make many, those with the lowest numbers are taken:
    no device and no block size changes the choice. A row of zeros has no direction and is given
    its own number, so many times; to others its similarity is zero.

    Args:
        features: One row per node.
        count: Neighbours of each, fewer than there are rows.
        block: Rows compared with all others at a time; chosen for 64 MiB if not given.
    """
    nodes = features.shape[0]
    if not 0 <= count < nodes:
        raise ValueError(f"Neighbours must be between 0 and {nodes - 1} in number. Got {count}.")
    if block is None:
        block = max(1, BLOCK_BYTES // (8 * nodes))
    unit = _unit_rows(features.to(torch.float64))
    every = torch.arange(nodes, device=features.device)
    starts = range(0, nodes, block)
    return torch.cat([_nearest(unit, every[start : start + block], count) for start in starts])


def similar_positives(features: Features, count: int) -> Positives:
    """Every node and those with the most similar features, at most all others (GREET, S3GCL)."""
    nearest = nearest_by_cosine(features, min(count, features.shape[0] - 1))
    return Positives.from_neighbours(nearest, features.dtype)


def _unit_rows(features: Features) -> Features:
    if isinstance(features, SparseMatrix):
        pointers, rows = features.pattern.row_pointers.long(), features.pattern.rows
        squares = torch.segment_reduce(
            features.values.square(), "sum", offsets=pointers, initial=0
        ).sqrt()
        return features.with_values(features.values / torch.where(squares > 0, squares, 1)[rows])
    lengths = features.norm(dim=1, keepdim=True)
    return features / torch.where(lengths > 0, lengths, 1)


def _nearest(unit: Features, rows: Int[Tensor, " block"], count: int) -> Int[Tensor, "block count"]:
    asking = dense(take_rows(unit, rows))
    if count == 0:
        return rows.new_empty(len(rows), 0)
    similar = ((unit @ asking.t()).t() * STEPS).round_()
    similar[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
    chosen = _largest(similar, count)
    without_direction = (asking == 0).all(1, keepdim=True)
    return torch.where(without_direction, rows.unsqueeze(1), chosen)


def _largest(values: Float[Tensor, "block nodes"], count: int) -> Int[Tensor, "block count"]:
    """Columns of the largest values, ascending; of equal values the first ones."""
    least = values.topk(count).values[:, -1:]
    above, level = values > least, values == least
    room = count - above.sum(1, keepdim=True)
    taken = above | (level & (level.cumsum(1) <= room))
    return taken.nonzero()[:, 1].view(len(values), count)


ROUNDING = 1e-9  # a product of share and degree that is whole but for rounding is whole


@torch.no_grad()
def edge_similarity(graph: Graph, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, " entries"]:
    """The cosine of the ends of every entry of the edge index, never gathering rows of x."""
    pattern = Propagation(graph, self_loops=False).operator().neighbours
    ones = pattern.with_values(torch.ones_like(pattern.values, dtype=x.dtype)).as_csr()
    unit = directions(x)
    found: Tensor = torch.sparse.sampled_addmm(ones, unit, unit.t(), beta=0.0).values()
    return found


def choose_edges(
    graph: Graph, similarity: Float[Tensor, " entries"], share: float
) -> Float[Tensor, " entries"]:
    """One for an edge that is among the most similar at one of its ends, zero for the others.

    Every node chooses ceil(share * degree) of its edges, so that none with a neighbour is left
    alone; give the negative similarity to choose the least similar. Of equals the first are taken.
    HLCL's code counts an edge that both ends choose twice; here it weighs one.
    """
    source, target = graph.edge_index
    degrees = graph.degrees()
    by_similarity = torch.argsort(similarity, descending=True, stable=True)
    order = by_similarity[torch.argsort(source[by_similarity], stable=True)]
    begins = degrees.cumsum(0) - degrees
    rank = torch.empty_like(source)
    rank[order] = torch.arange(len(source), device=graph.device) - begins[source[order]]
    wanted = torch.ceil(share * degrees.double() - ROUNDING)
    chosen = rank < wanted[source]
    reverse = torch.argsort(target * graph.num_nodes + source)  # where the other direction stands
    return (chosen | chosen[reverse]).to(similarity.dtype)


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
