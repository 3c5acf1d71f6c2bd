"""Sphinx's settings: the site is built from the Markdown files here by `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "src"))

import typer  # noqa: E402 - the path comes first
from typer.cli import get_docs_for_click  # noqa: E402

from aspect import __version__  # noqa: E402
from aspect.cli.main import app  # noqa: E402

project, author = "aspect", "the aspect authors"
copyright = "2026, the aspect authors"  # noqa: A001 - Sphinx's name
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"aspect {__version__}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autoclass_content = "both"


def write_command_line() -> None:
    """The reference of all commands, from the commands themselves."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="aspect", title="Command line"
    )
    page = DOCS / "command_line.md"
    if not page.is_file() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


write_command_line()
