"""Records of one or several plans as one long table of scores and one table of runs.

This is the only module of the report that reads the attributes of records. All tables and figures
are pivots of `Results.scores` and `Results.runs`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

import pandas as pd

from aspect.attacks.perturbation import Perturbation
from aspect.data.source import GraphSource
from aspect.errors import SettingsError, UnknownNameError, counted
from aspect.experiment.plan import short_names
from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.tables import slug
from aspect.settings import ChosenBy

CLEAN = "clean"  # the perturbation of a graph as it is
PERCENT = 100
MEBIBYTE = 2**20

# What one number of a table stands for: an average over the seeds and splits of one place.
PLACE = ["split_kind", "perturbation", "variant", "graph"]
METRICS = ("strict", "optimistic", "macro_f1", "roc_auc")
HEADLINE = "score"  # strict accuracy, or ROC AUC on the graphs whose authors report that
CONTROLS = ("raw", "propagated", "spectral", "random", "low", "high")
# Beside the metrics: baselines of a split, and the size of its parts.
BESIDE = ("majority", "twins", "test_to_train")
MISSING = ("missing_in_train", "missing_in_test")

# The attack as published first, then the stronger solver, then attacks that draw at random.
ATTACK_ORDER = (("metattack", "unrolled"), ("metattack", "implicit"), ("dice", ""), ("random", ""))

# What records of one variant and graph must share, and those behind one mean.
ALWAYS_EQUAL = ("method", "settings", "graph_sha256", "prune")
EQUAL_IN_A_PLACE = ("device", "version", "splits_sha256", "probe", "metric")

# `missing` holds this; records repeat it for their own splits.
LACKS_A_CLASS = re.compile(r"\d+ of \d+ (test|train) sets lack a class ")


class Variant(NamedTuple):
    """A row of the tables: a method, or a method with other settings."""

    title: str
    note: str
    group: str  # the variant that an ablation compares it with; empty outside of ablations
    method: str


def is_by_roc_auc(graph: str) -> bool:
    """Whether the authors of a data set report the ROC AUC, since its classes are unequal."""
    return GraphSource(graph=graph).metric == "roc-auc"


def family_of(perturbation: Perturbation) -> str:
    """All of it but the budget, for names of files: `random-poison`."""
    parts = (perturbation.kind, perturbation.solver, perturbation.mode)
    edges = "" if perturbation.features else "edges"
    return slug("-".join(filter(None, (*parts, edges))))


def _name(perturbation: Perturbation | None) -> str:
    """Family and budget in percent: `random-poison-10`."""
    if perturbation is None:
        return CLEAN
    return slug(f"{family_of(perturbation)}-{PERCENT * perturbation.budget:.12g}")


def _order(perturbation: Perturbation) -> tuple[object, ...]:
    """Published attacks first, poisoning before evasion, budgets rising."""
    attack = (perturbation.kind, perturbation.solver)
    rank = ATTACK_ORDER.index(attack) if attack in ATTACK_ORDER else len(ATTACK_ORDER)
    is_evasion, is_edges = perturbation.mode != "poison", not perturbation.features
    return (rank, *attack, is_evasion, is_edges, perturbation.budget)


@dataclass(frozen=True, eq=False)
class Results:
    """All that the report shows of records."""

    scores: pd.DataFrame
    """Long: variant, graph, perturbation, mode, budget, split_kind, split, seed, probe,
    metric, value. Accuracies in percent; classes missing in a split are rows of their own. The
    headline metric, `score`, repeats one of the others."""
    runs: pd.DataFrame
    """One row per record: place, seed, status, error, runtime, memory, parameters, gate, health."""
    variants: dict[str, Variant]  # in the order of the plans, as the graphs
    graphs: dict[str, str]  # name or path -> short name
    perturbations: dict[str, Perturbation]  # by name: `random-poison-10`
    graph_facts: pd.DataFrame  # sizes, indexed by short name
    settings: dict[str, pd.DataFrame]  # by variant: settings x graphs, values as JSON
    chosen_by: dict[tuple[str, str], ChosenBy]  # who chose them, by variant and graph
    notices: tuple[str, ...] = ()  # what records say of graphs and trainings
    devices: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    @cached_property
    def methods(self) -> list[str]:
        """Variants to compare: all but those of ablations, unless there are no others."""
        compared = [
            name
            for name, variant in self.variants.items()
            if variant.group not in self.variants or name == variant.method
        ]
        return compared or list(self.variants)

    @cached_property
    def places(self) -> set[tuple[str, str, str, str]]:
        """Those of any record, in the order of `PLACE`."""
        return set(self.runs[PLACE].itertuples(index=False, name=None))

    @property
    def kinds(self) -> list[str]:
        """Kinds of splits, the most usual first."""
        return [kind for kind in get_args(SplitName) if kind in set(self.runs["split_kind"])]

    def perturbations_of(self, splits: str) -> list[str]:
        """Names of the perturbations with records on this kind of splits, in order."""
        present = set(self.runs.loc[self.runs["split_kind"] == splits, "perturbation"])
        return [name for name in self.perturbations if name in present]

    def families(self, splits: str) -> list[list[str]]:
        """The same, those together that differ in their budget alone."""
        families: dict[str, list[str]] = {}
        for name in self.perturbations_of(splits):
            families.setdefault(family_of(self.perturbations[name]), []).append(name)
        return list(families.values())

    def columns(self, splits: str, perturbation: str, variants: Iterable[str] = ()) -> list[str]:
        """Graphs on which any of the variants (or of the methods) has a record."""
        chosen = set(variants) or set(self.methods)
        present = {
            graph
            for kind, state, variant, graph in self.places
            if (kind, state) == (splits, perturbation) and variant in chosen
        }
        return [graph for graph in self.graphs if graph in present]

    def rows(self, splits: str, perturbation: str, graphs: Iterable[str]) -> list[str]:
        """Methods that have a record on any of the graphs."""
        chosen = set(graphs)
        return [
            variant
            for variant in self.methods
            if any((splits, perturbation, variant, graph) in self.places for graph in chosen)
        ]

    def reference(self, name: str | None = None) -> str:
        """The variant to compare with: `name`, else `aspect`, the head of a group, or the first."""
        if name is not None:
            if name not in self.variants:
                raise UnknownNameError("variant", name, self.variants)
            return name
        groups = [variant.group for variant in self.variants.values() if variant.group]
        candidates = ["aspect", *groups, *self.methods]
        return next(name for name in candidates if name in self.methods)

    def column(self, graph: str) -> str:
        """The graph's short name, with the metric where it is not accuracy."""
        return f"{self.graphs[graph]} (ROC AUC)" if is_by_roc_auc(graph) else self.graphs[graph]

    def is_control(self, variant: str) -> bool:
        """Whether it is one of the controls, which belong to every table."""
        return self.variants[variant].method in CONTROLS

    def title(self, variant: str) -> str:
        """The variant's name for readers."""
        return self.variants[variant].title

    def table_name(self, name: str, splits: str) -> str:
        """The name itself; the kind of splits is added to all but those of the first kind."""
        return name if splits == self.kinds[0] else f"{name}-{splits}"

    def state_title(self, perturbation: str) -> str:
        """For sentences: `clean graphs`, `random 10% (poison, edges alone)`."""
        if perturbation == CLEAN:
            return "clean graphs"
        state = self.perturbations[perturbation]
        return f"{state.label} ({state.mode}{'' if state.features else ', edges alone'})"

    def select(self, **equal: str) -> pd.DataFrame:
        """Scores whose columns have these values."""
        chosen = self.scores
        for column, value in equal.items():
            chosen = chosen[chosen[column] == value]
        return chosen


