"""Figures of the paper, as it prints them: to stand beside ours, never among them."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

from aspect.attacks.perturbation import Perturbation
from aspect.errors import DataError
from aspect.experiment.spec import SplitName

__all__ = [
    "CITATION",
    "PAPERS_BUDGET",
    "Figure",
    "Paper",
    "PublishedTable",
    "citation",
    "published",
    "published_figures",
]

CITATION = "Li, Yang and Chen, 2026"
PAPERS_BUDGET = 0.1
PAPERS_PERTURBED_GRAPHS = 6  # its average drop is over all of them

# `clean` and `perturbed` are the full tables; those of its main text show a part of them.
PublishedTable = Literal[
    "clean", "perturbed", "average-drop", "ablation-clean", "ablation-perturbed"
]
# table:full-real-world, table:full_robustness_attack, table:ablation
NUMBERS = {
    "clean": 4,
    "perturbed": 5,
    "average-drop": 5,
    "ablation-clean": 3,
    "ablation-perturbed": 3,
}


@dataclass(frozen=True)
class Figure:
    """One number of the paper, in percent.

    Methods and graphs go by our names. The paper's Cornell is `cornell_old` here: its homophily
    is that of the faulty public copy.
    """

    method: str
    graph: str  # empty for an average over graphs
    table: PublishedTable
    mean: float
    std: float | None  # over ten splits; None for an average over graphs


def citation(table: PublishedTable) -> str:
    """Where the figures of a table stand.

    >>> citation("clean")
    'Li, Yang and Chen, 2026, Table 4'
    """
    return f"{CITATION}, Table {NUMBERS[table]}"


@dataclass(frozen=True)
class Paper:
    """What the paper prints of the same splits and perturbation, for names of ours."""

    splits: SplitName
    perturbation: Perturbation | None
    of_ablation: bool = False

    @property
    def table(self) -> PublishedTable | None:
        """Where it does, if anywhere."""
        if self.splits != "class-balanced":
            return None
        if self.perturbation is None:
            return "ablation-clean" if self.of_ablation else "clean"
        if not _is_papers(self.perturbation):
            return None
        return "ablation-perturbed" if self.of_ablation else "perturbed"

    def accuracy(self, method: str, graph: str) -> float | None:
        """In percent; None where it says nothing."""
        figure = published(method, graph, self.table) if self.table else None
        return figure.mean if figure else None

    def average_drop(self, method: str, graphs: Sequence[str]) -> float | None:
        """Over the graphs of its table, where all of them are here."""
        known = sum(self.accuracy(method, graph) is not None for graph in graphs)
        figure = published(method, "", "average-drop")
        return figure.mean if figure and known == PAPERS_PERTURBED_GRAPHS else None


def _is_papers(perturbation: Perturbation) -> bool:
    """Whether it is the one of the paper's tables: Metattack and masked features at 10%.

    The solver is the original's: published tables were made with implementations that unroll.
    """
    attack = (perturbation.kind, perturbation.solver, perturbation.mode, perturbation.features)
    is_same = attack == ("metattack", "unrolled", "poison", True)
    return is_same and math.isclose(perturbation.budget, PAPERS_BUDGET)


def published(method: str, graph: str, table: PublishedTable) -> Figure | None:
    """The paper's figure, if it prints one."""
    return _by_place().get((method, graph, table))


@cache
def published_figures() -> tuple[Figure, ...]:
    """All of them, in the order of the tables."""
    text = files("aspect.report.benchmark").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(_figure(row) for row in csv.DictReader(text.splitlines()))


@cache
def _by_place() -> dict[tuple[str, str, str], Figure]:
    return {(each.method, each.graph, each.table): each for each in published_figures()}


def _figure(row: dict[str, str]) -> Figure:
    for table in get_args(PublishedTable):
        if table == row["table"]:
            std = float(row["std"]) if row["std"] else None
            return Figure(row["method"], row["graph"], table, float(row["mean"]), std)
    raise DataError(
        f"published.csv must name one of {', '.join(get_args(PublishedTable))} in its column "
        f"'table'. Got {row['table']!r}."
    )
