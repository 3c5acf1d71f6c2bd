"""Linear probes that were trained and chosen on one embedding, and read others as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.splits import Split
from aspect.evaluation.inputs import ProbeInput, read_embeddings, without_test_labels
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.probe import NEUTRAL, Probe
from aspect.evaluation.result import ProbeResult

__all__ = ["TrainedProbe"]


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """One probe per split; what `evasion_probe` finds, without a training for each embedding."""

    splits: Mapping[int, Split]  # by their numbers
    labels: Int[Tensor, " nodes"]
    probe: Probe
    weights: Mapping[int, Float[Tensor, "classes inputs"]]  # as validation chose them
    clean: ProbeResult  # on the embedding that they were trained on, in the order of the splits

    @classmethod
    def fit(
        cls,
        embeddings: Float[Tensor, "nodes dim"],
        labels: Int[Tensor, " nodes"],
        splits: Mapping[int, Split],
        *,
        num_classes: int,
        probe: Probe = NEUTRAL,
    ) -> TrainedProbe:
        """Train and choose as `linear_probe` does, on the device of the embeddings."""
        given = ProbeInput.read(embeddings, labels, list(splits.values()), num_classes).used()
        known = without_test_labels(given.labels, given.splits)
        answers = list(probe.answer(given.embeddings, known, given.splits, num_classes))
        clean = ProbeResult.of(
            probe.name, probe.choice_name, answers, given.labels, given.splits, num_classes
        )
        weights = {}
        for number, answer in zip(splits, answers, strict=True):
            assert answer.weights is not None  # linear probes have some
            weights[number] = answer.weights.cpu()
        return cls(splits, labels.cpu(), probe, weights, clean)

    def strict(self, number: int, embeddings: Float[Tensor, "nodes dim"]) -> float:
        """Accuracy on a split's test nodes in percent; nothing is learned or chosen any more."""
        nodes, weights = self.splits[number].test, self.weights[number]
        inputs = self.probe.inputs(read_embeddings(embeddings)[nodes].cpu()).to(weights.dtype)
        predictions = torch.argmax(weights @ inputs.t(), dim=0)
        return accuracy(self.labels[nodes], predictions)
