"""Pictures of the gate: how it spreads, what it follows, and what an attack does to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aspect.evaluation.details import Details
from aspect.report.benchmark.gate_numbers import (
    Bins,
    Values,
    density,
    equal_count_bins,
    equal_width_bins,
    known,
    quantile_bins,
    spearman,
)
from aspect.report.canvas import SERIES, Axis, Drawing, shown
from aspect.report.panels import Hill, Trend, hills, trends
from aspect.report.tables import slug

__all__ = [
    "GATE",
    "attacked_drawings",
    "clean_and_attacked",
    "correlations",
    "cost_drawings",
    "density_drawings",
    "drawing_name",
    "full_title",
    "homophily_drawings",
]

GATE = Axis("gate: weight of the low band", 0, 1)
POSITIONS = np.linspace(0, 1, 201)
BINS = 10
QUANTILES = 5
MOST_TOGETHER = 4  # graphs in one panel
LONGEST_NAME = 40  # letters of a graph in the name of a file

Pairs = tuple[Values, Values]


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


def correlations(details: Sequence[Details], what: str) -> list[tuple[Details, float]]:
    """Spearman's correlation of the gate with `cost_gap` or `homophily`, where there is one."""
    found = []
    for each in details:
        pairs = _pairs(each, what)
        value = None if pairs is None else spearman(*pairs)
        if value is not None:
            found.append((each, value))
    return found


def _pairs(details: Details, what: str) -> Pairs | None:
    """The gate against something else at the nodes of which both are known."""
    other = details.cost_gap if what == "cost_gap" else details.homophily
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


def _binned(group: Sequence[Details], what: str) -> list[_Binned]:
    found = []
    for each in group:
        pairs = _pairs(each, what)
        if pairs is None:
            continue
        bins = (equal_count_bins if what == "cost_gap" else equal_width_bins)(*pairs, BINS)
        if len(bins.x):
            found.append(_Binned(each, bins, spearman(*pairs)))
    return found


def cost_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate against the bands' difference in cost (`fig:policy_behavior`, right)."""
    return [
        Drawing(
            _name("gate-cost", number, group),
            full_title(*(each.details for each in binned)),
            "Mean gate in bins of equally many nodes; bars: standard deviation within the bin. "
            "Right of zero the low band is the cheaper one: its contrastive loss is the lower one, "
            "measured as in training (augmented views, dropout, pooled where neighbours decide "
            "together) and averaged over a few draws.",
            "Mean gate from the lowest to the highest cost gap: "
            f"{'; '.join(each.words for each in binned)}.",
            trends(
                [each.trend(colour) for each, colour in zip(binned, SERIES, strict=False)],
                Axis("cost gap: high band's less low band's"),
                _roomy([each.bins for each in binned]),
            ),
        )
        for number, group in enumerate(_together(details), start=1)
        if (binned := _binned(group, "cost_gap"))
    ]


def homophily_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate against the share of neighbours that are of a node's class."""
    return [
        Drawing(
            _name("gate-homophily", number, group),
            full_title(*(each.details for each in binned)),
            "Mean gate of nodes by the share of their neighbours that are of their class; bars: "
            "standard deviation within the bin. Labels are used for this picture only.",
            "Mean gate from the lowest to the highest local homophily: "
            f"{'; '.join(each.words for each in binned)}.",
            trends(
                [each.trend(colour) for each, colour in zip(binned, SERIES, strict=False)],
                Axis("local homophily", -0.03, 1.03),
                _roomy([each.bins for each in binned]),
            ),
        )
        for number, group in enumerate(_together(details), start=1)
        if (binned := _binned(group, "homophily"))
    ]


def _roomy(lines: Sequence[Bins]) -> Axis:
    """The gate's axis, as far as bars reach: a narrow gate would else be a flat line."""
    low = min(float((bins.means - bins.stds).min()) for bins in lines)
    high = max(float((bins.means + bins.stds).max()) for bins in lines)
    room = 0.05 * max(high - low, 0.02)
    return Axis(GATE.label, max(-0.02, low - room), min(1.02, high + room))


def clean_and_attacked(details: Details) -> dict[str, tuple[Values, Bins | None]]:
    """Gates on the clean graph and on each attacked one, and their means by homophily."""
    sides = [("clean", details.gate, details.homophily)]
    sides += [(each.label, each.gate, each.homophily) for each in details.attacked]
    found: dict[str, tuple[Values, Bins | None]] = {}
    for label, gate, homophily in sides:
        if gate is not None:
            pairs = known(homophily, gate) if homophily else known((), ())
            bins = quantile_bins(*pairs, QUANTILES) if len(pairs[0]) >= QUANTILES else None
            found[label] = (np.asarray(gate, dtype=np.float64), bins)
    return found


def attacked_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate of each model on the clean and on attacked graphs: densities, then quantiles."""
    densities: list[Drawing] = []
    quantiles: list[Drawing] = []
    for number, each in enumerate(details, start=1):
        if each.attacked and each.gate is not None:
            sides = dict(list(clean_and_attacked(each).items())[: len(SERIES)])
            densities.append(_attacked_density(each, number, sides))
            quantiles += _attacked_quantiles(each, number, sides)
    return [*densities, *quantiles]


def _attacked_density(
    details: Details, number: int, sides: dict[str, tuple[Values, Bins | None]]
) -> Drawing:
    drawn = [
        Hill(label, colour, density(gate.tolist(), POSITIONS).tolist(), float(gate.mean()))
        for (label, (gate, _)), colour in zip(sides.items(), SERIES, strict=False)
    ]
    means = "; ".join(f"{shown(label)} {gate.mean():.2f}" for label, (gate, _) in sides.items())
    return Drawing(
        drawing_name("attacked-density", number, details),
        full_title(details),
        "Density of the gate of one model, trained on the clean graph, over the nodes of the clean "
        "and of attacked graphs. Ticks below: the means.",
        f"Density of the gate on clean and attacked graphs; means: {means}.",
        hills(POSITIONS.tolist(), drawn, GATE, Axis("density")),
    )


def _attacked_quantiles(
    details: Details, number: int, sides: dict[str, tuple[Values, Bins | None]]
) -> Iterator[Drawing]:
    lines = {label: bins for label, (_, bins) in sides.items() if bins is not None}
    if not lines:
        return
    drawn = [
        Trend(label, colour, range(1, QUANTILES + 1), bins.means.tolist(), bins.stds.tolist())
        for (label, bins), colour in zip(lines.items(), SERIES, strict=False)
    ]
    ends = "; ".join(
        f"{shown(label)} from {bins.means[0]:.2f} to {bins.means[-1]:.2f}"
        for label, bins in lines.items()
    )
    yield Drawing(
        drawing_name("attacked-quantiles", number, details),
        f"{full_title(details)}, by homophily",
        "Mean gate in five equal groups of nodes, from the fewest neighbours of their own class "
        "(Q1) to the most (Q5), as the edges of each graph have it; shaded: standard deviation. "
        "Nodes of equal homophily are spread by lot.",
        f"Mean gate from the lowest to the highest fifth of local homophily: {ends}.",
        trends(
            drawn,
            Axis("local homophily, in fifths"),
            _roomy(list(lines.values())),
            spread="bands",
            ticks=[f"Q{place}" for place in range(1, QUANTILES + 1)],
        ),
    )
