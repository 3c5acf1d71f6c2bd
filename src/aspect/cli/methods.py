"""`aspect methods`: what can be trained, where it comes from and what it can."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from aspect.cli.completion import complete_method
from aspect.cli.session import Session, command
from aspect.errors import AspectError
from aspect.methods.registry import (
    Citation,
    Registration,
    find_method,
    method_names,
    require_method_name,
)
from aspect.plugins import is_reference
from aspect.report.methods import (
    ShippedSettings,
    describe_settings,
    epoch_cost,
    paragraphs,
    shipped_settings,
)


@command(without=("seed", "device", "data_dir"))
def methods(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            help="One method, to be shown whole.",
            metavar="NAME",
            autocompletion=complete_method,
        ),
    ] = None,
) -> None:
    """List the methods: papers, runtime per epoch, and what they can embed."""
    if name is not None:
        require_method_name(name)
    with session.screen.activity("Reading the registry"):
        # Imports torch.
        listed = _registered(session) if name is None else [find_method(name)]
    if name is None:
        entries = [_entry(method) for method in listed]
        session.screen.answer({"methods": entries}, lambda: _list(session, listed))
        return
    whole = _whole(listed[0])
    session.screen.answer(whole, lambda: _show(session, listed[0], whole))


def _registered(session: Session) -> list[Registration]:
    """All entries; a plug-in that cannot be imported costs no other method its line."""
    listed = []
    for name in method_names():
        try:
            listed.append(find_method(name))
        except AspectError as error:
            session.screen.warn(str(error))
    return listed


def _entry(entry: Registration) -> dict[str, Any]:
    method = entry.method
    return {
        "name": method.name,
        "class": entry.name if is_reference(entry.name) else None,
        "family": entry.family,
        "paper": str(entry.paper) or None,
        "cost": method.cost,
        "inductive": method.inductive,
        "mini_batch": method.mini_batch,
        "needs_quadratic_time": method.trainable and method.cost == "quadratic",
        "trainable": method.trainable,
        "summary": paragraphs(entry)[0],
    }


def _whole(entry: Registration) -> dict[str, Any]:
    paper = entry.paper if isinstance(entry.paper, Citation) else None
    return {
        **_entry(entry),
        "citation": None if paper is None else asdict(paper) | {"reference": paper.reference},
        "bibtex": None if paper is None else paper.bibtex,
        "remarks": paragraphs(entry)[1:],
        "settings": describe_settings(entry.config),
        "shipped": [asdict(shipped) for shipped in shipped_settings(entry.name)],
    }


def _list(session: Session, listed: list[Registration]) -> None:
    rows = [
        [
            entry.method.name,
            entry.family,
            str(entry.paper) or "-",
            epoch_cost(entry),
            _yes(entry.method.inductive),
            _yes(entry.method.mini_batch),
        ]
        for entry in listed
    ]
    columns = ["method", "family", "citation", "cost per epoch", "inductive", "mini-batch"]
    session.screen.table(columns, rows)
    for entry in listed:
        outside = f" ({entry.name})" if is_reference(entry.name) else ""
        session.screen.say(f"{entry.method.name}{outside}: {paragraphs(entry)[0]}")
    session.screen.say(
        "Cost: how the time of an epoch grows with the nodes; quadratic needs n^2 time. Inductive: "
        "embeds graphs that it was not trained on. Mini-batch: trains on a part of the graph at a "
        "time."
    )
    session.screen.say(
        "Edge weights: every method that reads edges propagates along them. Samples and positives "
        "of gmi, graphcl, s3gcl and sp-gcl, and the attacks, take all edges alike."
    )
    session.screen.say("All of one: aspect methods NAME. Train: aspect train GRAPH --method NAME")


def _show(session: Session, entry: Registration, whole: dict[str, Any]) -> None:
    say = session.screen.say
    say(f"{entry.method.name}: {whole['summary']}")
    say(*whole["remarks"], "")
    facts = {
        **({"class": entry.name} if is_reference(entry.name) else {}),
        "family": entry.family,
        "cost per epoch": epoch_cost(entry),
        "needs n^2 time per epoch": _yes(whole["needs_quadratic_time"]),
        "embeds graphs it was not trained on": _yes(entry.method.inductive),
        "trains in mini-batches": _yes(entry.method.mini_batch),
    }
    for what, answer in facts.items():
        say(f"{what}: {answer}")
    if whole["citation"] is None:
        say(f"paper: {whole['paper'] or 'none to cite'}")
    else:
        say(f"cite: {whole['citation']['reference']}", *whole["bibtex"].splitlines())
    rows = [[text or "-" for text in setting.values()] for setting in whole["settings"]]
    session.screen.table(["setting", "default", "allowed", "search", "explanation"], rows)
    say(*_shipped_lines(shipped_settings(entry.name)))
    say(f"Train it with: aspect train GRAPH --method {entry.name}")


def _shipped_lines(shipped: list[ShippedSettings]) -> list[str]:
    """Graphs by where their settings come from."""
    official, ours, published = "official", "ours", "as published, by --config published"
    graphs: dict[str, list[str]] = {official: [], ours: [], published: []}
    lines = []
    for settings in shipped:
        kind = official if settings.official else ours
        if settings.graph is not None:
            graphs[published if settings.choice else kind].append(settings.graph)
        else:
            lines.append(
                f"Settings for any graph, by --config {settings.choice}: {settings.origin}"
            )
    listed = [f"Settings shipped, {kind}: {', '.join(of)}" for kind, of in graphs.items() if of]
    return [*listed, *lines] or ["No settings are shipped: the defaults serve every graph."]


def _yes(able: bool) -> str:
    return "yes" if able else "no"
