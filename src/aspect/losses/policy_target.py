"""The gate's target: the contrastive cost of each band at each node, and what follows from it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def channel_costs(evidence: Float[Tensor, "bands nodes"]) -> Float[Tensor, "bands nodes"]:
    """z-scores over all bands and nodes together, Eq. (14), channel cost.

    The union keeps the difference between bands; the paper's code sketch normalises each band
    alone, which would erase it. Evidence that is the same everywhere costs nothing.
    """
    centred = evidence - evidence.mean()
    std = centred.square().mean().sqrt()
    return centred / torch.where(std > 0, std, torch.ones_like(std))


def policy_target(
    costs: Float[Tensor, "bands nodes"], gate_temperature: float
) -> Float[Tensor, "nodes bands"]:
    """Eq. (15), policy target: the weights that minimise cost plus negative entropy."""
    return (-costs.t() / gate_temperature).softmax(1)


def policy_loss(
    log_weights: Float[Tensor, "nodes bands"], target: Float[Tensor, "nodes bands"]
) -> Float[Tensor, ""]:
    """Eq. (16), policy loss: cross-entropy of the gate to its target, binary for two bands."""
    return -(target * log_weights).sum(1).mean()
