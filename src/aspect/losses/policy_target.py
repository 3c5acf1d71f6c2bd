"""What the policy should answer, judged by the contrastive cost of each band at each node."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["channel_costs", "policy_loss", "policy_target"]


def channel_costs(evidence: Float[Tensor, "bands nodes"]) -> Float[Tensor, "bands nodes"]:
    """z-scores over all bands and nodes together (`eq:channel_cost`).

    The union keeps the difference between bands; the paper's code sketch normalises each band
    alone, which would erase it. Evidence without spread says nothing and costs nothing.
    """
    centred = evidence - evidence.mean()
    spread = centred.square().mean().sqrt()
    return centred / torch.where(spread > 0, spread, torch.ones_like(spread))


def policy_target(
    costs: Float[Tensor, "bands nodes"], gate_temperature: float
) -> Float[Tensor, "nodes bands"]:
    """Trust falls with cost (`eq:policy_target`): the minimiser of cost plus negative entropy."""
    return (-costs.t() / gate_temperature).softmax(1)


def policy_loss(
    log_weights: Float[Tensor, "nodes bands"], target: Float[Tensor, "nodes bands"]
) -> Float[Tensor, ""]:
    """Cross-entropy of the policy to its target, binary for two bands (`eq:policy_loss`)."""
    return -(target * log_weights).sum(1).mean()
