"""A score as a cell of a table: the number, its note below the table, and what stands behind it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from aspect.evaluation.protocol import Spread
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.published import PublishedTable, citation
from aspect.report.benchmark.scores import Metric, Scores
from aspect.report.tables import Cell, Line, counted

__all__ = ["Footnotes", "cited", "means_over", "score_cell"]

LONGEST = 240  # letters of a note; errors can be long

RULES: dict[Metric, str] = {
    "strict": "strict accuracy",
    "optimistic": "optimistic accuracy",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC AUC",
}


class Footnotes:
    """Sentences below a table, numbered as its cells first refer to them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, sentence: str) -> int:
        """Number of a sentence; 0, which shows nothing, if it is empty."""
        if not sentence:
            return 0
        return self._numbers.setdefault(sentence, len(self._numbers) + 1)

    @property
    def notes(self) -> tuple[str, ...]:
        """All sentences with their numbers, for `Table.notes`."""
        return tuple(
            textwrap.shorten(f"[{number}] {sentence}", LONGEST, placeholder=" ...")
            for sentence, number in self._numbers.items()
        )


def score_cell(
    scores: Scores | None, metric: Metric, footnotes: Footnotes, published: float | None = None
) -> Cell:
    """Mean ± standard deviation over splits; a gap or a remark where records failed or lack.

    Args:
        scores: those of an entry at a place, if there are any.
        metric: which of them.
        footnotes: to take remarks.
        published: the paper's figure of the same thing.
    """
    if scores is None:
        return Cell(published=published)
    number = footnotes.number(f"{scores.complaint}." if scores.complaint else "")
    spread = scores.spread(metric)
    if spread is None:
        return Cell(published=published, footnote=number)
    tip = "\n".join(_behind(scores, metric, spread))
    return Cell(spread.mean, std=spread.std_splits, published=published, footnote=number, tip=tip)


def _behind(scores: Scores, metric: Metric, spread: Spread) -> Iterator[str]:
    """How many numbers, how far they lie apart, by which rule: lines for a page to show."""
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


def means_over(splits: SplitName, scores: Iterable[Scores | None]) -> str:
    """What the means of a table are over, for its caption.

    `mean ± standard deviation over 10 class-balanced splits, 1 to 3 pre-training seeds each`.
    """
    found = [each for each in scores if each is not None and each.done]
    return (
        "mean ± standard deviation over "
        f"{_range({len(each.splits) for each in found}, f'{splits} split')}, "
        f"{_range({len(each.seeds) for each in found}, 'pre-training seed')} each"
    )


def _range(counts: set[int], noun: str) -> str:
    fewest, most = min(counts, default=0), max(counts, default=0)
    return counted(most, noun) if fewest == most else f"{fewest} to {counted(most, noun)}"


def cited(lines: Iterable[Line], table: PublishedTable) -> str:
    """A sentence for the caption, after a space, where any figure of the paper is shown."""
    shown = any(cell.published is not None for line in lines for cell in line.cells)
    return f" In brackets: the figures of {citation(table)}." if shown else ""
