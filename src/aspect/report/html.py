"""One self-contained page: style, script and pictures inside, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aspect.evaluation.mixture_record import MixtureRecord
from aspect.report.figures import PALETTE, Drawing
from aspect.report.findings import findings
from aspect.report.mixture import gate_table, score_table
from aspect.report.mixture_figures import (
    gate_drawings,
    score_drawing,
    spectrum_drawings,
    training_drawings,
)
from aspect.report.tables import counted

__all__ = ["inline_svg", "mixture_page", "render"]


def render(template: str, content: Mapping[str, Any]) -> str:
    """Fill a template of this package; values are escaped unless marked as safe."""
    environment = Environment(
        loader=PackageLoader("aspect.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": inline_svg, "counted": counted}
    script = environment.get_template("sort.js").render()
    page = environment.get_template(template)
    # The page forbids itself every connection, and every script but this one.
    return page.render(**content, script=Markup(script), script_hash=_hash(script)) + "\n"  # noqa: S704 - our own file


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def inline_svg(drawing: Drawing) -> Markup:
    """A picture as a part of a page: named for screen readers, in the page's own colours.

    matplotlib has escaped what is written in it. Ids get the drawing's name, since several
    pictures share a page.
    """
    svg = drawing.svg[drawing.svg.index("<svg") :]
    head, body = svg.split(">", 1)
    view = re.search(r'viewBox="[\d. ]+"', head)
    assert view is not None  # matplotlib always writes one
    body = re.sub(r'\bid="', f'id="{drawing.name}-', body)
    body = body.replace("url(#", f"url(#{drawing.name}-")
    body = re.sub(r'(?:xlink:)?href="#', f'href="#{drawing.name}-', body)
    for name, colour in PALETTE.items():
        body = body.replace(colour, f"var(--{name})")
    return Markup(f'<svg role="img" aria-label="{escape(drawing.alt)}" {view[0]}>{body}')  # noqa: S704 - see above


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
