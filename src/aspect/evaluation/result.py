"""What a probe found: one score per split, and their summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from aspect.data.splits import Split
from aspect.evaluation.metrics import (
    PERCENT,
    ClassScore,
    Summary,
    accuracy,
    class_scores,
    macro_f1,
    roc_auc,
)

__all__ = ["Answers", "ProbeResult", "SplitScore", "score"]

OPTIMISTIC_NOTE = "looks at the test set; only for comparison with published tables"
CONSTANT_NOTICE = (
    "All embeddings are the same, so that the probe can only predict the most frequent class."
)


@dataclass(frozen=True, eq=False)
class Answers:
    """All that a probe has decided for one split, before any test label is read."""

    choice: float | int  # the setting that validation chose: penalty, neighbours or class
    step: int | None  # training steps taken, counted from one; None where they are no choice
    validation: float  # validation accuracy of the choice, in percent
    predictions: Integer[Tensor, " test"]  # of the test nodes, in the order of the split
    scores: Float[Tensor, "classes test"]  # higher for likelier classes
    records: Integer[Tensor, "records test"] | None = None  # predictions at every validation record
    weights: Float[Tensor, "classes inputs"] | None = None  # for the `inputs` of a linear probe
    at_path_end: bool | None = None  # whether the choice is an end of the path of penalties


@dataclass(frozen=True)
class SplitScore:
    """How one split went; accuracies, F1 and ROC AUC in percent."""

    choice: float | int  # the setting that validation chose
    step: int | None  # training steps taken, counted from one; None where they are no choice
    validation: float  # accuracy on the validation nodes
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

    @classmethod
    def of(
        cls,
        probe: str,
        choice_name: str,
        answers: Iterable[Answers],
        labels: Int[Tensor, " nodes"],
        splits: Sequence[Split],
        num_classes: int,
        *,
        is_constant: bool = False,
    ) -> ProbeResult:
        """Score the answers of one split after the other."""
        scores, predictions = [], []
        for answer, split in zip(answers, splits, strict=True):
            scores.append(score(answer, labels, split, num_classes))
            predictions.append(answer.predictions.clone())  # a view would keep all steps in memory
        scored = tuple(scores), tuple(predictions)
        return cls(probe, choice_name, num_classes, *scored, is_constant=is_constant)

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
        """Validation accuracy, the only one that may choose between methods or settings."""
        return Summary.of([score.validation for score in self.splits])

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
    return SplitScore(
        choice=answers.choice,
        step=answers.step,
        validation=answers.validation,
        strict=accuracy(truth, answers.predictions),
        optimistic=_optimistic(truth, answers.records),
        macro_f1=macro_f1(truth, answers.predictions),
        roc_auc=auc,
        missing_in_train=_missing(labels[split.train], num_classes),
        missing_in_test=_missing(truth, num_classes),
        test_to_train=len(split.test) / len(split.train),
        per_class=class_scores(truth, answers.predictions, answers.scores),
        at_path_end=answers.at_path_end,
    )


def _optimistic(
    truth: Int[Tensor, " test"], records: Integer[Tensor, "records test"] | None
) -> float | None:
    if records is None:
        return None
    return max(accuracy(truth, predictions) for predictions in records)


def _missing(labels: Int[Tensor, " part"], num_classes: int) -> tuple[int, ...]:
    counts = torch.bincount(labels, minlength=num_classes)
    return tuple((counts == 0).nonzero().flatten().tolist())
