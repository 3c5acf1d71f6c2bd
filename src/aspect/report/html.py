"""One self-contained page: style, script and figures inside, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

# Colours of figures by their names in report.css, which has others for dark screens.
PALETTE = {
    "ink": "#1b1f24",
    "soft": "#6b7280",
    "grid": "#e3e6ea",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "amber": "#e69f00",
    "sky": "#56b4e9",
}
# No date, no version: the same numbers give the same bytes.
NO_METADATA: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}


def inline_svg(svg: str, name: str, alt: str) -> Markup:
    """A figure of matplotlib as a part of a page: named for screen readers, in the page's colours.

    Ids get the figure's name, since several figures share a page.
    """
    head, body = svg[svg.index("<svg") :].split(">", 1)
    view = re.search(r'viewBox="[\d. ]+"', head)
    assert view is not None  # matplotlib always writes one
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", body).replace("xlink:href", "href")
    for variable, colour in PALETTE.items():
        body = body.replace(colour, f"var(--{variable})")
    # matplotlib escapes the text that it writes.
    return Markup(f'<svg role="img" aria-label="{escape(alt)}" {view[0]}>{body}')  # noqa: S704


def render(template: str, content: Mapping[str, Any], scripts: Sequence[str] = ("sort.js",)) -> str:
    """Fill a template of this package; values are escaped unless marked as safe."""
    environment = Environment(
        loader=PackageLoader("aspect.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert environment.loader is not None  # given above
    script = "".join(environment.loader.get_source(environment, name)[0] for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template)
    # The page forbids itself every connection, and every script but this one.
    return page.render(**content, script=Markup(script), script_hash=digest) + "\n"  # noqa: S704 - our own files
