"""Names to methods and their papers; names can be had without importing a method, and torch."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from aspect.errors import UnknownNameError

if TYPE_CHECKING:
    from aspect.methods.base import Method, MethodConfig

__all__ = [
    "Citation",
    "Cost",
    "Registration",
    "find_method",
    "method_names",
    "register",
    "require_method_name",
]

MOST_NAMED = 3  # authors in a short citation; of more, the first stands for all


@dataclass(frozen=True)
class Citation:
    """The publication that a method comes from.

    >>> str(Citation("K. Hassani, A. H. Khasahmadi", "Contrastive Multi-View ...", "ICML", 2020))
    'Hassani and Khasahmadi, ICML 2020'
    """

    authors: str  # in order, initials first, separated by commas
    title: str
    venue: str  # a conference or a journal in its usual short form; empty for a preprint
    year: int
    in_journal: bool = False

    @property
    def surnames(self) -> tuple[str, ...]:
        """The authors without their initials."""
        return tuple(re.sub(r"^(\S+\. )+", "", name) for name in self._names)

    @property
    def _names(self) -> list[str]:
        return self.authors.split(", ")

    @property
    def _place(self) -> str:
        return f"{self.venue} {self.year}".strip()

    def __str__(self) -> str:
        """Authors by surname, venue and year."""
        named = self.surnames
        who = f"{named[0]} et al." if len(named) > MOST_NAMED else _listed(named)
        return f"{who}, {self._place}"

    @property
    def reference(self) -> str:
        """In full, as a list of references has it."""
        return f"{_listed(self._names)}: {self.title}. {self._place}."

    @property
    def bibtex(self) -> str:
        """An entry for a bibliography; braces keep the title's capitals."""
        kind, where = "inproceedings", "booktitle"
        if self.in_journal:
            kind, where = "article", "journal"
        elif not self.venue:
            kind, where = "misc", ""
        lines = {
            "author": " and ".join(self._names),
            "title": f"{{{self.title}}}",
            **({where: self.venue} if where else {}),
            "year": str(self.year),
        }
        body = "".join(f"  {name} = {{{text}}},\n" for name, text in lines.items())
        return f"@{kind}{{{self._key},\n{body}}}"

    @property
    def _key(self) -> str:
        """First surname, year and the title's first long word, in plain letters."""
        word = next(iter(re.findall(r"\w{4,}", self.title)), "")
        plain = unicodedata.normalize("NFKD", f"{self.surnames[0]}{self.year}{word}")
        return re.sub(r"[^a-z0-9]", "", plain.lower())


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Names as in a sentence: `A, B and C`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Registration:
    """A method's entry in the registry."""

    name: str
    method: type[Method]
    config: type[MethodConfig]
    paper: Citation | str  # a publication, or a word on the origin of what is not published
    family: str  # what kind of method it is, in a word or two


# How the time of an epoch grows with the nodes, at as many edges for each: `quadratic` compares all
# pairs.
Cost = Literal["linear", "quadratic"]

_registry: dict[str, Registration] = {}

AnyMethod = TypeVar("AnyMethod", bound="type[Method]")


def register(
    name: str, *, config: type[MethodConfig], paper: Citation | str, family: str
) -> Callable[[AnyMethod], AnyMethod]:
    """Class decorator: make a method known under its name; a name used twice is an error.

    An empty `paper` means that there is nothing to cite, as for the controls. The methods of a
    `family` stand together in tables.
    """

    def enter(method: AnyMethod) -> AnyMethod:
        if name in _registry:
            raise ValueError(f"Two methods are called {name!r}.")
        if not family:
            raise ValueError(f"Family of the method {name!r} must be a word or two. Got none.")
        if method.cost not in get_args(Cost):
            raise ValueError(
                f"Cost of the method {name!r} must be one of {', '.join(get_args(Cost))}. "
                f"Got {method.cost!r}."
            )
        method.name = name
        _registry[name] = Registration(name, method, config, paper, family)
        return method

    return enter


@cache
def _modules_by_name() -> dict[str, str]:
    """Which sibling module registers which name, read from the source."""
    modules: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "register":
                    modules[str(ast.literal_eval(call.args[0]))] = path.stem
    return modules


def method_names() -> list[str]:
    """All names, without importing anything heavy."""
    return sorted(_modules_by_name())


def require_method_name(name: str) -> str:
    """The name itself, or an error that offers the nearest one."""
    if name not in _modules_by_name():
        raise UnknownNameError("method", name, method_names())
    return name


def find_method(name: str) -> Registration:
    """Import the method's module and return its entry."""
    import_module(f"aspect.methods.{_modules_by_name()[require_method_name(name)]}")
    return _registry[name]
