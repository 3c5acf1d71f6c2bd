"""Augmentations: masks, views with dropped edges and masked columns, samples of nodes.

The adaptive drop probabilities of GCA are here as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.data.features import mask_columns, seen_features, take_rows
from aspect.data.graph import Features, Graph, edge_keys, pair_keys, with_pairs
from aspect.data.operators import Operator, Propagation
from aspect.data.rows import Rows
from aspect.data.sparse import SparseMatrix
from aspect.nn.propagation import SymmetricPropagation, neighbour_mean

DAMPING = 0.85  # of GCA's walk
CONVERGED = 1e-10  # change of a unit vector at which power iteration ends
ROUNDING = 16  # steps of a float by which equal importances may differ


# --- masks ----------------------------------------------------------------------------------------


def keep_mask(
    count: int, drop: float, generator: torch.Generator | None, dtype: torch.dtype
) -> Float[Tensor, " count"] | None:
    """One for each that is kept, zero for each dropped; None, undrawn, if nothing is dropped.

    Without a generator nothing is.
    """
    if drop == 0 or generator is None:
        return None
    empty = torch.empty(count, dtype=dtype, device=generator.device)
    return empty.bernoulli_(1 - drop, generator=generator)


def exact_mask(
    count: int, rate: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, " count"]:
    """Exactly floor(rate * count) zeros at random positions, and ones: not a draw for each.

    Of columns in GGD and GREET, of rows in GraphCL.
    """
    weights = torch.ones(count, dtype=dtype, device=generator.device)
    dropped = draw_order(count, generator)[: math.floor(rate * count)]
    return weights.index_fill_(0, dropped, 0)  # an assigned 0 would be copied from the host


# --- views ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class View:
    """Features and the operator that propagates them."""

    features: Features
    operator: Operator


class ViewSource:
    """The clean view of one graph, and augmented ones; the propagation pattern is computed once.

    GRACE, GCA, ARIEL, BGRL, GBT and CCA-SSG draw two such views at every step.
    """

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

        def kept(count: int, drop: float | Tensor) -> Tensor | None:
            if isinstance(drop, Tensor):
                return torch.bernoulli(1 - drop, generator=generator)
            return keep_mask(count, drop, generator, graph.dtype)

        weights = kept(graph.edge_index.shape[1], edge_drop)
        columns = kept(graph.num_features, column_drop)
        return View(mask_columns(self.features, columns), self.propagation.smoothing(weights))


class RowViews(ViewSource):
    """The same for rows of a graph whose propagated features are stored: nothing is propagated.

    Each call of `corrupted` takes the next view of the batch, in the order of the method's plan. A
    step that is computed again, as a capture does, takes them again.
    """

    def __init__(self, rows: Rows) -> None:
        self.graph, self.features = rows, rows.features
        self._views = cycle(rows.views)

    @property
    @override
    def clean(self) -> View:
        return View(self.features, _as_it_is)

    @override
    def corrupted(
        self,
        edge_drop: float | Float[Tensor, " entries"],
        column_drop: float | Float[Tensor, " features"],
        generator: torch.Generator,
    ) -> View:
        """A view whose edges were dropped before; columns are masked for all rows, now."""
        (features,) = next(self._views)
        assert not isinstance(column_drop, Tensor)  # of GCA alone, which needs the whole graph
        keep = keep_mask(features.shape[1], column_drop, generator, features.dtype)
        return View(mask_columns(features, keep), _as_it_is)


def _as_it_is(x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
    """The operator of a graph convolution on nodes whose neighbours were gathered before."""
    return x


# --- draws of nodes, pairs and batches ------------------------------------------------------------


def draw_order(num_nodes: int, generator: torch.Generator) -> Int[Tensor, " nodes"]:
    """A uniform permutation: rows in this order are DGI's corruption, its edges untouched."""
    return torch.randperm(num_nodes, generator=generator, device=generator.device)


def draw_others(
    nodes: Int[Tensor, "*shape"], num_nodes: int, generator: torch.Generator
) -> Int[Tensor, "*shape"]:
    """For each node another one, uniform over all but itself (GMI's negatives, GREET's pairs)."""
    drawn = torch.randint(num_nodes - 1, nodes.shape, generator=generator, device=nodes.device)
    return drawn + (drawn >= nodes)


def draw_pairs(count: int, num_nodes: int, generator: torch.Generator) -> Int[Tensor, "2 count"]:
    """So many pairs of two nodes that differ, each uniform; a pair may come twice."""
    one = torch.randint(num_nodes, (count,), generator=generator, device=generator.device)
    return torch.stack([one, draw_others(one, num_nodes, generator)])


