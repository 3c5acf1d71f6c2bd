"""The parts of a benchmark's page in reading order: what each says, its tables and its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aspect.evaluation.details import Details
from aspect.report.benchmark.ablation import ablation_tables
from aspect.report.benchmark.accuracy import clean_tables, main_budget, perturbed_table
from aspect.report.benchmark.attacked_figures import attacked_drawings
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.comparisons import (
    FEWEST_TO_DECIDE,
    significance_tables,
    undecidable,
)
from aspect.report.benchmark.cost import cost_table, health_table
from aspect.report.benchmark.details_figures import (
    filter_drawings,
    loss_drawings,
    training_gate_drawings,
)
from aspect.report.benchmark.gate_figures import (
    correlations,
    cost_drawings,
    density_drawings,
    full_title,
    homophily_drawings,
    sensitivity_drawings,
)
from aspect.report.benchmark.scores import Metric
from aspect.report.benchmark.search_figures import search_drawings
from aspect.report.benchmark.shortfalls import shortfall_tables
from aspect.report.benchmark.sources import Material
from aspect.report.benchmark.sweep_figures import sweep_drawings
from aspect.report.benchmark.sweeps import sweep_tables, sweeps
from aspect.report.canvas import Drawing, shown
from aspect.report.tables import Table, counted

__all__ = ["Chapter", "chapters"]

OTHER_MEASURES: tuple[Metric, ...] = ("optimistic", "macro_f1")
MOST_NAMED = 10  # models whose correlations are told one by one
MOST_TRAININGS = 3  # models before the others are folded

CLEAN = (
    "Frozen embeddings, a linear probe on each split. The first table is the one to cite: "
    "validation alone chooses the probe's settings and step, and test nodes are looked at once. "
    "The best of a column is bold, the second best underlined."
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
METATTACK = (
    " Metattack knows the classes of the split's training nodes. Its unrolled solver is that of "
    "the original and of published tables; the implicit one is another, usually stronger attack."
)
SWEEP = "One picture per graph and perturbation; the clean graph is the budget of nothing."
SIGNIFICANCE = (
    "Differences are paired over the splits of one graph (seeds averaged), since scores of one "
    "split share its test nodes; intervals are widened for the splits' overlap. p is that of a t "
    "test widened likewise, after Holm's rule over all comparisons of a table, or of a sign-flip "
    "test where that is larger. Ties are differences that luck may explain. Means over graphs are "
    f"tested in the same way from {FEWEST_TO_DECIDE} graphs on."
)
TOO_FEW = (
    f"with fewer than {FEWEST_TO_DECIDE} splits in common no lead can be told from luck, since "
    "flipped signs then give no chance below 5%."
)
COST = "Times compare on one device alone, and when nothing else ran there."
HEALTH = (
    "An embedding whose rows nearly share one direction tells nodes apart by little, whatever a "
    "probe makes of it. Features that are never negative share a direction without any training."
)
GATE = (
    "How much weight the nodes give to their low band. A policy that collapsed into one answer for "
    "all would be a single peak."
)
EVIDENCE = "The gate should trust the low band where that band costs less."
SENSITIVITY = (
    "A gate that heeds stability trusts the low band where the high band gives way more. ASPECT-S "
    "is searched with its own settings, other models with its defaults."
)
HOMOPHILY = "Smooth neighbourhoods should lean to the low band; no label was seen in training."
FILTERS = "Response of each band to the graph's frequencies, over the spectrum of the graph."
ATTACKED = "One model, trained on the clean graph, asked about the clean and the attacked one."
TRAINING = (
    "How the loss terms moved, and the gate with them; and what searches for harmful changes found "
    "on the way, where a method makes them."
)
NODES = (
    "Every dot is a node, placed by its embedding. A node's card shows how much it trusts the low "
    "band (its gate), what each band costs it, how far each band moves under the most harmful "
    "small change of the graph that was found (its sensitivity), and its neighbours."
)
AGAIN = "The commands that make this page again, and the settings that every number came from."
FAILED = "These cells left no scores; the tables show gaps where they would stand."


@dataclass(frozen=True)
class Chapter:
    """A part of the page; some have more to show than tables and pictures, by their name."""

    name: str  # letters and dashes: the anchor
    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    more_title: str = ""
    more_tables: tuple[Table, ...] = ()  # folded on the screen
    more_drawings: tuple[Drawing, ...] = ()

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Folded ones as well."""
        return (*self.tables, *self.more_tables)

    @property
    def all_drawings(self) -> tuple[Drawing, ...]:
        """Folded ones as well."""
        return (*self.drawings, *self.more_drawings)

    @property
    def abreast(self) -> bool:
        """Pictures alone: short chapters of them stand side by side."""
        return bool(self.drawings) and not self.all_tables


def chapters(material: Material, *, with_published: bool = False) -> list[Chapter]:
    """What was found, in the order of the paper; its own figures stand beside ours if wanted."""
    records, details = material.records, material.details
    collection = collect(records if any(record.scores for record in records) else ())
    failed = any(record.status == "failed" for record in records)
    found = [
        *_scored(collection, with_published),
        *_seen(details),
        *([Chapter("nodes", "Node by node", NODES)] if details else []),
        *_cost(collection),
        *([Chapter("failed", "Failed cells", FAILED)] if failed else []),
        Chapter("again", "What was run", AGAIN),
    ]
    return _with_unique_names(found)


