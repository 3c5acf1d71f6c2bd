"""One self-contained page: style, script and pictures inside, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aspect.report.figures import PALETTE, Drawing
from aspect.report.tables import Table, counted

__all__ = ["Download", "downloads", "grids", "headline", "inline_svg", "render"]


def render(template: str, content: Mapping[str, Any], scripts: Sequence[str] = ("sort.js",)) -> str:
    """Fill a template of this package; values are escaped unless marked as safe."""
    environment = Environment(
        loader=PackageLoader("aspect.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "inline": inline_svg,
        "counted": counted,
        "downloads": downloads,
        "grids": grids,
        "headline": headline,
    }
    assert environment.loader is not None  # given above
    script = "".join(environment.loader.get_source(environment, name)[0] for name in scripts)
    page = environment.get_template(template)
    # The page forbids itself every connection, and every script but this one.
    return page.render(**content, script=Markup(script), script_hash=_hash(script)) + "\n"  # noqa: S704 - our own file


@dataclass(frozen=True)
class Download:
    """A file that a page holds within itself."""

    title: str
    file: str
    address: str  # a data URL: it works from a disk, without a server and without a script


def downloads(table: Table) -> list[Download]:
    """The table as files to save."""
    files = {
        "CSV": ("csv", table.to_csv()),
        "Markdown": ("md", table.to_markdown_with_caption()),
        "LaTeX": ("tex", table.to_latex()),
    }
    return [
        Download(
            title,
            f"{table.name}.{suffix}",
            f"data:text/plain;charset=utf-8,{quote(text, errors='replace')}",
        )
        for title, (suffix, text) in files.items()
    ]


def grids(drawings: Sequence[Drawing]) -> list[tuple[str, list[Drawing]]]:
    """Neighbours of one caption together, which is then said once; no caption: each has its own."""
    counts = Counter(each.caption for each in drawings)

    def shared(drawing: Drawing) -> str:
        return drawing.caption if counts[drawing.caption] > 1 else ""

    return [(caption, list(group)) for caption, group in groupby(drawings, shared)]


def headline(caption: str) -> tuple[str, str]:
    """A caption's first words, up to a pause, and the rest of it.

    >>> headline("Accuracy in percent; mean ± standard deviation.")
    ('Accuracy in percent', '; mean ± standard deviation.')
    """
    pause = re.search(r"[;:.](?=\s)| \(", caption)
    cut = pause.start() if pause else len(caption)
    return caption[:cut], caption[cut:]


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
