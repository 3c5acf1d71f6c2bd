"""Pictures of the gate under attack: one model, asked about the clean graph and attacked ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from aspect.evaluation.details import Details
from aspect.report.benchmark.gate_figures import GATE, POSITIONS, drawing_name, full_title, roomy
from aspect.report.benchmark.gate_numbers import Bins, Values, density, known, quantile_bins
from aspect.report.canvas import SERIES, Axis, Drawing, shown
from aspect.report.panels import Hill, Trend, hills, trends

__all__ = ["attacked_drawings", "clean_and_attacked"]

QUANTILES = 5


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
            roomy(list(lines.values())),
            spread="bands",
            ticks=[f"Q{place}" for place in range(1, QUANTILES + 1)],
        ),
    )
