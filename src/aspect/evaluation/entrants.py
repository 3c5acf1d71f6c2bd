"""Who is compared on a mixed graph: the method, rivals that differ in one thing, and controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from aspect.evaluation.mixture_record import Role

__all__ = [
    "CONCATENATED",
    "ENTRANTS",
    "GLOBAL",
    "HALF",
    "LINES",
    "MAJORITY",
    "METHOD",
    "ORACLE",
    "PAPER_GATE",
    "TWINS",
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
    """One line of the comparison: a rule on labels, or from another line's training."""

    name: str
    title: str
    note: str
    role: Role


METHOD = Entrant(
    "aspect",
    "ASPECT",
    "a gate for every node, read from its neighbourhood",
    "method",
    "aspect",
    has_gate=True,
)

PAPER_GATE = Entrant(
    "paper-gate",
    "Paper's gate",
    "ASPECT, but the gate reads the node alone",
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
    Entrant("random", "Untrained weights", "ASPECT before training", "control", "random"),
    Entrant(
        "propagated",
        "Propagated features",
        "[X, SX, S2X]: averages over two hops, no training",
        "control",
        "propagated",
        is_seeded=False,
    ),
    Entrant(
        "spectral",
        "Spectral embedding",
        "truncated SVD of the adjacency beside the features",
        "control",
        "spectral",
        is_seeded=False,
    ),
    Entrant("raw", "Raw features", "without the graph", "control", "raw", is_seeded=False),
)

CONCATENATED = Untrained(
    "concatenated", "Concatenation", "ASPECT's bands side by side, without the gate", "rival"
)

TWINS = Untrained(
    "twins", "Nearest neighbour by neighbour sets", "no features, no training", "control"
)

MAJORITY = Untrained("majority", "Majority class", "of the validation nodes", "control")

ORACLE = Untrained(
    "oracle",
    "Per-node oracle",
    "ASPECT's bands, mixed by the true regions, which no method knows",
    "oracle",
)

_EVERY: tuple[Entrant | Untrained, ...] = (*ENTRANTS, CONCATENATED, TWINS, MAJORITY, ORACLE)

# The comparison as it is read: the method, its rivals, the controls, and the oracle.
LINES = tuple(sorted(_EVERY, key=lambda line: get_args(Role).index(line.role)))
