"""Figures of trained models: the gate and what it follows, filters, training, maps of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde, spearmanr

from aspect.evaluation.details import Details, SomeNumbers
from aspect.report.plots import (
    COLOURS,
    HEIGHT,
    PALETTE,
    ROW,
    WIDTH,
    Plot,
    Points,
    draw_points,
    legend_height,
    place_legend,
    short,
)
from aspect.report.tables import slug

__all__ = [
    "Bins",
    "attacked_plots",
    "bins_by_rank",
    "bins_of_equal_width",
    "correlations",
    "density",
    "density_plots",
    "filter_plots",
    "full_title",
    "gate_plots",
    "loss_plots",
    "map_plots",
    "search_plots",
    "training_gate_plots",
]

Values = NDArray[np.float64]
Rival = Literal["cost_gap", "sensitivity_gap", "homophily"]

GATE = "gate: weight of the low band"
POSITIONS = np.linspace(0, 1, 201)
MOST_TOGETHER = 4  # graphs in one panel
NUM_BINS, NUM_QUANTILES = 10, 5
FEWEST_IN_BIN = 5
NARROWEST = 0.008  # width of a density's kernel, for values that hardly differ
BANDS = ("blue", "orange", "green", "purple")  # lowest frequency first
PERTURBED_BANDS = ("sky", "amber", "soft", "ink")
TERMS = ("green", "purple", "amber", "sky", "ink", "soft")
# The terms' sum, and values that a method monitors, which have plots of their own.
NOT_TERMS = ("loss", "gate_", "search_", "sensitivity_", "rayleigh_")

CAPTIONS: dict[Rival, str] = {
    "cost_gap": "Mean gate in bins of equally many nodes; bars: standard deviation within the bin. "
    "Right of zero the low band has the lower contrastive loss, measured as in training (augmented "
    "views, dropout, pooled over neighbours if the method does) and averaged over a few draws.",
    "sensitivity_gap": "Mean gate in bins of equally many nodes; bars: standard deviation within "
    "the bin. Right of zero the low band is more stable: under the worst small perturbation of "
    "edges and features that a search found, the high band of the node moves further. In units of "
    "the distances' standard deviation over nodes and bands.",
    "homophily": "Mean gate of nodes by the ratio of their neighbours that have their class; bars: "
    "standard deviation within the bin. Labels are used for this figure only.",
}
AXES: dict[Rival, str] = {
    "cost_gap": "cost gap: high band's less low band's",
    "sensitivity_gap": "sensitivity gap: high band's less low band's",
    "homophily": "local homophily",
}


class Bins(NamedTuple):
    """Means of y in bins of x, from left to right; bins without enough values are left out."""

    x: Values
    means: Values
    stds: Values


def _binned(x: Values, y: Values, members: Sequence[NDArray[np.int64]]) -> Bins:
    filled = [bin_ for bin_ in members if len(bin_)]
    return Bins(
        np.array([x[bin_].mean() for bin_ in filled]),
        np.array([y[bin_].mean() for bin_ in filled]),
        np.array([y[bin_].std() for bin_ in filled]),
    )


def bins_of_equal_width(x: Values, y: Values, count: int) -> Bins:
    """Bins over [0, 1] that hold at least five values."""
    numbers = np.minimum((x * count).astype(int), count - 1)
    bins = [np.flatnonzero(numbers == number) for number in range(count)]
    return _binned(x, y, [bin_ for bin_ in bins if len(bin_) >= FEWEST_IN_BIN])


def bins_by_rank(x: Values, y: Values, count: int) -> Bins:
    """Bins of equally many values; equal ones are distributed at random, the same every time.

    By their order in the graph they would carry its order into the figure.
    """
    tie_break = np.random.default_rng(0).random(len(x))
    return _binned(x, y, np.array_split(np.lexsort((tie_break, x)), max(1, count)))


def density(values: Values, positions: Values) -> Values:
    """Kernel density of values in [0, 1]: what would lie outside is reflected at the ends.

    The kernel is half as wide as Scott's rule makes it, which is meant for a single peak; values
    that hardly differ become a narrow peak.
    """
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    if std < 1e-6:  # noqa: PLR2004 - equal but for rounding
        values, std = values.mean() + NARROWEST * np.array([-1.0, 1.0]), NARROWEST * np.sqrt(2)
    kernel = gaussian_kde(values, bw_method=max(0.5 * len(values) ** -0.2, NARROWEST / std))
    heights: Values = kernel(positions) + kernel(-positions) + kernel(2 - positions)
    return heights


def full_title(*details: Details) -> str:
    """A model and its graphs."""
    return f"{short(details[0].title)} on {', '.join(short(each.graph) for each in details)}"


def _name(kind: str, number: int, group: Sequence[Details]) -> str:
    """Unique by its number, readable by its graph."""
    return f"{kind}-{number}-{slug(group[0].graph[:40])}" if len(group) == 1 else f"{kind}-{number}"


def _plot(
    name: str,
    title: str,
    caption: str,
    alt: str,
    draw: Callable[..., None],
    *data: Any,  # noqa: ANN401 - passed on to `draw`
    labels: Iterable[str] = (),
    height: float = HEIGHT,
) -> Plot:
    """A plot that `draw` makes of the data, with room for a legend of these labels."""
    height += legend_height(labels)
    return Plot(name, title, caption, alt, lambda axes: draw(axes, *data), height=height)


def _ends(lines: Mapping[str, ArrayLike]) -> str:
    """First and last value of every line, in words."""
    values = {label: np.asarray(line) for label, line in lines.items()}
    return "; ".join(
        f"{short(label)} from {line[0]:.2f} to {line[-1]:.2f}" for label, line in values.items()
    )


def _panels(details: Sequence[Details]) -> list[list[Details]]:
    """Models with a gate that share a panel: of one title, a few graphs at a time."""
    panels: list[list[Details]] = []
    gated = [each for each in details if each.gate is not None]
    for title in dict.fromkeys(each.title for each in gated):
        group = [each for each in gated if each.title == title]
        count = -(-len(group) // MOST_TOGETHER)
        # As even as can be: a last panel with a single line shows little.
        bounds = [number * len(group) // count for number in range(count + 1)]
        panels += [group[a:b] for a, b in pairwise(bounds)]
    return panels


def _draw_densities(axes: Axes, gates: Mapping[str, Values]) -> None:
    lines = [Points(label, POSITIONS, density(gate, POSITIONS)) for label, gate in gates.items()]
    draw_points(axes, lines, marker=False)
    for line, gate, colour in zip(lines, gates.values(), COLOURS, strict=False):
        axes.fill_between(POSITIONS, line.y, color=colour, alpha=0.14, linewidth=0)
        axes.axvline(float(gate.mean()), ymax=0.06, color=colour, linewidth=2.2)
    axes.set(xlim=(0, 1), xlabel=GATE, ylabel="density")
    axes.set_ylim(bottom=0)


def density_plots(details: Sequence[Details]) -> list[Plot]:
    """Distribution of the gate over the nodes of each graph."""
    plots = []
    for number, group in enumerate(_panels(details), start=1):
        gates = {each.graph: np.asarray(each.gate, dtype=np.float64) for each in group}
        told = "; ".join(
            f"{short(graph)} {gate.mean():.2f} with a std of {gate.std():.2f}"
            for graph, gate in gates.items()
        )
        plots.append(
            _plot(
                _name("gate-density", number, group),
                full_title(*group),
                "Density of the gate over the nodes. Right: the low band alone; left: the high "
                "band alone. Ticks below: the means.",
                f"Density of the gate; means: {told}.",
                _draw_densities,
                gates,
                labels=gates,
            )
        )
    return plots


def _sensitivity_gap(details: Details) -> SomeNumbers:
    """How much further the high band moves than the low one, in units of the distances' std."""
    if details.sensitivity is None:
        return ()
    distances = np.asarray(list(details.sensitivity.distances.values()), dtype=np.float64)
    return tuple(((distances[-1] - distances[0]) / (float(distances.std()) or 1.0)).tolist())


