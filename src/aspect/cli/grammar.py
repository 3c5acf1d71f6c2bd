"""The grammar of options: how fields of a model become options, and how help shows them.

An option that takes several values takes them with commas between them, or is repeated.
"""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union

import typer
from annotated_types import Ge
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo
from typing_extensions import override

from aspect.cli.completion import COMPLETIONS
from aspect.config import Config, make_config, meaning_of
from aspect.data.files import is_present
from aspect.errors import SettingsError

# Of a library's models, which say nothing of a command line.
METAVARS: dict[object, str] = {int: "N", float: "X", str: "TEXT"}
OF_NAMES, OF_SETTINGS = "NAMES", "KEY=VALUE"
NEXT_SETTING = r",(?=\s*\w+\s*=)"  # a comma within a value parts nothing
WHOLE = 1000  # letters of a command's first sentence, none of which is cut
SEVERAL = "Several: with commas, or repeated."


def options_of(group: type[Config]) -> list[inspect.Parameter]:
    """A model's fields as options: `graph_path` is --graph-path."""
    hints = typing.get_type_hints(group)  # typer checks no bounds but the least value
    parameters = []
    for name, field in group.model_fields.items():
        item = _item_of(hints[name])
        option = _option(name, field, item)
        option.rich_help_panel = (group.__doc__ or "").partition("\n")[0].rstrip(".")
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default if item is None else None,
                annotation=Annotated[hints[name] if item is None else list[str] | None, option],
            )
        )
    return parameters


def _option(name: str, field: FieldInfo, item: object | None) -> OptionInfo:
    """A field as typer wants it; a `typer.Option` in its annotation says more."""
    given = next((part for part in field.metadata if isinstance(part, OptionInfo)), OptionInfo())
    least: Any = next((part.ge for part in field.metadata if isinstance(part, Ge)), None)
    kind: Any = field.annotation
    while typing.get_origin(kind) in (Annotated, Union, UnionType):
        kind = typing.get_args(kind)[0]
    words = given.help or meaning_of(field)
    if item is not None:
        text, mark, default = words.partition(" [default")
        words = f"{text.rstrip()} {SEVERAL}{mark}{default}"
    option: OptionInfo = typer.Option(
        given.default if isinstance(given.default, str) else f"--{name.replace('_', '-')}",
        help=words.replace(" [default", "  [default"),
        metavar=given.metavar or (OF_NAMES if item is str else METAVARS.get(kind)),
        min=None if item is not None else least,
        autocompletion=COMPLETIONS.get(name),
    )
    return option


def _item_of(hint: object) -> object | None:
    """What an option lists; None: it takes one value."""
    kinds = (hint, *typing.get_args(hint))
    listed = [kind for kind in kinds if typing.get_origin(kind) in (list, tuple)]
    return typing.get_args(listed[0])[0] if listed else None


def gather(group: type[Config], values: dict[str, Any]) -> Any:  # noqa: ANN401 - of that group
    """Take the fields of a group out of what typer parsed."""
    taken = {name: values.pop(name) for name in group.model_fields if name in values}
    present = {name: value for name, value in taken.items() if value is not None}
    hints = typing.get_type_hints(group)
    for name, given in present.items():
        item = _item_of(hints[name])
        if item is not None:
            option = _option(name, group.model_fields[name], item)
            present[name] = [part for text in given for part in _parts(text, item, option)]
    return make_config(group, present, owner=None)


def _parts(text: str, item: object, option: OptionInfo) -> list[str]:
    """What one use of an option lists.

    >>> _parts("width=8,sizes=[2,3]", str, typer.Option("--set", metavar="KEY=VALUE"))
    ['width=8', 'sizes=[2,3]']
    """
    if item is Path and is_present(Path(text)):
        return [text]  # a file whose name has a comma
    comma = NEXT_SETTING if option.metavar == OF_SETTINGS else ","
    parts = [part.strip() for part in re.split(comma, text)]
    if not all(parts):
        given = option.default
        raise SettingsError(f"{given} takes values with commas between them. Got {text!r}.")
    return parts


class SectionedCommand(TyperCommand):
    """A command whose help shows its options by groups."""

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}  # come first
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                if param.param_type_name == "argument":  # by its name: the type says no more
                    sections["Arguments"].append((record[0].partition(" <")[0], record[1]))
                else:
                    title = getattr(param, "rich_help_panel", None) or "Options"
                    sections.setdefault(title, []).append(record)
        _write(sections, formatter)


class SectionedGroup(TyperGroup):
    """All commands; its help shows them by groups."""

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            title = str(getattr(command, "rich_help_panel", None) or "Commands")
            sections.setdefault(title, []).append((name, command.get_short_help_str(WHOLE)))
        _write(sections, formatter)


def _write(sections: dict[str, list[tuple[str, str]]], formatter: Any) -> None:  # noqa: ANN401
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
