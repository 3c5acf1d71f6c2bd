"""What every probe checks before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from aspect.data.graph import UNLABELLED
from aspect.data.splits import Split, SplitKind, check_splits, make_splits
from aspect.errors import GraphError, SettingsError, shown

__all__ = [
    "ProbeInput",
    "read_embeddings",
    "read_labels",
    "renumbered",
    "unit_rows",
    "with_constant",
    "without_test_labels",
]


@dataclass(frozen=True, eq=False)
class ProbeInput:
    """Embeddings, labels and splits that fit each other."""

    embeddings: Float[Tensor, "nodes dim"]  # float32, on the device they came on
    labels: Int[Tensor, " nodes"]  # int64, on the CPU
    splits: tuple[Split, ...]
    num_classes: int

    @classmethod
    def read(
        cls,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        splits: SplitKind | str | Sequence[Split],
        num_classes: int | None = None,
        masks: Mapping[str, Tensor] | None = None,
    ) -> ProbeInput:
        """Check tensors or arrays from outside; draw the splits if only their kind is given."""
        rows, classes = read_embeddings(embeddings), read_labels(labels)
        if len(rows) != len(classes):
            raise GraphError(
                "Embeddings and labels must have one row per node. "
                f"Got {len(rows)} embeddings and {len(classes)} labels."
            )
        most = int(classes.max()) + 1 if num_classes is None else num_classes
        if isinstance(splits, str):
            splits = make_splits(splits, classes, most, masks=masks)
        elif most <= int(classes.max()):
            raise SettingsError(
                f"Number of classes must be above the largest label, {int(classes.max())}. "
                f"Got {most}."
            )
        check_splits(splits, classes)
        return cls(rows, classes, tuple(splits), most)

    def used(self) -> ProbeInput:
        """The same without the nodes that are in no split, renumbered."""
        nodes, splits = renumbered(self.splits)
        if len(nodes) == len(self.labels):
            return self
        rows = self.embeddings[nodes.to(self.embeddings.device)]
        return ProbeInput(rows, self.labels[nodes], splits, self.num_classes)


def renumbered(splits: Sequence[Split]) -> tuple[Int[Tensor, " used"], tuple[Split, ...]]:
    """The nodes that are in a split, ascending, and the splits with their places among these."""
    nodes = torch.unique(torch.cat([torch.cat(split.parts) for split in splits]))
    among = [Split(*(torch.searchsorted(nodes, part) for part in split.parts)) for split in splits]
    return nodes, tuple(among)


def without_test_labels(
    labels: Int[Tensor, " nodes"], splits: Sequence[Split]
) -> Int[Tensor, "splits nodes"]:
    """What training and choice may know: a line of labels per split, none at its test nodes."""
    known = labels.expand(len(splits), -1).clone()
    for line, split in zip(known, splits, strict=True):
        line[split.test] = UNLABELLED
    return known


def read_labels(labels: Tensor | ArrayLike) -> Int[Tensor, " nodes"]:
    """Class numbers on the CPU, -1 where unknown; NaN in a table of numbers is unknown too."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise GraphError(
            "Labels must be one whole number per node; number named classes with "
            "numpy.unique(names, return_inverse=True). "
            f"Got {values.dtype} of shape {list(values.shape)}."
        )
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), UNLABELLED, values)
        partial = values[values != np.round(values)]
        if len(partial):
            raise GraphError(f"Labels must be whole numbers. Got {shown(partial.tolist())}.")
    below = values[values < UNLABELLED]
    if len(values) == 0 or len(below):
        raise GraphError(
            f"Labels must be classes from 0 on, or {UNLABELLED} for none. "
            f"Got {shown(np.unique(below).tolist()) if len(below) else 'no labels'}."
        )
    return torch.from_numpy(values.astype(np.int64))


def unit_rows(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Rows of length one; a row of zeros stays one.

    Divided by its largest entry first, a row far below or above one does not under- or overflow
    when squared: contrastive training leaves the length of embeddings free, and weight decay
    shrinks it.
    """
    largest = rows.abs().amax(dim=1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1)
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(lengths > 0, lengths, 1)


def with_constant(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows inputs"]:
    """The rows with a last column of ones, whose weight is the intercept."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def read_embeddings(embeddings: Tensor | ArrayLike) -> Float[Tensor, "nodes dim"]:
    """One row of float32 per node; anything that is not a finite number is refused."""
    rows = embeddings if isinstance(embeddings, Tensor) else torch.as_tensor(np.asarray(embeddings))
    if rows.ndim != 2 or rows.shape[1] < 1:  # noqa: PLR2004 - nodes by dimensions
        raise GraphError(f"Embeddings must have shape [nodes, dim]. Got {list(rows.shape)}.")
    rows = rows.detach().float()
    wrong = ~torch.isfinite(rows).all(dim=1)
    if bool(wrong.any()):
        listed = shown(wrong.nonzero().flatten().tolist())
        raise GraphError(f"Embeddings must be finite. Got NaN or infinity in rows {listed}.")
    return rows
