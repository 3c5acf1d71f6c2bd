"""Smaller graphs and rewired ones, drawn from a graph (GraphCL's views, ARIEL's samples)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.features import take_rows
from aspect.data.graph import Graph, edge_index_of, edge_keys, pair_keys
from aspect.nn.drawing import draw_order, draw_pairs

__all__ = [
    "Subgraph",
    "drop_nodes",
    "grow_subgraph",
    "induced_subgraph",
    "rewire_edges",
    "sample_subgraph",
]


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
    edge_index = ends[:, (ends >= 0).all(0)]  # rising numbers stay rising, so it stays sorted
    return Subgraph(Graph(take_rows(graph.features, nodes), edge_index), nodes)


def sample_subgraph(graph: Graph, size: int, generator: torch.Generator) -> Subgraph:
    """The subgraph of so many nodes drawn uniformly, or of all where there are no more (ARIEL).

    ARIEL's code never draws nodes without an edge; here all nodes may be drawn.
    """
    order = torch.randperm(graph.num_nodes, generator=generator, device=graph.device)
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
    nodes = graph.num_nodes
    order = draw_order(graph.num_edges, generator)
    one, other = draw_pairs(moved, nodes, generator)
    added = pair_keys(one, other, nodes)
    keys = torch.unique(torch.cat([edge_keys(graph)[order[moved:]], added]))
    return Graph(graph.features, edge_index_of(keys, nodes))
