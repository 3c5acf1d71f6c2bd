"""Scores as tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["interval_text", "score_text"]


def score_text(values: Mapping[str, Any] | None) -> str:
    """Mean and standard deviation; a dash where there is nothing."""
    if values is None:
        return "-"
    spread = "" if values["std"] is None else f" ± {values['std']:.2f}"
    return f"{values['mean']:.2f}{spread}"


def interval_text(values: Mapping[str, Any]) -> str:
    """The ends of the 95% interval; a dash for a single value."""
    return "-" if values["low"] is None else f"{values['low']:.2f} to {values['high']:.2f}"
