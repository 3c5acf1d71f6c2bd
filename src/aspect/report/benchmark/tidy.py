"""One number per row, for other people's programs: method, graph, perturbation, metric, mean."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from aspect.errors import UnknownNameError
from aspect.experiment.record import Record
from aspect.report.benchmark.collection import Collection, collect, graph_rank
from aspect.report.benchmark.names import family_name
from aspect.report.benchmark.scores import Metric, Place, Scores
from aspect.report.tables import csv_safe

__all__ = ["COLUMNS", "TidyKind", "tidy_csv"]

TidyKind = Literal["clean", "perturbed", "ablation", "sweep", "stability"]

COLUMNS = (
    "method",
    "graph",
    "split",
    "selection",
    "perturbation",
    "solver",
    "mode",
    "budget",
    "metric",
    "mean",
    "std",
    "splits",
    "seeds",
)
# How a score is called in a row: its selection and its metric.
METRICS: dict[Metric, tuple[str, str]] = {
    "strict": ("strict", "accuracy"),
    "optimistic": ("optimistic", "accuracy"),
    "macro_f1": ("strict", "macro_f1"),
    "roc_auc": ("strict", "roc_auc"),
}
FEWEST_BUDGETS = 2


def tidy_csv(records: Sequence[Record] | Collection, kind: TidyKind) -> str:
    """Rows in an order that does not depend on that of the records; means and stds in percent.

    Args:
        records: of one or several plans.
        kind: `clean`: methods on unperturbed graphs; `perturbed`: under all perturbations, with the
            clean figures that they are held against; `sweep`: the same for perturbations with
            several budgets; `ablation`: entries that belong to a group; `stability`: everything.
    """
    if kind not in get_args(TidyKind):
        raise UnknownNameError("kind of table", kind, get_args(TidyKind))
    collection = collect(records)
    wanted = _wanted(collection, kind)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for scores in sorted(wanted, key=lambda each: _order(each.place, collection)):
        for metric in METRICS:
            row = _row(scores, metric, collection)
            if row:
                writer.writerow(row)
    return file.getvalue()


def _wanted(collection: Collection, kind: TidyKind) -> list[Scores]:
    """The scores that belong into a table of this kind."""
    if kind == "stability":
        return list(collection.scores.values())
    if kind == "ablation":
        entries = collection.entries
        return [each for place, each in collection.scores.items() if entries[place.entry].group]
    methods = {
        place: each
        for place, each in collection.scores.items()
        if place.entry in collection.methods
    }
    if kind == "clean":
        return [each for place, each in methods.items() if place.perturbation is None]
    families = _families(collection, fewest=FEWEST_BUDGETS if kind == "sweep" else 1)
    return [
        each
        for place, each in methods.items()
        if (kept := families.get(replace(place, perturbation=None)))
        and (place.perturbation is None or family_name(place.perturbation) in kept)
    ]


def _families(collection: Collection, fewest: int) -> dict[Place, set[str]]:
    """By clean place: the perturbations that it has under at least so many budgets."""
    budgets: dict[tuple[Place, str], set[float]] = {}
    for place in collection.scores:
        if place.perturbation is not None:
            key = (replace(place, perturbation=None), family_name(place.perturbation))
            budgets.setdefault(key, set()).add(place.perturbation.budget)
    found: dict[Place, set[str]] = {}
    for (place, family), own in budgets.items():
        if len(own) >= fewest:
            found.setdefault(place, set()).add(family)
    return found


def _order(place: Place, collection: Collection) -> tuple[object, ...]:
    attack = place.perturbation
    return (
        place.entry,
        graph_rank(collection.graphs[place.graph]),
        place.splits,
        family_name(attack) if attack else "",
        attack.budget if attack else 0.0,
    )


def _row(scores: Scores, metric: Metric, collection: Collection) -> list[object]:
    """Empty where nothing has this metric."""
    spread = scores.spread(metric)
    if spread is None:
        return []
    place, attack = scores.place, scores.place.perturbation
    selection, name = METRICS[metric]
    # Edges alone are another perturbation, though no column of its own says so.
    kind = (attack.kind if attack.features else f"{attack.kind}-edges") if attack else "none"
    return [
        csv_safe(place.entry),
        csv_safe(collection.graphs[place.graph]),
        place.splits,
        selection,
        kind,
        csv_safe(attack.solver) if attack else "",
        attack.mode if attack else "",
        f"{attack.budget:g}" if attack else "0",
        name,
        f"{spread.mean:.4f}",
        "" if spread.std_splits is None else f"{spread.std_splits:.4f}",
        spread.splits,
        spread.seeds,
    ]