def _scored(collection: Collection, with_published: bool) -> Iterator[Chapter]:
    """Those of scores that have something to show."""
    clean = clean_tables(collection, with_published=with_published, metrics=["strict"])
    if clean:
        more = clean_tables(collection, with_published=with_published, metrics=OTHER_MEASURES)
        more += shortfall_tables(collection) if with_published else []
        plain = Chapter("clean", "Clean graphs", CLEAN, tuple(clean))
        yield replace(plain, more_title="Other measures", more_tables=tuple(more))
    perturbed = _perturbed(collection, with_published)
    if perturbed.tables:
        yield perturbed
    ablation = ablation_tables(collection, with_published=with_published)
    if ablation:
        yield Chapter("ablation", "What each part contributes", ABLATION, tuple(ablation))
    drawings, tables = sweep_drawings(sweeps(collection)), sweep_tables(collection)
    if tables:
        plain = Chapter("sweep", "As the budget grows", SWEEP, drawings=tuple(drawings))
        yield replace(plain, more_title="The same as tables", more_tables=tuple(tables))
    yield from _significance(collection)


def _perturbed(collection: Collection, with_published: bool) -> Chapter:
    """One budget of every perturbation; the others are folded."""
    main: list[Table] = []
    others: list[Table] = []
    for splits in collection.kinds:
        for family in collection.families(splits):
            own = [each for each in family if collection.columns(splits, each)]
            for each in own:
                table = perturbed_table(collection, splits, each, with_published=with_published)
                is_main = each == main_budget(collection, splits, own)
                (main if is_main else others).append(table)
    attacks = {
        each.kind for splits in collection.kinds for each in collection.perturbations(splits)
    }
    text = f"{PERTURBED}{METATTACK if 'metattack' in attacks else ''}"
    plain = Chapter("perturbed", "Perturbed graphs", text, tuple(main))
    return replace(plain, more_title="Other budgets", more_tables=tuple(others))


def _significance(collection: Collection) -> Iterator[Chapter]:
    tables, left_out = significance_tables(collection), undecidable(collection)
    told = [SIGNIFICANCE] if tables else []
    told += [f"Left out: {', '.join(left_out)}; {TOO_FEW}"] if left_out else []
    if told:
        yield Chapter("significance", "Lead or luck", " ".join(told), tuple(tables))


def _cost(collection: Collection) -> Iterator[Chapter]:
    table = cost_table(collection)
    if table.lines:
        yield Chapter("cost", "Runtime and memory", COST, (table,))
    health = health_table(collection)
    if health.lines:
        yield Chapter("health", "Embedding health", HEALTH, (health,))


def _seen(details: Sequence[Details]) -> Iterator[Chapter]:
    """All that is to be shown of the models, but for their maps; parts without a picture go."""
    evidence = f"{EVIDENCE}{_told(correlations(details, 'cost_gap'), 'cost gap')}"
    gap = _told(correlations(details, "sensitivity_gap"), "sensitivity gap")
    homophily = f"{HOMOPHILY}{_told(correlations(details, 'homophily'), 'local homophily')}"
    parts = [
        ("gate", "Whom nodes trust", GATE, density_drawings(details)),
        ("evidence", "Gate and evidence", evidence, cost_drawings(details)),
        ("sensitivity", "Gate and sensitivity", SENSITIVITY + gap, sensitivity_drawings(details)),
        ("homophily", "Gate and local homophily", homophily, homophily_drawings(details)),
        ("filters", "What the filters learned", FILTERS, filter_drawings(details)),
        ("attacked", "The gate under attack", ATTACKED, attacked_drawings(details)),
    ]
    for name, title, text, drawings in parts:
        if drawings:
            yield Chapter(name, title, text, drawings=tuple(drawings))
    yield from _training(details)


def _training(details: Sequence[Details]) -> Iterator[Chapter]:
    """The first few models; the others are folded."""
    losses = loss_drawings(details)
    kinds = (losses, training_gate_drawings(details), search_drawings(details))
    shown_first = tuple(each for kind in kinds for each in kind[:MOST_TRAININGS])
    more = tuple(each for kind in kinds for each in kind[MOST_TRAININGS:])
    if losses:
        plain = Chapter("training", "Training", TRAINING, drawings=shown_first)
        title = counted(len(more), "more picture")
        yield replace(plain, more_title=title, more_drawings=more)


def _told(found: Sequence[tuple[Details, float]], what: str) -> str:
    if not found:
        return ""
    several = len({each.title for each, _ in found}) > 1
    values = "; ".join(
        f"{full_title(each) if several else shown(each.graph)} {value:.2f}"
        for each, value in found[:MOST_NAMED]
    )
    more = len(found) - MOST_NAMED
    rest = f"; and {more} more" if more > 0 else ""
    return f" Spearman's rank correlation of gate and {what}: {values}{rest}."


def _with_unique_names(parts: Sequence[Chapter]) -> list[Chapter]:
    """The same, with names told apart that untrusted ones made equal: they become ids and files."""
    taken: set[str] = set()

    def unique(name: str) -> str:
        number, own = 1, name
        while own in taken:
            number += 1
            own = f"{name}-{number}"
        taken.add(own)
        return own

    def tables(given: Sequence[Table]) -> tuple[Table, ...]:
        return tuple(replace(each, name=unique(each.name)) for each in given)

    def drawings(given: Sequence[Drawing]) -> tuple[Drawing, ...]:
        return tuple(replace(each, name=unique(each.name)) for each in given)

    return [
        replace(
            part,
            tables=tables(part.tables),
            more_tables=tables(part.more_tables),
            drawings=drawings(part.drawings),
            more_drawings=drawings(part.more_drawings),
        )
        for part in parts
    ]
