"""`aspect methods`: what can be trained, where it comes from and what it can."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.cli.session import Session, command
from aspect.methods.registry import Citation, require_method_name

if TYPE_CHECKING:
    from aspect.report.methods import MethodFacts, ShippedSettings

__all__ = ["methods"]


@command(without=("seed", "device", "data_dir"))
def methods(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(help="One method, to be shown whole.", metavar="[NAME]")
    ] = None,
) -> None:
    """List the methods: papers, runtime per epoch, and what they can embed."""
    if name is not None:
        require_method_name(name)
    with session.screen.activity("Reading the registry"):
        from aspect.report.methods import describe_method, describe_methods  # imports torch

        listed = describe_methods() if name is None else [describe_method(name)]
    if name is None:
        entries = [_entry(method) for method in listed]
        session.screen.answer({"methods": entries}, lambda: _list(session, listed))
        return
    session.screen.answer(_whole(listed[0]), lambda: _show(session, listed[0]))


def _entry(method: MethodFacts) -> dict[str, Any]:
    return {
        "name": method.name,
        "family": method.family,
        "paper": str(method.paper) or None,
        "cost": method.cost,
        "inductive": method.inductive,
        "mini_batch": method.mini_batch,
        "needs_quadratic_time": method.needs_quadratic_time,
        "trainable": method.trainable,
        "summary": method.sentence,
    }


def _whole(method: MethodFacts) -> dict[str, Any]:
    paper = method.paper if isinstance(method.paper, Citation) else None
    return {
        **_entry(method),
        "citation": None if paper is None else asdict(paper) | {"reference": paper.reference},
        "bibtex": None if paper is None else paper.bibtex,
        "remarks": list(method.remarks),
        "settings": [asdict(setting) for setting in method.settings],
        "shipped": [asdict(shipped) for shipped in method.shipped],
    }


def _list(session: Session, listed: list[MethodFacts]) -> None:
    rows = [
        [
            method.name,
            method.family,
            str(method.paper) or "-",
            method.epoch,
            _yes(method.inductive),
            _yes(method.mini_batch),
        ]
        for method in listed
    ]
    columns = ["method", "family", "citation", "cost per epoch", "inductive", "mini-batch"]
    session.screen.table(columns, rows)
    for method in listed:
        session.screen.say(f"{method.name}: {method.sentence}")
    session.screen.say(
        "Cost: how the time of an epoch grows with the nodes; quadratic needs n^2 time. Inductive: "
        "embeds graphs that it was not trained on. Mini-batch: trains on a part of the graph at a "
        "time."
    )
    session.screen.say("All of one: aspect methods NAME. Train: aspect train GRAPH --method NAME")


def _show(session: Session, method: MethodFacts) -> None:
    say = session.screen.say
    say(f"{method.name}: {method.sentence}")
    for paragraph in method.remarks:
        say(paragraph)
    say("")
    facts = {
        "family": method.family,
        "cost per epoch": method.epoch,
        "needs n^2 time per epoch": _yes(method.needs_quadratic_time),
        "embeds graphs it was not trained on": _yes(method.inductive),
        "trains in mini-batches": _yes(method.mini_batch),
    }
    for what, answer in facts.items():
        say(f"{what}: {answer}")
    _cite(session, method)
    rows = [
        [
            setting.name,
            setting.default,
            setting.allowed,
            setting.searched or "-",
            setting.explanation,
        ]
        for setting in method.settings
    ]
    session.screen.table(["setting", "default", "allowed", "search", "explanation"], rows)
    for line in _shipped_lines(method.shipped):
        say(line)
    say(f"Train it with: aspect train GRAPH --method {method.name}")


def _cite(session: Session, method: MethodFacts) -> None:
    paper = method.paper
    if not isinstance(paper, Citation):
        session.screen.say(f"paper: {paper or 'none to cite'}")
        return
    session.screen.say(f"cite: {paper.reference}")
    for line in paper.bibtex.splitlines():
        session.screen.say(line)


def _shipped_lines(shipped: tuple[ShippedSettings, ...]) -> list[str]:
    """Graphs by where their settings come from."""
    kinds = {
        "official": [
            settings for settings in shipped if settings.official and settings.choice is None
        ],
        "ours": [settings for settings in shipped if not settings.official],
        "as published, by --config published": [
            settings for settings in shipped if settings.choice == "published"
        ],
    }
    lines = [
        f"Settings shipped, {kind}: {', '.join(str(settings.graph) for settings in of)}"
        for kind, of in kinds.items()
        if of
    ]
    lines += [
        f"Settings for any graph, by --config {settings.choice}: {settings.origin}"
        for settings in shipped
        if settings.graph is None
    ]
    return lines or ["No settings are shipped: the defaults serve every graph."]


def _yes(able: bool) -> str:
    return "yes" if able else "no"
