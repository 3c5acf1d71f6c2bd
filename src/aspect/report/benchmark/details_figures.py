"""What trained models show, as pictures in reading order: gate, filters, attacks, training, map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aspect.evaluation.details import Details, SpectrumShares
from aspect.report.benchmark.gate_figures import (
    GATE,
    attacked_drawings,
    correlations,
    cost_drawings,
    density_drawings,
    drawing_name,
    full_title,
    homophily_drawings,
)
from aspect.report.benchmark.sweep_figures import sweep_drawings
from aspect.report.canvas import SERIES, Axis, Drawing, shown
from aspect.report.figures import Area, Bundle, bundles
from aspect.report.panels import Trend, marked_dots, shaded_dots, trends

__all__ = [
    "DetailSection",
    "class_kinds",
    "detail_sections",
    "filter_drawings",
    "map_drawings",
    "sweep_drawings",
    "training_drawings",
]

BAND_COLOURS = ("blue", "orange", "green", "purple")  # lowest first, as everywhere
TERM_COLOURS = ("green", "purple", "amber", "sky", "ink", "soft")
NOT_TERMS = ("loss", "gate_mean", "gate_std")  # the terms' sum, and what is drawn beside them
REST_COLOUR = SERIES[-1]
MOST_CLASSES = len(SERIES) - 1  # with a colour of their own
MOST_NAMED = 8  # models whose correlations are told one by one
OTHERS, UNKNOWN = "other", "unknown"


class DetailSection(NamedTuple):
    """A part of a page: what it is about, what is to be said, and its pictures."""

    title: str
    text: str
    drawings: list[Drawing]


def detail_sections(details: Sequence[Details]) -> list[DetailSection]:
    """All that is to be shown of the models, but for their maps; parts without a picture go."""
    found = [
        DetailSection(
            "Whom nodes trust",
            "How much weight the nodes give to their low band. A policy that collapsed into one "
            "answer for all would be a single peak.",
            density_drawings(details),
        ),
        DetailSection(
            "Gate and evidence",
            "The gate should trust the low band where that band costs less. "
            + _told(correlations(details, "cost_gap"), "cost gap"),
            cost_drawings(details),
        ),
        DetailSection(
            "Gate and local homophily",
            "Smooth neighbourhoods should lean to the low band; no label was seen in training. "
            + _told(correlations(details, "homophily"), "local homophily"),
            homophily_drawings(details),
        ),
        DetailSection(
            "What the filters learned",
            "Response of each band to the graph's frequencies, over the spectrum of the graph.",
            filter_drawings(details),
        ),
        DetailSection(
            "The gate under attack",
            "One model, trained on the clean graph, asked about the clean and the attacked one.",
            attacked_drawings(details),
        ),
        DetailSection(
            "Training",
            "How the loss terms moved, and the gate with them.",
            training_drawings(details),
        ),
    ]
    return [section for section in found if section.drawings]


def _told(found: Sequence[tuple[Details, float]], what: str) -> str:
    if not found:
        return ""
    several = len({each.title for each, _ in found}) > 1
    values = "; ".join(
        f"{full_title(each) if several else shown(each.graph)} {value:.2f}"
        for each, value in found[:MOST_NAMED]
    )
    more = len(found) - MOST_NAMED
    rest = f"; and {more} more" if more > 0 else ""
    return f"Spearman's rank correlation of gate and {what}: {values}{rest}."


def filter_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The learned responses, with the graph's eigenvalues behind them."""
    return [
        _responses(each, number, each.spectrum)
        for number, each in enumerate(details, start=1)
        if each.spectrum is not None and each.spectrum.responses
    ]


def _responses(details: Details, number: int, spectrum: SpectrumShares) -> Drawing:
    groups = [
        Bundle(f"{band} band", colour, [values])
        for (band, values), colour in zip(spectrum.responses.items(), BAND_COLOURS, strict=False)
    ]
    ends = "; ".join(
        f"{shown(group.label)} from {group.curves[0][0]:.2f} to {group.curves[0][-1]:.2f}"
        for group in groups
    )
    how = "" if spectrum.is_exact else ", estimated from Chebyshev moments"
    centres = np.convolve(spectrum.edges, [0.5, 0.5], mode="valid")
    return Drawing(
        drawing_name("filters", number, details),
        f"Filters: {full_title(details)}",
        f"Response of each band. Grey: how many of the graph's frequencies lie there{how}.",
        f"Learned filter responses from the lowest to the highest frequency: {ends}. "
        f"The mean frequency of the graph is {float(centres @ spectrum.shares):.2f}.",
        bundles(
            spectrum.frequencies,
            groups,
            Axis("frequency (eigenvalue of the Laplacian)", 0, 2),
            Axis("response"),
            background=(spectrum.edges, Area("", "soft", spectrum.shares)),
        ),
    )