def collect(records: Sequence[Record]) -> Results:
    """Gather records of one or several plans; the same work counts once.

    Records that differ in settings, device or version but claim the same place are refused: one
    number cannot stand for both. So are those of one attack with different flips.
    """
    unique = _distinct(records)
    done = [record for record in unique if record.status == "done"]
    _refuse_mixtures(done)
    _refuse_other_flips(done)
    states = {record.spec.perturbation for record in unique}
    graphs = short_names(record.cell.graph for record in unique)
    scores = _scores(done)
    return Results(
        scores=scores,
        runs=_runs(unique, scores),
        variants=_variants(records),
        graphs=graphs,
        perturbations={_name(state): state for state in sorted(filter(None, states), key=_order)},
        graph_facts=_graph_facts(unique),
        settings=_settings(unique),
        chosen_by={(r.cell.entry, r.cell.graph): r.cell.chosen_by for r in unique},
        notices=(*_repetitions(records), *_notices(done, graphs)),
        devices=tuple(dict.fromkeys(record.device for record in unique if record.device)),
        versions=tuple(
            dict.fromkeys(
                f"{name} {number}" for record in unique for name, number in record.versions.items()
            )
        ),
    )


def _distinct(records: Sequence[Record]) -> list[Record]:
    """One record per variant, graph and work; one that is done replaces one that failed."""
    kept: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = (record.cell.entry, record.cell.graph, record.key)
        if key not in kept or (kept[key].status == "failed" and record.status == "done"):
            kept[key] = record
    return list(kept.values())


