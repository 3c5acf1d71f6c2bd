"""All tables of a benchmark, as sections in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aspect.benchmark.record import Record
from aspect.report.benchmark.ablation import ablation_tables
from aspect.report.benchmark.accuracy import clean_tables, perturbed_tables
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.comparisons import significance_tables
from aspect.report.benchmark.cost import cost_table
from aspect.report.benchmark.sweeps import sweep_tables
from aspect.report.tables import Table

__all__ = [
    "Section",
    "ablation_tables",
    "benchmark_tables",
    "clean_tables",
    "cost_table",
    "perturbed_tables",
    "significance_tables",
    "sweep_tables",
]


@dataclass(frozen=True)
class Section:
    """A part of the page: some tables and what to know of them."""

    name: str  # for anchors: letters and dashes
    title: str
    text: str
    tables: tuple[Table, ...]


CLEAN = (
    "Frozen embeddings, a linear probe on each split. The first table is the one to cite: "
    "validation alone chooses the probe's settings and step, and test nodes are looked at once. "
    "The best of a column is bold, the second best underlined; whether a lead is more than luck, "
    "the significance tables say."
)
PERTURBED = (
    "The same graphs after some edges are flipped. A perturbation of a graph that is trained on "
    "(poison) is made for one split, and each split has its own model. The average drop compares "
    "splits that both the clean and the perturbed graph have."
)
ABLATION = (
    "Parts taken away or exchanged, one at a time, with the same settings otherwise. The best of "
    "each column is marked within the group."
)
SWEEP = "One table per graph; the clean graph is the budget of nothing."
SIGNIFICANCE = (
    "Pairs are the splits of one graph, since scores of one split share its test nodes. Claims "
    "are corrected for the number of comparisons, by Holm's rule, within each table."
)
COST = "Times compare on one device alone, and when nothing else ran there."


def benchmark_tables(
    records: Sequence[Record] | Collection, *, with_published: bool = False
) -> list[Section]:
    """Sections in reading order; those without a table are left out.

    Args:
        records: of one or several plans.
        with_published: the paper's figures stand below ours, where it has some.
    """
    found = collect(records)
    cost = cost_table(found)
    sections = [
        ("clean", "Clean graphs", CLEAN, clean_tables(found, with_published=with_published)),
        (
            "perturbed",
            "Perturbed graphs",
            PERTURBED,
            perturbed_tables(found, with_published=with_published),
        ),
        (
            "ablation",
            "What each part contributes",
            ABLATION,
            ablation_tables(found, with_published=with_published),
        ),
        ("sweep", "As the budget grows", SWEEP, sweep_tables(found)),
        ("significance", "Lead or luck", SIGNIFICANCE, significance_tables(found)),
        ("cost", "What it costs", COST, [cost] if cost.lines else []),
    ]
    return [
        Section(name, title, text, tuple(tables))
        for name, title, text, tables in sections
        if tables
    ]
