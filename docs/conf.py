"""Sphinx's settings: the site is built from the Markdown files here by `make docs`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SCHEMAS = DOCS / "_schemas"  # made by the build, copied into the site as they are
sys.path.insert(0, str(DOCS.parent / "src"))

import typer  # noqa: E402 - the path comes first
from typer.cli import get_docs_for_click  # noqa: E402

from aspect import __version__  # noqa: E402
from aspect.cli.answers import ANSWERS, json_schema, schema_of  # noqa: E402
from aspect.cli.main import app  # noqa: E402
from aspect.data.source import DATASETS  # noqa: E402

project, author = "aspect", "the aspect authors"
copyright = "2026, the aspect authors"  # noqa: A001 - Sphinx's name
release = version = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "_schemas"]
html_extra_path = ["_schemas"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
# The notebooks are run by the build, in a folder of their own, unless nothing in them changed.
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
os.environ.update(PYTHONPATH=str(DOCS.parent / "src"), COLUMNS="100")
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"aspect {__version__}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autoclass_content = "both"


def write(path: Path, text: str) -> None:
    """Write a generated file, unless it is there already: Sphinx reads new files again."""
    path.parent.mkdir(exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_command_line() -> None:
    """The reference of all commands, from the commands themselves."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="aspect", title="Command line"
    )
    write(DOCS / "command_line.md", text)


def write_answers() -> None:
    """The JSON of all commands, from their models: a page, and a JSON schema each."""
    lines = [
        "# JSON of the commands",
        "",
        "What `--json` prints; [Files and JSON](files.md#json-of-the-commands) says how.",
        "",
    ]
    for command in ANSWERS:
        schema = json_schema(command)
        file = f"{command}.{ANSWERS[command].version}.json"
        write(SCHEMAS / file, json.dumps(schema, indent=1))
        lines += [
            f"## {command}",
            "",
            f"{schema['description']} Schema `{schema_of(command)}`, "
            f'in full: <a href="{file}">{file}</a>.',
            "",
            "| key | type | meaning |",
            "| --- | --- | --- |",
        ]
        for key, value in schema["properties"].items():
            meaning = " ".join(value.get("description", "The name of this schema.").split())
            lines.append(f"| `{key}` | {type_text(value)} | {meaning} |")
        lines.append("")
    write(DOCS / "json.md", "\n".join(lines))


def type_text(value: dict[str, Any]) -> str:
    """The type of a key in words."""
    kinds = [part.get("type", "") for part in value.get("anyOf", [value])]
    return " or ".join(kinds).replace("array", "list") or "string"


def write_datasets() -> None:
    """The data sets that have a name, from the catalogue."""
    lines = [
        "# Data sets",
        "",
        "Every command takes these names, and `mixed`, a graph inside the package. Their files",
        "are looked for in `--data-dir`, else in the folder that `ASPECT_DATA` names, then",
        "in your data folder and the cache. What is nowhere is downloaded. Counts and checksums",
        "are verified. `aspect datasets` says where each lies; `aspect datasets add GRAPH --name",
        "NAME` adds one of your own, in the first of these folders.",
        "",
        "| name | nodes | edges | features | classes | published splits |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for name, entry in DATASETS.items():
        counts = (entry.num_nodes, entry.num_edges, entry.num_features, entry.num_classes)
        cells = [f"`{name}`", *(f"{count:,}" for count in counts), str(entry.num_splits)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Where they come from, and what to beware of", ""]
    for name, entry in DATASETS.items():
        lines.append(f"- `{name}`: {entry.source}. Licence: {entry.licence}. {entry.note}")
    write(DOCS / "datasets.md", "\n".join(lines) + "\n")


write_command_line()
write_answers()
write_datasets()
