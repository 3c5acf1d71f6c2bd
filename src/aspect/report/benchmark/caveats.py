"""What a reader must know beside the numbers: classes that splits lack, notices, warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.scores import Scores
from aspect.report.tables import counted

__all__ = ["missing_class_notes", "notices", "repeated_works"]

# Said by `missing_class_notes`; records repeat it for their own splits.
LACKS_A_CLASS = re.compile(r"\d+ of \d+ (test|train) sets lack a class ")


def missing_class_notes(
    records: Sequence[Record] | Collection, splits: SplitName, graphs: Sequence[str] = ()
) -> list[str]:
    """A sentence on test sets and one on training sets, if any of the graphs' lack classes."""
    collection = collect(records)
    sentences = []
    for part, name in (("test", "missing_in_test"), ("training", "missing_in_train")):
        lacks = [
            f"{collection.graphs[graph]} {lack}"
            for graph in graphs or collection.graphs
            if (lack := _lack(_scores_of(collection, graph, splits), name))
        ]
        if lacks:
            sets = f"{splits} {part} sets"
            sentences.append(f"{sets[0].upper()}{sets[1:]} lack classes: {'; '.join(lacks)}.")
    return sentences


def _scores_of(collection: Collection, graph: str, splits: SplitName) -> list[Scores]:
    return [
        scores
        for place, scores in collection.scores.items()
        if (place.graph, place.splits) == (graph, splits)
    ]


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
    parts = [
        f"{where}{', '.join(map(str, sorted(found)))}"
        for found, where in ((always, ""), (sometimes, "in some splits "))
        if found
    ]
    return " and ".join(parts)


def repeated_works(records: Sequence[Record]) -> list[str]:
    """A sentence, if the same work was done more than once and did not come out the same."""
    first: dict[tuple[str, int], float] = {}
    differing: dict[str, float] = {}
    for record in records:
        for scores in record.scores:
            gap = abs(first.setdefault((record.key, scores.split), scores.strict) - scores.strict)
            if gap:
                differing[record.key] = max(gap, differing.get(record.key, 0.0))
    if not differing:
        return []
    cells = counted(len(differing), "cell")
    return [
        f"{cells} came more than once and not the same each time, by up to "
        f"{max(differing.values()):.2f} points of accuracy on a split; the first one counts."
    ]


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
