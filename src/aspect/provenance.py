"""What every record says of a trained model: its gate, its faults, and what it was made with."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch
from jaxtyping import Float
from torch import Tensor

from aspect import __version__
from aspect.estimator import Embedder
from aspect.graph.data import Graph
from aspect.training.health import Health, check_finite

__all__ = ["check_finite", "device_name", "faults_of", "gate_summary", "versions"]

PACKAGES = ("torch", "torch-geometric", "numpy")


def versions() -> dict[str, str]:
    """Of this package, of Python and of the packages that numbers depend on."""
    return {
        "aspect": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def device_name(device: torch.device) -> str:
    """What a device calls itself."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"cpu ({platform.processor() or platform.machine()})"


def gate_summary(policy: Float[Tensor, " nodes"] | None) -> dict[str, float] | None:
    """Mean and standard deviation of the low band's weight over the nodes."""
    if policy is None:
        return None
    return {"mean": float(policy.mean()), "std": float(policy.std())}


@torch.no_grad()
def faults_of(model: Embedder, graph: Graph, health: Health) -> list[str]:
    """Complaints of the method, a training that came to nothing, a collapse; a sentence each."""
    complaints = list(model.method.complaints(graph.to(model.device)))
    if model.result is not None and model.result.epochs > 0 and model.result.kept == 0:
        complaints.append(
            "No loss was below that of the first epoch, so the weights are those from before the "
            "training. Try a lower learning_rate or more patience."
        )
    return [*complaints, *health.warnings()]