def draw_batches(
    num_nodes: int, size: int | None, generator: torch.Generator
) -> tuple[Int[Tensor, " _"], ...] | None:
    """All nodes in batches of so many, the last one smaller; None, undrawn, where one holds all."""
    if size is None or size >= num_nodes:
        return None
    return torch.split(draw_order(num_nodes, generator), size)


@torch.no_grad()
def draw_near(
    graph: Graph, seeds: int, hops: int, most: int, generator: torch.Generator
) -> Int[Tensor, " sample"]:
    """A sample of what lies within some hops of drawn seeds (SP-GCL's `tree`).

    Everything near a seed, the seed included, is listed for each seed, and entries of the list
    are drawn without repetition: a node that is near to several seeds may come several times.
    SP-GCL's code keeps such lists for all nodes, which may be n^2 numbers; here only for the seeds.
    """
    nodes = graph.num_nodes
    drawn = draw_order(nodes, generator)[:seeds]
    # Any sign of a neighbour will do: the pattern matters, not the weights.
    adjacency = Propagation(graph, self_loops=False).operator().neighbours
    near = torch.zeros(nodes, len(drawn), dtype=graph.dtype, device=graph.device)
    near[drawn, torch.arange(len(drawn), device=graph.device)] = 1
    for _ in range(hops):
        near = ((near != 0) | (adjacency @ near != 0)).to(graph.dtype)
    listed = near.t().nonzero()[:, 1]
    return listed[draw_order(len(listed), generator)[:most]]