def _place(record: Record) -> dict[str, Any]:
    """The columns that both tables share."""
    state = record.spec.perturbation
    return {
        "variant": record.cell.entry,
        "graph": record.cell.graph,
        "perturbation": _name(state),
        "mode": state.mode if state else "",
        "budget": state.budget if state else 0.0,
        "split_kind": record.spec.splits,
        "seed": record.spec.seed,
    }


def _scores(done: Iterable[Record]) -> pd.DataFrame:
    """The long table. A plan with fewer splits repeats scores of another: the first are kept."""
    shared = ["variant", "graph", "perturbation", "mode", "budget", "split_kind", "split", "seed"]
    wide = pd.DataFrame(
        [
            {
                **_place(record),
                "probe": record.spec.probe or "",
                HEADLINE: getattr(scores, headline),
                **{name: getattr(scores, name) for name in ("split", *METRICS, *BESIDE, *MISSING)},
            }
            for record in done
            for headline in ["roc_auc" if is_by_roc_auc(record.cell.graph) else "strict"]
            for scores in record.scores
        ],
        columns=[*shared, "probe", HEADLINE, *METRICS, *BESIDE, *MISSING],
    ).drop_duplicates(subset=shared)
    shared.append("probe")
    metrics = [HEADLINE, *METRICS]
    numbers = wide.melt(shared, [*metrics, *BESIDE], var_name="metric", value_name="value")
    classes = wide.melt(shared, list(MISSING), var_name="metric", value_name="value")
    # A metric that a record lacks stays as a gap: no mean is made over the other records alone.
    numbers = numbers[numbers["metric"].isin(metrics) | numbers["value"].notna()]
    long = pd.concat([numbers, classes.explode("value").dropna(subset="value")], ignore_index=True)
    return long.astype({"value": float})


def _runs(records: Iterable[Record], scores: pd.DataFrame) -> pd.DataFrame:
    filled = set(scores[[*PLACE, "seed", "split"]].itertuples(index=False, name=None))
    rows = []
    for record in records:
        place = _place(record)
        slots = {
            (*(place[name] for name in PLACE), place["seed"], split)
            for split in record.spec.split_numbers
        }
        health, bytes_ = record.health or {}, record.peak_memory_bytes
        rows.append(
            {
                **place,
                "status": record.status,
                "error": record.error or "",
                "is_gap": record.status == "failed" and not slots <= filled,
                "split_numbers": record.spec.split_numbers,
                "seconds": record.seconds.get("train"),
                "memory": bytes_ and bytes_ / MEBIBYTE,
                "epochs": record.epochs,
                "parameters": record.parameters,
                "device": record.device or record.spec.device,
                "gate_mean": (record.gate or {}).get("mean"),
                "gate_std": (record.gate or {}).get("std"),
                "mean_cosine": health.get("mean_cosine"),
                "variance": PERCENT * health.get("variance_share", math.nan),
                "effective_rank": health.get("effective_rank"),
                "width": health.get("dim"),
                "warnings": len(record.warnings),
            }
        )
    names = ["mode", "budget", "seed", "status", "error", "is_gap", "split_numbers", "seconds"]
    columns = list(rows[0]) if rows else [*PLACE, *names, "warnings"]
    return pd.DataFrame(rows, columns=columns)


def _variants(records: Iterable[Record]) -> dict[str, Variant]:
    variants: dict[str, Variant] = {}
    for record in records:
        cell = record.cell
        variant = Variant(cell.title, cell.note, cell.group, record.spec.method)
        # An ablation's plan knows the variant's group, others may not.
        if not variants.setdefault(cell.entry, variant).group and cell.group:
            variants[cell.entry] = variant
    return variants


def _graph_facts(records: Iterable[Record]) -> pd.DataFrame:
    facts = {record.graph.name: record.graph.model_dump() for record in records if record.graph}
    names = ["nodes", "edges", "features", "classes", "homophily"]
    return pd.DataFrame(facts.values(), index=list(facts), columns=names)


