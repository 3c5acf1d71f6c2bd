"""One self-contained page: style and script inside, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["render"]


def render(
    template: str,
    content: Mapping[str, Any],
    scripts: Sequence[str] = ("sort.js",),
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """Fill a template of this package; values are escaped unless marked as safe."""
    environment = Environment(
        loader=PackageLoader("aspect.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= dict(filters or {})
    assert environment.loader is not None  # given above
    script = "".join(environment.loader.get_source(environment, name)[0] for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template)
    # The page forbids itself every connection, and every script but this one.
    return page.render(**content, script=Markup(script), script_hash=digest) + "\n"  # noqa: S704 - our own files
