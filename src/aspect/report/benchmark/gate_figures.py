"""Pictures of the gate: how it spreads, and what it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aspect.evaluation.details import Details, Numbers, SomeNumbers
from aspect.report.benchmark.gate_numbers import (
    Bins,
    Values,
    density,
    equal_count_bins,
    equal_width_bins,
    known,
    spearman,
)
from aspect.report.canvas import SERIES, Axis, Drawing, shown
from aspect.report.panels import Hill, Trend, hills, trends
from aspect.report.tables import slug

__all__ = [
    "GATE",
    "POSITIONS",
    "correlations",
    "cost_drawings",
    "density_drawings",
    "drawing_name",
    "full_title",
    "homophily_drawings",
    "roomy",
    "sensitivity_drawings",
    "sensitivity_gap",
]

GATE = Axis("gate: weight of the low band", 0, 1)
POSITIONS = np.linspace(0, 1, 201)
BINS = 10
MOST_TOGETHER = 4  # graphs in one panel
LONGEST_NAME = 40  # letters of a graph in the name of a file

Pairs = tuple[Values, Values]
Rival = Literal["cost_gap", "sensitivity_gap", "homophily"]  # what the gate is held against
NAMES: dict[Rival, str] = {
    "cost_gap": "cost gap",
    "sensitivity_gap": "sensitivity gap",
    "homophily": "local homophily",
}
EQUAL_BINS = "Mean gate in bins of equally many nodes; bars: standard deviation within the bin."


def drawing_name(kind: str, number: int, details: Details) -> str:
    """Unique by its number, readable by its graph."""
    return f"{kind}-{number}-{slug(details.graph[:LONGEST_NAME])}"


def full_title(*details: Details) -> str:
    """A model and its graphs."""
    return f"{shown(details[0].title)} on {', '.join(shown(each.graph) for each in details)}"


def _together(details: Sequence[Details]) -> Iterator[list[Details]]:
    """Models with a gate that belong into one panel: of one title, a few graphs at a time."""
    gated = [each for each in details if each.gate is not None]
    for title in dict.fromkeys(each.title for each in gated):
        own = [each for each in gated if each.title == title]
        panels = -(-len(own) // MOST_TOGETHER)
        for panel in range(panels):  # as even as can be: a last one with a single line says little
            yield own[panel * len(own) // panels : (panel + 1) * len(own) // panels]


def _gate(details: Details) -> Values:
    assert details.gate is not None  # `_together` leaves out the others
    return np.asarray(details.gate, dtype=np.float64)


def _name(kind: str, number: int, group: Sequence[Details]) -> str:
    return drawing_name(kind, number, group[0]) if len(group) == 1 else f"{kind}-{number}"


def density_drawings(details: Sequence[Details]) -> list[Drawing]:
    """How the gate spreads over the nodes of each graph (`fig:policy_behavior`, left)."""
    drawings = []
    for number, group in enumerate(_together(details), start=1):
        gates = [_gate(each) for each in group]
        drawn = [
            Hill(each.graph, colour, density(gate.tolist(), POSITIONS).tolist(), float(gate.mean()))
            for each, gate, colour in zip(group, gates, SERIES, strict=False)
        ]
        facts = "; ".join(
            f"{shown(each.graph)} {gate.mean():.2f} with a spread of {gate.std():.2f}"
            for each, gate in zip(group, gates, strict=True)
        )
        drawings.append(
            Drawing(
                _name("gate-density", number, group),
                full_title(*group),
                "Density of the gate over the nodes. Right: the low band alone; left: the high "
                "band alone. Ticks below: the means.",
                f"Density of the gate; means: {facts}.",
                hills(POSITIONS.tolist(), drawn, GATE, Axis("density")),
            )
        )
    return drawings


def correlations(details: Sequence[Details], what: Rival) -> list[tuple[Details, float]]:
    """Spearman's correlation of the gate with something else, where there is one."""
    found = []
    for each in details:
        pairs = _pairs(each, what)
        value = None if pairs is None else spearman(*pairs)
        if value is not None:
            found.append((each, value))
    return found


def _rival(details: Details, what: Rival) -> SomeNumbers | None:
    if what == "sensitivity_gap":
        return sensitivity_gap(details)
    return details.cost_gap if what == "cost_gap" else details.homophily


