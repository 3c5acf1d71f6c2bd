"""Settings are declared once.

A field carries name, type, bound, default, search range and explanation.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from typing_extensions import override

from aspect.errors import FileError, SettingsError, reason

Share = Annotated[float, Field(ge=0, lt=1)]
"""A part that leaves something over: what is dropped, for example."""
Count = Annotated[int, Field(ge=1)]
"""How many of something there must be at least one of."""
Positive = Annotated[float, Field(gt=0, le=1e9)]
"""A number such as a temperature or a learning rate, which makes no sense at 0."""
Weight = Annotated[float, Field(ge=0, le=1e9)]
"""What a term counts; at 0 it does not."""

MOST_BYTES = 2**20  # of a settings file
MOST_VALUES, MOST_LEVELS = 20_000, 50  # in it
MOST_LETTERS = 200  # of a value that a sentence quotes

FLOAT, INTEGER, TIMESTAMP = (f"tag:yaml.org,2002:{kind}" for kind in ("float", "int", "timestamp"))
DECIMAL = r"^[-+]?(0|[1-9][0-9]*)$"  # to YAML 1.1, 010 is eight and 1:30 is ninety
EXPONENT_NUMBER = r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"


@dataclass(frozen=True)
class Range:
    """The tuner draws a number from [low, high], evenly or evenly in its logarithm."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """The tuner draws one of these values."""

    values: tuple[str | int | float | bool, ...]


class Config(BaseModel):
    """Base of all settings: frozen, unknown keys refused; docstrings under the fields explain."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


AnyConfig = TypeVar("AnyConfig", bound=Config)


def default_of(field: FieldInfo) -> Any:  # noqa: ANN401 - of any setting
    """The default of a setting."""
    return field.get_default(call_default_factory=True)


def meaning_of(field: FieldInfo) -> str:
    """The explanation of a setting, in one line."""
    return " ".join((field.description or "").split())


def make_config(
    cls: type[AnyConfig],
    values: Mapping[str, Any],
    owner: str | None,
    *,
    besides: Iterable[str] = (),
) -> AnyConfig:
    """Build settings from a file or the command line; what is wrong becomes one sentence.

    Args:
        cls: the settings' class.
        values: names and values; those left out keep their defaults.
        owner: whose settings they are, for the sentence: a method's name, for example; None: they
            are options of the command line.
        besides: names that may be given beside the settings, to offer for a misspelt one.
    """
    for name, value in values.items():
        field = cls.model_fields.get(name)
        if isinstance(value, bool) and field is not None and _is_number(field.annotation):
            raise SettingsError(f"Setting {name!r} of {owner} must be a number. Got {value!r}.")
    try:
        return cls(**values)
    except ValidationError as error:
        raise SettingsError(_sentence(cls, error, owner, besides)) from error


def _is_number(annotation: object) -> bool:
    """Whether a field holds a number and no truth value, which pydantic would take for 0 or 1."""
    kinds = set(typing.get_args(annotation)) | {annotation}
    return bool(kinds & {int, float}) and bool not in kinds


def _sentence(
    cls: type[Config], error: ValidationError, owner: str | None, besides: Iterable[str]
) -> str:
    found = error.errors()
    # A misspelt name comes first: it is why another one is missing.
    first = min(found, key=lambda each: each["type"] != "extra_forbidden")
    name = ".".join(str(part) for part in first["loc"]) or "settings"
    if first["type"] == "extra_forbidden" and len(first["loc"]) > 1:
        return f"Unknown setting {name!r} of {owner}."
    if first["type"] == "extra_forbidden":
        known = [*besides, *cls.model_fields]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        offer = f" Did you mean {near[0]!r}?" if near else ""
        return f"Unknown setting {name!r} of {owner}.{offer} Known: {', '.join(known)}."
    told = first.get("ctx", {}).get("error")
    if isinstance(told, SettingsError):  # of a validator that says it all
        return str(told)
    what = f"Setting {name!r} of {owner}"
    if owner is None:
        what = f"--{str(first['loc'][0]).replace('_', '-')}"
    return wrong_value(what, first)


def wrong_value(what: str, error: ErrorDetails) -> str:
    """What pydantic says of one value, as a sentence about `what`."""
    demand = error["msg"].removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    given = repr(error["input"])
    got = f" Got {given[:MOST_LETTERS]}{'...' if len(given) > MOST_LETTERS else ''}."
    if not demand.startswith("should"):
        return f"{what}: {demand}.{'' if given in demand else got}"
    return f"{what} {demand.replace('should', 'must', 1)}.{got}"


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Read `key=value` pairs of the command line, written as in YAML; the last of a key counts.

    >>> parse_overrides(["order=3", "batch_norm=true", "readout=fused"])
    {'order': 3, 'batch_norm': True, 'readout': 'fused'}
    """
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise SettingsError(f"A setting is given as key=value. Got {pair!r}.")
        try:
            values[key] = _parse(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SettingsError(
                f"The value of {key!r} is not readable as YAML. Got {text!r}."
            ) from error
    return values


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds names and values."""
    try:
        if path.exists() and not path.is_file():  # a pipe or /dev/zero would never end
            kind = "folder" if path.is_dir() else "pipe or device"
            raise FileError(f"Cannot read settings from {path}: it is a {kind}.")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise FileError(
                f"Cannot read settings from {path}: it must have at most {MOST_BYTES} bytes."
            )
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"Cannot read settings from {path}: it is not UTF-8.") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FileError(f"Cannot read settings from {path}: {reason(error)}.") from error
    try:
        content = _parse(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid YAML{_place(error)}.") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{path} must hold names and values. Got {type(content).__name__}.")
    return content


def to_yaml(values: Mapping[str, Any]) -> str:
    """The text that `load_yaml` reads back to the same values."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """YAML as everyone means it: `1e-3` is a number, `2026-01-01` is text, no key comes twice.

    Aliases are refused, as are files with too many values or levels: a few bytes of either can
    stand for gigabytes.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.values, self.depth = 0, 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # yaml
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not read", mark)
        self.values += 1
        self.depth += 1
        if self.values > MOST_VALUES or self.depth > MOST_LEVELS:
            what = f"more than {MOST_VALUES} values or {MOST_LEVELS} levels are not read"
            raise yaml.composer.ComposerError(None, None, what, mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} comes twice", key_node.start_mark
                )
            seen.add(key)
        content = super().construct_mapping(node, deep=deep)
        return {str(key): value for key, value in content.items()}


class _Dumper(yaml.SafeDumper):
    """Puts text that `_Loader` would take for a number, or for several lines, in quotes."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'  # the only style that escapes every line break
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] not in (INTEGER, TIMESTAMP)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 asks for a point and for a sign of the exponent, as in 1.0e+3; YAML 1.2 and we do not.
_Loader.add_implicit_resolver(INTEGER, re.compile(DECIMAL), list("-+0123456789"))
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(FLOAT, re.compile(EXPONENT_NUMBER), list("-+.0123456789"))


def _parse(text: str) -> Any:  # noqa: ANN401 - whatever YAML holds
    return yaml.load(text, _Loader)  # noqa: S506 - a safe loader's child


def _place(error: Exception) -> str:
    """Where and why YAML failed, as far as it tells."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return ""
    return f" near line {error.problem_mark.line + 1}: {error.problem}"
