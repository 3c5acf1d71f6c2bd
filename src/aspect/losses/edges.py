"""Losses over edges: reconstruction (GMI), ranking (GREET), Rayleigh energy (ASPECT-S)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.data.graph import Graph, values_of_pairs
from aspect.data.operators import Operator, Propagation
from aspect.data.sparse import Pattern, SparseMatrix
from aspect.losses.blocked import (
    refuse_second_derivative,
    row_ranges,
    rows_per_block,
    with_smaller_blocks,
)
from aspect.losses.similarity import directions

PAIRS_AT_A_TIME = 2**14  # pairs whose rows are gathered at a time
EVEN = 0.5  # the weight of an edge that is as homophilic as heterophilic

# Within the logarithms of GMI's code: in float32 a probability that has become 0 or 1 costs 23.03
# at most and has no slope. A softplus of the inner products would go on pushing.
TINY = 1e-10
# Time grows with the square of the nodes: beyond so many, pairs without an edge are drawn.
EXACT_UP_TO = 50_000
DRAWN_BEYOND = 64

WHAT = "Reconstruction"  # for messages


def rayleigh_energy(
    shifted_laplacian: Operator, z: Float[Tensor, "nodes dim"]
) -> Float[Tensor, ""]:
    """Tr(Z' L Z) / Tr(Z' Z), from 0 to 2: the Rayleigh energy of Eq. (18).

    It is 0 for the root of the degrees, 2 for the same with the signs of a bipartite graph's sides.
    The operator applies L - I, which is what rescaling by the bound 2 leaves of the Laplacian.
    Embeddings that are zero everywhere have no roughness: their energy is zero.
    """
    mass = z.square().sum()
    energy = mass + (z * shifted_laplacian(z)).sum()
    return energy / torch.where(mass > 0, mass, torch.ones_like(mass))


def edge_ranking_loss(
    joined: Float[Tensor, " edges"],
    random: Float[Tensor, " edges"],
    weights: Float[Tensor, " edges"],
    like_margin: float,
    unlike_margin: float,
) -> Float[Tensor, ""]:
    """Ends of homophilic edges more similar than random pairs, of heterophilic ones less (GREET).

    `(mean relu(c_ab - c_uv + g) relu(w - 0.5) + mean relu(c_uv - c_ab + g') relu(0.5 - w)) / 2`.

    Args:
        joined: Cosine of the ends of every edge, c_uv.
        random: Cosine of the random pair that each edge is compared with, c_ab; for both halves.
        weights: How homophilic an edge is, w in [0, 1].
        like_margin: By how much a homophilic edge should win, g.
        unlike_margin: By how much a heterophilic edge should lose, g'.
    """
    homophilic = (random - joined + like_margin).relu() * (weights - EVEN).relu()
    heterophilic = (joined - random + unlike_margin).relu() * (EVEN - weights).relu()
    return (homophilic.mean() + heterophilic.mean()) / 2


def pair_cosines(
    x: Float[Tensor, "nodes dim"], one: Int[Tensor, " pairs"], other: Int[Tensor, " pairs"]
) -> Float[Tensor, " pairs"]:
    """The cosine of each pair of rows, zero where one is zero (GREET's edges and random pairs)."""
    return pair_products(directions(x), one, other)


def pair_products(
    x: Float[Tensor, "nodes dim"], one: Int[Tensor, " pairs"], other: Int[Tensor, " pairs"]
) -> Float[Tensor, " pairs"]:
    """`x[one] . x[other]` pair by pair, in memory that does not grow with pairs * width.

    A pair may come twice (GMI's reconstruction).
    """
    products: Tensor = _PairProducts.apply(x, one, other)  # type: ignore[no-untyped-call]  # torch
    return products


class _PairProducts(torch.autograd.Function):
    """Gathered in blocks; the gradient is a sparse product, so that nothing gathered is kept."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        ctx.save_for_backward(x, one, other)
        products = x.new_empty(len(one))
        for pairs in row_ranges(len(one), PAIRS_AT_A_TIME):
            products[pairs] = torch.linalg.vecdot(x[one[pairs]], x[other[pairs]])
        return products

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, one, other = ctx.saved_tensors
        # A pair that comes twice is two entries at one position, which a product adds up.
        matrix = SparseMatrix.from_entries(one, other, gradient, (len(x), len(x)))
        return matrix @ x + matrix.transposed @ x, None, None


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
        known = rows * nodes + columns  # ascending
        apart = 1 - values_of_pairs(known, torch.ones_like(together), one * nodes + other)
        away = pair_products(embeddings, one, other).sigmoid()
        rest = -((1 - away + TINY).log() * apart).sum() * (nodes**2 / pairs)
        return self.mean_weight * (joined + rest)


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
    for rows in row_ranges(len(embeddings), block):
        begin, end = pattern.row_starts[rows.start], pattern.row_starts[rows.stop]
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
