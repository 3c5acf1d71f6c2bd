"""Tables inside a Markdown file, between comments that name them, so that they can be renewed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aspect.errors import SettingsError, shown

__all__ = ["block_names", "fill_blocks"]

BEGIN = re.compile(r"^<!-- table:(.*?) -->$")
END = "<!-- /table -->"


def block_names(text: str) -> list[str]:
    """The tables that the text asks for."""
    return [found[1] for line in text.splitlines() if (found := BEGIN.match(line.strip()))]


def fill_blocks(text: str, tables: Mapping[str, str], *, file: str = "README.md") -> str:
    """The text with every block replaced by the table that it names; all else is kept.

    Args:
        text: Markdown with `<!-- table:NAME -->` and `<!-- /table -->` on lines of their own.
        tables: Markdown by name.
        file: what errors call the text.
    """
    kept: list[str] = []
    inside: str | None = None
    for line in text.splitlines(keepends=True):
        begins = BEGIN.match(line.strip())
        ends = line.strip() == END
        if begins and inside is None:
            inside = begins[1]
            kept += [line, "\n", _table(inside, tables, file), "\n"]
        elif begins or (ends and inside is None):
            raise SettingsError(_unbalanced(file, inside))
        elif inside is None or ends:
            kept.append(line)
            inside = None
    if inside is not None:
        raise SettingsError(_unbalanced(file, inside))
    return "".join(kept)


def _table(name: str, tables: Mapping[str, str], file: str) -> str:
    if name not in tables:
        known = shown(sorted(tables)) if tables else "none, since there are no records yet"
        raise SettingsError(f"{file} asks for the table {name!r}. The records give: {known}.")
    return tables[name]


def _unbalanced(file: str, name: str | None) -> str:
    if name is None:
        return f"{file} has a line '{END}' without a '<!-- table:NAME -->' before it."
    return f"The block of the table {name!r} in {file} must end with a line '{END}'."
