"""Names to methods and their papers; names can be had without importing a method, and torch.

A method of another package is found as `aspect.plugins` says, or given as a class.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args, get_type_hints

from aspect.errors import SettingsError, UnknownNameError
from aspect.plugins import Plugins, is_reference, reference_of

if TYPE_CHECKING:
    from aspect.methods.base import Method, MethodConfig

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

    name: str  # one that any process finds it by: `module:Class` of a method from outside
    method: type[Method]
    config: type[MethodConfig]
    paper: Citation | str  # a publication, or a word on the origin of what is not published
    family: str  # what kind of method it is, in a word or two


# How the time of an epoch grows with the nodes, at as many edges for each: `quadratic` compares all
# pairs.
Cost = Literal["linear", "quadratic"]

_registry: dict[str, Registration] = {}
_outside = Plugins("method", "aspect.methods")

PACKAGE = __name__.rpartition(".")[0]  # where the methods of aspect are

AnyMethod = TypeVar("AnyMethod", bound="type[Method]")


def register(
    name: str, *, config: type[MethodConfig], paper: Citation | str, family: str
) -> Callable[[AnyMethod], AnyMethod]:
    """Class decorator: make a method known under its name; a name used twice is an error.

    An empty `paper` means that there is nothing to cite, as for the controls. The methods of a
    `family` stand together in tables.
    """

    def enter(method: AnyMethod) -> AnyMethod:
        is_ours = method.__module__.rpartition(".")[0] == PACKAGE
        if is_ours and name in _registry:
            raise SettingsError(f"Two methods are called {name!r}.")
        if not family:
            raise SettingsError(f"Family of the method {name!r} must be a word or two. Got none.")
        if method.cost not in get_args(Cost):
            raise SettingsError(
                f"Cost of the method {name!r} must be one of {', '.join(get_args(Cost))}. "
                f"Got {method.cost!r}."
            )
        if not is_ours:
            _outside.register(name, method, _modules_by_name())
        method.name = name
        reference = name if is_ours else reference_of(method)
        _registry[reference] = Registration(reference, method, config, paper, family)
        return method

    return enter


@cache
def _sources() -> dict[str, ast.Module]:
    """The sibling modules, parsed and not imported."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def _registered_classes() -> dict[str, tuple[str, str]]:
    """Which sibling module registers which name, and the class of its settings."""
    found: dict[str, tuple[str, str]] = {}
    for module, tree in _sources().items():
        for node in ast.walk(tree):
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "register":
                    (config,) = (word.value for word in call.keywords if word.arg == "config")
                    name = str(ast.literal_eval(call.args[0]))
                    found[name] = (module, str(getattr(config, "id", "")))
    return found


def _modules_by_name() -> dict[str, str]:
    return {name: module for name, (module, _) in _registered_classes().items()}


def setting_names(method: str) -> list[str]:
    """Settings of a method, without importing it; of one from outside, those of all methods.

    >>> {"epochs", "gate_width"} <= set(setting_names("aspect"))
    True
    """
    classes = {
        node.name: node
        for tree in _sources().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    names: list[str] = []
    left = [_registered_classes().get(method, ("base", "MethodConfig"))[1]]
    while left:
        node = classes.get(left.pop())
        if node is not None:
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            names += [field.target.id for field in fields if isinstance(field.target, ast.Name)]
            left += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return list(dict.fromkeys(names))


def method_names() -> list[str]:
    """All short names, those from outside among them, without importing anything heavy."""
    return sorted({*_modules_by_name(), *_outside.names()})


def require_method_name(name: str) -> str:
    """The name that any process finds the method by, or an error that offers the nearest one.

    What is of aspect keeps its name and is not imported; the rest is, and becomes `module:Class`.
    """
    return name if name in _modules_by_name() else find_method(name).name


def short_name(name: str) -> str:
    """The name for folders and titles: that of the registration, without its module."""
    return find_method(name).method.name if is_reference(name) else name


def find_method(method: str | type[Method]) -> Registration:
    """Import the method's module and return its entry; of a class, the entry of that class."""
    if not isinstance(method, str):
        return _entry_of(method)
    if method in _modules_by_name():
        import_module(f"{PACKAGE}.{_modules_by_name()[method]}")
        return _registry[method]
    if method in _registry:  # also of a notebook, which no process can import
        return _registry[method]
    found = _outside.find(method)
    if found is None:
        raise UnknownNameError("method", method, method_names())
    return _entry_of(found)


def _entry_of(method: object) -> Registration:
    """The entry of a class; one without `@register` is entered by its annotations."""
    from aspect.methods.base import Method, MethodConfig

    if not isinstance(method, type) or not issubclass(method, Method):
        what = method.__name__ if isinstance(method, type) else type(method).__name__
        raise SettingsError(
            f"A method must be a subclass of aspect.methods.base.Method. Got {what}."
        )
    entry = next((entry for entry in _registry.values() if entry.method is method), None)
    if entry is not None:
        return entry
    try:
        config = get_type_hints(method)["config"]
    except NameError as error:
        raise SettingsError(
            f"The settings of {method.__name__} cannot be found: {error}. Name them with "
            "@register(NAME, config=...)."
        ) from error
    if not issubclass(config, MethodConfig):
        raise SettingsError(
            f"The settings of {method.__name__} must be a subclass of MethodConfig. "
            f"Got {config.__name__}."
        )
    method.name = method.__name__
    name = reference_of(method)
    _registry[name] = Registration(name, method, config, paper="", family="own")
    return _registry[name]