def training_drawings(details: Sequence[Details]) -> list[Drawing]:
    """Loss terms, and the gate's mean and spread where the method monitors them."""
    drawings = []
    for number, each in enumerate(details, start=1):
        if len(each.curves.get("loss", ())) > 1:
            drawings.append(_loss(each, number))
            if {"gate_mean", "gate_std"} <= each.curves.keys():
                drawings.append(_gate(each, number))
    return drawings


def _loss(details: Details, number: int) -> Drawing:
    epochs = range(1, len(details.curves["loss"]) + 1)
    # A term that is not there in every epoch has no place on the axis.
    whole = {name: own for name, own in details.curves.items() if len(own) == len(epochs)}
    terms = [name for name in whole if name not in NOT_TERMS] or ["loss"]
    shifted = {name: _since_start(whole[name]) for name in terms[: len(TERM_COLOURS)]}
    groups = [
        Bundle(name, colour, [values])
        for (name, values), colour in zip(shifted.items(), TERM_COLOURS, strict=False)
    ]
    ends = "; ".join(f"{shown(name)} {values[-1]:+.2f}" for name, values in shifted.items())
    return Drawing(
        drawing_name("training-loss", number, details),
        f"Loss terms: {full_title(details)}",
        "How far each term of the loss moved since the first epoch, weights included.",
        f"Change of the loss terms over {epochs[-1]} epochs: {ends}.",
        bundles(epochs, groups, Axis("epoch", 1, epochs[-1]), Axis("change since the first epoch")),
    )


def _since_start(values: Sequence[float]) -> list[float]:
    return [value - values[0] for value in values]


def _gate(details: Details, number: int) -> Drawing:
    means, stds = details.curves["gate_mean"], details.curves["gate_std"]
    epochs = range(1, len(means) + 1)
    return Drawing(
        drawing_name("training-gate", number, details),
        f"The gate in training: {full_title(details)}",
        "Mean of the gate over the nodes; shaded: its standard deviation over the nodes.",
        f"Mean gate from {means[0]:.2f} to {means[-1]:.2f} over {epochs[-1]} epochs, its spread "
        f"from {stds[0]:.2f} to {stds[-1]:.2f}.",
        trends(
            [Trend("mean gate", "blue", epochs, means, stds)],
            Axis("epoch", 1, epochs[-1]),
            GATE,
            spread="bands",
            has_markers=False,
        ),
    )


def map_drawings(details: Sequence[Details]) -> list[Drawing]:
    """Every model's nodes in the plane, by class and by gate; the dots are one image each."""
    drawings = []
    for number, each in enumerate(details, start=1):
        if each.labels:
            drawings.append(_map_by_class(each, number))
        if each.gate is not None:
            drawings.append(_map_by_gate(each, number, each.gate))
    return drawings


def class_kinds(details: Details) -> tuple[list[tuple[str, str]], list[int]]:
    """Names with their colours, and which of them every node is.

    The largest classes have a colour each; nodes of others and of unknown class share the last.
    """
    counts = Counter(label for label in details.labels if label >= 0)
    own = sorted(label for label, _ in counts.most_common(MOST_CLASSES))
    place = {label: number for number, label in enumerate(own)}
    kinds = [place.get(label, len(own)) for label in details.labels]
    names = [(_class_name(details, label), SERIES[number]) for number, label in enumerate(own)]
    rest = [OTHERS] * (len(counts) > len(own)) + [UNKNOWN] * (min(details.labels) < 0)
    return names + [(" or ".join(rest), REST_COLOUR)] * bool(rest), kinds


def _class_name(details: Details, label: int) -> str:
    known = details.class_names
    return known[label] if label < len(known) else str(label)


def _map_by_class(details: Details, number: int) -> Drawing:
    names, kinds = class_kinds(details)
    counts = Counter(kinds)
    told = ", ".join(f"{shown(label)} {counts[kind]:,}" for kind, (label, _) in enumerate(names))
    return Drawing(
        drawing_name("map-class", number, details),
        f"Map by class: {full_title(details)}",
        f"Every dot is a node, placed by its embedding alone ({shown(details.map_name)}); the "
        "colour is its class, which training never saw.",
        f"Map of {len(details.nodes):,} nodes coloured by class: {told}.",
        marked_dots(details.map_x, details.map_y, names, kinds),
    )


def _map_by_gate(details: Details, number: int, gate: Sequence[float]) -> Drawing:
    values = np.asarray(gate)
    return Drawing(
        drawing_name("map-gate", number, details),
        f"Map by gate: {full_title(details)}",
        f"The same dots, placed by the embedding alone ({shown(details.map_name)}); blue nodes "
        "trust their low band, orange ones their high band.",
        f"Map of {len(details.nodes):,} nodes coloured by gate: mean {values.mean():.2f}, from "
        f"{values.min():.2f} to {values.max():.2f}.",
        shaded_dots(details.map_x, details.map_y, gate, GATE.label),
    )
