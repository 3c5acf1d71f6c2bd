"""The linear probe: how well a logistic regression predicts the classes from frozen embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from aspect.data.source import METRICS, Metric
from aspect.data.splits import Split, SplitKind
from aspect.errors import SettingsError, UnknownNameError
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.neutral_probe import NeutralProbe
from aspect.evaluation.paper_probe import PaperProbe
from aspect.evaluation.result import (
    Answers,
    ProbeInput,
    ProbeResult,
    check_same_nodes,
    read_embeddings,
    without_test_labels,
)

Probe = NeutralProbe | PaperProbe
ProbeName = Literal["neutral", "paper"]

NEUTRAL = NeutralProbe()


def probe_named(name: ProbeName | str, metric: Metric | str | None = None) -> Probe:
    """A probe with its usual settings: the headline's, or the one of published tables.

    Args:
        name: Of the probe.
        metric: What validation chooses by; none: accuracy.
    """
    probes: dict[str, Probe] = {"neutral": NEUTRAL, "paper": PaperProbe()}
    if name not in probes:
        raise UnknownNameError("probe", str(name), probes)
    return _by_metric(probes[name], metric)


def _by_metric(probe: Probe, metric: Metric | str | None) -> Probe:
    """The same probe, with another metric if one is given; published tables know accuracy alone."""
    if metric in (None, probe.metric):
        return probe
    if metric not in METRICS:
        raise UnknownNameError("metric", str(metric), METRICS)
    if isinstance(probe, NeutralProbe):
        return replace(probe, metric=metric)
    raise SettingsError(
        f"The {probe.name} probe chooses by accuracy. "
        f"Got the metric {metric!r}: take the neutral probe."
    )


def linear_probe(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    splits: SplitKind | str | Sequence[Split] = "random",
    *,
    num_classes: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
    probe: Probe = NEUTRAL,
    metric: Metric | str | None = None,
) -> ProbeResult:
    """Fit logistic regressions on every split; score the one that validation chose.

    Test labels are read after every choice, in `score`, and nowhere else.

    Args:
        embeddings: One row per node; fitted on the device they lie on, in float32.
        labels: Classes from 0 on, -1 for none. If one is no number below that of the nodes, as
            years are, the classes are numbered in their order.
        splits: A kind of split to draw, or the splits themselves.
        num_classes: Classes of the data set, if the last ones have no node here.
        masks: The published splits, for `splits="published"`.
        probe: The neutral probe, or the one of published tables.
        metric: What validation chooses by: `roc-auc` for two classes of unequal size; none: that of
            the probe, accuracy unless it says otherwise.
    """
    probe = _by_metric(probe, metric)
    centred = isinstance(probe, NeutralProbe)  # which no shift changes
    given = ProbeInput.read(embeddings, labels, splits, num_classes, masks, centred=centred).used()
    return _scored(given, probe, _answers(given, probe))


def _answers(given: ProbeInput, probe: Probe) -> Iterator[Answers]:
    known = without_test_labels(given.labels, given.splits)
    return probe.answer(given.embeddings, known, given.splits, given.num_classes)


def _scored(given: ProbeInput, probe: Probe, answers: Iterable[Answers]) -> ProbeResult:
    is_constant = bool((given.embeddings == given.embeddings[0]).all())
    return given.scored(
        probe.name, probe.choice_name, answers, metric=probe.metric, is_constant=is_constant
    )


def validation_scores(
    embeddings: Tensor | ArrayLike,
    labels: Int[Tensor, " nodes"],
    splits: Sequence[Split],
    *,
    num_classes: int,
    probe: Probe = NEUTRAL,
) -> tuple[float, ...]:
    """The probe's metric on the validation nodes of every split, in percent: for choosing.

    The labels of a split's test nodes are masked before anything else is done with them, so they
    may be anything; nothing that is chosen by these numbers can have seen one.
    """
    rows = read_embeddings(embeddings, centred=isinstance(probe, NeutralProbe))
    check_same_nodes(rows, labels)
    given = ProbeInput(rows, labels, tuple(splits), num_classes).used()
    return tuple(answer.validation for answer in _answers(given, probe))


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
        is_constant=all(result.is_constant for result in results),
        metric=probe.metric,
    )


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """One probe per split, trained on one embedding, for scoring others as they are.

    It gives what `evasion_probe` gives, without a training for each embedding.
    """

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
        answers = list(_answers(given, probe))
        weights = {}
        for number, answer in zip(splits, answers, strict=True):
            assert answer.weights is not None  # linear probes have some
            weights[number] = answer.weights.cpu()
        return cls(splits, labels.cpu(), probe, weights, _scored(given, probe, answers))

    def strict(self, number: int, embeddings: Float[Tensor, "nodes dim"]) -> float:
        """Accuracy on a split's test nodes in percent; nothing is trained or chosen any more."""
        nodes, weights = self.splits[number].test, self.weights[number]
        inputs = self.probe.inputs(read_embeddings(embeddings)[nodes].cpu()).to(weights.dtype)
        predictions = torch.argmax(weights @ inputs.t(), dim=0)
        return accuracy(self.labels[nodes], predictions)
