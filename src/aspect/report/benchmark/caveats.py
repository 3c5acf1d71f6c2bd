"""What a reader must know beside the numbers: classes that splits lack, notices, warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from aspect.benchmark.record import Record, SplitName
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.scores import Scores

__all__ = ["missing_class_notes", "notices"]

# Said once per graph by `missing_class_notes`; records repeat it for their own splits.
LACKS_A_CLASS = re.compile(r"\d+ of \d+ (test|train) sets lack a class ")


def missing_class_notes(
    records: Sequence[Record] | Collection, splits: SplitName, graphs: Sequence[str] = ()
) -> list[str]:
    """One sentence for every graph (or of those named) whose splits lack classes."""
    collection = collect(records)
    sentences = []
    for graph in graphs or collection.graphs:
        own = [
            scores
            for place, scores in collection.scores.items()
            if (place.graph, place.splits) == (graph, splits)
        ]
        for part, name in (("test", "missing_in_test"), ("training", "missing_in_train")):
            lack = _lack(own, name)
            if lack:
                sets = f"{splits} {part} sets of {collection.graphs[graph]}"
                sentences.append(f"{sets[0].upper()}{sets[1:]} lack {lack}.")
    return sentences


def _lack(scores: Sequence[Scores], field: str) -> str:
    """The classes that all splits lack, and those that some do; empty where none is missing."""
    by_split: dict[int, set[int]] = {}
    for each in scores:
        for (_, split), found in each.by_seed_and_split.items():
            by_split.setdefault(split, set()).update(getattr(found, field))
    if not any(by_split.values()):
        return ""
    always = set.intersection(*by_split.values())
    sometimes = set.union(*by_split.values()) - always
    count = max((r.graph.classes for each in scores for r in each.done if r.graph), default=0)
    of = f" (of {count})" if count else ""
    parts = [
        f"{'classes' if len(found) > 1 else 'class'} {', '.join(map(str, sorted(found)))}{where}"
        for found, where in ((always, ""), (sometimes, " in some splits"))
        if found
    ]
    return " and ".join(parts) + of


def notices(records: Sequence[Record] | Collection) -> list[str]:
    """What records say of graphs and trainings, each sentence once, with how often it was said."""
    collection = collect(records)
    said: dict[str, int] = {}
    for scores in collection.scores.values():
        for record in scores.done:
            for sentence in _sentences(record, collection.graphs[record.cell.graph]):
                said[sentence] = said.get(sentence, 0) + 1
    return [
        sentence if count == 1 else f"{sentence} ({count} times)"
        for sentence, count in sorted(said.items())
    ]


def _sentences(record: Record, graph: str) -> Iterator[str]:
    for notice in record.notices:
        if not LACKS_A_CLASS.match(notice):
            yield f"{graph}: {notice}"
    for warning in record.warnings:
        yield f"{record.cell.title} on {graph}: {warning}"
