"""What each part contributes: variants beside the entry that they are variants of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aspect.attacks.perturbation import Perturbation
from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.comparisons import Question, compare
from aspect.report.benchmark.names import table_name
from aspect.report.benchmark.published import Paper
from aspect.report.benchmark.score_cells import Footnotes, cited, means_over, score_cell
from aspect.report.benchmark.scores import Place, Scores
from aspect.report.tables import Cell, Line, Table, marked, slug

__all__ = ["ablation_tables"]


@dataclass(frozen=True)
class Group:
    """An entry, its variants, and the columns in which any of them has a record."""

    collection: Collection
    splits: SplitName
    head: str
    variants: tuple[str, ...]
    columns: tuple[tuple[str, Perturbation | None], ...]

    @property
    def members(self) -> tuple[str, ...]:
        """The head first."""
        return (self.head, *self.variants)

    @property
    def titles(self) -> tuple[str, ...]:
        """Of the columns; clean graphs go by their name alone where nothing is perturbed."""
        is_perturbed = any(perturbation for _, perturbation in self.columns)
        names = self.collection.graphs
        return tuple(
            f"{names[graph]}, {_state(perturbation)}" if is_perturbed else names[graph]
            for graph, perturbation in self.columns
        )

    def find(self, entry: str, column: tuple[str, Perturbation | None]) -> Scores | None:
        """The scores of a member in a column."""
        return self.collection.find(Place(entry, column[0], self.splits, column[1]))


def _state(perturbation: Perturbation | None) -> str:
    if perturbation is None:
        return "clean"
    mode = "" if perturbation.mode == "poison" else f", {perturbation.mode}"
    return f"{perturbation.label}{mode}{'' if perturbation.features else ', edges alone'}"


def ablation_tables(
    records: Sequence[Record] | Collection, *, with_published: bool = False
) -> list[Table]:
    """Two tables per group: accuracy, and how far each variant is from the head.

    Args:
        records: of any plans; entries without a group are left out.
        with_published: put the paper's figures beside ours, for entries that it knows.
    """
    collection = collect(records)
    groups = [group for splits in collection.kinds for group in _groups(collection, splits)]
    return [
        table
        for group in groups
        for table in (_accuracy(group, with_published), _differences(group))
    ]


def _groups(collection: Collection, splits: SplitName) -> list[Group]:
    """Those of which the head and a variant have a record."""
    heads = dict.fromkeys(cell.group for cell in collection.entries.values() if cell.group)
    groups = []
    for head in heads:
        members = [name for name, cell in collection.entries.items() if cell.group == head]
        states = (None, *collection.perturbations(splits))
        columns = tuple(
            (graph, perturbation)
            for graph in collection.graphs
            for perturbation in states
            if graph in collection.columns(splits, perturbation, members)
        )
        present = [
            name
            for name in members
            if any(collection.find(Place(name, graph, splits, state)) for graph, state in columns)
        ]
        variants = tuple(name for name in present if name != head)
        if head in present and variants:
            groups.append(Group(collection, splits, head, variants, columns))
    return groups


def _accuracy(group: Group, with_published: bool) -> Table:
    footnotes = Footnotes()
    lines = [
        Line(
            group.collection.title(entry),
            group.collection.entries[entry].note,
            tuple(
                score_cell(
                    group.find(entry, column),
                    "strict",
                    footnotes,
                    _beside(group, entry, *column) if with_published else None,
                )
                for column in group.columns
            ),
        )
        for entry in group.members
    ]
    found = [group.find(entry, column) for entry in group.members for column in group.columns]
    return Table(
        table_name(group.collection, f"ablation-{slug(group.head)}", group.splits),
        f"{group.collection.title(group.head)} and its variants: accuracy on unseen nodes in "
        f"percent, {means_over(group.splits, found)}."
        f"{cited(lines, 'ablation-clean')}",
        group.titles,
        marked(lines),
        head="variant",
        notes=footnotes.notes,
    )


def _beside(
    group: Group, entry: str, graph: str, perturbation: Perturbation | None
) -> float | None:
    """The paper's figure for a member that it knows by the same name."""
    # The head is the method itself, whatever the plan calls it.
    name = group.collection.entries[entry].spec.method if entry == group.head else entry
    paper = Paper(group.splits, perturbation, of_ablation=True)
    return paper.accuracy(name, group.collection.graphs[graph])


def _differences(group: Group) -> Table:
    """Each variant less the head: what taking the part away does."""
    questions = [
        Question(group.find(entry, column), group.find(group.head, column))
        for entry in group.variants
        for column in group.columns
    ]
    answers = iter(compare(questions))
    lines = []
    for entry in group.variants:
        found = [next(answers) for _ in group.columns]
        cells = tuple(answer.cell if answer else Cell() for answer in found)
        note = group.collection.entries[entry].note
        lines.append(Line(group.collection.title(entry), note, cells))
    title = group.collection.title(group.head)
    return Table(
        table_name(group.collection, f"ablation-{slug(group.head)}-difference", group.splits),
        f"Each variant less {title}, in points of accuracy with a 95% interval; below zero, the "
        "variant is worse. Paired over splits, p after Holm over all comparisons of the table; "
        "† decided at 5%.",
        group.titles,
        tuple(lines),
        head="variant",
    )
