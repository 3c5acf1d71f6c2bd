"""What the shell offers for half a word: names of data sets, methods, settings, attacks, plans.

Nothing heavy is imported: the shell asks at every press of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

from aspect.attacks.registry import attack_names
from aspect.data.source import MIXED, catalogue_names
from aspect.methods.registry import method_names, setting_names


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in sorted(names) if name.startswith(incomplete)]


def complete_graph(incomplete: str) -> list[str]:
    """Names of data sets; where none fits, the shell offers files."""
    return _fitting([MIXED, *catalogue_names()], incomplete)


def complete_method(incomplete: str) -> list[str]:
    """Names of methods."""
    return _fitting(method_names(), incomplete)


def complete_plan(incomplete: str) -> list[str]:
    """Names of shipped plans; where none fits, the shell offers files."""
    from aspect.experiment.plan import plan_names

    return _fitting(plan_names(), incomplete)


def _complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """Settings of the method that is named before."""
    given = ctx.params.get("method") or "aspect"
    method = given if isinstance(given, str) else given[0]
    return _fitting([f"{name}=" for name in setting_names(method)], incomplete)


def _complete_attack(incomplete: str) -> list[str]:
    return _fitting(attack_names(), incomplete)


def graph_argument(text: str, metavar: str = "GRAPH") -> Any:  # noqa: ANN401 - as typer has it
    """The graph of a command, whose name the shell completes."""
    return typer.Argument(help=text, metavar=metavar, autocompletion=complete_graph)


# By the names of fields; options with a fixed choice, and flags, complete themselves.
COMPLETIONS: dict[str, Callable[..., Any]] = {
    "method": complete_method,
    "settings": _complete_setting,
    "kind": _complete_attack,
    "graphs": complete_graph,
}
