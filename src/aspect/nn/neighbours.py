"""Similar nodes: nearest rows of features (GREET, S3GCL), edges split by similarity (HLCL)."""

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
from aspect.nn.augmentations import View, ViewSource, keep_mask
from aspect.nn.gcn import GCNStack

BLOCK_BYTES = 64 * 2**20  # of similarities, in float64
# What is equal but for rounding counts as equal, and binary features make many such: similarities
# of rows are compared in steps of 2^-32, those of edges in steps of 2^-20.
STEPS, EDGE_STEP = 2**32, 2**-20
ROUNDING = 1e-9  # a product of rate and degree that is whole but for rounding is whole


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
    blocks = torch.split(torch.arange(nodes, device=features.device), block)
    return torch.cat([_nearest(unit, rows, count) for rows in blocks])


def similar_positives(features: Features, count: int) -> Positives:
    """Every node and those with the most similar features, at most all others (GREET, S3GCL)."""
    nearest = nearest_by_cosine(features, min(count, features.shape[0] - 1))
    return Positives.from_neighbours(nearest, features.dtype)


def _unit_rows(features: Features) -> Features:
    if isinstance(features, SparseMatrix):
        pointers, rows = features.pattern.row_pointers.long(), features.pattern.rows
        squares = features.values.square()
        lengths = torch.segment_reduce(squares, "sum", offsets=pointers, initial=0).sqrt()
        return features.with_values(features.values / torch.where(lengths > 0, lengths, 1)[rows])
    return directions(features)


def _nearest(unit: Features, rows: Int[Tensor, " block"], count: int) -> Int[Tensor, "block count"]:
    block = dense(take_rows(unit, rows))
    if count == 0:
        return rows.new_empty(len(rows), 0)
    similar = ((unit @ block.t()).t() * STEPS).round_()
    similar[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
    chosen = _largest(similar, count)
    without_direction = (block == 0).all(1, keepdim=True)
    return torch.where(without_direction, rows.unsqueeze(1), chosen)


def _largest(values: Float[Tensor, "block nodes"], count: int) -> Int[Tensor, "block count"]:
    """Columns of the largest values, ascending; of equal values the first ones."""
    least = values.topk(count).values[:, -1:]
    above, level = values > least, values == least
    room = count - above.sum(1, keepdim=True)
    taken = above | (level & (level.cumsum(1) <= room))
    return taken.nonzero()[:, 1].view(len(values), count)


@torch.no_grad()
def edge_similarity(graph: Graph, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, " entries"]:
    """The cosine of the ends of every entry of the edge index, never gathering rows of x."""
    pattern = Propagation(graph, self_loops=False).operator().neighbours
    ones = pattern.with_values(torch.ones_like(pattern.values, dtype=x.dtype)).as_csr()
    unit = directions(x)
    similarity: Tensor = torch.sparse.sampled_addmm(ones, unit, unit.t(), beta=0.0).values()
    return similarity


def choose_edges(
    graph: Graph, similarity: Float[Tensor, " entries"], rate: float
) -> Float[Tensor, " entries"]:
    """One for an edge that is among the most similar at one of its ends, zero for the others.

    Every node chooses ceil(rate * degree) of its edges, so that none with a neighbour is left
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
    counts = torch.ceil(rate * degrees.double() - ROUNDING)
    chosen = rank < counts[source]
    reverse = torch.argsort(target * graph.num_nodes + source)  # where the other direction stands
    return (chosen | chosen[reverse]).to(similarity.dtype)


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """The homophilic and the heterophilic subgraph on all nodes, as weights of the edge index.

    An edge may be in both, if one end counts it among its most similar and the other, or even the
    same, among its least similar; or in neither.
    """

    source: ViewSource
    homophilic: Float[Tensor, " entries"]
    heterophilic: Float[Tensor, " entries"]
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
        """At every node, a ratio of its most similar neighbours, and one of its least similar.

        By features; or, with an encoder, by its embeddings of the two subgraphs that features
        choose. Ties are broken by the means around the ends, so that no
        numbering of nodes matters.
        """
        graph = source.graph

        def split_by(x: Float[Tensor, "nodes dim"]) -> EdgeSplit:
            means = source.propagation.smoothing()(x)
            levels = (edge_similarity(graph, x.double()) / EDGE_STEP).round()
            # A quarter of a cosine never reaches from one level to the next.
            similarity = levels + edge_similarity(graph, means.double()) / 4
            homophilic = choose_edges(graph, similarity, like_share).to(graph.dtype)
            heterophilic = choose_edges(graph, -similarity, unlike_share).to(graph.dtype)
            return cls(source, homophilic, heterophilic, unit_diagonal)

        split = split_by(dense(source.features))
        if encoder is None:
            return split
        views = split.low(), split.high()
        return split_by(torch.cat([encoder(v.features, v.operator) for v in views], dim=1))

    def low(
        self,
        edge_drop: float = 0.0,
        column_drop: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> View:
        """Low pass along the homophilic edges, each direction dropped apart, columns masked."""
        kept = keep_mask(len(self.homophilic), edge_drop, generator, self.source.graph.dtype)
        weights = self.homophilic if kept is None else self.homophilic * kept
        features = self._masked(column_drop, generator)
        return View(features, self.source.propagation.smoothing(weights))

    def high(
        self,
        node_drop: float = 0.0,
        column_drop: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> View:
        """High pass along the heterophilic edges, some nodes without edges, columns masked."""
        graph, weights = self.source.graph, self.heterophilic
        kept = keep_mask(graph.num_nodes, node_drop, generator, graph.dtype)
        if kept is not None:
            source, target = graph.edge_index
            weights = weights * (kept[source] * kept[target])
        features = self._masked(column_drop, generator)
        propagation = self.source.propagation
        return View(features, propagation.sharpening(weights, unit_diagonal=self.unit_diagonal))

    def _masked(self, drop: float, generator: torch.Generator | None) -> Features:
        graph = self.source.graph
        columns = keep_mask(graph.num_features, drop, generator, graph.dtype)
        return mask_columns(self.source.features, columns)
