"""The page of a benchmark: every table and picture of the paper, and every node of its models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from aspect import __version__
from aspect.report.benchmark.caveats import notices
from aspect.report.benchmark.chapters import Chapter, chapters
from aspect.report.benchmark.explorer import explorer_json
from aspect.report.benchmark.overview import Overview, Surroundings, graph_table, settings_of
from aspect.report.benchmark.sources import Material
from aspect.report.html import render
from aspect.report.tables import counted

__all__ = ["benchmark_page"]

TITLE = "Node embeddings, compared"
OWN = "aspect"  # the entry whose lines are tinted
SCRIPTS = ("sort.js", "tips.js", "explorer.js", "print.js")


def _leaders(parts: Sequence[Chapter]) -> Iterator[str]:
    """Who is best on how many graphs, by the table to cite."""
    for table in [part.tables[0] for part in parts if part.name == "clean"]:
        lines = [line for line in table.lines if not line.apart]
        best = [sum(cell.mark == "best" for cell in line.cells) for line in lines]
        if len(best) == 1 or not any(best):
            return
        ranked = sorted(zip(lines, best, strict=True), key=lambda each: -each[1])
        named = ", ".join(f"{line.title} on {count}" for line, count in ranked if count)
        columns = zip(*(line.cells for line in lines), strict=True)
        marks = [sum(cell.mark == "best" for cell in column) for column in columns]
        ties = " (ties count for each)" if max(marks) > 1 else ""
        tested = any(part.name == "significance" and part.tables for part in parts)
        luck = "; whether by more than luck, the significance tables say" if tested else ""
        yield (
            f"Highest accuracy on {counted(sum(map(bool, marks)), 'clean graph')}: "
            f"{named}{ties}{luck}."
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
        "notices": [*material.remarks, *notices(records)],
        "graphs": graph_table(records),
        "settings": settings_of(records),
        "version": __version__,
    }
    return render("benchmark.html.j2", content, SCRIPTS)
