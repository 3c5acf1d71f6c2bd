"""Figures of trained models: the gate and what it follows, filters, training, maps of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from aspect.evaluation.details import Details, SomeNumbers, SpectrumShares
from aspect.report.html import PALETTE
from aspect.report.plots import COLOURS, ROW, WIDTH, Plot, Points, line_plot, place_legend, short
from aspect.report.tables import slug

Values = NDArray[np.float64]
Rival = Literal["cost_gap", "sensitivity_gap", "homophily"]

GATE = "gate: weight of the low band"
POSITIONS = np.linspace(0, 1, 201)
MOST_TOGETHER = 4  # graphs in one panel
NUM_BINS, NUM_QUANTILES = 10, 5
FEWEST_IN_BIN = 5
FEWEST_TO_RANK = 2
NARROWEST = 0.008  # width of a density's kernel, for values that hardly differ
EQUAL = 1e-6  # a std of values that are equal but for rounding
MOST_BLENDED = 5000  # dots of a map; beyond, blended colours would be most of a file
BANDS = ("blue", "orange", "green", "purple")  # lowest frequency first
TERMS = ("green", "purple", "amber", "sky", "ink", "soft")
# The terms' sum, and values that a method monitors, which have plots of their own.
NOT_TERMS = ("loss", "gate_", "search_", "sensitivity_", "rayleigh_")

DENSITY = (
    "Density of the gate over the nodes. Right: the low band alone; left: the high band alone. "
    "Ticks below: the means."
)
ATTACKED = (
    "Density of the gate of one model, trained on the clean graph, over the nodes of the clean and "
    "of perturbed graphs. Ticks below: the means."
)
QUANTILES = (
    "Mean gate in five equal groups of nodes, from the fewest neighbours of their own class (Q1) "
    "to the most (Q5), by the edges of each graph; shaded: standard deviation. Nodes of equal "
    "homophily are distributed at random."
)
# Caption and axis of the figures that set the gate against something.
RIVALS: dict[Rival, tuple[str, str]] = {
    "cost_gap": (
        "Mean gate in bins of equally many nodes; bars: standard deviation. Right of zero the low "
        "band has the lower contrastive loss, measured as in training, averaged over some draws.",
        "cost gap: high band's less low band's",
    ),
    "sensitivity_gap": (
        "Mean gate in bins of equally many nodes; bars: standard deviation. Right of zero the high "
        "band moves further under the worst small perturbation that a search found. In units of "
        "the distances' standard deviation over nodes and bands.",
        "sensitivity gap: high band's less low band's",
    ),
    "homophily": (
        "Mean gate of nodes by the ratio of their neighbours that have their class; bars: standard "
        "deviation within the bin. Labels are used for this figure only.",
        "local homophily",
    ),
}
FILTERS = (
    "Response of each band. Grey: how many of the graph's eigenvalues lie there, estimated from "
    "Chebyshev moments where the title says so."
)
# What a search for adversarial perturbations leaves: start of the curves' names, title, caption.
SEARCHES = (
    (
        "search_",
        "objective",
        "Objective of each search, before it on the clean graph and after it on the perturbed one: "
        "the stability loss and the Rayleigh term.",
    ),
    (
        "sensitivity_",
        "sensitivity",
        "Distance of each band under the perturbation that was found, on average over the nodes.",
    ),
    (
        "rayleigh_",
        "Rayleigh energy",
        "Rayleigh energy of each band, from 0 (smooth) to 2 (rough), on the clean and on the "
        "changed graph. The search makes the low band rough and the high one smooth.",
    ),
)


def bins_of_equal_width(x: Values, y: Values, count: int) -> Points:
    """Means of y in bins of x over [0, 1], from left to right, that hold at least five values."""
    numbers = np.minimum((x * count).astype(int), count - 1)
    bins = (np.flatnonzero(numbers == number) for number in range(count))
    return _binned(x, y, [bin_ for bin_ in bins if len(bin_) >= FEWEST_IN_BIN])


def bins_by_rank(x: Values, y: Values, count: int) -> Points:
    """The same in bins of equally many values; equal ones are distributed at random.

    By their order in the graph they would carry its order into the figure.
    """
    tie_break = np.random.default_rng(0).random(len(x))  # the same every time
    bins = np.array_split(np.lexsort((tie_break, x)), max(1, count))
    return _binned(x, y, [bin_ for bin_ in bins if len(bin_)])


def _binned(x: Values, y: Values, bins: Sequence[NDArray[np.int64]]) -> Points:
    return Points(
        "",
        np.array([x[bin_].mean() for bin_ in bins]),
        np.array([y[bin_].mean() for bin_ in bins]),
        np.array([y[bin_].std() for bin_ in bins]),
    )


def density(values: Values, positions: Values) -> Values:
    """Kernel density of values in [0, 1]: what would lie outside is reflected at the ends.

    The kernel is half as wide as Scott's rule makes it, which is meant for a single peak; values
    that hardly differ become a narrow peak.
    """
    from scipy.stats import gaussian_kde  # slow to import; pages without models do without

    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    if std < EQUAL:
        values, std = values.mean() + NARROWEST * np.array([-1.0, 1.0]), NARROWEST * np.sqrt(2)
    kernel = gaussian_kde(values, bw_method=max(0.5 * len(values) ** -0.2, NARROWEST / std))
    heights: Values = kernel(positions) + kernel(-positions) + kernel(2 - positions)
    return heights


def full_title(*details: Details) -> str:
    """A model and its graphs."""
    return f"{short(details[0].title)} on {', '.join(short(model.graph) for model in details)}"


def _name(kind: str, number: int, *group: Details) -> str:
    """Unique by its number, readable by its graph."""
    return f"{kind}-{number}-{slug(group[0].graph[:40])}" if len(group) == 1 else f"{kind}-{number}"


def _panels(details: Sequence[Details]) -> Iterator[tuple[int, list[Details]]]:
    """Models with a gate that share a panel: of one title, a few graphs at a time; numbered."""
    gated = [model for model in details if model.gate is not None]
    number = 0
    for title in dict.fromkeys(model.title for model in gated):
        group = [model for model in gated if model.title == title]
        count = -(-len(group) // MOST_TOGETHER)
        # As even as can be: a last panel with a single line shows little.
        bounds = [part * len(group) // count for part in range(count + 1)]
        for start, stop in pairwise(bounds):
            number += 1
            yield number, group[start:stop]


# The gate


def density_plots(details: Sequence[Details]) -> list[Plot]:
    """Distribution of the gate over the nodes of each graph."""
    return [
        _density_plot(
            _name("gate-density", number, *group),
            full_title(*group),
            DENSITY,
            [(model.graph, np.asarray(model.gate, dtype=float)) for model in group],
        )
        for number, group in _panels(details)
    ]


def _density_plot(name: str, title: str, caption: str, gates: Sequence[tuple[str, Values]]) -> Plot:
    lines = [Points(label, POSITIONS, density(gate, POSITIONS)) for label, gate in gates]
    words = "; ".join(
        f"{short(label)} {gate.mean():.2f} with a std of {gate.std():.2f}" for label, gate in gates
    )

    def decorate(axes: Axes) -> None:
        for line, (_, gate), colour in zip(lines, gates, COLOURS, strict=False):
            axes.fill_between(POSITIONS, line.y, color=colour, alpha=0.14, linewidth=0)
            axes.axvline(float(gate.mean()), ymax=0.06, color=colour, linewidth=2.2)
        axes.set_ylim(bottom=0)

    return line_plot(
        name,
        title,
        caption,
        f"Density of the gate; means: {words}.",
        lines,
        marker=False,
        decorate=decorate,
        xlim=(0, 1),
        xlabel=GATE,
        ylabel="density",
    )


def _pairs(gate: Sequence[float] | None, other: SomeNumbers | None) -> tuple[Values, Values]:
    """The other values and the gate, at nodes where both are known."""
    if gate is None or not other:
        return np.empty(0), np.empty(0)
    x, y = np.asarray(other, dtype=np.float64), np.asarray(gate, dtype=np.float64)
    return x[np.isfinite(x)], y[np.isfinite(x)]


def _against(details: Details, rival: Rival) -> tuple[Values, Values]:
    """The gap of sensitivity is in units of the distances' std."""
    if rival != "sensitivity_gap":
        return _pairs(details.gate, getattr(details, rival))
    if details.sensitivity is None:
        return _pairs(None, None)
    distances = np.asarray(list(details.sensitivity.distances.values()), dtype=np.float64)
    gap = (distances[-1] - distances[0]) / (float(distances.std()) or 1.0)
    return _pairs(details.gate, tuple(gap.tolist()))


