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


def _offering(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Those of the names that half a word begins; where there are none, the shell offers files."""
    return lambda incomplete: [name for name in sorted(names()) if name.startswith(incomplete)]


def _plan_names() -> list[str]:
    from aspect.experiment.plan import plan_names

    return plan_names()


def _complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """Settings of the method that is named before."""
    given = ctx.params.get("method") or "aspect"
    method = given if isinstance(given, str) else given[0]
    return _offering(lambda: [f"{name}=" for name in setting_names(method)])(incomplete)


complete_graph = _offering(lambda: [MIXED, *catalogue_names()])
complete_method = _offering(method_names)
complete_plan = _offering(_plan_names)


def graph_argument(text: str, metavar: str = "GRAPH") -> Any:  # noqa: ANN401 - as typer has it
    """The graph of a command, whose name the shell completes."""
    return typer.Argument(help=text, metavar=metavar, autocompletion=complete_graph)


# By the names of fields; options with a fixed choice, and flags, complete themselves.
COMPLETIONS: dict[str, Callable[..., Any]] = {
    "method": complete_method,
    "settings": _complete_setting,
    "kind": _offering(attack_names),
    "graphs": complete_graph,
}
