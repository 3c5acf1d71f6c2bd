"""The repository's results: tables as files and in the README, all made of the records beside them.

`records/KIND.jsonl` gives `tables/KIND.csv` (one number per row), `.md` and `.tex` (to be read).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from aspect.experiment.store import read_records
from aspect.report.benchmark.ablation import ablation_tables
from aspect.report.benchmark.accuracy import clean_tables, perturbed_tables
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.comparisons import significance_tables
from aspect.report.benchmark.readme import fill_blocks
from aspect.report.benchmark.shortfalls import shortfall_tables
from aspect.report.benchmark.sweeps import sweep_tables
from aspect.report.benchmark.tidy import TidyKind, tidy_csv
from aspect.report.generated import differing, read_text, write_differing
from aspect.report.tables import Table

__all__ = ["differing_files", "expected_files", "record_files", "write_files"]

RECORDS, TABLES, README = "results/records", "results/tables", "README.md"
KINDS: tuple[TidyKind, ...] = get_args(TidyKind)
ENDINGS = ("csv", "md", "tex")


def _clean(records: Collection) -> list[Table]:
    return [
        *clean_tables(records, with_published=True),
        *_of("clean", significance_tables(records)),
        *shortfall_tables(records),
    ]


def _perturbed(records: Collection) -> list[Table]:
    return perturbed_tables(records, with_published=True)


def _ablation(records: Collection) -> list[Table]:
    return ablation_tables(records, with_published=True)


def _stability(records: Collection) -> list[Table]:
    tables = [
        *perturbed_tables(records, with_published=True),
        *ablation_tables(records, with_published=True),
        *significance_tables(records),
    ]
    return _of("stability", tables)


def _of(kind: TidyKind, tables: Sequence[Table]) -> list[Table]:
    """The same under names of their own: other kinds have such tables too."""
    return [replace(table, name=f"{kind}-{table.name}") for table in tables]


MAKERS: dict[TidyKind, Callable[[Collection], list[Table]]] = {
    "clean": _clean,
    "perturbed": _perturbed,
    "ablation": _ablation,
    "sweep": sweep_tables,
    "stability": _stability,
}


def record_files(root: Path) -> dict[TidyKind, Path]:
    """The files of records that are there."""
    paths = {kind: root / RECORDS / f"{kind}.jsonl" for kind in KINDS}
    return {kind: path for kind, path in paths.items() if path.is_file()}


def expected_files(root: Path) -> dict[Path, str | None]:
    """What every file made of the records should hold; None: it should not be there."""
    expected: dict[Path, str | None] = {
        root / TABLES / f"{kind}.{ending}": None for kind in KINDS for ending in ENDINGS
    }
    blocks: dict[str, str] = {}
    for kind, path in record_files(root).items():
        records = collect(read_records(path))
        tables = MAKERS[kind](records)
        expected[root / TABLES / f"{kind}.csv"] = tidy_csv(records, kind)
        expected[root / TABLES / f"{kind}.md"] = _joined(tables, Table.to_markdown_with_caption)
        expected[root / TABLES / f"{kind}.tex"] = _joined(tables, Table.to_latex)
        blocks |= _blocks(kind, tables)
    readme = root / README
    if readme.is_file():
        expected[readme] = fill_blocks(read_text(readme), blocks)
    return expected


def _blocks(kind: TidyKind, tables: Sequence[Table]) -> dict[str, str]:
    """Any table by its own name; a kind stands for all its tables, `clean` for the headline."""
    named = {table.name: table.to_markdown_with_caption() for table in tables}
    headline = tables[:1] if kind == "clean" else tables
    return named | ({kind: _joined(headline, Table.to_markdown_with_caption)} if tables else {})


def _joined(tables: Sequence[Table], form: Callable[[Table], str]) -> str:
    return "\n".join(form(table) for table in tables)


def differing_files(root: Path) -> list[Path]:
    """The files that are not what the records say."""
    return differing(expected_files(root))


def write_files(root: Path) -> list[Path]:
    """Make every file what the records say; those that changed."""
    return write_differing(expected_files(root))
