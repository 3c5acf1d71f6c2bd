"""Records of one or several plans, gathered entry by graph by perturbation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import get_args

from aspect.attacks.perturbation import Perturbation
from aspect.data.source import GraphSource
from aspect.errors import SettingsError
from aspect.experiment.record import Record
from aspect.experiment.spec import Cell, Spec, SplitName
from aspect.report.benchmark.scores import Place, Scores

__all__ = ["Collection", "collect", "distinct", "graph_rank", "perturbation_order"]

# The paper's order: homophilic graphs first, each half by size; others follow by name.
GRAPH_ORDER = (
    "cora",
    "citeseer",
    "pubmed",
    "cornell",
    "cornell_old",
    "texas",
    "wisconsin",
    "actor",
    "chameleon",
    "squirrel",
)

# The headline first: the attack as it was published, our stronger one, then those that only draw.
ATTACK_ORDER = (("metattack", "unrolled"), ("metattack", "implicit"), ("dice", ""), ("random", ""))

# What the works behind one entry's numbers of one graph share, and those behind one mean.
ALWAYS_EQUAL = ("method", "settings", "graph_sha256", "prune")
EQUAL_IN_A_PLACE = ("device", "version", "splits_sha256", "probe")


@dataclass(frozen=True)
class Collection:
    """All scores of some records, with the order in which entries and graphs are shown."""

    scores: dict[Place, Scores]
    entries: dict[str, Cell]  # by name: a cell with the entry's title, note, group; in plan order
    graphs: dict[str, str]  # graph as the plan names it -> short name, in the order of columns

    @cached_property
    def methods(self) -> list[str]:
        """Entries to compare: all but variants, which belong to ablations, unless all are some."""
        own = [
            name
            for name, cell in self.entries.items()
            if cell.group not in self.entries or name == cell.spec.method
        ]
        return own or list(self.entries)

    @property
    def kinds(self) -> list[SplitName]:
        """Kinds of splits, the most usual first."""
        found = {place.splits for place in self.scores}
        return [kind for kind in get_args(SplitName) if kind in found]

    def perturbations(self, splits: SplitName) -> list[Perturbation]:
        """Those of one kind of splits, by attack, mode and budget."""
        found = {
            place.perturbation
            for place in self.scores
            if place.perturbation is not None and place.splits == splits
        }
        return sorted(found, key=perturbation_order)

    def families(self, splits: SplitName) -> list[list[Perturbation]]:
        """The same, those together that differ in their budget alone."""
        grouped = groupby(self.perturbations(splits), lambda each: perturbation_order(each)[:-1])
        return [list(family) for _, family in grouped]

    def find(self, place: Place) -> Scores | None:
        """The scores of a place, if any record speaks of it."""
        return self.scores.get(place)

    def columns(
        self, splits: SplitName, perturbation: Perturbation | None, entries: Iterable[str] = ()
    ) -> list[str]:
        """Graphs of which any of the entries (or of the methods) has a record."""
        wanted = list(entries) or self.methods
        return [
            graph
            for graph in self.graphs
            if any(self.find(Place(each, graph, splits, perturbation)) for each in wanted)
        ]

    def rows(
        self, splits: SplitName, perturbation: Perturbation | None, graphs: Iterable[str]
    ) -> list[str]:
        """Methods that have a record of any of the graphs."""
        wanted = list(graphs)
        return [
            entry
            for entry in self.methods
            if any(self.find(Place(entry, graph, splits, perturbation)) for graph in wanted)
        ]

    def title(self, entry: str) -> str:
        """The entry's name for readers."""
        return self.entries[entry].title


def perturbation_order(
    perturbation: Perturbation,
) -> tuple[int, str, str, bool, bool, float]:
    """Families together, the strongest claims first, poison before evasion, budgets rising."""
    attack = (perturbation.kind, perturbation.solver)
    return (
        ATTACK_ORDER.index(attack) if attack in ATTACK_ORDER else len(ATTACK_ORDER),
        *attack,
        perturbation.mode != "poison",
        not perturbation.features,
        perturbation.budget,
    )


def graph_rank(name: str) -> tuple[int, str]:
    """The known graphs in the paper's order, then others by name."""
    return (GRAPH_ORDER.index(name) if name in GRAPH_ORDER else len(GRAPH_ORDER), name)


def collect(records: Sequence[Record] | Collection) -> Collection:
    """Gather records of one or several plans, unless that is done; the same work counts once.

    Records that differ in settings, device or version but claim the same place are refused: one
    number cannot stand for both. So are those of one attack that met other flips.
    """
    if isinstance(records, Collection):
        return records
    unique = distinct(records)
    done = [record for record in unique if record.status == "done"]
    _refuse_mixtures(done)
    _refuse_other_flips(done)
    gathered: dict[Place, list[Record]] = {}
    for record in unique:
        gathered.setdefault(Place.of(record.cell), []).append(record)
    scores = {place: _scores(place, own) for place, own in gathered.items()}
    return Collection(
        _with_expectations(scores),
        _entries(record.cell for record in records),
        _short_names(record.cell.graph for record in unique),
    )


