"""What stands behind a score: how many numbers, how far they lie apart, by which rule."""

from __future__ import annotations

from collections.abc import Iterator

from aspect.evaluation.protocol import Spread
from aspect.report.benchmark.scores import Metric, Scores
from aspect.report.tables import counted

__all__ = ["score_tip"]

RULES: dict[Metric, str] = {
    "strict": "strict accuracy",
    "optimistic": "optimistic accuracy",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC AUC",
}


def score_tip(scores: Scores, metric: Metric, spread: Spread) -> str:
    """A few lines for a page to show beside the cell."""
    return "\n".join(_lines(scores, metric, spread))


def _lines(scores: Scores, metric: Metric, spread: Spread) -> Iterator[str]:
    yield f"{RULES[metric]}: {spread.mean:.2f}%"
    counts = f"{counted(spread.seeds, 'seed')}, {counted(spread.splits, 'split')}"
    yield f"{counts}: {counted(len(scores.values(metric)), 'score')}"
    if spread.low is not None and spread.high is not None:
        over = "seeds" if spread.seeds > 1 else "splits"
        yield f"95% interval over {over}: {spread.low:.2f} to {spread.high:.2f}"
    for where, std in (("splits", spread.std_splits), ("seeds", spread.std_seeds)):
        if std is not None:
            yield f"standard deviation over {where}: {std:.2f}"
    optimistic = scores.spread("optimistic") if metric == "strict" else None
    if optimistic is not None:
        yield f"by the optimistic rule: {optimistic.mean:.2f}%"
    if scores.complaint:
        yield f"{scores.complaint}."
