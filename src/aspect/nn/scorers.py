"""Discriminators: scores of nodes against summaries (the DGI family) and of edges (GREET)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.graph import Features, Graph
from aspect.data.sparse import SparseMatrix
from aspect.nn.augmentations import ViewSource
from aspect.nn.diffusion import return_probabilities


def sigmoid_mean(nodes: Float[Tensor, "nodes dim"]) -> Float[Tensor, " dim"]:
    """`sigmoid(mean_i h_i)`, every entry in (0, 1): the summary of DGI, GraphCL, MVGRL and RDGI."""
    return nodes.mean(0).sigmoid()


class BilinearScorer(nn.Module):
    """`u' M c + b` for a left vector u and a right vector c.

    `small` first weights are what Glorot's rule gives for a tensor of shape (1, left, right), as in
    DGI's code: uniform within sqrt(6 / (left right + right)), and b = 0. `torch` ones are those of
    a bilinear layer: M and b uniform within 1 / sqrt(left) (PolyGCL).
    """

    def __init__(
        self, left: int, right: int, *, start: Literal["small", "torch"] = "small"
    ) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(left, right))
        self.bias = nn.Parameter(torch.zeros(()))
        if start == "small":
            bound = math.sqrt(6 / (left * right + right))
        else:
            bound = 1 / math.sqrt(left)
            nn.init.uniform_(self.bias, -bound, bound)
        nn.init.uniform_(self.matrix, -bound, bound)

    @override
    def forward(
        self, nodes: Float[Tensor, "nodes left"], summary: Float[Tensor, " right"]
    ) -> Float[Tensor, " nodes"]:
        """Every node against one summary; M meets the summary first, so that it costs n * left."""
        return nodes @ (self.matrix @ summary) + self.bias

    def project(self, left: Features) -> Float[Tensor, "nodes right"]:
        """`u' M` of every row: found once, it can be paired with any rows in any order."""
        return left @ self.matrix

    def pairs(
        self, projected: Float[Tensor, "*nodes right"], right: Float[Tensor, "*nodes right"]
    ) -> Float[Tensor, "*nodes"]:
        """Row by row: the projected left vector against the right one (GMI)."""
        scores: Tensor = torch.linalg.vecdot(projected, right) + self.bias
        return scores


class SummedLinearScorer(nn.Module):
    """The sum of a projector's outputs, without activations (GGD): a linear score in disguise."""

    def __init__(self, width: int, layers: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    @override
    def forward(self, nodes: Float[Tensor, "nodes dim"]) -> Float[Tensor, " nodes"]:
        # From the last layer back: what multiplies h in the sum is a vector at every layer.
        weights, constant = torch.ones_like(nodes[0]), nodes.new_zeros(())
        for layer in reversed(self.layers):
            assert isinstance(layer, nn.Linear)
            constant = constant + weights @ layer.bias
            weights = weights @ layer.weight
        return nodes @ weights + constant


LEAST_NOISE = 1e-4  # uniform noise keeps so far from zero and one


class WalkedGraph(ViewSource):
    """A graph with the discriminator's inputs, and the pattern along which it propagates."""

    walks: Float[Tensor, "nodes steps"]  # how likely a random walk is back after so many steps

    def __init__(self, graph: Graph, *, normalise_rows: bool, walk_steps: int) -> None:
        super().__init__(graph, normalise_rows=normalise_rows)
        self.walks = return_probabilities(graph, walk_steps)

    def filters(
        self, weights: Float[Tensor, " entries"], strength: float
    ) -> tuple[SparseMatrix, SparseMatrix]:
        """The low-pass operator along homophilic edges, the high-pass one along the others.

        Args:
            weights: How homophilic each entry is; for the high pass, one minus that.
            strength: How much of its heterophilic neighbours a node subtracts.
        """
        high = self.propagation.sharpening(1 - weights, strength=strength, unit_diagonal=True)
        return self.propagation.smoothing(weights), high


class EdgeDiscriminator(nn.Module):
    """A weight in (0, 1) for every edge, near one where it seems homophilic (GREET).

    The raw score is `r_uv = (f[q_u; q_v] + f[q_v; q_u]) / 2` for q = relu(W [x; e] + b) of features
    and structural encoding, and a linear f: so r is the sum of one score for each end, and no pair
    of rows is ever gathered.
    """

    def __init__(self, num_features: int, walk_steps: int, width: int) -> None:
        super().__init__()
        self.num_features, self.width = num_features, width
        self.hidden = nn.Linear(num_features + walk_steps, width)
        self.scorer = nn.Linear(2 * width, 1)

    def scores(self, walked: WalkedGraph) -> Float[Tensor, " entries"]:
        """The raw score of every entry of the edge index; the same for both directions."""
        weight, columns = self.hidden.weight, self.num_features
        hidden = walked.features @ weight[:, :columns].t() + walked.walks @ weight[:, columns:].t()
        hidden = (hidden + self.hidden.bias).relu()
        halves = self.scorer.weight.view(2, self.width).mean(0)
        ends: Tensor = hidden @ halves
        source, target = walked.graph.edge_index
        return ends[source] + ends[target] + self.scorer.bias

    @override
    def forward(
        self, walked: WalkedGraph, generator: torch.Generator | None = None
    ) -> Float[Tensor, " entries"]:
        """Relaxed Bernoulli draws, apart for the two directions; without a generator the median.

        `w = sigmoid(log e - log(1 - e) + r)` for a uniform e: above a half as often as a coin that
        falls on its head with probability sigmoid(r), which is the median too.
        """
        scores = self.scores(walked)
        if generator is None:
            return scores.sigmoid()
        uniform = torch.empty_like(scores, requires_grad=False)
        uniform.uniform_(LEAST_NOISE, 1 - LEAST_NOISE, generator=generator)
        return (uniform.logit() + scores).sigmoid()
