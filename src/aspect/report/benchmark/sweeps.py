"""Accuracy as the budget grows: what curves are drawn of, and the same as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from aspect.attacks.perturbation import Mode
from aspect.evaluation.metrics import PERCENT
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.record import Record, SplitName
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.names import family_name, table_name
from aspect.report.benchmark.score_cells import Footnotes, means_over, score_cell
from aspect.report.benchmark.scores import Place, Scores
from aspect.report.tables import Line, Table, marked, slug

__all__ = ["Curve", "Sweep", "sweep_tables", "sweeps"]

FEWEST_BUDGETS = 2  # beside no perturbation; fewer make no curve


@dataclass(frozen=True)
class Curve:
    """One entry: accuracy in percent at rising budgets."""

    entry: str
    title: str
    budgets: tuple[float, ...]  # shares; 0 is the clean graph
    means: tuple[float, ...]
    stds: tuple[float | None, ...]  # over splits; None for a single one


@dataclass(frozen=True)
class Sweep:
    """One graph under one kind of perturbation at several budgets."""

    name: str  # for anchors and files
    kind: str
    solver: str
    mode: Mode
    features: bool  # entries of features are masked as well
    splits: SplitName
    graph: str  # short name
    curves: tuple[Curve, ...]

    @property
    def label(self) -> str:
        """The perturbation without its budget: `random (poison)`."""
        words = [self.solver, self.mode, "" if self.features else "edges alone"]
        return f"{self.kind} ({', '.join(word for word in words if word)})"

    @property
    def budgets(self) -> tuple[float, ...]:
        """Those of any curve, rising."""
        return tuple(sorted({budget for curve in self.curves for budget in curve.budgets}))


@dataclass(frozen=True)
class Sweeping:
    """One family of perturbations, on one graph, in the collection that holds its scores."""

    collection: Collection
    splits: SplitName
    graph: str
    family: tuple[Perturbation, ...]  # budgets rising

    @property
    def name(self) -> str:
        """For anchors and files."""
        words = f"sweep-{family_name(self.family[0])}-{slug(self.collection.graphs[self.graph])}"
        return table_name(self.collection, words, self.splits)

    @property
    def entries(self) -> list[str]:
        """Those with a record under any of the budgets."""
        return [
            entry
            for entry in self.collection.methods
            if any(self.find(entry, perturbation) for perturbation in self.family)
        ]

    def find(self, entry: str, perturbation: Perturbation | None) -> Scores | None:
        """The scores of an entry at one budget, over the splits that all budgets have."""
        scores = self.collection.find(Place(entry, self.graph, self.splits, perturbation))
        return scores.over(self.common_splits) if scores else None

    @cached_property
    def common_splits(self) -> frozenset[int]:
        """Else a curve would bend where its splits change; all of them, if none is common."""
        known = {
            scores.expected_splits
            for place, scores in self.collection.scores.items()
            if (place.graph, place.splits) == (self.graph, self.splits)
            and place.perturbation in (None, *self.family)
            and scores.expected_splits
        } or {frozenset()}
        return frozenset.intersection(*known) or frozenset.union(*known)


def sweeps(records: Sequence[Record] | Collection) -> list[Sweep]:
    """Curves of strict accuracy for every perturbation with several budgets, graph by graph."""
    return [_sweep(each) for each in _sweepings(collect(records))]


def _sweepings(collection: Collection) -> list[Sweeping]:
    found = []
    for splits in collection.kinds:
        for every in collection.families(splits):
            for graph in collection.graphs:
                own = tuple(p for p in every if graph in collection.columns(splits, p))
                if len(own) >= FEWEST_BUDGETS:
                    found.append(Sweeping(collection, splits, graph, own))
    return found


def _sweep(sweeping: Sweeping) -> Sweep:
    first = sweeping.family[0]
    curves = [_curve(sweeping, entry) for entry in sweeping.entries]
    return Sweep(
        sweeping.name,
        first.kind,
        first.solver,
        first.mode,
        first.features,
        sweeping.splits,
        sweeping.collection.graphs[sweeping.graph],
        tuple(curve for curve in curves if curve.budgets),
    )


def _curve(sweeping: Sweeping, entry: str) -> Curve:
    points = []
    for perturbation in (None, *sweeping.family):
        scores = sweeping.find(entry, perturbation)
        spread = scores.spread() if scores else None
        if spread is not None:
            budget = perturbation.budget if perturbation else 0.0
            points.append((budget, spread.mean, spread.std_splits))
    return Curve(
        entry,
        sweeping.collection.title(entry),
        tuple(budget for budget, _, _ in points),
        tuple(mean for _, mean, _ in points),
        tuple(std for _, _, std in points),
    )


def sweep_tables(records: Sequence[Record] | Collection) -> list[Table]:
    """The same numbers, budgets as columns."""
    return [_table(each) for each in _sweepings(collect(records))]


def _table(sweeping: Sweeping) -> Table:
    footnotes = Footnotes()
    budgets = (None, *sweeping.family)
    lines = [
        Line(
            sweeping.collection.title(entry),
            sweeping.collection.entries[entry].note,
            tuple(score_cell(sweeping.find(entry, each), "strict", footnotes) for each in budgets),
        )
        for entry in sweeping.entries
    ]
    sweep = _sweep(sweeping)
    found = [sweeping.find(entry, each) for entry in sweeping.entries for each in budgets]
    return Table(
        sweeping.name,
        f"Accuracy on unseen nodes of {sweep.graph} in percent as the budget of {sweep.label} "
        f"grows; {means_over(sweep.splits, found)}.",
        tuple(f"{PERCENT * each.budget:g}%" if each else "clean" for each in budgets),
        marked(lines),
        notes=footnotes.notes,
    )
