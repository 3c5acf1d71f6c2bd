"""A short training of every method on a small graph, as one digest a line.

Run it before and after a change that should move no number, and compare the two outputs. Digests
depend on the machine and on torch, so none is recorded here.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from aspect import Embedder, mixed_graph
from aspect.methods.registry import method_names

NODES, EPOCHS = 90, 6

# Where a short training in the defaults would leave a part of the method out.
SETTINGS: dict[str, dict[str, Any]] = {
    "aspect-s": {"warm_up": 1, "interval": 1},
    "rdgi": {"patience": 1, "epochs": 30, "learning_rate": 0.1},
    "raw": {},
    "propagated": {},
    "spectral": {},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "aspect: project-first": ("aspect", {"layer_order": "project-first"}),
    "aspect: sampled negatives": ("aspect", {"negatives": 20}),
    "aspect: global, fused": ("aspect", {"fusion": "global", "readout": "fused"}),
    "aspect-s: cut to budget": (
        "aspect-s",
        {"warm_up": 1, "interval": 1, "discretisation": "largest", "stability_target": "band"},
    ),
}


def main() -> None:
    """Print method, digest of embedding and gate, and the last loss."""
    torch.set_num_threads(1)
    graph = mixed_graph(num_nodes=NODES, seed=0)
    trainings = {name: (name, SETTINGS.get(name, {"epochs": EPOCHS})) for name in method_names()}
    for label, (method, settings) in {**trainings, **VARIANTS}.items():
        given = settings if not settings or "epochs" in settings else {**settings, "epochs": EPOCHS}
        model = Embedder(method, seed=1, device="cpu", **given).fit(graph)
        digest = hashlib.sha256(model.embed(graph, normalise="none").numpy().tobytes())
        gate = model.policy(graph)
        if gate is not None:
            digest.update(gate.numpy().tobytes())
        values = model.result.values if model.result is not None else {}
        print(f"{label:26} {digest.hexdigest()[:16]} {values.get('loss', float('nan')):.9g}")


if __name__ == "__main__":
    main()
