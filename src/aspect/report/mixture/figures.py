"""The pictures of a mixed graph's record: the gate by region, the filters, the training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aspect.evaluation.entrants import METHOD
from aspect.evaluation.mixture_record import WHOLE, MixtureRecord
from aspect.report.figures import Area, Axis, Bundle, Cloud, Drawing, areas, bundles, clouds, ladder
from aspect.report.mixture.numbers import gate_facts, spread
from aspect.report.tables import counted

__all__ = [
    "gate_drawings",
    "gate_shares",
    "score_drawing",
    "spectrum_drawings",
    "training_drawings",
]

COLOURS = ("blue", "orange")  # of the regions, and of the bands that suit them
TERM_COLOURS = ("green", "purple", "ink", "soft")
NOT_TERMS = ("loss", "gate_mean", "gate_std")  # the terms' sum, and what is drawn beside them
BINS = 40  # of the gate
GATE = Axis("gate: weight of the low band", 0, 1)
ROOMY_GATE = Axis(GATE.label, -0.04, 1.04)  # dots at the ends are seen whole


def score_drawing(record: MixtureRecord) -> Drawing:
    """Accuracy of every row in every place."""
    places = (record.graph.regions[0], WHOLE, record.graph.regions[1])
    colours = (COLOURS[0], "ink", COLOURS[1])
    groups = [
        Cloud(place, colour, [spread(row, place).mean for row in record.rows], ())
        for place, colour in zip(places, colours, strict=True)
    ]
    widest = max(
        record.rows,
        key=lambda row: abs(spread(row, places[0]).mean - spread(row, places[2]).mean),
    )
    return Drawing(
        "accuracy-by-region",
        "Accuracy by half",
        "Accuracy of every row of the table, by half: a line's length is what one half loses "
        "against the other.",
        f"Accuracy by region; the halves lie furthest apart for {widest.title}.",
        ladder([row.title for row in record.rows], groups, Axis("accuracy (%)")),
    )


def gate_shares(record: MixtureRecord, name: str) -> dict[str, NDArray[np.float64]]:
    """Percent of a region's nodes, over all seeds, in every bin of the gate."""
    gates, region = np.asarray(record.gates[name]), np.asarray(record.graph.region)
    shares = {}
    for number, place in enumerate(record.graph.regions):
        own = gates[:, region == number].ravel()
        counts, _ = np.histogram(own, bins=_gate_edges())
        shares[place] = 100 * counts / len(own)
    return shares


def _gate_edges() -> NDArray[np.float64]:
    return np.linspace(0, 1, BINS + 1)


def gate_drawings(record: MixtureRecord) -> list[Drawing]:
    """Each gate's distribution, and the method's own against order and surroundings of nodes."""
    return [
        *(_distribution(record, name, number) for number, name in enumerate(record.gates)),
        _by_position(record),
        _by_agreement(record),
    ]


def _distribution(record: MixtureRecord, name: str, number: int) -> Drawing:
    facts = [each for each in gate_facts(record) if each.entrant == name]
    shares = gate_shares(record, name)
    groups = [
        Area(f"{each.region}: {each.mean:.2f}", colour, shares[each.region].tolist(), each.mean)
        for each, colour in zip(facts, COLOURS, strict=True)
    ]
    described = "; ".join(
        f"mean {each.mean:.2f} in the {each.region} half, spread {each.std_nodes:.2f}"
        for each in facts
    )
    title = facts[0].title
    return Drawing(
        f"gate-{number}",
        f"Gate weights: {title}",
        f"All nodes of {counted(len(record.seeds), 'seed')}. Right: the low band alone; left: the "
        "high band alone. Dashed: the mean of each half.",
        f"Histogram of the gate of {title} by region: {described}.",
        areas(_gate_edges().tolist(), groups, GATE, Axis("% of the half's nodes")),
    )


def _mean_gate(record: MixtureRecord) -> NDArray[np.float64]:
    return np.asarray(np.mean(record.gates[METHOD.name], axis=0), dtype=np.float64)


def _by_position(record: MixtureRecord) -> Drawing:
    gate, region = _mean_gate(record), np.asarray(record.graph.region)
    groups = []
    for number, (place, colour) in enumerate(zip(record.graph.regions, COLOURS, strict=True)):
        nodes = np.flatnonzero(region == number)
        groups.append(Cloud(place, colour, nodes.tolist(), gate[nodes].tolist()))
    wrong = int(((gate > 0.5) != (region == 0)).sum())  # noqa: PLR2004 - neither band preferred
    return Drawing(
        "gate-position",
        "Node by node",
        "One dot per node in the order of the graph, mean over seeds. The colour is the true "
        "region, which training never saw.",
        f"Gate of every node in the order of the graph: {wrong} of {len(gate)} nodes lean to the "
        "band of the other region.",
        clouds(groups, Axis("node", 0, len(gate)), ROOMY_GATE),
    )


