"""What every record says of a trained model: its gate and its faults, a sentence each."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Graph
from aspect.estimator import Embedder
from aspect.training.health import Health

__all__ = ["faults_of", "gate_summary"]


def gate_summary(policy: Float[Tensor, " nodes"] | None) -> dict[str, float] | None:
    """Mean and standard deviation of the low band's weight over the nodes."""
    if policy is None:
        return None
    return {"mean": float(policy.mean()), "std": float(policy.std())}


@torch.no_grad()
def faults_of(model: Embedder, graph: Graph, health: Health) -> list[str]:
    """Complaints of the method, a training that came to nothing, a collapse; a sentence each."""
    complaints = list(model.warnings(graph))
    if model.result is not None and model.result.epochs > 0 and model.result.kept == 0:
        complaints.append(
            "No loss was below that of the first epoch, so the weights are those from before the "
            "training. Try a lower learning_rate or more patience."
        )
    return [*complaints, *health.warnings()]
