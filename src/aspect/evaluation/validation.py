"""Validation accuracy alone: what settings may be chosen by."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor

from aspect.data.splits import Split
from aspect.errors import GraphError
from aspect.evaluation.inputs import read_embeddings, renumbered, without_test_labels
from aspect.evaluation.probe import NEUTRAL, Probe

__all__ = ["validation_accuracy"]


def validation_accuracy(
    embeddings: Tensor | ArrayLike,
    labels: Int[Tensor, " nodes"],
    splits: Sequence[Split],
    *,
    num_classes: int,
    probe: Probe = NEUTRAL,
) -> tuple[float, ...]:
    """The linear probe's accuracy on the validation nodes of every split, in percent.

    The labels of a split's test nodes are masked before anything else is done with them, so they
    may be anything; nothing that is chosen by these numbers can have seen one.
    """
    known = without_test_labels(labels, splits)
    rows = read_embeddings(embeddings)
    if len(rows) != known.shape[1]:
        raise GraphError(
            "Embeddings and labels must have one row per node. "
            f"Got {len(rows)} embeddings and {known.shape[1]} labels."
        )
    nodes, among = renumbered(splits)
    if len(nodes) < len(rows):
        rows, known, splits = rows[nodes.to(rows.device)], known[:, nodes], among
    answers = probe.answer(rows, known, splits, num_classes)
    return tuple(answer.validation for answer in answers)