def _entries(cells: Iterable[Cell]) -> dict[str, Cell]:
    """One cell of every entry, in the order of the records, which is that of their plans."""
    found: dict[str, Cell] = {}
    for cell in cells:
        # An ablation's plan knows the entry's group, others may not.
        if not found.setdefault(cell.entry, cell).group and cell.group:
            found[cell.entry] = cell
    return found


def distinct(records: Sequence[Record]) -> list[Record]:
    """One record per entry, graph and work; one that went well replaces one that failed."""
    kept: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = (record.cell.entry, record.cell.graph, record.key)
        if key not in kept or (kept[key].status == "failed" and record.status == "done"):
            kept[key] = record
    return list(kept.values())


def _scores(place: Place, records: Sequence[Record]) -> Scores:
    done = tuple(record for record in records if record.status == "done")
    filled = {(each.cell.spec.seed, scores.split) for each in done for scores in each.scores}
    failed = tuple(
        record
        for record in records
        if record.status == "failed" and not _slots(record.cell.spec) <= filled
    )
    return Scores(place, done, failed)


def _with_expectations(scores: Mapping[Place, Scores]) -> dict[Place, Scores]:
    """Entries of one column share their splits, so that a missing one can be told."""
    splits: dict[Place, set[int]] = {}
    for place, own in scores.items():
        splits.setdefault(replace(place, entry=""), set()).update(own.splits)
    return {
        place: replace(own, expected_splits=frozenset(splits[replace(place, entry="")]))
        for place, own in scores.items()
    }


def _slots(work: Spec) -> set[tuple[int, int]]:
    return {(work.seed, split) for split in work.split_numbers}


def _refuse_mixtures(records: Iterable[Record]) -> None:
    """Refuse one entry's numbers of one graph if different works left them.

    A clean and a perturbed number may come from two devices or versions, as their difference is
    not paired seed by seed; one mean may not.
    """
    first: dict[object, Record] = {}
    for record in records:
        place = Place.of(record.cell)
        line = (place.entry, place.graph)
        for key, fields in ((line, ALWAYS_EQUAL), (place, EQUAL_IN_A_PLACE)):
            other = first.setdefault(key, record)
            differing = [name for name in fields if _field(other, name) != _field(record, name)]
            if differing:
                raise SettingsError(_refusal(place, differing[0], other, record))


def _refuse_other_flips(records: Iterable[Record]) -> None:
    """Refuse to compare what was not attacked alike: one split and budget has one perturbed graph.

    Mode and masked features are left aside, as they change nothing about the flips.
    """
    first: dict[object, tuple[str, Record]] = {}
    for record in records:
        work = record.cell.spec
        attack = work.perturbation
        if attack is None:
            continue
        own = (work.graph_sha256, work.splits, attack.kind, attack.solver, attack.budget)
        pairs = zip(work.split_numbers, work.perturbation_sha256 or (), strict=False)
        for split, sha256 in pairs:
            other, found = first.setdefault((*own, split), (sha256, record))
            if other != sha256:
                raise SettingsError(
                    f"Records under {attack.label} on {record.cell.graph} met different flips for "
                    f"split {split}: {other[:16]}... (plan {found.cell.plan}, {found.key}) and "
                    f"{sha256[:16]}... (plan {record.cell.plan}, {record.key}). Report them apart, "
                    "or run both plans with the same --perturbations."
                )


def _field(record: Record, name: str) -> object:
    return getattr(record.cell.spec, name)


def _refusal(place: Place, field: str, first: Record, second: Record) -> str:
    """Name both works by what they differ in."""
    told = [_field(record, field) for record in (first, second)]
    name = {"graph_sha256": "the graph's content"}.get(field, field)
    if isinstance(told[0], dict) and isinstance(told[1], dict):
        name = min(key for key in {**told[0], **told[1]} if told[0].get(key) != told[1].get(key))
        told = [values.get(name) for values in told if isinstance(values, dict)]
    plans = [record.cell.plan for record in (first, second)]
    return (
        f"Records of {place.entry!r} on {place.graph} differ in {name}: {told[0]!r} (plan "
        f"{plans[0]}, {first.key}) and {told[1]!r} (plan {plans[1]}, {second.key}). Report them "
        "apart, or give the entries different names."
    )


def _short_names(graphs: Iterable[str]) -> dict[str, str]:
    """Data sets by their names, files by theirs without folders unless two share one."""
    every = dict.fromkeys(graphs)
    short = {graph: GraphSource(graph=graph).name for graph in every}
    names = list(short.values())
    shown = {graph: name if names.count(name) == 1 else graph for graph, name in short.items()}
    return dict(sorted(shown.items(), key=lambda item: graph_rank(item[1])))