# --- subgraphs and rewired graphs (GraphCL, ARIEL) ------------------------------------------------


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Some nodes of a graph with all edges between them."""

    graph: Graph  # its nodes numbered anew, in the order of the whole
    nodes: Int[Tensor, " kept"]  # their numbers in the whole graph, ascending


def induced_subgraph(graph: Graph, nodes: Int[Tensor, " kept"]) -> Subgraph:
    """Keep these nodes, each given once in any order, and every edge between two of them."""
    nodes = nodes.sort().values
    renumbered = torch.full((graph.num_nodes,), -1, dtype=torch.long, device=graph.device)
    renumbered[nodes] = torch.arange(len(nodes), device=graph.device)
    ends = renumbered[graph.edge_index]
    kept = (ends >= 0).all(0)
    edge_index = ends[:, kept]  # rising numbers stay rising, so it stays sorted
    weights = None if graph.weights is None else graph.weights[kept]
    return Subgraph(Graph(take_rows(graph.features, nodes), edge_index, weights=weights), nodes)


def sample_subgraph(graph: Graph, size: int, generator: torch.Generator) -> Subgraph:
    """The subgraph of so many nodes drawn uniformly, or of all where there are no more (ARIEL).

    ARIEL's code never draws nodes without an edge; here all nodes may be drawn. What is drawn
    later does not hang on the size: an order is drawn where all nodes stay, too.
    """
    order = draw_order(graph.num_nodes, generator)
    if size >= graph.num_nodes:
        return Subgraph(graph, torch.arange(graph.num_nodes, device=graph.device))
    return induced_subgraph(graph, order[:size])


def drop_nodes(graph: Graph, ratio: float, generator: torch.Generator) -> Subgraph:
    """Without exactly floor(ratio * nodes) nodes, drawn uniformly (GraphCL `node`)."""
    dropped = math.floor(ratio * graph.num_nodes)
    return sample_subgraph(graph, graph.num_nodes - dropped, generator)


def grow_subgraph(graph: Graph, ratio: float, generator: torch.Generator) -> Subgraph:
    """Grow from a random node to floor((1 - ratio) * nodes) nodes (GraphCL `subgraph`).

    Step i adds the neighbours of the i-th collected node to the frontier, then moves a uniform
    node of the frontier to the collection; it ends early where the frontier is empty.
    """
    size = max(1, math.floor((1 - ratio) * graph.num_nodes))
    draws = torch.rand(size, dtype=torch.float64, generator=generator, device=graph.device).tolist()
    begins = [0, *graph.degrees().cumsum(0).tolist()]
    targets = graph.edge_index[1].tolist()
    collected = [int(draws[0] * graph.num_nodes)]
    seen, frontier = set(collected), list[int]()
    for step in range(size - 1):
        middle = collected[step]
        fresh = [node for node in targets[begins[middle] : begins[middle + 1]] if node not in seen]
        seen.update(fresh)
        frontier.extend(fresh)
        if not frontier:
            break
        chosen = int(draws[step + 1] * len(frontier))
        # The last takes the place of the chosen: order means nothing in a uniform draw.
        frontier[chosen], frontier[-1] = frontier[-1], frontier[chosen]
        collected.append(frontier.pop())
    return induced_subgraph(graph, torch.tensor(collected, device=graph.device))


def rewire_edges(graph: Graph, ratio: float, generator: torch.Generator) -> Graph:
    """Remove floor(edges * ratio / 4) edges and add as many random pairs (GraphCL `edge`).

    A quarter is what GraphCL's code comes to. Its removals favour low node numbers and may hit an
    edge twice; here they are uniform over undirected edges. A drawn pair may be an edge already.
    """
    moved = math.floor(graph.num_edges * (ratio / 2) / 2)
    order = draw_order(graph.num_edges, generator)
    one, other = draw_pairs(moved, graph.num_nodes, generator)
    added = pair_keys(one, other, graph.num_nodes)
    keys = torch.unique(torch.cat([edge_keys(graph)[order[moved:]], added]))
    return with_pairs(Graph(graph.features, graph.edge_index, weights=graph.weights), keys)


# --- centrality and adaptive drop probabilities (GCA) ---------------------------------------------


def pagerank_centrality(graph: Graph, steps: int = 200) -> Float[Tensor, " nodes"]:
    """`x <- 0.15 x + 0.85 sum_u x_u / degree_u` from ones, as GCA's code has it.

    A lazy walk, not PageRank proper: what is kept is the node's own value, there is no uniform
    restart. GCA takes 200 steps for edges and 10 for columns.
    """
    # The mean over neighbours, transposed: every neighbour passes on equal parts of its value.
    inflow = neighbour_mean(graph).transposed
    x = torch.ones(graph.num_nodes, 1, dtype=graph.dtype, device=graph.device)
    for _ in range(steps):
        x = (1 - DAMPING) * x + DAMPING * (inflow @ x)
    return x.squeeze(1)


def eigenvector_centrality(graph: Graph, steps: int = 1000) -> Float[Tensor, " nodes"]:
    """The leading eigenvector of A, of length one and without negative entries.

    By power iteration on A + I, which has the same vectors but no second eigenvalue of the same
    size where the graph is bipartite.
    """
    source, target = graph.edge_index
    entries = torch.ones(len(source), dtype=torch.float64, device=graph.device)
    if graph.weights is not None and len(graph.weights):  # in units of their mean, as I is
        entries = graph.weights.double() / graph.weights.double().mean()
    nodes = graph.num_nodes
    adjacency = SparseMatrix.from_entries(source, target, entries, (nodes, nodes))
    x = torch.full((nodes, 1), nodes**-0.5, dtype=torch.float64, device=graph.device)
    for _ in range(steps):
        y = x + adjacency @ x
        before, x = x, y / y.norm()
        if float((x - before).norm()) <= CONVERGED:
            break
    return x.squeeze(1).to(graph.dtype)


def column_importance(
    features: Features, centrality: Float[Tensor, " nodes"], *, by_size: bool = False
) -> Float[Tensor, " features"]:
    """`log sum_v [x_vf != 0] phi_v`, minus infinity for an empty column.

    `by_size` weighs by |x_vf| instead, as GCA does for features without zeros.
    """

    def presence(values: Tensor) -> Tensor:
        return values.abs() if by_size else (values != 0).to(values.dtype)

    if isinstance(features, SparseMatrix):
        matrix = features.with_values(presence(features.values))
        return (matrix.transposed @ centrality.unsqueeze(1)).squeeze(1).log()
    return (presence(features).t() @ centrality).log()


def drop_probabilities(
    importance: Float[Tensor, " entries"],
    rate: float,
    *,
    cap: float = 0.7,
    official_nan: bool = False,
) -> Float[Tensor, " entries"]:
    """`min(rate * w / mean(w), cap)` for `w = (max s - s) / (max s - mean s)` of importances s.

    The most important is never dropped, and below the cap the mean is the rate. Where all are
    equally important, all are dropped at the rate.

    An importance of minus infinity (an empty column) takes no part in maximum and mean and gets
    the rate, which changes nothing. In GCA's code it turns all weights into NaN, and then every
    column is masked with probability `cap`, whatever the rate: `official_nan` does so.
    """
    counted = importance.isfinite()
    if official_nan and not bool(counted.all()):
        return torch.full_like(importance, cap)
    finite = importance[counted]
    probabilities = torch.full_like(importance, rate)
    if len(finite):
        below = finite.max() - finite
        mean = below.mean()
        # Importances that differ by rounding alone are equal.
        differ = mean > ROUNDING * torch.finfo(mean.dtype).eps * (1 + finite.abs().max())
        probabilities[counted] = torch.where(differ, rate * below / mean, rate)
    return probabilities.clamp(max=cap)
