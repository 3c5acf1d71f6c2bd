"""Who is compared on a mixed graph: the method, rivals that differ in one thing, and controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aspect.evaluation.mixture_record import Role

__all__ = [
    "ENTRANTS",
    "GLOBAL",
    "HALF",
    "MAJORITY",
    "METHOD",
    "ORACLE",
    "PAPER_GATE",
    "Entrant",
    "Untrained",
]


@dataclass(frozen=True)
class Entrant:
    """One line of the comparison that is fitted to the graph."""

    name: str
    title: str
    note: str
    role: Role
    method: str  # of the registry
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the settings that all share
    is_seeded: bool = True  # another seed gives another embedding
    has_gate: bool = False  # every node has a gate of its own, worth a picture


@dataclass(frozen=True)
class Untrained:
    """One line of the comparison that comes from the labels, or from another line's training."""

    name: str
    title: str
    note: str
    role: Role


METHOD = Entrant(
    "aspect",
    "ASPECT",
    "each node decides, together with its neighbours",
    "method",
    "aspect",
    has_gate=True,
)

PAPER_GATE = Entrant(
    "paper-gate",
    "Paper's gate",
    "ASPECT, but each node decides alone",
    "rival",
    "aspect",
    {"gate_hops": 0},
    has_gate=True,
)

GLOBAL = Entrant(
    "global",
    "Global fusion",
    "one learned mix for all nodes",
    "rival",
    "aspect",
    {"fusion": "global"},
)

HALF = Entrant(
    "half", "Half-half mix", "a fixed mix for all nodes", "rival", "aspect", {"fusion": "half"}
)

ENTRANTS = (
    METHOD,
    PAPER_GATE,
    GLOBAL,
    HALF,
    Entrant("low", "Low band only", "what neighbours share", "rival", "low"),
    Entrant("high", "High band only", "how neighbours differ", "rival", "high"),
    Entrant("random", "Random weights", "the same encoder, untrained", "control", "random"),
    Entrant("raw", "Raw features", "without the graph", "control", "raw", is_seeded=False),
)

MAJORITY = Untrained("majority", "Majority class", "one answer for every node", "control")

ORACLE = Untrained(
    "oracle",
    "Per-node oracle",
    "ASPECT's bands, mixed by the true regions, which no method knows",
    "oracle",
)
