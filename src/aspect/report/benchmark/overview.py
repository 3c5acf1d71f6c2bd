"""What was run, in words and small tables: cells, graphs, settings, versions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aspect.data.source import GraphSource
from aspect.experiment.record import Record
from aspect.report.benchmark.collection import collect
from aspect.report.tables import Cell, Line, Table, counted

__all__ = ["EntrySettings", "Overview", "Surroundings", "graph_table", "settings_of"]

Item = TypeVar("Item")


@dataclass(frozen=True)
class Overview:
    """The head of a page."""

    sentences: tuple[str, ...]
    counts: dict[str, int]  # of cells, methods, graphs and so on, by the name to show

    @classmethod
    def of(cls, records: Sequence[Record]) -> Overview:
        """Count what is there, in sentences and in numbers."""
        failed = sum(record.status == "failed" for record in records)
        works = [record.cell.spec for record in records]
        attacks = {work.perturbation for work in works if work.perturbation}
        splits = {(work.splits, number) for work in works for number in work.split_numbers}
        collection = collect(records)
        counts = {
            "cells": len(records),
            "failed": failed,
            "methods": len(collection.methods),
            "variants": len(collection.entries) - len(collection.methods),
            "graphs": len({record.cell.graph for record in records}),
            "perturbations": len(attacks),
            "seeds": len({work.seed for work in works}),
            "splits": len(splits),
        }
        rare = ("failed", "variants", "perturbations")
        shown = {name: count for name, count in counts.items() if count or name not in rare}
        return cls(tuple(_sentences(counts, records)), shown)


def _sentences(counts: dict[str, int], records: Sequence[Record]) -> Iterable[str]:
    if not records:
        yield "Nothing was scored: the graphs have no labels, or no run was."
        return
    kinds = " and ".join(_distinct(record.cell.spec.splits for record in records))
    clean = any(record.cell.spec.perturbation is None for record in records)
    attacked = [counted(counts["perturbations"], "perturbation")] * (counts["perturbations"] > 0)
    states = " and under ".join([*(["clean"] if clean else []), *attacked])
    variants = f" and {counted(counts['variants'], 'variant')}" if counts["variants"] else ""
    yield (
        f"{counted(counts['methods'], 'method')}{variants} on "
        f"{counted(counts['graphs'], 'graph')}, "
        f"{states if clean else f'under {states}'}, with "
        f"{counted(counts['seeds'], 'pre-training seed')} and "
        f"{counted(counts['splits'], f'{kinds} split')}: "
        f"{counts['cells'] - counts['failed']:,} of {counted(counts['cells'], 'cell')} "
        f"{'is' if counts['cells'] == 1 else 'are'} done."
    )
    if counts["failed"]:
        yield (
            f"{counted(counts['failed'], 'cell')} failed and left a gap in the tables; "
            "why, stands below."
        )


@dataclass(frozen=True)
class Surroundings:
    """In what surroundings the numbers came about."""

    splits: tuple[str, ...]
    seeds: tuple[int, ...]
    devices: tuple[str, ...]
    versions: tuple[str, ...]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Surroundings:
        """Everything that occurs, once."""
        works = [record.cell.spec for record in records]
        return cls(
            splits=tuple(_distinct(work.splits for work in works)),
            seeds=tuple(sorted({work.seed for work in works})),
            devices=tuple(_distinct(record.device for record in records if record.device)),
            versions=tuple(
                _distinct(
                    f"{name} {number}"
                    for record in records
                    for name, number in record.versions.items()
                )
            ),
        )


def graph_table(records: Sequence[Record]) -> Table:
    """Sizes of the graphs, and how often neighbours are of one class."""
    facts = {record.graph.name: record.graph for record in records if record.graph is not None}
    lines = [
        Line(
            name,
            "",
            (
                *(Cell(count, digits=0) for count in (each.nodes, each.edges)),
                *(Cell(count, digits=0) for count in (each.features, each.classes)),
                Cell(each.homophily),
            ),
        )
        for name, each in facts.items()
    ]
    columns = ("nodes", "edges", "features", "classes", "edge homophily")
    caption = "Graphs; edge homophily is the share of edges that join nodes of one class"
    return Table("graphs", caption, columns, tuple(lines), head="graph")


@dataclass(frozen=True)
class EntrySettings:
    """The settings of one line of the tables, graph by graph."""

    title: str
    note: str
    method: str
    graphs: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]  # by setting: its value on every graph


def settings_of(records: Sequence[Record]) -> list[EntrySettings]:
    """Of every entry, in the order of the records."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        found.setdefault(record.cell.entry, {}).setdefault(record.cell.graph, record)
    return [_settings(list(by_graph.values())) for by_graph in found.values()]


def _settings(records: Sequence[Record]) -> EntrySettings:
    cell = records[0].cell
    names = _distinct(name for record in records for name in record.cell.spec.settings)
    return EntrySettings(
        title=cell.title,
        note=cell.note,
        method=cell.spec.method,
        graphs=tuple(GraphSource(graph=record.cell.graph).name for record in records),
        rows={
            name: tuple(_value(record.cell.spec.settings, name) for record in records)
            for name in names
        },
    )


def _value(settings: dict[str, Any], name: str) -> str:
    return json.dumps(settings[name], ensure_ascii=False) if name in settings else "-"


def _distinct(items: Iterable[Item]) -> list[Item]:
    return list(dict.fromkeys(items))
