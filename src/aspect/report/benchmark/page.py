"""The page of a benchmark: every table and picture of the paper, and every node of its models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from aspect import __version__
from aspect.benchmark.record import Record
from aspect.evaluation.details import Details
from aspect.report.benchmark.caveats import notices
from aspect.report.benchmark.collection import collect
from aspect.report.benchmark.details_figures import detail_sections
from aspect.report.benchmark.explorer import explorer_json
from aspect.report.benchmark.overview import Overview, Surroundings, graph_table, settings_of
from aspect.report.benchmark.sections import Section, benchmark_tables
from aspect.report.benchmark.sources import Material
from aspect.report.benchmark.sweep_figures import sweep_drawings
from aspect.report.benchmark.sweeps import sweeps
from aspect.report.canvas import Drawing
from aspect.report.html import render
from aspect.report.tables import Table, counted

__all__ = ["Chapter", "benchmark_page", "chapters"]

TITLE = "Node embeddings, compared"
OWN = "aspect"  # the entry whose lines are tinted
SCRIPTS = ("sort.js", "tips.js", "explorer.js", "print.js")

NODES = (
    "Every dot is a node, placed by its embedding. A node's card shows how much it trusts the low "
    "band (its gate), what each band costs it, and its neighbours."
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
    more: tuple[Table, ...] = ()  # folded on the screen
    more_title: str = ""
    drawings: tuple[Drawing, ...] = ()

    @property
    def abreast(self) -> bool:
        """Pictures alone: short chapters of them stand side by side."""
        return bool(self.drawings) and not (self.tables or self.more)


def chapters(material: Material, *, with_published: bool = False) -> list[Chapter]:
    """What was found, in the order of the paper; its own figures stand below ours if wanted."""
    parts = {part.name: part for part in _scored(material.records, with_published)}
    cost = [parts.pop("cost")] if "cost" in parts else []
    nodes = [Chapter("nodes", "Node by node", NODES)] if material.details else []
    failed = any(record.status == "failed" for record in material.records)
    found = [
        *parts.values(),
        *_seen(material.details),
        *nodes,
        *cost,
        *([Chapter("failed", "Failed cells", FAILED)] if failed else []),
        Chapter("again", "What was run", AGAIN),
    ]
    return _with_unique_names(found)


def _scored(records: Sequence[Record], with_published: bool) -> Iterator[Chapter]:
    if not any(record.scores for record in records):
        return
    collection = collect(records)
    for section in benchmark_tables(collection, with_published=with_published):
        yield _chapter(section, tuple(sweep_drawings(sweeps(collection))))


def _chapter(section: Section, drawings: tuple[Drawing, ...]) -> Chapter:
    plain = Chapter(section.name, section.title, section.text, section.tables)
    if section.name == "sweep":
        folded = replace(plain, tables=(), more=section.tables, more_title="The same as tables")
        return replace(folded, drawings=drawings)
    if section.name == "clean" and len(section.tables) > 1:
        first, *others = section.tables
        return replace(plain, tables=(first,), more=tuple(others), more_title="Other measures")
    return plain


def _seen(details: Sequence[Details]) -> Iterator[Chapter]:
    for number, (title, text, drawings) in enumerate(detail_sections(details), start=1):
        yield Chapter(f"seen-{number}", title, text, drawings=tuple(drawings))


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

    return [
        replace(
            part,
            tables=tuple(replace(each, name=unique(each.name)) for each in part.tables),
            more=tuple(replace(each, name=unique(each.name)) for each in part.more),
            drawings=tuple(replace(each, name=unique(each.name)) for each in part.drawings),
        )
        for part in parts
    ]


def _leaders(parts: Sequence[Chapter]) -> Iterator[str]:
    """Who is best on how many graphs, by the table to cite."""
    tables = [part.tables[0] for part in parts if part.name == "clean"]
    for table in tables:
        lines = [line for line in table.lines if not line.apart]
        best = [sum(cell.mark == "best" for cell in line.cells) for line in lines]
        if len(best) > 1 and any(best):
            ranked = sorted(zip(lines, best, strict=True), key=lambda each: -each[1])
            named = ", ".join(f"{line.title} on {count}" for line, count in ranked if count)
            yield (
                f"Highest accuracy on {counted(len(table.columns), 'clean graph')}: {named}; "
                "whether by more than luck, the significance tables say."
            )


def benchmark_page(
    material: Material, parts: Sequence[Chapter] | None = None, *, title: str = ""
) -> str:
    """The whole page, the same for the same material; `parts` are its chapters if already made."""
    records, parts = material.records, chapters(material) if parts is None else parts
    own = [record.cell.title for record in records if record.cell.entry == OWN]
    content = {
        "title": title or TITLE,
        "leaders": tuple(_leaders(parts)),
        "summary": Overview.of(records),
        "chapters": parts,
        "own": own[0] if own else "",
        # Escaped by `explorer_json`: it holds no letter that could end the element.
        "nodes": Markup(explorer_json(material.details)) if material.details else "",  # noqa: S704
        "failed": [record for record in records if record.status == "failed"],
        "commands": material.commands,
        "run": Surroundings.of(records),
        "notices": notices(records),
        "graphs": graph_table(records),
        "settings": settings_of(records),
        "version": __version__,
    }
    return render("benchmark.html.j2", content, SCRIPTS)
