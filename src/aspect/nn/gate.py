"""The gate: the weight of each band at each node, and the fusion of the bands by it."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aspect.data.operators import Operator
from aspect.data.sparse import has_triton

Readout = Literal["fused", "concatenated", "weighted"]


def fuse(
    views: Float[Tensor, "bands nodes dim"], weights: Float[Tensor, "nodes bands"]
) -> Float[Tensor, "nodes dim"]:
    """Eq. (10), fusion, node by node; weight one on a band keeps that band alone."""
    if views.device.type == "cuda" and views.requires_grad and has_triton():
        from aspect.nn.kernels import fused_bands  # needs Triton

        return fused_bands(views, weights)
    return (views * weights.t().unsqueeze(-1)).sum(0)


def read_out(
    views: Float[Tensor, "bands nodes dim"], weights: Float[Tensor, "nodes bands"], readout: Readout
) -> Float[Tensor, "nodes out"]:
    """What a probe sees: the blend, the bands side by side, or side by side with their weights."""
    if readout == "fused":
        return fuse(views, weights)
    if readout == "weighted":
        views = views * weights.t().unsqueeze(-1)
    return torch.cat(list(views), dim=1)


Fusion = Literal["node-wise", "global", "half"]
GateInput = Literal["layer-norm", "raw"]


class NodePolicy(nn.Module):
    """A small network on a node's bands, Eq. (9), gate.

    The last band's logit is fixed at zero, so that two bands give the paper's sigmoid gate. Raw
    bands shrink during training until the gate is the same number for all nodes; a layer norm keeps
    them at one scale. One node's embedding is noisy: with `hops`, logits are averaged over the
    neighbourhood that often (ours; the paper has none).
    """

    def __init__(
        self, dim: int, bands: int, hidden: int, gate_input: GateInput = "layer-norm", hops: int = 0
    ) -> None:
        super().__init__()
        self.hops = hops
        self.norm = (
            nn.LayerNorm(dim, elementwise_affine=False)
            if gate_input == "layer-norm"
            else nn.Identity()
        )
        self.network = nn.Sequential(
            nn.Linear(bands * dim, hidden), nn.ReLU(), nn.Linear(hidden, bands - 1)
        )

    def forward(
        self, views: Float[Tensor, "bands nodes dim"], operator: Operator
    ) -> Float[Tensor, "nodes bands"]:
        """Log-weights of the bands; their exponentials sum to one at each node."""
        logits = self.network(torch.cat(list(self.norm(views)), dim=1))
        return with_zero_logit(neighbourhood_mean(logits, operator, self.hops)).log_softmax(1)


class GlobalPolicy(nn.Module):
    """One learned mix for all nodes: the baseline of node-wise fusion."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(1, bands - 1))

    def forward(
        self,
        views: Float[Tensor, "bands nodes dim"],
        operator: Operator,  # noqa: ARG002
    ) -> Float[Tensor, "nodes bands"]:
        """The same log-weights for every node."""
        return with_zero_logit(self.logits).log_softmax(1).expand(views.shape[1], -1)


class HalfPolicy(nn.Module):
    """Equal weights, never trained."""

    def forward(
        self,
        views: Float[Tensor, "bands nodes dim"],
        operator: Operator,  # noqa: ARG002
    ) -> Float[Tensor, "nodes bands"]:
        """The logarithm of one over the number of bands, everywhere."""
        return views.new_zeros(views.shape[1], views.shape[0]).log_softmax(1)


def with_zero_logit(logits: Float[Tensor, "nodes free"]) -> Float[Tensor, "nodes bands"]:
    """Append the last band's logit, fixed at zero: a softmax over (l, 0) is the sigmoid of l."""
    return torch.cat([logits, logits.new_zeros(len(logits), 1)], dim=1)


def neighbourhood_mean(
    x: Float[Tensor, "nodes dim"], operator: Operator, hops: int
) -> Float[Tensor, "nodes dim"]:
    """A weighted mean over each node's neighbourhood of `hops` steps, by the operator alone.

    The weights of I - L are those of a lazy walk, none of them negative; a node without neighbours
    keeps its own value.
    """
    ones = torch.ones_like(x[:, :1])
    for _ in range(hops):
        both = torch.cat([x, ones], dim=1)
        sums = both - operator(both)
        x = sums[:, :-1] / sums[:, -1:]
    return x


def make_policy(
    fusion: Fusion, dim: int, bands: int, hidden: int, gate_input: GateInput, hops: int
) -> nn.Module:
    """The policy of a setting; a single band has weight one."""
    if bands == 1 or fusion == "half":
        return HalfPolicy()
    if fusion == "global":
        return GlobalPolicy(bands)
    return NodePolicy(dim, bands, hidden, gate_input, hops)
