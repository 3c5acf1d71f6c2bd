"""Pictures of trained models beside those of the gate: filters, training, map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from aspect.evaluation.details import Details, Numbers, SomeNumbers, SpectrumShares
from aspect.report.benchmark.gate_figures import (
    GATE,
    drawing_name,
    full_title,
)
from aspect.report.canvas import SERIES, Axis, Drawing, shown
from aspect.report.figures import Area, Bundle, bundles
from aspect.report.panels import Trend, marked_dots, shaded_dots, trends

__all__ = [
    "class_kinds",
    "filter_drawings",
    "loss_drawings",
    "map_drawings",
    "placed_curves",
    "training_gate_drawings",
]

BAND_COLOURS = ("blue", "orange", "green", "purple")  # lowest first, as everywhere
TERM_COLOURS = ("green", "purple", "amber", "sky", "ink", "soft")
# The terms' sum, and what a method monitors, which is drawn beside them.
NOT_TERMS = ("loss", "gate_", "search_", "sensitivity_", "rayleigh_")
SOME_EPOCHS = " Dots: a term of some epochs alone, since the first of them."
REST_COLOUR = SERIES[-1]
MOST_CLASSES = len(SERIES) - 1  # with a colour of their own
OTHERS, UNKNOWN = "other", "unknown"


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
    how = "" if spectrum.is_exact else " (estimated)"
    centres = np.convolve(spectrum.edges, [0.5, 0.5], mode="valid")
    return Drawing(
        drawing_name("filters", number, details),
        f"{full_title(details)}{how}",
        "Response of each band. Grey: how many of the graph's frequencies lie there, estimated "
        "from Chebyshev moments where the title says so.",
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


def loss_drawings(details: Sequence[Details]) -> list[Drawing]:
    """How the terms of the loss moved in training."""
    return [_loss(each, number) for number, each in _trained(details)]


def training_gate_drawings(details: Sequence[Details]) -> list[Drawing]:
    """The gate's mean and spread in training, where the method monitors them."""
    return [
        _gate(each, number)
        for number, each in _trained(details)
        if {"gate_mean", "gate_std"} <= _whole_curves(each).keys()
    ]


def placed_curves(details: Details) -> dict[str, SomeNumbers]:
    """The values whose epochs are known: of a curve that is too short nobody knows what it lacks.

    Curves without any value are left out.
    """
    epochs = len(details.curves.get("loss", ()))
    return {
        name: values
        for name, values in details.curves.items()
        if len(values) == epochs and any(value is not None for value in values)
    }


def _whole_curves(details: Details) -> dict[str, Numbers]:
    """Those that every epoch has a value of."""
    found = {
        name: tuple(value for value in values if value is not None)
        for name, values in placed_curves(details).items()
    }
    return {name: own for name, own in found.items() if len(own) == len(details.curves["loss"])}


def _trained(details: Sequence[Details]) -> list[tuple[int, Details]]:
    """Those with a curve, numbered among all."""
    numbered = enumerate(details, start=1)
    return [(number, each) for number, each in numbered if len(each.curves.get("loss", ())) > 1]


def _loss(details: Details, number: int) -> Drawing:
    epochs = range(1, len(details.curves["loss"]) + 1)
    placed = placed_curves(details)
    terms = [name for name in placed if not name.startswith(NOT_TERMS)] or ["loss"]
    shifted = {name: _since_start(placed[name]) for name in terms[: len(TERM_COLOURS)]}
    groups = [
        Bundle(name, colour, [values])
        for (name, values), colour in zip(shifted.items(), TERM_COLOURS, strict=False)
    ]
    ends = "; ".join(f"{shown(name)} {_last(values):+.2f}" for name, values in shifted.items())
    dots = any(not np.isfinite(values).all() for values in shifted.values())
    return Drawing(
        drawing_name("training-loss", number, details),
        full_title(details),
        "How far each term of the loss moved since the first epoch, weights included."
        f"{SOME_EPOCHS if dots else ''}",
        f"Change of the loss terms over {epochs[-1]} epochs: {ends}.",
        bundles(epochs, groups, Axis("epoch", 1, epochs[-1]), Axis("change since the first epoch")),
    )


def _since_start(values: SomeNumbers) -> list[float]:
    """The change since the first epoch that has such a value; nan where there is none."""
    numbers = np.asarray(values, dtype=np.float64)  # of None it makes nan
    return [float(value) for value in numbers - numbers[np.isfinite(numbers)][0]]


def _last(values: Sequence[float]) -> float:
    return next(value for value in reversed(values) if np.isfinite(value))


def _gate(details: Details, number: int) -> Drawing:
    whole = _whole_curves(details)
    means, stds = whole["gate_mean"], whole["gate_std"]
    epochs = range(1, len(means) + 1)
    return Drawing(
        drawing_name("training-gate", number, details),
        f"{full_title(details)}: the gate",
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