def _settings(records: Iterable[Record]) -> dict[str, pd.DataFrame]:
    by_variant: dict[str, dict[str, dict[str, str]]] = {}
    for record in records:
        settings = record.spec.settings.items()
        values = {name: json.dumps(value, ensure_ascii=False) for name, value in settings}
        by_variant.setdefault(record.cell.entry, {}).setdefault(record.cell.graph, values)
    return {variant: pd.DataFrame(values).fillna("-") for variant, values in by_variant.items()}


def _notices(done: Iterable[Record], graphs: dict[str, str]) -> Iterator[str]:
    """What records say of graphs and trainings, each sentence once, with how often it was said."""
    said: Counter[str] = Counter()
    for record in done:
        graph = graphs[record.cell.graph]
        sentences = [
            f"{graph}: {notice}" for notice in record.notices if not LACKS_A_CLASS.match(notice)
        ]
        sentences += [f"{record.cell.title} on {graph}: {warning}" for warning in record.warnings]
        said.update(sentences)
    for sentence, count in sorted(said.items()):
        yield sentence if count == 1 else f"{sentence} ({count} times)"


def _repetitions(records: Iterable[Record]) -> Iterator[str]:
    """A sentence, if the same work was done more than once with different results."""
    first: dict[tuple[str, int], float] = {}
    differing: dict[str, float] = {}
    for record in records:
        for scores in record.scores:
            gap = abs(first.setdefault((record.key, scores.split), scores.strict) - scores.strict)
            if gap:
                differing[record.key] = max(gap, differing.get(record.key, 0.0))
    if differing:
        yield (
            f"{counted(len(differing), 'run')} came more than once with different scores, by up to "
            f"{max(differing.values()):.2f} points of accuracy on a split; the first one counts."
        )


def _refuse_mixtures(done: Iterable[Record]) -> None:
    """Refuse one variant's numbers of one graph if different works left them.

    A clean and a perturbed number may come from two devices or versions, as their difference is
    not paired seed by seed; one mean may not.
    """
    first: dict[object, Record] = {}
    for record in done:
        cell = record.cell
        row = (cell.entry, cell.graph)
        place = (*row, record.spec.splits, record.spec.perturbation)
        for key, fields in ((row, ALWAYS_EQUAL), (place, EQUAL_IN_A_PLACE)):
            other = first.setdefault(key, record)
            for field in fields:
                values = [getattr(each.spec, field) for each in (other, record)]
                if values[0] != values[1]:
                    raise SettingsError(_refusal(field, values, other, record))


def _refusal(field: str, values: list[Any], first: Record, second: Record) -> str:
    name = {"graph_sha256": "the graph's content"}.get(field, field)
    if isinstance(values[0], dict) and isinstance(values[1], dict):
        names = values[0].keys() | values[1].keys()
        name = min(name for name in names if values[0].get(name) != values[1].get(name))
        values = [each.get(name) for each in values]
    plans = [record.cell.plan for record in (first, second)]
    return (
        f"Records of {first.cell.entry!r} on {first.cell.graph} differ in {name}: {values[0]!r} "
        f"(plan {plans[0]}, {first.key}) and {values[1]!r} (plan {plans[1]}, {second.key}). Report "
        "them apart, or give the variants different names."
    )


def _refuse_other_flips(done: Iterable[Record]) -> None:
    """Refuse to compare runs under different attacks: a split and budget has one perturbed graph.

    Mode and masked features are left aside, as they change nothing about the flips.
    """
    first: dict[object, tuple[str, Record]] = {}
    for record in done:
        spec, state = record.spec, record.spec.perturbation
        if state is None:
            continue
        attack = (spec.graph_sha256, spec.splits, state.kind, state.solver, state.budget)
        digests = zip(spec.split_numbers, spec.perturbation_sha256 or (), strict=False)
        for split, sha256 in digests:
            other, seen = first.setdefault((*attack, split), (sha256, record))
            if other != sha256:
                raise SettingsError(
                    f"Records under {state.label} on {record.cell.graph} have different flips for "
                    f"split {split}: {other[:16]}... (plan {seen.cell.plan}, {seen.key}) and "
                    f"{sha256[:16]}... (plan {record.cell.plan}, {record.key}). Report them apart, "
                    "or run both plans with the same --perturbations."
                )
