"""How well inner products of embeddings tell which nodes are joined (GMI)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.data.graph import Graph
from aspect.data.operators import Propagation
from aspect.data.sparse import Pattern
from aspect.losses.blocked import (
    refuse_second_derivative,
    row_ranges,
    rows_per_block,
    with_smaller_blocks,
)
from aspect.losses.pairs import pair_products

__all__ = ["Reconstruction"]

# Within the logarithms of GMI's code: in float32 a probability that has become 0 or 1 costs 23.03
# at most and has no slope. A softplus of the inner products would go on pushing.
TINY = 1e-10
# Time grows with the square of the nodes: beyond so many, pairs without an edge are drawn.
EXACT_UP_TO = 50_000
DRAWN_BEYOND = 64

WHAT = "Reconstruction"  # for messages


class Reconstruction:
    """`w2 mean_ij (-w1 B_ij log(p_ij + e) - (1 - B_ij) log(1 - p_ij + e))`, p = sigmoid(H H').

    B = A + I, E = (sum of B) / 2, w1 = (n^2 - E) / E and w2 = n^2 / (n^2 - E): GMI's weights, under
    which joined pairs, among them every node with itself, count about double.
    """

    def __init__(self, graph: Graph) -> None:
        self.pattern = Propagation(graph, self_loops=True).pattern
        pairs, half = graph.num_nodes**2, len(self.pattern.columns) / 2
        self.joined_weight = (pairs - half) / half
        self.mean_weight = 1 / (pairs - half)  # w2 over the number of pairs
        self.num_nodes = graph.num_nodes

    def __call__(
        self,
        embeddings: Float[Tensor, "nodes dim"],
        pairs_per_node: int | None,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """Exact, or with so many drawn pairs a node where there are more nodes than that.

        Without a number all pairs up to 50,000 nodes, and 64 a node beyond.
        """
        nodes, drawn = self.num_nodes, pairs_per_node
        if drawn is None and nodes > EXACT_UP_TO:
            drawn = DRAWN_BEYOND
        if drawn is None or drawn >= nodes:
            return self.exact(embeddings)
        return self.sampled(embeddings, drawn * nodes, generator)

    def exact(
        self, embeddings: Float[Tensor, "nodes dim"], *, block: int | None = None
    ) -> Float[Tensor, ""]:
        """Over all pairs: time n^2, memory nodes * block, value and gradient exact."""
        size = block or rows_per_block(embeddings)
        total: Tensor = _AllPairs.apply(  # type: ignore[no-untyped-call]  # torch
            embeddings, self.pattern, self.joined_weight, size
        )
        return self.mean_weight * total

    def sampled(
        self, embeddings: Float[Tensor, "nodes dim"], pairs: int, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """All joined pairs, and so many random ones for the rest: unbiased, in linear time."""
        rows, columns = self.pattern.rows, self.pattern.columns.long()
        together = pair_products(embeddings, rows, columns).sigmoid()
        joined = -self.joined_weight * (together + TINY).log().sum()
        shape, nodes = (2, pairs), self.num_nodes
        one, other = torch.randint(nodes, shape, generator=generator, device=embeddings.device)
        # Draws that are joined count as zero: drawing others instead would bias the rest.
        apart = ~self._are_joined(one * nodes + other)
        away = pair_products(embeddings, one, other).sigmoid()
        rest = -((1 - away + TINY).log() * apart).sum() * (nodes**2 / pairs)
        return self.mean_weight * (joined + rest)

    def _are_joined(self, keys: Int[Tensor, " pairs"]) -> Bool[Tensor, " pairs"]:
        known = self.pattern.rows * self.num_nodes + self.pattern.columns.long()  # ascending
        places = torch.searchsorted(known, keys).clamp(max=len(known) - 1)
        return known[places] == keys


class _AllPairs(torch.autograd.Function):
    """The sum over all pairs, its gradient found in the same blocks."""

    @staticmethod
    @override
    def forward(
        ctx: Any, embeddings: Tensor, pattern: Pattern, joined_weight: float, block: int
    ) -> Tensor:
        def compute(size: int) -> tuple[Tensor, Tensor]:
            return _value_and_gradient(embeddings, pattern, joined_weight, size)

        row_bytes = len(embeddings) * embeddings.element_size()
        value, gradient = with_smaller_blocks(compute, block, row_bytes, WHAT)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @override
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_second_derivative(WHAT)
        (gradient,) = ctx.saved_tensors
        return scale * gradient, None, None, None


def _value_and_gradient(
    embeddings: Tensor, pattern: Pattern, joined_weight: float, block: int
) -> tuple[Tensor, Tensor]:
    value, gradient = embeddings.new_zeros(()), torch.empty_like(embeddings)
    pointers = pattern.row_pointers
    for rows in row_ranges(len(embeddings), block):
        begin, end = pointers[[rows.start, rows.stop]].tolist()
        place = pattern.rows[begin:end] - rows.start, pattern.columns[begin:end].long()
        present = (embeddings[rows] @ embeddings.t()).sigmoid_()
        absent = 1 - present
        slopes, costs = present * absent, -(absent + TINY).log()
        joined = -joined_weight * (present[place] + TINY).log()
        joined_slopes = -joined_weight * slopes[place] / (present[place] + TINY)
        slopes.div_(absent.add_(TINY))
        costs[place], slopes[place] = joined, joined_slopes
        value += costs.sum()
        # Both ends of a pair: the matrix is symmetric.
        torch.mm(slopes, embeddings, out=gradient[rows])
    return value, gradient.mul_(2)
