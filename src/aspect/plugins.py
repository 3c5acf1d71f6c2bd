"""Methods, attacks and data sets of other packages.

A command finds them by a short name, which an entry point or a module of `--import` gives, or by
`module:Object`. What is stored (settings of a run, specs, models, perturbation files) always names
them as `module:Object`, so that any process can import them again, workers among them.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from aspect.errors import AspectError, SettingsError, UnknownNameError, sentence_of

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
REFERENCE = re.compile(rf"{MODULE.pattern}:{MODULE.pattern}")
OWN = "aspect"  # the package itself


def is_reference(name: str) -> bool:
    """Whether a name is `module:Object`."""
    return REFERENCE.fullmatch(name) is not None


def reference_of(thing: object) -> str:
    """What a class or a function is stored as: `my_package.my_module:Mine`."""
    return f"{getattr(thing, '__module__', '?')}:{getattr(thing, '__qualname__', '?')}"


def import_plugin(module: str) -> ModuleType:
    """Import a module by name, from the working directory as well; errors are one sentence."""
    if not MODULE.fullmatch(module):
        raise SettingsError(
            "A module to import is named as in Python, such as my_package.my_module. "
            f"Got {module!r}."
        )
    _look_into_working_directory()
    try:
        return import_module(module)
    # Whatever a module raises at import, a call of sys.exit included, is for its author to fix.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            raise SettingsError(
                f"There is no module {missing!r}. Install its package, run the command where it "
                "lies, or add its folder to PYTHONPATH."
            ) from error
        told = f"The module {module!r} cannot be imported. {sentence_of(error)}"
        raise SettingsError(told) from error


def _look_into_working_directory() -> None:
    """As `python -m` does; last, so that nothing there hides an installed package."""
    try:
        here = str(Path.cwd())
    except OSError:  # it was removed
        return
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def _load(reference: str) -> object:
    """The object that `module:Object` names."""
    module, _, path = reference.partition(":")
    found: object = import_plugin(module)
    for name in path.split("."):
        if not hasattr(found, name):
            public = [other for other in dir(found) if not other.startswith("_")]
            raise UnknownNameError(f"name in the module {module}", path, public)
        found = getattr(found, name)
    return found


@cache
def _offered(group: str) -> dict[str, list[EntryPoint]]:
    """Entry points of the installed packages by name; one that is found twice counts once."""
    offered: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=group):
        offered.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: list(points.values()) for name, points in offered.items()}


@dataclass
class Plugins:
    """What other packages add of one kind."""

    kind: str  # in words: `method`
    group: str  # of entry points: `aspect.methods`
    registered: dict[str, object] = field(default_factory=dict)  # by short name

    def register(self, name: str, thing: object, taken: Collection[str]) -> None:
        """Enter a thing under a short name, which must be new; a module may be imported again.

        Args:
            name: The short name.
            thing: A class or a function.
            taken: Names of what the package itself has.
        """
        reference = reference_of(thing)
        if name in taken:
            raise SettingsError(
                f"Two {self.kind}s are called {name!r}: that of aspect and {reference}. "
                "Choose another name."
            )
        if ":" in name or not name:
            raise SettingsError(
                f"The name of a {self.kind} must be a word without a colon. Got {name!r}."
            )
        before = self.registered.get(name)
        if before is not None and reference_of(before) != reference:
            raise SettingsError(
                f"Two {self.kind}s are called {name!r}: {reference_of(before)} and {reference}. "
                "Choose another name for one of them."
            )
        self.registered[name] = thing

    def short_name(self, reference: str) -> str:
        """The registered name of `module:Object`; the object's own where there is none."""
        thing = _load(reference)
        names = [name for name, known in self.registered.items() if known is thing]
        return names[0] if names else reference.partition(":")[2]

    def names(self) -> list[str]:
        """Short names, without importing anything."""
        return sorted({*self.registered, *_offered(self.group)})

    def find(self, name: str) -> object | None:
        """The thing of a short name or of `module:Object`; None where there is none."""
        if is_reference(name):
            return _load(name)
        if name not in self.registered and name in _offered(self.group):
            return self._load_offered(name)
        return self.registered.get(name)

    def _load_offered(self, name: str) -> object:
        """What an entry point names: a class or a function, or a module that registers one."""
        points = _offered(self.group)[name]
        if len(points) > 1:
            listed = " and ".join(f"{point.value} of {_package(point)}" for point in points)
            raise SettingsError(
                f"Two packages offer a {self.kind} called {name!r}: {listed}. Name one of them as "
                "module:Object."
            )
        (point,) = points
        try:
            found = _load(point.value) if ":" in point.value else import_plugin(point.value)
        except AspectError as error:
            raise SettingsError(
                f"The {self.kind} {name!r} of the package {_package(point)} cannot be used. {error}"
            ) from error
        if isinstance(found, ModuleType):
            found = self.registered.get(name)
        if found is None or self.registered.setdefault(name, found) is not found:
            raise SettingsError(
                f"The package {_package(point)} offers {point.value} as the {self.kind} {name!r}, "
                "and does not register it under that name. Give both one name."
            )
        return found


def _package(point: EntryPoint) -> str:
    return "unknown" if point.dist is None else point.dist.name


def source_sha256(thing: object) -> str:
    """SHA-256 of the code of a class or a function from outside: of its whole package.

    Of a module by itself, its file; of what a notebook defines, the text of the cell. A method of
    this package is its module alone: the version says the rest.
    """
    name = str(getattr(thing, "__module__", ""))
    top = name if name.partition(".")[0] == OWN else name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or getattr(
        sys.modules.get(name), "__file__", None
    )
    digest = hashlib.sha256()
    if file is None:
        try:
            digest.update(inspect.getsource(thing).encode())  # type: ignore[arg-type]  # a class
        except (OSError, TypeError):
            return ""
        return digest.hexdigest()
    path = Path(file)
    if path.name != "__init__.py" or top.partition(".")[0] == OWN:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    for source in sorted(path.parent.rglob("*.py")):
        digest.update(f"{source.relative_to(path.parent).as_posix()}\0".encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()
