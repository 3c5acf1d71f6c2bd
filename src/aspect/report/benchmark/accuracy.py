"""Accuracy of entries on graphs: clean, perturbed, and what the perturbation costs on average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aspect.attacks.perturbation import Perturbation
from aspect.evaluation.metrics import PERCENT
from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.baselines import baseline_lines, majority_notes
from aspect.report.benchmark.caveats import missing_class_notes
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.names import perturbation_name, table_name
from aspect.report.benchmark.published import PAPERS_BUDGET, Paper
from aspect.report.benchmark.score_cells import Footnotes, cited, means_over, score_cell
from aspect.report.benchmark.scores import Metric, Place, Scores
from aspect.report.tables import Cell, Direction, Line, Table, marked

__all__ = ["average_drop", "clean_tables", "main_budget", "perturbed_table", "perturbed_tables"]

MODES = {
    "poison": "the model is trained and probed on the perturbed graph, one for every split",
    "evade": "the model is trained on the clean graph and tested on the perturbed one",
}
CORNELL = "The paper's Cornell is cornell_old here: Cornell's edges with the nodes of Texas."
DROP = "average drop"


@dataclass(frozen=True)
class CleanTable:
    """One of the tables of clean graphs."""

    name: str
    metric: Metric
    caption: str
    has_published: bool = True


CLEAN = (
    CleanTable("clean", "strict", "Accuracy on unseen nodes in percent"),
    CleanTable(
        "clean-optimistic",
        "optimistic",
        "Accuracy by the optimistic rule, which looks at the test set; only for comparison with "
        "published tables",
    ),
    CleanTable(
        "clean-macro-f1",
        "macro_f1",
        "Macro-F1 in percent, over the classes of each test set",
        has_published=False,
    ),
)


def clean_tables(
    records: Sequence[Record] | Collection,
    *,
    with_published: bool = False,
    metrics: Sequence[Metric] = ("strict", "optimistic", "macro_f1"),
) -> list[Table]:
    """Strict accuracy, the optimistic one, and macro-F1, for every kind of splits.

    Args:
        records: of any plans; those of perturbed graphs are left out.
        with_published: put the paper's figures beside ours, for entries that it knows.
        metrics: those to show.
    """
    collection = collect(records)
    tables = [
        _clean(collection, splits, kind, with_published)
        for splits in collection.kinds
        for kind in CLEAN
        if kind.metric in metrics
    ]
    return [table for table in tables if table.lines]


def _clean(
    collection: Collection, splits: SplitName, kind: CleanTable, with_published: bool
) -> Table:
    graphs, footnotes = collection.columns(splits, None), Footnotes()
    paper = Paper(splits, None) if with_published and kind.has_published else None
    lines = _lines(collection, splits, None, graphs, kind.metric, footnotes, paper)
    if all(cell.value is None for line in lines for cell in line.cells):
        lines = lines if kind.metric == "strict" else []  # where nothing has this number
    source = cited(lines, "clean")
    notes = [*footnotes.notes, *([CORNELL] if source and "cornell_old" in graphs else [])]
    if kind.metric == "strict":
        lines += baseline_lines(collection, splits, None, graphs)
        notes += majority_notes(collection, splits, graphs)
        notes += missing_class_notes(collection, splits, graphs)
    return Table(
        table_name(collection, kind.name, splits),
        f"{kind.caption}; {_means(collection, splits, None, graphs)}.{source}",
        tuple(collection.graphs[graph] for graph in graphs),
        marked(lines),
        notes=tuple(notes),
    )


def perturbed_tables(
    records: Sequence[Record] | Collection, *, with_published: bool = False
) -> list[Table]:
    """Strict accuracy and average drop, for every perturbation and budget."""
    collection = collect(records)
    return [
        perturbed_table(collection, splits, perturbation, with_published=with_published)
        for splits in collection.kinds
        for perturbation in collection.perturbations(splits)
        if collection.columns(splits, perturbation)
    ]


def main_budget(
    collection: Collection, splits: SplitName, family: Sequence[Perturbation]
) -> Perturbation:
    """The one with the most splits; of several the paper's, else the lowest."""

    def rank(perturbation: Perturbation) -> tuple[int, bool]:
        counts = [
            len(scores.splits)
            for place, scores in collection.scores.items()
            if (place.splits, place.perturbation) == (splits, perturbation)
            and place.entry in collection.methods
        ]
        return max(counts, default=0), math.isclose(perturbation.budget, PAPERS_BUDGET)

    return max(family, key=rank)


