"""`aspect methods`: what can be trained."""

from __future__ import annotations

from typing import Any

from aspect.cli.session import Session, command
from aspect.methods.registry import find_method, method_names

__all__ = ["methods"]


@command
def methods(session: Session) -> None:
    """List the methods: what they are, where they come from, what they cost."""
    with session.screen.activity("Reading the registry"):
        entries = [_entry(name) for name in method_names()]
    session.screen.answer({"methods": entries}, lambda: _show(session, entries))


def _entry(name: str) -> dict[str, Any]:
    found = find_method(name)
    return {
        "name": name,
        "family": found.family,
        "paper": found.paper or None,
        "cost": found.method.cost,
        "inductive": found.method.inductive,
        "trainable": found.method.trainable,
        "summary": (found.method.__doc__ or "").strip().partition("\n")[0],
    }


def _show(session: Session, entries: list[dict[str, Any]]) -> None:
    rows = [
        [
            entry["name"],
            entry["family"],
            entry["paper"] or "-",
            entry["cost"] if entry["trainable"] else "not trained",
            "yes" if entry["inductive"] else "no",
        ]
        for entry in entries
    ]
    session.screen.table(["method", "family", "paper", "cost", "inductive"], rows)
    for entry in entries:
        session.screen.say(f"{entry['name']}: {entry['summary']}")
    session.screen.say("Train one with: aspect train GRAPH --method NAME")
