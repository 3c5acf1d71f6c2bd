"""What there is to say of a method: where it comes from, what it can, how it is set."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from aspect.config import Choice, Config, Range, meaning_of
from aspect.methods.registry import Registration
from aspect.settings import FOLDER, OFFICIAL, load_experiment

BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True)
class ShippedSettings:
    """A settings file that comes with the package."""

    graph: str | None  # None: for any
    choice: str | None  # the word for `--config`; None: taken where none is given
    official: bool  # of the method's authors, and not found by us
    origin: str  # where the settings come from and how they were chosen


def paragraphs(entry: Registration) -> list[str]:
    """What a method is, how it works and where it differs from the original."""
    text = inspect.getdoc(entry.method) or ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def epoch_cost(entry: Registration) -> str:
    """How the time of an epoch grows, in a word."""
    return entry.method.cost if entry.method.trainable else "not trained"


def describe_settings(config: type[Config]) -> list[dict[str, str]]:
    """Every setting as it is declared; values are written as in YAML.

    `allowed` are bounds, or the words to choose from. `searched` is what the tuner draws from; if
    empty, the setting stays as it is.
    """
    return [
        {
            "name": name,
            "default": _as_yaml(field.default),
            "allowed": _allowed(field.annotation, field.metadata),
            "searched": _searched(field.metadata),
            "explanation": meaning_of(field),
        }
        for name, field in config.model_fields.items()
    ]


def shipped_settings(name: str) -> list[ShippedSettings]:
    """The settings files of a method by graph; those taken without being asked for come first."""
    shipped = []
    for path in sorted((FOLDER / name).glob("*.yaml"), key=lambda path: path.name.split(".")):
        experiment = load_experiment(path)
        choice = None if experiment.graph is not None else path.stem
        if path.name.endswith(".published.yaml"):
            choice = "published"
        official = choice is not None or experiment.origin.startswith(OFFICIAL)
        shipped.append(ShippedSettings(experiment.graph, choice, official, experiment.origin))
    return shipped


def _searched(hints: Iterable[object]) -> str:
    """As the tuner reads it: the first hint counts."""
    for hint in hints:
        if isinstance(hint, Choice):
            return " | ".join(_as_yaml(value) for value in hint.values)
        if isinstance(hint, Range):
            return f"{hint.low:g} to {hint.high:g}{', log' if hint.log else ''}"
    return ""


def _allowed(annotation: Any, hints: Iterable[object] = ()) -> str:  # noqa: ANN401 - any type
    """The values that a type admits, in a few signs."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        inner = [hint.metadata if isinstance(hint, FieldInfo) else [hint] for hint in parts[1:]]
        return _allowed(parts[0], [hint for several in inner for hint in several])
    if kind in (Union, UnionType):
        return " | ".join(_allowed(part) for part in parts)
    if kind is Literal:
        return " | ".join(_as_yaml(part) for part in parts)
    if annotation in (bool, NoneType):
        return "true | false" if annotation is bool else "null"
    bounds = [
        f"{sign} {getattr(hint, name):g}"
        for hint in hints
        for name, sign in BOUNDS.items()
        if hasattr(hint, name)
    ]
    return ", ".join([getattr(annotation, "__name__", str(annotation)), *bounds])


def _as_yaml(value: object) -> str:
    """A value as `--set` and settings files take it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
