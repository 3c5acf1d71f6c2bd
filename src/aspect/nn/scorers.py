"""Scores that tell nodes of a graph from nodes of a corrupted one, and summaries to hold against.

The DGI family: DGI, GraphCL, MVGRL, GMI and RDGI score bilinearly, PolyGCL as well but from other
first weights, GGD by a sum.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.graph import Features

__all__ = ["BilinearScorer", "SummedLinearScorer", "relu_mean", "sigmoid_mean"]


def sigmoid_mean(nodes: Float[Tensor, "nodes dim"]) -> Float[Tensor, " dim"]:
    """`sigmoid(mean_i h_i)`, every entry in (0, 1): the summary of DGI, GraphCL, MVGRL and RDGI."""
    return nodes.mean(0).sigmoid()


def relu_mean(nodes: Float[Tensor, "nodes dim"]) -> Float[Tensor, " dim"]:
    """`relu(mean_i h_i)`: PolyGCL's summary, of a mixture of its views."""
    return nodes.mean(0).relu()


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
        if layers < 1:
            raise ValueError(f"Layers of SummedLinearScorer must be an integer >= 1. Got {layers}.")
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