def correlations(details: Sequence[Details], rival: Rival) -> list[tuple[Details, float]]:
    """Spearman's correlation of the gate with something else, where both have ranks."""
    from scipy.stats import spearmanr

    found = []
    for model in details:
        x, y = _against(model, rival)
        if len(x) >= FEWEST_TO_RANK and np.ptp(x) > 0 and np.ptp(y) > 0:
            found.append((model, float(spearmanr(x, y).statistic)))
    return found


def gate_plots(details: Sequence[Details], rival: Rival) -> list[Plot]:
    """The gate's means in bins of something else, a few graphs of one model in every panel."""
    plots = []
    for number, group in _panels(details):
        lines, shown = [], []
        caption, label = RIVALS[rival]
        for model in group:
            x, y = _against(model, rival)
            if rival == "homophily":
                line = bins_of_equal_width(x, y, NUM_BINS)
            else:
                line = bins_by_rank(x, y, min(NUM_BINS, len(x) // FEWEST_IN_BIN))
            if not np.size(line.x):
                continue
            lines.append(line._replace(label=model.graph))
            shown.append(model)
            if rival == "sensitivity_gap" and (search := model.sensitivity):
                change = f"{search.flips:,} flips and {search.moves:,} entries changed"
                caption += f" {short(model.graph)}: {change}."
        if lines:
            name = _name(f"gate-{rival.removesuffix('_gap')}", number, *group)
            alt = f"Mean gate from the lowest to the highest {rival.replace('_', ' ')}:"
            plots.append(_bins_plot(name, full_title(*shown), caption, alt, lines, xlabel=label))
    return plots


def _bins_plot(
    name: str,
    title: str,
    caption: str,
    alt: str,
    lines: Sequence[Points],
    **options: Any,  # noqa: ANN401 - of `line_plot`
) -> Plot:
    # The axis is as long as the bars: a narrow gate would else be a flat line.
    means, stds = (np.concatenate([getattr(line, part) for line in lines]) for part in ("y", "std"))
    low, high = float((means - stds).min()), float((means + stds).max())
    room = 0.05 * max(high - low, 0.02)
    limits = (max(-0.02, low - room), min(1.02, high + room))
    return line_plot(name, title, caption, alt, lines, ylabel=GATE, ylim=limits, **options)


def attacked_plots(details: Sequence[Details]) -> list[Plot]:
    """The gate of each model on the clean and on perturbed graphs: densities, then quantiles."""
    densities, quantiles = [], []
    ticks = np.arange(1.0, NUM_QUANTILES + 1)
    for number, model in enumerate(details, start=1):
        if not model.attacked or model.gate is None:
            continue
        sides = [("clean", model.gate, model.homophily)]
        sides += [(attack.label, attack.gate, attack.homophily) for attack in model.attacked]
        sides = sides[: len(COLOURS)]
        gates = [(label, np.asarray(gate, dtype=float)) for label, gate, _ in sides]
        name = _name("attacked-density", number, model)
        densities.append(_density_plot(name, full_title(model), ATTACKED, gates))
        lines = [
            bins_by_rank(x, y, NUM_QUANTILES)._replace(label=label, x=ticks)
            for label, gate, homophily in sides
            for x, y in [_pairs(gate, homophily)]
            if len(x) >= NUM_QUANTILES
        ]
        if lines:
            quantiles.append(
                _bins_plot(
                    _name("attacked-quantiles", number, model),
                    f"{full_title(model)}, by homophily",
                    QUANTILES,
                    "Mean gate from the lowest to the highest fifth of local homophily:",
                    lines,
                    std="bands",
                    xticks=ticks,
                    xticklabels=[f"Q{tick:.0f}" for tick in ticks],
                    xlabel="local homophily, in fifths",
                )
            )
    return [*densities, *quantiles]


# Filters


def filter_plots(details: Sequence[Details]) -> list[Plot]:
    """The learned responses, with the graph's eigenvalues behind them."""
    plots = []
    for number, model in enumerate(details, start=1):
        if (spectrum := model.spectrum) is None or not spectrum.responses:
            continue

        def draw_spectrum(axes: Axes, spectrum: SpectrumShares = spectrum) -> None:
            shares = np.asarray(spectrum.shares)
            top = axes.get_ylim()[1]
            scaled = shares / max(float(shares.max()), np.finfo(float).tiny) * top / 3
            axes.stairs(scaled, spectrum.edges, fill=True, color=PALETTE["soft"], alpha=0.25)

        lines = [
            Points(f"{band} band", spectrum.frequencies, values, None, PALETTE[colour])
            for (band, values), colour in zip(spectrum.responses.items(), BANDS, strict=False)
        ]
        plots.append(
            line_plot(
                _name("filters", number, model),
                f"{full_title(model)}{'' if spectrum.is_exact else ' (estimated)'}",
                FILTERS,
                "Learned filter responses from the lowest to the highest frequency:",
                lines,
                marker=False,
                decorate=draw_spectrum,
                xlim=(0, 2),
                xlabel="frequency (eigenvalue of the Laplacian)",
                ylabel="response",
            )
        )
    return plots


# Training


def training_plots(details: Sequence[Details]) -> list[list[Plot]]:
    """Learning curves, the gate in training, and searches for perturbations: a list of each."""
    losses: list[Plot] = []
    gates: list[Plot] = []
    searches: list[Plot] = []
    for number, model in enumerate(details, start=1):
        epochs = len(model.curves.get("loss", ()))
        if epochs > 1:
            # A curve shorter than that of the loss lacks epochs, and nobody knows which.
            curves = {
                name: values
                for name, given in model.curves.items()
                if len(values := np.asarray(given, dtype=float)) == epochs
                and np.isfinite(values).any()
            }
            losses.append(_loss_plot(number, model, curves))
            gates += _training_gate_plots(number, model, curves)
            searches += _search_plots(number, model, curves)
    return [losses, gates, searches]


def _loss_plot(number: int, model: Details, curves: Mapping[str, Values]) -> Plot:
    terms = [name for name in curves if not name.startswith(NOT_TERMS)] or ["loss"]
    epochs = len(curves["loss"])
    lines = []
    for name, colour in zip(terms, TERMS, strict=False):
        change = curves[name] - curves[name][np.isfinite(curves[name])][0]
        lines.append(Points(name, np.arange(1, epochs + 1), change, None, PALETTE[colour]))
    caption = "Change of each loss term since the first epoch, weights included."
    if any(not np.isfinite(curves[line.label]).all() for line in lines):
        caption += " Dots: a term of some epochs alone, since the first of them."
    return line_plot(
        _name("training-loss", number, model),
        full_title(model),
        caption,
        f"Change of the loss terms over {epochs} epochs:",
        lines,
        marker=False,
        xlim=(1, epochs),
        xlabel="epoch",
        ylabel="change since the first epoch",
    )


def _training_gate_plots(
    number: int, model: Details, curves: Mapping[str, Values]
) -> Iterator[Plot]:
    """The gate's mean and std, where the method monitors them in every epoch."""
    mean, std = curves.get("gate_mean"), curves.get("gate_std")
    if mean is None or std is None or not np.isfinite(mean + std).all():
        return
    epochs = np.arange(1, len(mean) + 1)
    yield line_plot(
        _name("training-gate", number, model),
        f"{full_title(model)}: the gate",
        "Mean of the gate over the nodes; shaded: its standard deviation over the nodes.",
        f"Gate over {len(mean)} epochs, its std from {std[0]:.2f} to {std[-1]:.2f}:",
        [Points("mean gate", epochs, mean, std)],
        std="bands",
        marker=False,
        xlim=(1, len(mean)),
        ylim=(0, 1),
        xlabel="epoch",
        ylabel=GATE,
    )


def _search_plots(number: int, model: Details, curves: Mapping[str, Values]) -> Iterator[Plot]:
    """A dot per search; methods that do not search have no such curves."""
    for prefix, kind, caption in SEARCHES:
        lines = []
        for name, values in curves.items():
            if name.startswith(prefix):
                label = name.removeprefix(prefix).replace("_", ", ")
                at = np.flatnonzero(np.isfinite(values))
                lines.append(Points(label, at + 1, values[at]))
        if lines:
            yield line_plot(
                _name(f"search-{slug(kind)}", number, model),
                f"{full_title(model)}: {kind}",
                caption,
                f"Over {np.size(lines[0].x)} searches, {kind}:",
                lines,
                connect=False,
                xlim=(1, max(2, len(curves["loss"]))),
                xlabel="epoch",
                ylabel=kind,
            )


# Maps of nodes


def map_plots(details: Sequence[Details]) -> list[Plot]:
    """Every model's nodes in the plane, by class and by gate; the dots are one image each."""
    plots = []
    for number, model in enumerate(details, start=1):
        if model.labels:
            plots.append(_class_map(number, model))
        if model.gate is not None:
            plots.append(_gate_map(number, model))
    return plots


def _class_map(number: int, model: Details) -> Plot:
    """The largest classes have a colour each; others share the last one with unknown labels."""
    counts = Counter(label for label in model.labels if label >= 0)
    largest = sorted(label for label, _ in counts.most_common(len(COLOURS) - 1))
    known = model.class_names
    names = [known[label] if label < len(known) else str(label) for label in largest]
    sizes, colours = [counts[label] for label in largest], list(COLOURS[: len(largest)])
    rest = ["other"] * (len(counts) > len(largest)) + ["unknown"] * (min(model.labels) < 0)
    if rest:
        names.append(" or ".join(rest))
        sizes.append(len(model.labels) - sum(sizes))
        colours.append(COLOURS[-1])
    by_label = dict(zip(largest, colours, strict=False))
    dots = [by_label.get(label, COLOURS[-1]) for label in model.labels]

    def paint(axes: Axes) -> None:
        _scatter(axes, model, c=dots)
        handles = [Line2D([], [], marker="o", ls="", color=each, markersize=5) for each in colours]
        place_legend(axes, handles, names)

    words = ", ".join(f"{short(name)} {size:,}" for name, size in zip(names, sizes, strict=True))
    return Plot(
        _name("map-class", number, model),
        f"Map by class: {full_title(model)}",
        f"Every dot is a node, placed by its embedding ({short(model.map_name)}); the colour is "
        "its class, which training does not use.",
        f"Map of {len(model.nodes):,} nodes coloured by class: {words}.",
        paint,
        height=WIDTH + ROW,
    )


def _gate_map(number: int, model: Details) -> Plot:
    gate = np.asarray(model.gate)
    middle = "#d7dae0"

    def paint(axes: Axes) -> None:
        ends = PALETTE["orange"], PALETTE["blue"]
        scale = LinearSegmentedColormap.from_list("gate", [ends[0], middle, ends[1]])
        norm = Normalize(0, 1)
        _scatter(axes, model, c=gate, cmap=scale, norm=norm)
        bar = axes.figure.colorbar(
            ScalarMappable(norm, scale), ax=axes, location="top", shrink=0.7, aspect=28, pad=0.02
        )
        bar.set_label(GATE)
        bar.outline.set_visible(False)

    return Plot(
        _name("map-gate", number, model),
        f"Map by gate: {full_title(model)}",
        f"The same dots, placed by its embedding ({short(model.map_name)}); blue nodes weigh their "
        "low band more, orange ones their high band.",
        f"Map of {len(model.nodes):,} nodes coloured by gate: mean {gate.mean():.2f}, "
        f"from {gate.min():.2f} to {gate.max():.2f}.",
        paint,
        height=WIDTH + 3 * ROW,
    )


def _scatter(axes: Axes, details: Details, **colours: Any) -> None:  # noqa: ANN401 - matplotlib's own
    """As one image: a dot for every node would make a file of megabytes."""
    count = len(details.map_x)
    is_small = count <= MOST_BLENDED
    axes.scatter(
        details.map_x,
        details.map_y,
        s=float(np.clip(9000 / max(1, count), 2, 26)),
        linewidths=0,
        alpha=0.85 if is_small else 1,
        antialiased=is_small,
        rasterized=True,
        **colours,
    )
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=(), yticks=(), box_aspect=1)
    axes.spines[:].set_visible(False)
