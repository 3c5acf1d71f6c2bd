"""The linear probe under evasion: learned on the clean graph, tested on a perturbed one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.splits import Split
from aspect.evaluation.linear_probe import NEUTRAL, Probe, linear_probe
from aspect.evaluation.result import ProbeResult

__all__ = ["evasion_probe"]


def evasion_probe(
    clean: Float[Tensor, "nodes dim"],
    perturbed: Iterable[Float[Tensor, "nodes dim"]],
    labels: Int[Tensor, " nodes"],
    splits: Sequence[Split],
    *,
    num_classes: int,
    probe: Probe = NEUTRAL,
) -> ProbeResult:
    """Train and choose on clean embeddings; test each split on its own perturbed ones.

    Every test node is added once more, with its perturbed embedding, and tested in this form alone.

    Args:
        clean: Embeddings that the probe learns from.
        perturbed: Embeddings by the same model, of the graph that was perturbed for each split.
        labels: Classes from 0 on, -1 for none.
        splits: As many as there are perturbed embeddings.
        num_classes: Classes of the data set.
        probe: As of `linear_probe`.
    """
    results = []
    for other, split in zip(perturbed, splits, strict=True):
        added = len(labels) + torch.arange(len(split.test))
        result = linear_probe(
            torch.cat([clean, other[split.test.to(other.device)]]),
            torch.cat([labels, labels[split.test]]),
            [Split(split.train, split.validation, added)],
            num_classes=num_classes,
            probe=probe,
        )
        results.append(result)
    return ProbeResult(
        probe.name,
        probe.choice_name,
        num_classes,
        tuple(score for result in results for score in result.splits),
        tuple(predicted for result in results for predicted in result.predictions),
    )
