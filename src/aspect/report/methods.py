"""What there is to say of a method: where it comes from, what it can, how it is set."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from aspect.config import Choice, Range
from aspect.methods.registry import Citation, find_method, method_names
from aspect.settings import FOLDER, load_experiment

__all__ = [
    "MethodFacts",
    "SettingFacts",
    "ShippedSettings",
    "describe_method",
    "describe_methods",
    "methods_table",
    "shipped_settings",
]

# How the settings of other people's making open the word on their origin.
OFFICIAL = ("Official", "Settings of the")

BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}

HEAD = ("method", "family", "citation", "cost per epoch", "inductive", "mini-batch", "what it is")


@dataclass(frozen=True)
class SettingFacts:
    """One setting of a method, as it is declared; values are written as in YAML."""

    name: str
    default: str
    allowed: str  # bounds, or the words to choose from
    searched: str  # what the tuner draws from; empty: it stays as it is
    explanation: str


@dataclass(frozen=True)
class ShippedSettings:
    """A settings file that comes with the package."""

    graph: str | None  # None: for any
    choice: str | None  # the word for `--config`; None: taken where none is given
    official: bool  # of the method's authors, and not found by us
    origin: str  # where the settings come from and how they were chosen


@dataclass(frozen=True)
class MethodFacts:
    """A method as the registry knows it."""

    name: str
    sentence: str  # what it is
    remarks: tuple[str, ...]  # how it works and where it differs from the original; paragraphs
    family: str
    paper: Citation | str  # empty: nothing to cite
    trainable: bool
    cost: str  # of an epoch: linear or quadratic in the nodes
    inductive: bool  # embeds graphs that it was not trained on
    mini_batch: bool  # trains on a part of the graph at a time
    settings: tuple[SettingFacts, ...]
    shipped: tuple[ShippedSettings, ...]

    @property
    def epoch(self) -> str:
        """Time of an epoch in a word: the cost class of what is trained."""
        return self.cost if self.trainable else "not trained"

    @property
    def needs_quadratic_time(self) -> bool:
        """Whether an epoch compares all pairs of nodes."""
        return self.trainable and self.cost == "quadratic"


def describe_method(name: str) -> MethodFacts:
    """Everything that a method declares, and the settings shipped for it."""
    entry = find_method(name)
    sentence, *remarks = (inspect.getdoc(entry.method) or "").split("\n\n")
    return MethodFacts(
        name=name,
        sentence=" ".join(sentence.split()),
        remarks=tuple(" ".join(each.split()) for each in remarks),
        family=entry.family,
        paper=entry.paper,
        trainable=entry.method.trainable,
        cost=entry.method.cost,
        inductive=entry.method.inductive,
        mini_batch=entry.method.mini_batch,
        settings=_settings(entry.config.model_fields),
        shipped=shipped_settings(name),
    )


def describe_methods() -> list[MethodFacts]:
    """All methods by name."""
    return [describe_method(name) for name in method_names()]


def shipped_settings(name: str) -> tuple[ShippedSettings, ...]:
    """The settings files of a method by graph; those taken without being asked for come first."""
    paths = sorted((FOLDER / name).glob("*.yaml"), key=lambda path: path.name.split("."))
    return tuple(_shipped(path) for path in paths)


def _shipped(path: Path) -> ShippedSettings:
    experiment = load_experiment(path)
    choice = None
    if path.name.endswith(".published.yaml"):
        choice = "published"
    elif experiment.graph is None:
        choice = path.stem
    official = choice is not None or experiment.origin.startswith(OFFICIAL)
    return ShippedSettings(experiment.graph, choice, official, experiment.origin)


def _settings(fields: Mapping[str, FieldInfo]) -> tuple[SettingFacts, ...]:
    return tuple(
        SettingFacts(
            name,
            _as_yaml(field.default),
            _allowed(field.annotation, field.metadata),
            _searched(field.metadata),
            " ".join((field.description or "").split()),
        )
        for name, field in fields.items()
    )


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


def methods_table(methods: Iterable[MethodFacts]) -> str:
    """Markdown, family by family; the controls come last."""
    ordered = sorted(methods, key=lambda each: (each.family == "control", each.family, each.name))
    rows = [HEAD, [":--"] * len(HEAD), *(_row(each) for each in ordered)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(method: MethodFacts) -> list[str]:
    abilities = ("yes" if able else "no" for able in (method.inductive, method.mini_batch))
    cells = [
        f"`{method.name}`",
        method.family,
        str(method.paper) or "-",
        method.epoch,
        *abilities,
        method.sentence,
    ]
    return [cell.replace("|", r"\|") for cell in cells]
