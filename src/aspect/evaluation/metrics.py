"""Scores of predictions, all in percent, and what several of them say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float, Int, Integer
from scipy.special import stdtrit
from torch import Tensor

from aspect.data.source import Metric
from aspect.errors import SettingsError
from aspect.evaluation.significance import TWO_SIDED_95

PERCENT = 100.0


@dataclass(frozen=True)
class Summary:
    """Mean of several scores, their spread, and a 95% confidence interval of the mean.

    The interval is Student's t over the values, as if they were independent. Splits of one
    pre-training are not: they share the embedding and most of their nodes, so that their interval
    is too narrow for the method as a whole. Spread over pre-training seeds is the safer number.
    """

    mean: float
    std: float | None  # sample standard deviation (n - 1); None for a single value
    low: float | None  # ends of the interval; None for a single value
    high: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise one or more finite values.

        >>> str(Summary.of([80.0, 82.0, 84.0]))
        '82.00 ± 2.00'
        """
        count = len(values)
        if count == 0 or not all(math.isfinite(value) for value in values):
            raise SettingsError(f"A summary needs one or more finite values. Got {list(values)}.")
        mean = math.fsum(values) / count
        if count == 1:
            return cls(mean, None, None, None, count)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        half = float(stdtrit(count - 1, TWO_SIDED_95)) * std / math.sqrt(count)
        return cls(mean, std, mean - half, mean + half, count)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain numbers under the names of the fields."""
        return asdict(self)


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and splits, and how far either moves it; in percent.

    The 95% interval is Student's t over the means of the seeds, which are independent given the
    splits; with a single seed it is over its splits, which are not (see `Summary`).
    """

    mean: float
    std: float | None  # over the splits of one seed, averaged over the seeds
    std_seeds: float | None  # of the seeds' means; None for a single seed
    low: float | None
    high: float | None
    seeds: int
    splits: int

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> Spread:
        """Summarise the scores of every pre-training seed, split by split."""
        within = [Summary.of(row) for row in rows]
        between = Summary.of([summary.mean for summary in within])
        stds = [summary.std for summary in within if summary.std is not None]
        interval = within[0] if len(within) == 1 else between
        return cls(
            mean=between.mean,
            std=math.fsum(stds) / len(stds) if stds else None,
            std_seeds=between.std,
            low=interval.low,
            high=interval.high,
            seeds=len(within),
            splits=max(len(row) for row in rows),
        )

    @classmethod
    def of_scores(cls, rows: Sequence[Sequence[float]]) -> Spread:
        """The same of scores between 0 and 100: the interval ends where they do."""
        spread = cls.of(rows)
        low, high = (
            None if end is None else min(max(end, 0.0), PERCENT)
            for end in (spread.low, spread.high)
        )
        return replace(spread, low=low, high=high)


@dataclass(frozen=True)
class ClassScore:
    """How one class fared on test nodes, in percent; None where it has none of them."""

    label: int
    recall: float | None  # of its nodes, those predicted as such
    precision: float | None  # of those predicted as such, its nodes; 0 if there are none
    f1: float | None
    roc_auc: float | None  # of the class against all others; None if there are no others either
    support: float | int  # test nodes of the class; their mean in a mean over splits


def check_metric(metric: Metric, num_classes: int) -> None:
    """Refuse a metric that classes of this number do not have."""
    if metric == "roc-auc" and num_classes != 2:  # noqa: PLR2004 - the area compares two classes
        raise SettingsError(
            f"The metric roc-auc needs 2 classes. Got {num_classes}: take the metric accuracy."
        )


def accuracy(labels: Int[Tensor, " nodes"], predictions: Integer[Tensor, " nodes"]) -> float:
    """Share of right predictions, in percent."""
    return PERCENT * int((labels == predictions).sum()) / len(labels)


def macro_f1(labels: Int[Tensor, " nodes"], predictions: Integer[Tensor, " nodes"]) -> float:
    """Mean of the F1 of the classes present in `labels`, in percent.

    A class without a node here is left out of the mean: it could only add a zero, since
    class-balanced splits keep whole classes out of the test set.
    """
    from sklearn.metrics import f1_score

    present = torch.unique(labels).tolist()
    scores = f1_score(
        labels.cpu().numpy(),
        predictions.cpu().numpy(),
        labels=present,
        average="macro",
        zero_division=0.0,
    )
    return PERCENT * float(scores)


def roc_auc(labels: Int[Tensor, " nodes"], scores: Float[Tensor, " nodes"]) -> float | None:
    """Area under the ROC curve of class 1 against class 0, in percent; None if one is absent."""
    if len(torch.unique(labels)) < 2:  # noqa: PLR2004 - the area compares two classes
        return None
    return float(roc_areas(labels.unsqueeze(0), scores.unsqueeze(0)))


def roc_areas(
    labels: Int[Tensor, "tasks nodes"], scores: Float[Tensor, "tasks nodes"]
) -> Float[Tensor, " tasks"]:
    """Area under the ROC curve of every task, in percent: its pairs of both classes in order.

    A pair of equal scores counts half. Labels other than 0 and 1 take no part. A task that lacks a
    class has no pairs, and gets 50, as by chance. Nothing waits for the device.
    """
    is_negative, is_positive = labels == 0, labels == 1
    negatives, positives = is_negative.sum(dim=1, keepdim=True), is_positive.sum(dim=1)
    # Those that take no part come last, where they are not counted.
    below = scores.masked_fill(~is_negative, math.inf).sort(dim=1).values
    lower = torch.searchsorted(below, scores.contiguous())
    not_higher = torch.searchsorted(below, scores.contiguous(), right=True).minimum(negatives)
    in_order = ((lower + not_higher) * is_positive).sum(dim=1)
    pairs = negatives.squeeze(1) * positives
    areas = (PERCENT / 2 * in_order.double()) / pairs.double()
    return torch.where(pairs > 0, areas, PERCENT / 2)


def class_scores(
    labels: Int[Tensor, " nodes"],
    predictions: Integer[Tensor, " nodes"],
    scores: Float[Tensor, "classes nodes"],
) -> tuple[ClassScore, ...]:
    """One for every class; the ROC area ranks nodes by the softmax of their scores."""
    from sklearn.metrics import precision_recall_fscore_support

    tables = precision_recall_fscore_support(
        labels.cpu().numpy(),
        predictions.cpu().numpy(),
        labels=range(len(scores)),
        zero_division=0.0,
    )
    ranked = torch.nan_to_num(scores.double().log_softmax(dim=0))
    table = []
    for label, (*shares, support) in enumerate(zip(*tables, strict=True)):
        if support == 0:
            table.append(ClassScore(label, None, None, None, None, 0))
            continue
        precision, recall, f1 = (PERCENT * float(share) for share in shares)
        area = roc_auc((labels == label).long(), ranked[label])
        table.append(ClassScore(label, recall, precision, f1, area, int(support)))
    return tuple(table)


def mean_class_scores(tables: Sequence[Sequence[ClassScore]]) -> tuple[ClassScore, ...]:
    """Means over splits and seeds, of those in which a class has test nodes."""
    means = []
    for scores in zip(*tables, strict=True):
        known = {
            name: [value for score in scores if (value := getattr(score, name)) is not None]
            for name in ("recall", "precision", "f1", "roc_auc")
        }
        values = {
            name: math.fsum(some) / len(some) if some else None for name, some in known.items()
        }
        support = math.fsum(score.support for score in scores) / len(scores)
        means.append(ClassScore(scores[0].label, **values, support=support))
    return tuple(means)
