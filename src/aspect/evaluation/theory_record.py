"""What the study of the theorems leaves behind: plain numbers, read back by the report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aspect.config import Config

__all__ = [
    "Case",
    "Example",
    "KeyChoice",
    "Scope",
    "Sensitivity",
    "TheoryRecord",
    "TradeOff",
]

Numbers = tuple[float, ...]

# Where a node's positive key comes from: a node of its class, or itself in an augmented view.
KeyChoice = Literal["class", "own"]


class Scope(Config):
    """Which graphs are drawn and how closely they are looked at."""

    shares: Numbers = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    """Shares of heterophilic nodes."""
    purities: Numbers = (0.5, 0.65, 0.8, 0.95)
    """Separations: shares of a region's edges that join as the region does; at 0.5 both are one."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each decides a graph, first weights and all draws."""
    nodes: int = 400
    epochs: int = 80
    width: int = 32
    """Dimensions of a band."""
    mixes: int = 101
    """Points of the grid of mixes, both ends included."""
    views: int = 2
    """Augmented views whose keys the risk is averaged over."""
    perturbations: int = 12
    """Draws of each kind for the trade-off."""
    rate: float = 0.05
    """Share of feature entries that a perturbation masks, or flips as a share of the edges."""


class Case(Config):
    """One graph under one choice of keys: measured regret, and the largest bound."""

    share: float
    purity: float
    seed: int
    keys: KeyChoice
    regret: float
    best_mix: float
    """The best single mix for all nodes."""
    bound: float
    growth: float
    """mu."""
    prefers_high: float
    """p_-: share of the nodes in V-."""
    prefers_low: float
    """p_+: share of the nodes in V+."""
    gap: float
    """Delta."""
    best_mixes: dict[str, float]
    """Mean over the nodes' own best mixes, by region; a region without nodes is left out."""


class Example(Config):
    """The nodes of one case, to be looked at."""

    purity: float
    mixes: Numbers
    curves: dict[str, tuple[Numbers, ...]]
    """Rise of the risk above its lowest value: of some nodes of each region."""
    mean: Numbers
    """The same, averaged over all nodes of the graph; its lowest point is the regret."""
    best_mixes: dict[str, Numbers]
    """Of every node, by region."""


class Sensitivity(Config):
    """How far the bands of one region move (d_L and d_H), averaged over its nodes."""

    region: str
    kind: str
    """`edges`, `features`, or `all` for the largest move under either."""
    low: float
    high: float


class TradeOff(Config):
    """The channel trade-off (`eq:channel_tradeoff_bound`) on one graph with both regions."""

    purity: float
    mixes: Numbers
    rise: dict[str, Numbers]
    """By region, over the mixes: how much the worst perturbation adds to the risk."""
    shift: dict[str, Numbers]
    """L S(m): the bound of `thm:robust_upper_bound` on that."""
    bound: dict[str, Numbers]
    """L (m d_L + (1 - m) d_H)."""
    low: dict[str, Numbers]
    """d_L of every node, by region."""
    high: dict[str, Numbers]
    """d_H of every node, by region."""
    sensitivities: tuple[Sensitivity, ...]
    pairs: int
    """Nodes times mixes at which the bounds were checked."""
    broken: int
    """At how many of them a bound did not hold."""
    tightest: float
    """Largest rise as a share of its bound."""
    moved: float
    """Share of nodes whose mix of lowest clean risk is not that of the lowest bound."""


class TheoryRecord(Config):
    """All that was found, and all that is needed to find it again."""

    format: Literal[1] = 1
    kind: Literal["theory"] = "theory"
    command: str = ""
    """What makes this record again; filled in by who writes it."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Of the packages; filled in by who writes it."""
    scope: Scope
    temperature: float
    settings: dict[str, Any]
    """Settings that the bands were trained with, in full."""
    settings_from: str
    cases: tuple[Case, ...]
    examples: tuple[Example, ...]
    """With equal regions and the first seed, positives by class; one per separation."""
    trade_offs: tuple[TradeOff, ...]
    """On the graphs of the examples."""
    device: str
    seconds: float
    """Time taken: the only part that differs when run again with as many threads."""