def sensitivity_gap(details: Details) -> Numbers | None:
    """How much further the high band moves than the low one, in units of the distances' spread.

    The unit is that of the policy's target (`eq:channel_cost`), over both bands together.
    """
    if details.sensitivity is None:
        return None
    distances = np.asarray(list(details.sensitivity.distances.values()), dtype=np.float64)
    spread = float(distances.std()) or 1.0
    return tuple(((distances[-1] - distances[0]) / spread).tolist())


def _pairs(details: Details, what: Rival) -> Pairs | None:
    """The gate against something else at the nodes of which both are known."""
    other = _rival(details, what)
    if details.gate is None or not other:
        return None
    pairs = known(other, details.gate)
    return pairs if len(pairs[0]) else None


@dataclass(frozen=True)
class _Binned:
    """A graph's line in a panel."""

    details: Details
    bins: Bins
    correlation: float | None

    @property
    def words(self) -> str:
        ends = f"from {self.bins.means[0]:.2f} to {self.bins.means[-1]:.2f}"
        rank = "" if self.correlation is None else f", Spearman {self.correlation:.2f}"
        return f"{shown(self.details.graph)} {ends}{rank}"

    def trend(self, colour: str) -> Trend:
        bins = self.bins
        return Trend(
            self.details.graph, colour, bins.x.tolist(), bins.means.tolist(), bins.stds.tolist()
        )


def _binned(group: Sequence[Details], what: Rival) -> list[_Binned]:
    found = []
    for each in group:
        pairs = _pairs(each, what)
        if pairs is None:
            continue
        bins = (equal_width_bins if what == "homophily" else equal_count_bins)(*pairs, BINS)
        if len(bins.x):
            found.append(_Binned(each, bins, spearman(*pairs)))
    return found


def cost_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate against the bands' difference in cost (`fig:policy_behavior`, right)."""
    caption = (
        f"{EQUAL_BINS} Right of zero the low band is the cheaper one: its contrastive loss is the "
        "lower one, measured as in training (augmented views, dropout, pooled where neighbours "
        "decide together) and averaged over a few draws."
    )
    axis = Axis("cost gap: high band's less low band's")
    return _against(details, "cost_gap", "gate-cost", caption, axis)


def sensitivity_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate against the bands' difference in sensitivity (`eq:aspect_s_loss`)."""
    caption = (
        f"{EQUAL_BINS} Right of zero the low band holds still better: under the most harmful small "
        "change of edges and features that a search found, the high band of the node moves "
        "further. In units of the distances' spread over nodes and bands."
    )
    axis = Axis("sensitivity gap: high band's less low band's")
    return _against(details, "sensitivity_gap", "gate-sensitivity", caption, axis, _change)


def _change(details: Details) -> str:
    """How large the change was that the search found."""
    found = details.sensitivity
    assert found is not None  # a line without is not drawn
    return f" {shown(details.graph)}: {found.flips:,} flips and {found.moves:,} entries moved."


def homophily_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate against the share of neighbours that are of a node's class."""
    caption = (
        "Mean gate of nodes by the share of their neighbours that are of their class; bars: "
        "standard deviation within the bin. Labels are used for this picture only."
    )
    axis = Axis("local homophily", -0.03, 1.03)
    return _against(details, "homophily", "gate-homophily", caption, axis)


def _against(
    details: Sequence[Details],
    what: Rival,
    kind: str,
    caption: str,
    axis: Axis,
    more: Callable[[Details], str] | None = None,
) -> list[Drawing]:
    """The gate's means in bins of something else, a few graphs of one model in every panel.

    `more` adds a sentence on every graph to the caption.
    """
    return [
        Drawing(
            _name(kind, number, group),
            full_title(*(each.details for each in binned)),
            caption + "".join(more(each.details) for each in binned if more is not None),
            f"Mean gate from the lowest to the highest {NAMES[what]}: "
            f"{'; '.join(each.words for each in binned)}.",
            trends(
                [each.trend(colour) for each, colour in zip(binned, SERIES, strict=False)],
                axis,
                roomy([each.bins for each in binned]),
            ),
        )
        for number, group in enumerate(_together(details), start=1)
        if (binned := _binned(group, what))
    ]


def roomy(lines: Sequence[Bins]) -> Axis:
    """The gate's axis, as far as bars reach: a narrow gate would else be a flat line."""
    low = min(float((bins.means - bins.stds).min()) for bins in lines)
    high = max(float((bins.means + bins.stds).max()) for bins in lines)
    room = 0.05 * max(high - low, 0.02)
    return Axis(GATE.label, max(-0.02, low - room), min(1.02, high + room))
