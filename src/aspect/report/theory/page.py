"""The page of a theory record."""

from __future__ import annotations

from aspect.evaluation.theory_record import TheoryRecord
from aspect.report.html import render
from aspect.report.theory.figures import example_drawings, regret_drawings, trade_off_drawings
from aspect.report.theory.findings import caveats, regret_findings, stability_findings
from aspect.report.theory.numbers import regret_table, trade_off_table

__all__ = ["theory_page"]


def theory_page(record: TheoryRecord) -> str:
    """All tables, pictures and sentences in one file."""
    content = {
        "record": record,
        "regret": regret_table(record),
        "trade_off": trade_off_table(record),
        "regret_findings": list(regret_findings(record)),
        "stability_findings": list(stability_findings(record)),
        "caveats": list(caveats(record)),
        "regret_drawings": regret_drawings(record),
        "example_drawings": example_drawings(record),
        "trade_off_drawings": trade_off_drawings(record),
    }
    return render("theory.html.j2", content)