def perturbed_table(
    collection: Collection,
    splits: SplitName,
    perturbation: Perturbation,
    *,
    with_published: bool = False,
) -> Table:
    """Strict accuracy and average drop under one perturbation at one budget."""
    graphs, footnotes = collection.columns(splits, perturbation), Footnotes()
    paper = Paper(splits, perturbation) if with_published else None
    lines = [
        Line(line.title, line.note, (*line.cells, drop))
        for line, drop in zip(
            _lines(collection, splits, perturbation, graphs, "strict", footnotes, paper),
            _drops(collection, splits, perturbation, graphs, footnotes, paper),
            strict=True,
        )
    ]
    lines += [
        Line(line.title, line.note, (*line.cells, Cell()))  # it sees no edge that could be flipped
        for line in baseline_lines(collection, splits, perturbation, graphs)
    ]
    highest: Direction = "highest"
    directions: list[Direction] = [*[highest] * len(graphs), "lowest"]
    what = "edges flipped, as large a share of feature entries masked"
    return Table(
        table_name(collection, f"perturbed-{perturbation_name(perturbation)}", splits),
        f"Accuracy on unseen nodes in percent under {_heading(perturbation)} "
        f"({what if perturbation.features else 'edges flipped'}; {MODES[perturbation.mode]}); "
        f"{_means(collection, splits, perturbation, graphs)}. Average drop: (clean - perturbed) / "
        "clean in percent, averaged over the graphs; lower is better."
        f"{cited(lines, 'perturbed')}",
        (*(collection.graphs[graph] for graph in graphs), DROP),
        marked(lines, directions),
        notes=(*footnotes.notes, *missing_class_notes(collection, splits, graphs)),
    )


def _heading(perturbation: Perturbation) -> str:
    """All that tells tables apart, without a pause: `metattack 10%, unrolled solver, poison`."""
    solver = f", {perturbation.solver} solver" if perturbation.solver else ""
    return f"{perturbation.kind} {PERCENT * perturbation.budget:g}%{solver}, {perturbation.mode}"


def average_drop(clean: Iterable[Scores | None], perturbed: Iterable[Scores | None]) -> Cell:
    """Mean over graphs of (clean - perturbed) / clean in percent, over splits that both have."""
    drops = [
        drop
        for before, after in zip(clean, perturbed, strict=True)
        if (drop := _drop(before, after)) is not None
    ]
    return Cell(math.fsum(drops) / len(drops)) if drops else Cell()


def _drop(clean: Scores | None, perturbed: Scores | None) -> float | None:
    before = clean.by_split() if clean else {}
    after = perturbed.by_split() if perturbed else {}
    common = sorted(before.keys() & after.keys())
    whole = math.fsum(before[split] for split in common)
    if not whole:  # nothing in common, or nothing to lose
        return None
    return PERCENT * (1 - math.fsum(after[split] for split in common) / whole)


def _drops(
    collection: Collection,
    splits: SplitName,
    perturbation: Perturbation,
    graphs: Sequence[str],
    footnotes: Footnotes,
    paper: Paper | None,
) -> list[Cell]:
    """One cell per entry; it is said which graphs an average leaves out."""
    cells = []
    for entry in collection.rows(splits, perturbation, graphs):
        clean = [collection.find(Place(entry, graph, splits)) for graph in graphs]
        after = [collection.find(Place(entry, graph, splits, perturbation)) for graph in graphs]
        left_out = [
            collection.graphs[graph]
            for graph, pair in zip(graphs, zip(clean, after, strict=True), strict=True)
            if _drop(*pair) is None
        ]
        cell = average_drop(clean, after)
        sentence = f"Without {', '.join(left_out)}: no clean or no perturbed figure."
        number = footnotes.number(sentence if left_out else "")
        titles = [collection.graphs[graph] for graph in graphs]
        beside = paper.average_drop(entry, titles) if paper else None
        cells.append(Cell(cell.value, published=beside, footnote=number))
    return cells


def _lines(
    collection: Collection,
    splits: SplitName,
    perturbation: Perturbation | None,
    graphs: Sequence[str],
    metric: Metric,
    footnotes: Footnotes,
    paper: Paper | None,
) -> list[Line]:
    """One line per entry that has a record of any of the graphs."""
    return [
        Line(
            collection.title(entry),
            collection.entries[entry].note,
            tuple(
                score_cell(
                    collection.find(Place(entry, graph, splits, perturbation)),
                    metric,
                    footnotes,
                    paper.accuracy(entry, collection.graphs[graph]) if paper else None,
                )
                for graph in graphs
            ),
        )
        for entry in collection.rows(splits, perturbation, graphs)
    ]


def _means(
    collection: Collection,
    splits: SplitName,
    perturbation: Perturbation | None,
    graphs: Sequence[str],
) -> str:
    return means_over(
        splits,
        (
            collection.find(Place(entry, graph, splits, perturbation))
            for entry in collection.rows(splits, perturbation, graphs)
            for graph in graphs
        ),
    )