def _by_agreement(record: MixtureRecord) -> Drawing:
    gate, region = _mean_gate(record), np.asarray(record.graph.region)
    agreement = np.asarray([np.nan if a is None else a for a in record.graph.agreement])
    groups = []
    for number, (place, colour) in enumerate(zip(record.graph.regions, COLOURS, strict=True)):
        own = (region == number) & ~np.isnan(agreement)
        groups.append(Cloud(place, colour, (100 * agreement[own]).tolist(), gate[own].tolist()))
    known = ~np.isnan(agreement)
    correlation = _correlation(agreement[known], gate[known])
    return Drawing(
        "gate-agreement",
        "Against each node's own neighbours",
        "One dot per node, mean over seeds. The gate reads a neighbourhood, so that a node with "
        "misleading neighbours can still follow its region.",
        "Gate against the share of neighbours of the node's own class; "
        f"correlation {correlation:.2f}.",
        clouds(groups[::-1], Axis("% of neighbours in the node's class", -3, 103), ROOMY_GATE),
    )


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def spectrum_drawings(record: MixtureRecord) -> list[Drawing]:
    """Where the classes lie in the spectrum, and what the learned filters pass of it."""
    return [_classes(record), _responses(record)]


def _classes(record: MixtureRecord) -> Drawing:
    spectrum = record.spectrum
    centres = (np.asarray(spectrum.edges[1:]) + np.asarray(spectrum.edges[:-1])) / 2
    groups, means = [], []
    for (place, shares), colour in zip(spectrum.classes.items(), COLOURS, strict=True):
        mean = float(np.average(centres, weights=shares))
        means.append(f"{mean:.2f} in the {place} half")
        percent = (100 * np.asarray(shares)).tolist()
        groups.append(Area(f"classes, {place}", colour, percent))
    return Drawing(
        "spectrum-classes",
        "Where the classes lie",
        "Energy of the class labels by frequency of the graph. A low-pass filter keeps the classes "
        "of the homophilic half and loses those of the heterophilic one. (Labels are used for this "
        "picture only.)",
        f"Energy of the classes over the spectrum; mean frequency {' and '.join(means)}.",
        areas(spectrum.edges, groups, _frequency(), Axis("% of the energy")),
    )


def _frequency() -> Axis:
    return Axis("frequency (eigenvalue of the Laplacian)", 0, 2)


def _responses(record: MixtureRecord) -> Drawing:
    spectrum = record.spectrum
    groups = [
        Bundle(f"{band} band", colour, curves)
        for (band, curves), colour in zip(spectrum.responses.items(), COLOURS, strict=True)
    ]
    ends = "; ".join(
        f"{group.label} from {np.mean([c[0] for c in group.curves]):.1f} "
        f"to {np.mean([c[-1] for c in group.curves]):.1f}"
        for group in groups
    )
    return Drawing(
        "spectrum-filters",
        "What the filters learned",
        "Response of both bands, one thin line per seed. Grey: how many of the graph's "
        "frequencies lie there.",
        f"Learned filter responses from the lowest to the highest frequency: {ends}.",
        bundles(
            spectrum.frequencies,
            groups,
            _frequency(),
            Axis("response"),
            background=(spectrum.edges, Area("spectrum", "soft", spectrum.nodes)),
        ),
    )


def training_drawings(record: MixtureRecord) -> list[Drawing]:
    """The loss terms, and the moment at which the regions part."""
    curves = record.curves
    terms = [name for name in curves[0].values if name not in NOT_TERMS]
    loss = [
        Bundle(name, colour, [_since_start(curve.values[name]) for curve in curves])
        for name, colour in zip(terms, TERM_COLOURS, strict=False)
    ]
    gate = [
        Bundle(place, colour, [curve.gate[place] for curve in curves])
        for place, colour in zip(record.graph.regions, COLOURS, strict=True)
    ]
    epochs = list(range(1, len(curves[0].values["loss"]) + 1))
    span = Axis("epoch", epochs[0], epochs[-1])
    return [
        Drawing(
            "training-loss",
            "Loss terms",
            "How far each term of the loss moved since the first epoch, one thin line per seed.",
            f"Change of the loss terms over {epochs[-1]} epochs: {_from_to(loss)}.",
            bundles(epochs, loss, span, Axis("change since the first epoch")),
        ),
        Drawing(
            "training-gate",
            "How the regions part",
            "Mean gate of each half on the clean graph, one thin line per seed.",
            f"Mean gate over the epochs: {_from_to(gate)}.",
            bundles(curves[0].gate_epochs, gate, span, GATE),
        ),
    ]


def _since_start(values: Sequence[float]) -> list[float]:
    return [value - values[0] for value in values]


def _from_to(groups: Sequence[Bundle]) -> str:
    means = [(group.label, np.mean(group.curves, axis=0)) for group in groups]
    return "; ".join(f"{label} from {mean[0]:.2f} to {mean[-1]:.2f}" for label, mean in means)
