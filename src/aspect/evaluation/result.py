"""What a probe is given, checked, and what it finds: scores by split, and their summaries."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from numpy.typing import ArrayLike
from torch import Tensor

from aspect.data.graph import UNLABELLED, renumbered
from aspect.data.source import METRICS, Metric
from aspect.data.splits import Split, SplitKind, check_splits, make_splits
from aspect.errors import GraphError, SettingsError, shown
from aspect.evaluation.metrics import (
    PERCENT,
    ClassScore,
    Summary,
    accuracy,
    class_scores,
    macro_f1,
    roc_auc,
)

EXACT = 2**53  # from there on neighbouring whole numbers may be one as floats

OPTIMISTIC_NOTE = "looks at the test set; only for comparison with published tables"
CONSTANT_NOTICE = (
    "All embeddings are the same, so that the probe can only predict the most frequent class."
)


@dataclass(frozen=True, eq=False)
class Answers:
    """All that a probe has decided for one split, before any test label is read."""

    choice: float | int  # the setting that validation chose: penalty, neighbours or class
    step: int | None  # training steps taken, counted from one; None where they are no choice
    validation: float  # what the choice reaches on validation nodes, by the metric, in percent
    predictions: Integer[Tensor, " test"]  # of the test nodes, in the order of the split
    scores: Float[Tensor, "classes test"]  # higher for likelier classes
    loss: float = 0.0  # cross-entropy on validation nodes, of a linear probe
    records: Integer[Tensor, "records test"] | None = None  # predictions at every validation record
    weights: Float[Tensor, "classes inputs"] | None = None  # for the `inputs` of a linear probe
    at_path_end: bool | None = None  # whether the choice is an end of the path of penalties


@dataclass(frozen=True)
class SplitScore:
    """How one split went; accuracies, F1 and ROC AUC in percent."""

    choice: float | int  # the setting that validation chose
    step: int | None  # training steps taken, counted from one; None where they are no choice
    validation: float  # on the validation nodes, by the metric that chose
    strict: float  # test accuracy at what validation chose: the number to report
    optimistic: float | None  # best test accuracy at any validation record, of the paper's probe
    macro_f1: float  # over the classes present in the test set
    roc_auc: float | None  # for two classes, both present in the test set
    missing_in_train: tuple[int, ...]  # classes without a training node
    missing_in_test: tuple[int, ...]  # classes without a test node
    test_to_train: float  # test nodes per training node, which a paired test needs to know
    per_class: tuple[ClassScore, ...] = ()  # by label
    at_path_end: bool | None = None  # whether the choice is an end of the path of penalties


@dataclass(frozen=True)
class ProbeResult:
    """The scores of all splits, with their summaries in percent."""

    probe: str  # neutral, paper, neighbours, twins or majority
    choice_name: str  # what `choice` is: penalty, weight_decay, neighbours or class
    num_classes: int
    splits: tuple[SplitScore, ...]
    # Of each split's test nodes in its order, at the choice, for a look at parts of the graph;
    # too long for records.
    predictions: tuple[Integer[Tensor, " _"], ...] = field(default=(), repr=False, compare=False)
    is_constant: bool = False  # all embeddings were the same
    metric: Metric = "accuracy"  # of `validation`: what the choice was made by

    @cached_property
    def strict(self) -> Summary:
        """Test accuracy at what validation chose: the headline."""
        return Summary.of([score.strict for score in self.splits])

    @cached_property
    def optimistic(self) -> Summary | None:
        """PolyGCL's rule, which looks at the test set: only to compare with published tables."""
        return self._summary(lambda score: score.optimistic)

    @cached_property
    def macro_f1(self) -> Summary:
        """Macro-F1 over the classes present in each test set."""
        return Summary.of([score.macro_f1 for score in self.splits])

    @cached_property
    def roc_auc(self) -> Summary | None:
        """Over the splits that have one; None unless there are two classes."""
        return self._summary(lambda score: score.roc_auc)

    @cached_property
    def validation(self) -> Summary:
        """By the metric; the only number that may choose between methods or settings."""
        return Summary.of([score.validation for score in self.splits])

    def __repr__(self) -> str:
        """The headline in one line; `to_dict` has the rest."""
        count = f"{len(self.splits)} split{'' if len(self.splits) == 1 else 's'}"
        area = "" if self.metric == "accuracy" else f"{METRICS[self.metric]} {self.roc_auc}%, "
        return (
            f"ProbeResult({self.probe} probe: {area}accuracy {self.strict}%, "
            f"macro-F1 {self.macro_f1}% over {count})"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the headline, and a row for every split."""
        import pandas as pd

        shown = {"strict": "accuracy", "macro_f1": "macro-F1"}
        shown["validation"] = f"validation {METRICS[self.metric]}"
        rows = [{new: getattr(score, old) for old, new in shown.items()} for score in self.splits]
        table = pd.DataFrame(rows).rename_axis("split").to_html(float_format="{:.2f}".format)
        return f"<code>{html.escape(repr(self))}</code>{table}"

    @property
    def at_path_end(self) -> float | None:
        """Share of the splits, in percent, whose choice is an end of the path of penalties."""
        ends = [score.at_path_end for score in self.splits if score.at_path_end is not None]
        return PERCENT * sum(ends) / len(ends) if ends else None

    def _summary(self, value: Callable[[SplitScore], float | None]) -> Summary | None:
        values = [value(score) for score in self.splits]
        known = [number for number in values if number is not None]
        return Summary.of(known) if known else None

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader must know beside the number, one sentence each."""
        return self.notices_naming([str(label) for label in range(self.num_classes)])

    def notices_naming(self, class_names: Sequence[str]) -> tuple[str, ...]:
        """The same, with the classes called by their names."""
        sentences = [CONSTANT_NOTICE] if self.is_constant else []
        for part in ("test", "train"):
            missing = [getattr(score, f"missing_in_{part}") for score in self.splits]
            lacking = sum(bool(classes) for classes in missing)
            if lacking:
                named = ", ".join(class_names[label] for label in sorted(set().union(*missing)))
                sentences.append(
                    f"{lacking} of {len(self.splits)} {part} sets lack a class "
                    f"(of {self.num_classes}): {named}."
                )
        return tuple(sentences)

    def to_dict(self) -> dict[str, object]:
        """Plain values for a record or a JSON file."""
        optimistic = self.optimistic and {**self.optimistic.to_dict(), "note": OPTIMISTIC_NOTE}
        return {
            "probe": self.probe,
            "metric": self.metric,
            "strict": self.strict.to_dict(),
            "optimistic": optimistic,
            "macro_f1": self.macro_f1.to_dict(),
            "roc_auc": self.roc_auc and self.roc_auc.to_dict(),
            "validation": self.validation.to_dict(),
            "num_classes": self.num_classes,
            "choice_name": self.choice_name,
            "at_path_end": self.at_path_end,
            "splits": [asdict(score) for score in self.splits],
            "notices": list(self.notices),
        }


def score(
    answers: Answers, labels: Int[Tensor, " nodes"], split: Split, num_classes: int
) -> SplitScore:
    """Compare with the test labels: the only place where a probe reads them."""
    truth = labels[split.test]
    auc = roc_auc(truth, answers.scores[1] - answers.scores[0]) if num_classes == 2 else None  # noqa: PLR2004
    optimistic = None
    if answers.records is not None:
        optimistic = max(accuracy(truth, predictions) for predictions in answers.records)
    return SplitScore(
        choice=answers.choice,
        step=answers.step,
        validation=answers.validation,
        strict=accuracy(truth, answers.predictions),
        optimistic=optimistic,
        macro_f1=macro_f1(truth, answers.predictions),
        roc_auc=auc,
        missing_in_train=_missing(labels[split.train], num_classes),
        missing_in_test=_missing(truth, num_classes),
        test_to_train=len(split.test) / len(split.train),
        per_class=class_scores(truth, answers.predictions, answers.scores),
        at_path_end=answers.at_path_end,
    )


def _missing(labels: Int[Tensor, " part"], num_classes: int) -> tuple[int, ...]:
    counts = torch.bincount(labels, minlength=num_classes)
    return tuple((counts == 0).nonzero().flatten().tolist())


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
        *,
        centred: bool = False,
    ) -> ProbeInput:
        """Check tensors or arrays from outside; draw the splits if only their kind is given."""
        rows, classes = read_embeddings(embeddings, centred=centred), read_labels(labels)
        check_same_nodes(rows, classes)
        if num_classes is None and int(classes.max()) >= len(classes):
            classes, _ = renumbered(classes)
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
        nodes = torch.unique(torch.cat([torch.cat(split.parts) for split in self.splits]))
        if len(nodes) == len(self.labels):
            return self
        among = tuple(
            Split(*(torch.searchsorted(nodes, part) for part in split.parts))
            for split in self.splits
        )
        rows = self.embeddings[nodes.to(self.embeddings.device)]
        return ProbeInput(rows, self.labels[nodes], among, self.num_classes)

    def scored(
        self,
        probe: str,
        choice_name: str,
        answers: Iterable[Answers],
        *,
        metric: Metric = "accuracy",
        is_constant: bool = False,
    ) -> ProbeResult:
        """Score the answers of one split after the other."""
        scores, predictions = [], []
        for answer, split in zip(answers, self.splits, strict=True):
            scores.append(score(answer, self.labels, split, self.num_classes))
            predictions.append(answer.predictions.clone())  # a view would keep all steps in memory
        return ProbeResult(
            probe,
            choice_name,
            self.num_classes,
            tuple(scores),
            tuple(predictions),
            is_constant=is_constant,
            metric=metric,
        )


