"""The linear probe: how well a logistic regression reads the classes off frozen embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from numpy.typing import ArrayLike
from torch import Tensor

from aspect.data.splits import Split, SplitKind
from aspect.errors import UnknownNameError
from aspect.evaluation.inputs import ProbeInput, without_test_labels
from aspect.evaluation.neutral_probe import NeutralProbe
from aspect.evaluation.paper_probe import PaperProbe
from aspect.evaluation.result import ProbeResult

__all__ = ["NeutralProbe", "PaperProbe", "Probe", "ProbeName", "linear_probe", "probe_named"]

Probe = NeutralProbe | PaperProbe
ProbeName = Literal["neutral", "paper"]

NEUTRAL = NeutralProbe()


def probe_named(name: ProbeName | str) -> Probe:
    """A probe with its usual settings: the headline's, or the one of published tables."""
    probes: dict[str, Probe] = {"neutral": NEUTRAL, "paper": PaperProbe()}
    if name not in probes:
        raise UnknownNameError("probe", str(name), probes)
    return probes[name]


def linear_probe(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    splits: SplitKind | str | Sequence[Split] = "random",
    *,
    num_classes: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
    probe: Probe = NEUTRAL,
) -> ProbeResult:
    """Fit logistic regressions on every split; score the one that validation chose.

    Test labels are read after every choice, in `score`, and nowhere else.

    Args:
        embeddings: One row per node; fitted on the device they lie on, in float32.
        labels: Classes from 0 on, -1 for none.
        splits: A kind of split to draw, or the splits themselves.
        num_classes: Classes of the data set, if the last ones have no node here.
        masks: The published splits, for `splits="published"`.
        probe: The neutral probe, or the one of published tables.
    """
    given = ProbeInput.read(embeddings, labels, splits, num_classes, masks).used()
    known = without_test_labels(given.labels, given.splits)
    answers = probe.answer(given.embeddings, known, given.splits, given.num_classes)
    return ProbeResult.of(
        probe.name,
        probe.choice_name,
        answers,
        given.labels,
        given.splits,
        given.num_classes,
        is_constant=bool((given.embeddings == given.embeddings[0]).all()),
    )
