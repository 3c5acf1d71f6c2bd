"""Figures of the paper, as it prints them: shown beside ours, never among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

from aspect.report.results import CLEAN, Results

__all__ = ["PAPERS_BUDGET", "Paper", "citation", "published_figures"]

PAPERS_BUDGET = 0.1
PAPERS_PERTURBED_GRAPHS = 6  # its average drop is over all of them

# The paper's full tables. Those of its main text show a part of them.
NUMBERS = {
    "clean": 4,
    "perturbed": 5,
    "average-drop": 5,
    "ablation-clean": 3,
    "ablation-perturbed": 3,
}


def citation(table: str) -> str:
    """Where the figures of a table stand.

    >>> citation("clean")
    'Li, Yang and Chen, 2026, Table 4'
    """
    return f"Li, Yang and Chen, 2026, Table {NUMBERS[table]}"


@cache
def published_figures() -> pd.DataFrame:
    """All figures in percent: method, graph (none for an average over graphs), table, mean, std.

    Methods and graphs go by our names. The paper's Cornell is `cornell_old` here: its homophily
    is that of the faulty public copy.
    """
    with files("aspect.report").joinpath("published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False, na_values={"std": [""]})


@cache
def _means() -> dict[tuple[str, str, str], float]:
    figures = published_figures()[["method", "graph", "table", "mean"]]
    rows = figures.itertuples(index=False, name=None)
    return {(method, graph, table): float(mean) for method, graph, table, mean in rows}


class Paper(NamedTuple):
    """What the paper prints of the same splits and perturbation."""

    table: str  # empty: nothing

    @classmethod
    def of(
        cls, results: Results, splits: str, perturbation: str, *, of_ablation: bool = False
    ) -> Paper:
        """Its tables are of class-balanced splits, clean or under Metattack with 10% of the edges.

        Feature entries are masked too. The solver is the original's: published tables were made
        with implementations that unroll.
        """
        kind = "clean"
        if perturbation != CLEAN:
            kind = "perturbed"
            setup = results.perturbations[perturbation]
            is_same = setup[:3] == ("metattack", "unrolled", "poison") and setup.features
            if not is_same or not math.isclose(setup.budget, PAPERS_BUDGET):
                return cls("")
        if splits != "class-balanced":
            return cls("")
        return cls(f"ablation-{kind}" if of_ablation else kind)

    def accuracy(self, method: str, graph: str) -> float | None:
        """In percent; None where it prints nothing."""
        return _means().get((method, graph, self.table))

    def average_drop(self, method: str, graphs: Sequence[str]) -> float | None:
        """Over the graphs of its table, where all of them are here."""
        known = sum(self.accuracy(method, graph) is not None for graph in graphs)
        figure = _means().get((method, "", "average-drop"))
        return figure if known == PAPERS_PERTURBED_GRAPHS else None
