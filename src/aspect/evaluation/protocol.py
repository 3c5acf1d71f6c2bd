"""Seeds by splits: several pre-trainings of one method, each probed on the same splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.errors import SettingsError
from aspect.evaluation.metrics import ClassScore, Summary, mean_class_scores
from aspect.evaluation.result import ProbeResult, SplitScore

__all__ = ["Evaluation", "Spread"]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and splits, and how far either moves it; in percent.

    The 95% interval is Student's t over the means of the seeds, which are independent given the
    splits; with a single seed it is over its splits, which are not (see `Summary`).
    """

    mean: float
    std_splits: float | None  # over the splits of one seed, averaged over the seeds
    std_seeds: float | None  # of the seeds' means; None for a single seed
    low: float | None
    high: float | None
    seeds: int
    splits: int

    @classmethod
    def of(cls, values: Float[Tensor, "seeds splits"]) -> Spread:
        """Summarise a table with one row per pre-training seed."""
        return cls.of_rows(values.tolist(), values.shape[1])

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[float]], splits: int) -> Spread:
        """The same from one row per seed, some of which may lack splits."""
        within = [Summary.of(row) for row in rows]
        between = Summary.of([summary.mean for summary in within])
        stds = [summary.std for summary in within if summary.std is not None]
        interval = within[0] if len(within) == 1 else between
        return cls(
            mean=between.mean,
            std_splits=math.fsum(stds) / len(stds) if stds else None,
            std_seeds=between.std,
            low=interval.low,
            high=interval.high,
            seeds=len(within),
            splits=splits,
        )

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain numbers under the names of the fields."""
        return asdict(self)


@dataclass(frozen=True)
class Evaluation:
    """One probe result per pre-training seed, all on the same splits."""

    results: tuple[ProbeResult, ...]

    def __post_init__(self) -> None:
        sizes = sorted({len(result.splits) for result in self.results})
        if len(sizes) != 1:
            raise SettingsError(
                "An evaluation needs one or more results on the same splits. "
                f"Got {len(self.results)} results with {sizes} splits."
            )

    def table(self, value: Callable[[SplitScore], float]) -> Float[Tensor, "seeds splits"]:
        """One value of every seed and split, as `paired_test` wants it."""
        rows = [[value(score) for score in result.splits] for result in self.results]
        return torch.tensor(rows, dtype=torch.float64)

    @property
    def strict(self) -> Spread:
        """Test accuracy at what validation chose: the headline."""
        return Spread.of(self.table(lambda score: score.strict))

    @property
    def optimistic(self) -> Spread | None:
        """PolyGCL's rule, which looks at the test set: only to compare with published tables."""
        return self._spread(lambda score: score.optimistic)

    @property
    def macro_f1(self) -> Spread:
        """Macro-F1 over the classes present in each test set."""
        return Spread.of(self.table(lambda score: score.macro_f1))

    @property
    def roc_auc(self) -> Spread | None:
        """None unless there are two classes, both in every test set."""
        return self._spread(lambda score: score.roc_auc)

    @property
    def validation(self) -> Spread:
        """Validation accuracy, the only one that may choose between methods or settings."""
        return Spread.of(self.table(lambda score: score.validation))

    @property
    def per_class(self) -> tuple[ClassScore, ...]:
        """Means over seeds and splits, by label."""
        return mean_class_scores(
            [score.per_class for result in self.results for score in result.splits]
        )

    def _spread(self, value: Callable[[SplitScore], float | None]) -> Spread | None:
        values = [[value(score) for score in result.splits] for result in self.results]
        rows = [[number for number in row if number is not None] for row in values]
        if [len(row) for row in rows] != [len(row) for row in values]:
            return None
        return Spread.of(torch.tensor(rows, dtype=torch.float64))
