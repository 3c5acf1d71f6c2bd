"""Random nodes: in another order, other than given, or near to drawn ones."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.graph import Graph
from aspect.data.operators import Propagation

__all__ = ["draw_batches", "draw_near", "draw_order", "draw_others", "draw_pairs"]


def draw_order(num_nodes: int, generator: torch.Generator) -> Int[Tensor, " nodes"]:
    """A uniform permutation: rows in this order are DGI's corruption, its edges untouched."""
    return torch.randperm(num_nodes, generator=generator, device=generator.device)


def draw_others(
    nodes: Int[Tensor, "*shape"], num_nodes: int, generator: torch.Generator
) -> Int[Tensor, "*shape"]:
    """For each node another one, uniform over all but itself (GMI's negatives, GREET's pairs)."""
    if num_nodes < 2:  # noqa: PLR2004 - a node and another one
        raise ValueError(f"There must be at least 2 nodes to draw another one. Got {num_nodes}.")
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

    Everything near a seed, the seed included, is listed for each seed, and places of the list are
    drawn without repetition: a node that is near to several seeds may come several times. SP-GCL's
    code keeps such lists for all nodes, which may be n^2 numbers; here only the seeds spread.
    """
    nodes = graph.num_nodes
    drawn = torch.randperm(nodes, generator=generator, device=graph.device)[:seeds]
    # Any sign of a neighbour will do: the pattern matters, not the weights.
    spread = Propagation(graph, self_loops=False).operator().neighbours
    near = torch.zeros(nodes, len(drawn), dtype=graph.dtype, device=graph.device)
    near[drawn, torch.arange(len(drawn), device=graph.device)] = 1
    for _ in range(hops):
        near = ((near != 0) | (spread @ near != 0)).to(graph.dtype)
    listed = near.t().nonzero()[:, 1]
    places = torch.randperm(len(listed), generator=generator, device=graph.device)[:most]
    return listed[places]
