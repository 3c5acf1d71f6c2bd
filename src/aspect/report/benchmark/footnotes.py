"""Notes below a table, numbered as its cells first refer to them."""

from __future__ import annotations

import textwrap

from aspect.report.benchmark.scores import Metric, Scores
from aspect.report.benchmark.tips import score_tip
from aspect.report.tables import Cell

__all__ = ["Footnotes", "score_cell"]

LONGEST = 240  # letters of a note; errors can be long


class Footnotes:
    """Sentences and their numbers."""

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


def score_cell(scores: Scores | None, metric: Metric, footnotes: Footnotes) -> Cell:
    """Mean ± standard deviation over splits; a gap or a remark where records failed or lack."""
    if scores is None:
        return Cell()
    number = footnotes.number(f"{scores.complaint}." if scores.complaint else "")
    spread = scores.spread(metric)
    if spread is None:
        return Cell(footnote=number)
    tip = score_tip(scores, metric, spread)
    return Cell(spread.mean, std=spread.std_splits, footnote=number, tip=tip)