def _pairs(gate: Sequence[float] | None, other: SomeNumbers | None) -> tuple[Values, Values]:
    """The other values and the gate, at nodes where both are known."""
    if gate is None or not other:
        return np.empty(0), np.empty(0)
    x, y = np.asarray(other, dtype=np.float64), np.asarray(gate, dtype=np.float64)
    return x[np.isfinite(x)], y[np.isfinite(x)]


def _against(details: Details, rival: Rival) -> tuple[Values, Values]:
    if rival == "sensitivity_gap":
        return _pairs(details.gate, _sensitivity_gap(details))
    return _pairs(details.gate, details.cost_gap if rival == "cost_gap" else details.homophily)


def _spearman(x: Values, y: Values) -> float | None:
    """Rank correlation; None where one side has nothing to rank."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:  # noqa: PLR2004 - ranks need a pair
        return None
    return float(spearmanr(x, y).statistic)


def correlations(details: Sequence[Details], rival: Rival) -> list[tuple[Details, float]]:
    """Spearman's correlation of the gate with something else, where there is one."""
    values = [(each, _spearman(*_against(each, rival))) for each in details]
    return [(each, value) for each, value in values if value is not None]


def gate_plots(details: Sequence[Details], rival: Rival) -> list[Plot]:
    """The gate's means in bins of something else, a few graphs of one model in every panel."""
    plots = []
    for number, group in enumerate(_panels(details), start=1):
        lines: dict[str, Bins] = {}
        told, caption = [], CAPTIONS[rival]
        for each in group:
            x, y = _against(each, rival)
            bins = (
                bins_of_equal_width(x, y, NUM_BINS)
                if rival == "homophily"
                else bins_by_rank(x, y, min(NUM_BINS, len(x) // FEWEST_IN_BIN))
            )
            if not len(bins.x):
                continue
            rank = _spearman(x, y)
            lines[each.graph] = bins
            spearman = "" if rank is None else f", Spearman {rank:.2f}"
            told.append(_ends({each.graph: bins.means}) + spearman)
            if rival == "sensitivity_gap" and (search := each.sensitivity):
                change = f"{search.flips:,} flips and {search.moves:,} entries changed"
                caption += f" {short(each.graph)}: {change}."
        if lines:
            plots.append(
                _plot(
                    _name(f"gate-{rival.removesuffix('_gap')}", number, group),
                    full_title(*(each for each in group if each.graph in lines)),
                    caption,
                    f"Mean gate from the lowest to the highest {rival.replace('_', ' ')}: "
                    f"{'; '.join(told)}.",
                    _draw_bins,
                    lines,
                    AXES[rival],
                    labels=lines,
                )
            )
    return plots


def _draw_bins(axes: Axes, lines: Mapping[str, Bins], label: str, quantiles: bool = False) -> None:
    points = [
        Points(name, np.arange(1, len(bins.x) + 1) if quantiles else bins.x, bins.means, bins.stds)
        for name, bins in lines.items()
    ]
    draw_points(axes, points, std="bands" if quantiles else "bars")
    if quantiles:
        axes.set_xticks(range(1, NUM_QUANTILES + 1), [f"Q{n}" for n in range(1, NUM_QUANTILES + 1)])
    # As far as the bars reach: a narrow gate would else be a flat line.
    low = min(float((bins.means - bins.stds).min()) for bins in lines.values())
    high = max(float((bins.means + bins.stds).max()) for bins in lines.values())
    room = 0.05 * max(high - low, 0.02)
    axes.set(xlabel=label, ylabel=GATE, ylim=(max(-0.02, low - room), min(1.02, high + room)))


def attacked_plots(details: Sequence[Details]) -> list[Plot]:
    """The gate of each model on the clean and on perturbed graphs: densities, then quantiles."""
    densities, quantiles = [], []
    for number, each in enumerate(details, start=1):
        if not each.attacked or each.gate is None:
            continue
        sides = [("clean", each.gate, each.homophily)]
        sides += [(attack.label, attack.gate, attack.homophily) for attack in each.attacked]
        sides = sides[: len(COLOURS)]
        gates = {label: np.asarray(gate, dtype=np.float64) for label, gate, _ in sides}
        means = "; ".join(f"{short(label)} {gate.mean():.2f}" for label, gate in gates.items())
        densities.append(
            _plot(
                _name("attacked-density", number, [each]),
                full_title(each),
                "Density of the gate of one model, trained on the clean graph, over the nodes of "
                "the clean and of perturbed graphs. Ticks below: the means.",
                f"Density of the gate on clean and perturbed graphs; means: {means}.",
                _draw_densities,
                gates,
                labels=gates,
            )
        )
        pairs = {label: _pairs(gate, homophily) for label, gate, homophily in sides}
        lines = {
            label: bins_by_rank(*pair, NUM_QUANTILES)
            for label, pair in pairs.items()
            if len(pair[0]) >= NUM_QUANTILES
        }
        if lines:
            ends = _ends({label: bins.means for label, bins in lines.items()})
            quantiles.append(
                _plot(
                    _name("attacked-quantiles", number, [each]),
                    f"{full_title(each)}, by homophily",
                    "Mean gate in five equal groups of nodes, from the fewest neighbours of their "
                    "own class (Q1) to the most (Q5), by the edges of each graph; shaded: standard "
                    "deviation. Nodes of equal homophily are distributed at random.",
                    f"Mean gate from the lowest to the highest fifth of local homophily: {ends}.",
                    _draw_bins,
                    lines,
                    "local homophily, in fifths",
                    True,
                    labels=lines,
                )
            )
    return [*densities, *quantiles]


def filter_plots(details: Sequence[Details]) -> list[Plot]:
    """The learned responses, with the graph's eigenvalues behind them."""
    plots = []
    for number, each in enumerate(details, start=1):
        spectrum = each.spectrum
        if spectrum is None or not spectrum.responses:
            continue
        ends = _ends({f"{band} band": line for band, line in spectrum.responses.items()})
        centres = np.convolve(spectrum.edges, [0.5, 0.5], mode="valid")
        plots.append(
            _plot(
                _name("filters", number, [each]),
                f"{full_title(each)}{'' if spectrum.is_exact else ' (estimated)'}",
                "Response of each band. Grey: how many of the graph's eigenvalues lie there, "
                "estimated from Chebyshev moments where the title says so.",
                f"Learned filter responses from the lowest to the highest frequency: {ends}. "
                f"The mean frequency of the graph is {float(centres @ spectrum.shares):.2f}.",
                _draw_responses,
                spectrum,
            )
        )
    return plots


def _draw_responses(axes: Axes, spectrum: Any) -> None:  # noqa: ANN401 - of `Details.spectrum`
    draw_points(
        axes,
        [
            Points(f"{band} band", spectrum.frequencies, values, None, PALETTE[colour])
            for (band, values), colour in zip(spectrum.responses.items(), BANDS, strict=False)
        ],
        marker=False,
    )
    top = axes.get_ylim()[1]
    shares = np.asarray(spectrum.shares)
    scaled = shares / max(float(shares.max()), np.finfo(float).tiny) * top / 3
    axes.stairs(scaled, spectrum.edges, fill=True, color=PALETTE["soft"], alpha=0.25)
    axes.set(xlim=(0, 2), xlabel="frequency (eigenvalue of the Laplacian)", ylabel="response")


def _curves(details: Details) -> dict[str, Values]:
    """Values by epoch, missing ones as nan.

    A curve shorter than that of the loss lacks epochs, and nobody knows which: it is left out.
    """
    epochs = len(details.curves.get("loss", ()))
    curves = {name: np.asarray(values, dtype=float) for name, values in details.curves.items()}
    return {
        name: values
        for name, values in curves.items()
        if len(values) == epochs and np.isfinite(values).any()
    }


def _trained(details: Sequence[Details]) -> Iterator[tuple[int, Details, dict[str, Values]]]:
    for number, each in enumerate(details, start=1):
        if len(each.curves.get("loss", ())) > 1:
            yield number, each, _curves(each)


def loss_plots(details: Sequence[Details]) -> list[Plot]:
    """Change of the loss terms in training."""
    plots = []
    for number, each, curves in _trained(details):
        terms = [name for name in curves if not name.startswith(NOT_TERMS)] or ["loss"]
        changes = {
            name: curves[name] - curves[name][np.isfinite(curves[name])][0]
            for name in terms[: len(TERMS)]
        }
        ends = "; ".join(
            f"{short(name)} {values[np.isfinite(values)][-1]:+.2f}"
            for name, values in changes.items()
        )
        has_gaps = any(not np.isfinite(values).all() for values in changes.values())
        epochs = len(each.curves["loss"])
        plots.append(
            _plot(
                _name("training-loss", number, [each]),
                full_title(each),
                "Change of each loss term since the first epoch, weights included."
                + (" Dots: a term of some epochs alone, since the first of them." * has_gaps),
                f"Change of the loss terms over {epochs} epochs: {ends}.",
                _draw_terms,
                changes,
                epochs,
                labels=changes,
            )
        )
    return plots


def _draw_terms(axes: Axes, changes: Mapping[str, Values], epochs: int) -> None:
    handles = []
    for (_, values), colour in zip(changes.items(), TERMS, strict=False):
        whole = bool(np.isfinite(values).all())
        handles += axes.plot(
            np.arange(1, epochs + 1),
            values,
            color=PALETTE[colour],
            linewidth=1.8,
            linestyle="-" if whole else "none",
            marker="none" if whole else "o",
            markersize=3.2,
        )
    place_legend(axes, handles, list(changes))
    axes.set(xlim=(1, epochs), xlabel="epoch", ylabel="change since the first epoch")


def training_gate_plots(details: Sequence[Details]) -> list[Plot]:
    """The gate's mean and std in training, where the method monitors them."""
    plots = []
    for number, each, curves in _trained(details):
        names = ("gate_mean", "gate_std")
        if not all(name in curves and np.isfinite(curves[name]).all() for name in names):
            continue
        means, stds = (curves[name] for name in names)
        plots.append(
            _plot(
                _name("training-gate", number, [each]),
                f"{full_title(each)}: the gate",
                "Mean of the gate over the nodes; shaded: its standard deviation over the nodes.",
                f"Mean gate from {means[0]:.2f} to {means[-1]:.2f} over {len(means)} epochs, its "
                f"std from {stds[0]:.2f} to {stds[-1]:.2f}.",
                _draw_training_gate,
                means,
                stds,
            )
        )
    return plots


def _draw_training_gate(axes: Axes, means: Values, stds: Values) -> None:
    epochs = np.arange(1, len(means) + 1)
    draw_points(axes, [Points("mean gate", epochs, means, stds)], std="bands", marker=False)
    axes.set(xlim=(1, len(means)), ylim=(0, 1), xlabel="epoch", ylabel=GATE)


SEARCHES = {
    "objective": "Objective of a search, on the clean graph and on the perturbed one that it "
    "found: the stability loss and the Rayleigh term. Training then holds the model against that "
    "perturbation.",
    "sensitivity": "Distance of each band under the perturbation that was found, on average over "
    "the nodes.",
    "Rayleigh energy": "Rayleigh energy of each band, from 0 (smooth) to 2 (rough), on the clean "
    "and on the perturbed graph. The search makes the low band rough and the high one smooth.",
}


def search_plots(details: Sequence[Details]) -> list[Plot]:
    """Searches for adversarial perturbations in training: objective, sensitivity, roughness."""
    plots = []
    for number, each, curves in _trained(details):
        if not {"search_before", "search_after"} <= curves.keys():
            continue
        bands = [name.removeprefix("sensitivity_") for name in curves if name.startswith("sens")]
        lines: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in SEARCHES}
        lines["objective"] = [
            ("clean graph", "search_before", "blue"),
            ("perturbed graph", "search_after", "orange"),
        ]
        for band, clean, perturbed in zip(bands, BANDS, PERTURBED_BANDS, strict=False):
            lines["sensitivity"].append((f"{band} band", f"sensitivity_{band}", clean))
            lines["Rayleigh energy"] += [
                (f"{band}, clean", f"rayleigh_{band}", clean),
                (f"{band}, perturbed", f"rayleigh_{band}_changed", perturbed),
            ]
        for kind, caption in SEARCHES.items():
            points = []
            for label, name, colour in lines[kind]:
                if name in curves:
                    at = np.flatnonzero(np.isfinite(curves[name]))
                    points.append(Points(label, at + 1, curves[name][at], None, PALETTE[colour]))
            if points:
                ends = _ends({line.label: line.y for line in points})
                plots.append(
                    _plot(
                        _name(f"search-{slug(kind)}", number, [each]),
                        f"{full_title(each)}: {kind}",
                        caption,
                        f"Over {np.size(points[0].x)} searches, {kind}: {ends}.",
                        _draw_searches,
                        points,
                        len(each.curves["loss"]),
                        kind,
                        labels=[line.label for line in points],
                    )
                )
    return plots


def _draw_searches(axes: Axes, lines: Sequence[Points], epochs: int, label: str) -> None:
    draw_points(axes, lines, connect=False)
    axes.set(xlim=(1, max(2, epochs)), xlabel="epoch", ylabel=label)


def map_plots(details: Sequence[Details]) -> list[Plot]:
    """Every model's nodes in the plane, by class and by gate; the dots are one image each."""
    plots = []
    for number, each in enumerate(details, start=1):
        where = f"by its embedding ({short(each.map_name)})"
        if each.labels:
            names, kinds = _classes(each)
            counts = Counter(kinds)
            numbers = [*range(len(names) - (-1 in counts)), *([-1] if -1 in counts else [])]
            told = ", ".join(
                f"{short(name)} {counts[kind]:,}" for kind, name in zip(numbers, names, strict=True)
            )
            plots.append(
                _plot(
                    _name("map-class", number, [each]),
                    f"Map by class: {full_title(each)}",
                    f"Every dot is a node, placed {where}; the colour is its class, which training "
                    "does not use.",
                    f"Map of {len(each.nodes):,} nodes coloured by class: {told}.",
                    _draw_class_map,
                    each,
                    names,
                    kinds,
                    labels=names,
                    height=WIDTH + ROW,
                )
            )
        if each.gate is not None:
            gate = np.asarray(each.gate)
            plots.append(
                _plot(
                    _name("map-gate", number, [each]),
                    f"Map by gate: {full_title(each)}",
                    f"The same dots, placed {where}; blue nodes weigh their low band more, orange "
                    "ones their high band.",
                    f"Map of {len(each.nodes):,} nodes coloured by gate: mean {gate.mean():.2f}, "
                    f"from {gate.min():.2f} to {gate.max():.2f}.",
                    _draw_gate_map,
                    each,
                    gate,
                    height=WIDTH + 3 * ROW,
                )
            )
    return plots


def _classes(details: Details) -> tuple[list[str], list[int]]:
    """Names of the largest classes and which of them every node has; others share the last."""
    counts = Counter(label for label in details.labels if label >= 0)
    largest = sorted(label for label, _ in counts.most_common(len(COLOURS) - 1))
    known = details.class_names
    names = [known[label] if label < len(known) else str(label) for label in largest]
    rest = ["other"] * (len(counts) > len(largest)) + ["unknown"] * (min(details.labels) < 0)
    kinds = [largest.index(label) if label in largest else -1 for label in details.labels]
    return names + [" or ".join(rest)] * bool(rest), kinds


def _draw_class_map(
    axes: Axes, details: Details, names: Sequence[str], kinds: Sequence[int]
) -> None:
    has_rest = min(kinds) < 0  # the last name is theirs, and so is the last colour
    colours = [*COLOURS[: len(names) - has_rest], *COLOURS[-1:] * has_rest]
    _scatter(axes, details, c=np.asarray(colours)[np.asarray(kinds, dtype=int)])
    handles = [Line2D([], [], marker="o", ls="", color=each, markersize=5) for each in colours]
    place_legend(axes, handles, names)


def _draw_gate_map(axes: Axes, details: Details, gate: Values) -> None:
    middle = "#d7dae0"
    scale = LinearSegmentedColormap.from_list("gate", [PALETTE["orange"], middle, PALETTE["blue"]])
    norm = Normalize(0, 1)
    _scatter(axes, details, c=gate, cmap=scale, norm=norm)
    bar = axes.figure.colorbar(
        ScalarMappable(norm, scale), ax=axes, location="top", shrink=0.7, aspect=28, pad=0.02
    )
    bar.set_label(GATE)
    bar.outline.set_visible(False)


def _scatter(axes: Axes, details: Details, **colours: Any) -> None:  # noqa: ANN401 - matplotlib's own
    """As one image: a dot for every node would make a file of megabytes."""
    count = len(details.map_x)
    is_small = count <= 5000  # noqa: PLR2004 - beyond, blended colours would be most of a file
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