def check_same_nodes(rows: Float[Tensor, "rows dim"], labels: Int[Tensor, " labels"]) -> None:
    """Refuse labels of another number of nodes."""
    if len(rows) != len(labels):
        raise GraphError(
            "Embeddings and labels must have one row per node. "
            f"Got {len(rows)} embeddings and {len(labels)} labels."
        )


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
        wrong = values[(values != np.round(values)) | ~(np.abs(values) < EXACT)]
        if len(wrong):
            raise GraphError(f"Labels must be whole numbers. Got {shown(wrong.tolist())}.")
    classes = values.astype(np.int64)
    below = classes[classes < UNLABELLED]
    if len(classes) == 0 or len(below):
        raise GraphError(
            f"Labels must be classes from 0 on, or {UNLABELLED} for none. "
            f"Got {shown(np.unique(below).tolist()) if len(below) else 'no labels'}."
        )
    return torch.from_numpy(classes)


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


def read_embeddings(
    embeddings: Tensor | ArrayLike, *, centred: bool = False
) -> Float[Tensor, "nodes dim"]:
    """One row of float32 per node; anything that is not a finite real number is refused.

    What does not depend on a shift takes float64 `centred`: beside a large offset, float32 would
    round away how the rows differ. The median is taken, which a row far away does not move.
    """
    if isinstance(embeddings, Tensor):
        rows = embeddings
    else:
        array = np.asarray(embeddings)  # that of a data frame may be read-only, as torch warns
        if array.dtype.kind not in "fiubc":
            raise GraphError(f"Embeddings must be numbers. Got an array of {array.dtype}.")
        rows = torch.as_tensor(array if array.flags.writeable else array.copy())
    if rows.is_complex() or rows.layout != torch.strided:
        raise GraphError(f"Embeddings must be real and dense. Got {rows.dtype}, {rows.layout}.")
    if rows.ndim != 2 or rows.shape[1] < 1:  # noqa: PLR2004 - nodes by dimensions
        raise GraphError(f"Embeddings must have shape [nodes, dim]. Got {list(rows.shape)}.")
    rows = rows.detach()
    wrong = ~torch.isfinite(rows.float()).all(dim=1)
    if bool(wrong.any()):
        listed = shown(wrong.nonzero().flatten().tolist())
        raise GraphError(
            f"Embeddings must be finite as float32. Got NaN or infinity in rows {listed}."
        )
    if centred and rows.dtype == torch.float64 and len(rows):
        rows = rows - rows.median(dim=0).values
    return rows.float()
