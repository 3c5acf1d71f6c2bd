"""Edges chosen at every node by how alike their ends are (HLCL's two subgraphs)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Graph
from aspect.data.operators import Propagation
from aspect.losses.similarity import directions

__all__ = ["choose_edges", "edge_similarity"]

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
