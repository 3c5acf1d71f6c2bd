"""Scores as tables show them, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aspect.cli.console import Screen

__all__ = ["explain", "interval_text", "number_text", "score_text"]


def score_text(values: Mapping[str, Any] | None) -> str:
    """Mean and standard deviation; a dash where there is nothing."""
    if values is None:
        return "-"
    spread = "" if values["std"] is None else f" ± {values['std']:.2f}"
    return f"{values['mean']:.2f}{spread}"


def interval_text(values: Mapping[str, Any]) -> str:
    """The ends of the 95% interval; a dash for a single value."""
    return "-" if values["low"] is None else f"{values['low']:.2f} to {values['high']:.2f}"


def number_text(value: float | None) -> str:
    """A number with two decimals; a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def explain(screen: Screen, names: Iterable[str]) -> None:
    """Say in a line each what the controls of a table are."""
    from aspect.experiment.evaluate import EXPLANATIONS

    for name in dict.fromkeys(names):
        if name in EXPLANATIONS:
            screen.say(f"{name}: {EXPLANATIONS[name]}.")
