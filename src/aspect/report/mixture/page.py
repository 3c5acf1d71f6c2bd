"""The page of a mixed graph's record."""

from __future__ import annotations

from aspect.evaluation.mixture_record import MixtureRecord
from aspect.report.html import render
from aspect.report.mixture.figures import (
    gate_drawings,
    score_drawing,
    spectrum_drawings,
    training_drawings,
)
from aspect.report.mixture.findings import findings
from aspect.report.mixture.numbers import gate_table, score_table

__all__ = ["mixture_page"]


def mixture_page(record: MixtureRecord) -> str:
    """The page of a mixed graph's record."""
    content = {
        "record": record,
        "scores": score_table(record),
        "gate": gate_table(record),
        "score_drawing": score_drawing(record),
        "findings": list(findings(record)),
        "gate_drawings": gate_drawings(record),
        "spectrum_drawings": spectrum_drawings(record),
        "training_drawings": training_drawings(record),
    }
    return render("mixture.html.j2", content)
