"""Public names of a package, imported at first use, so that the command line answers at once.

A package lists its names as imports under `TYPE_CHECKING`, which type checkers and editors read,
and so does `exporting`. What stands there is in `__all__`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path


@cache
def homes_of(path: str) -> dict[str, str]:
    """The module of every name that a package imports for type checkers."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    checked = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in checked for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def exporting(package: str, path: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, given its `__name__` and `__file__`."""

    def get(name: str) -> object:
        home = None if name.startswith("__") else homes_of(path).get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    def names() -> list[str]:
        own = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*homes_of(path), *own})

    return get, names
