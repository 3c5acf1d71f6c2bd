"""Figures by matplotlib: how they are drawn and saved, and those of accuracies, ranks and budgets.

A panel is as wide as a phone; a page sets panels side by side where there is room. Colours are
those of Okabe and Ito; dashes and markers tell lines apart without them. The same numbers give the
same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from aspect.report.benchmark_tables import sweep_families, table_name
from aspect.report.results import CLEAN, PERCENT, Results
from aspect.report.statistics import average_ranks, common_splits, summarise
from aspect.report.tables import slug

__all__ = [
    "COLOURS",
    "PALETTE",
    "Format",
    "Plot",
    "Points",
    "accuracy_plots",
    "draw_points",
    "means_table",
    "place_legend",
    "short",
    "sweep_plots",
]

Format = Literal["svg", "pdf", "png"]

# A page replaces these by its own colours, for instance on a dark background.
PALETTE = {
    "ink": "#1b1f24",
    "soft": "#6b7280",
    "grid": "#e3e6ea",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "amber": "#e69f00",
    "sky": "#56b4e9",
}
# Of lines and classes, in this order; more than eight cannot be told apart.
COLOURS = tuple(
    PALETTE[name] for name in ("blue", "orange", "green", "purple", "amber", "sky", "ink", "soft")
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))

WIDTH, HEIGHT = 4.3, 2.9  # inches
ROW = 0.17  # inches of a line of text
LONGEST_NAME = 24  # letters
LEGEND_LETTERS, HANDLE_LETTERS = 54, 6  # that fit side by side; as wide as the sample of a line
STYLE: dict[Any, Any] = {  # matplotlib spells out every key in its type
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "aspect",
    "pdf.fonttype": 42,  # fonts are embedded as they are; journals refuse the default
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,  # names are shown as they are
    "text.color": PALETTE["ink"],
    "axes.labelcolor": PALETTE["soft"],
    "axes.edgecolor": PALETTE["soft"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALETTE["grid"],
    "xtick.color": PALETTE["soft"],
    "ytick.color": PALETTE["soft"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
# No date, no version: the same numbers give the same bytes.
NO_METADATA: dict[Format, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with its words; it is drawn when a format is wanted."""

    name: str  # small letters, digits and dashes: it becomes part of ids
    title: str
    caption: str  # how to read it
    alt: str  # its content in words, for screen readers
    paint: Callable[[Axes], object]
    width: float = WIDTH  # inches
    height: float = HEIGHT

    def render(self, kind: Format) -> bytes:
        """The figure in one format."""
        file = io.BytesIO()
        with mpl.rc_context(STYLE), warnings.catch_warnings():
            # The text of an SVG is drawn by the reader's browser, which has more fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure = Figure(figsize=(self.width, self.height), layout="constrained")
            self.paint(figure.add_subplot())
            figure.savefig(
                file,
                format=kind,
                dpi=300 if kind == "png" else 110,
                transparent=kind != "png",
                metadata=NO_METADATA[kind],
            )
        return file.getvalue()

    def inline(self) -> Markup:
        """As a part of a page: named for screen readers, in the page's own colours.

        matplotlib escapes all text. Ids get the plot's name, since several figures share a page.
        """
        svg = self.render("svg").decode()
        head, body = svg[svg.index("<svg") :].split(">", 1)
        view = re.search(r'viewBox="[\d. ]+"', head)
        assert view is not None  # matplotlib always writes one
        body = re.sub(r'\bid="', f'id="{self.name}-', body)
        body = body.replace("url(#", f"url(#{self.name}-")
        body = re.sub(r'(?:xlink:)?href="#', f'href="#{self.name}-', body)
        for name, colour in PALETTE.items():
            body = body.replace(colour, f"var(--{name})")
        return Markup(f'<svg role="img" aria-label="{escape(self.alt)}" {view[0]}>{body}')  # noqa: S704 - see above


class Points(NamedTuple):
    """One line of a figure."""

    label: str
    x: ArrayLike
    y: ArrayLike
    std: ArrayLike | None = None
    colour: str = ""  # empty: by its place among the lines


def short(name: str) -> str:
    """A name that fits a figure: one printable line, cut where it is too long."""
    start = name[: LONGEST_NAME + 1]
    printable = "".join(letter if letter.isprintable() else " " for letter in start)
    return printable if len(printable) <= LONGEST_NAME else f"{printable[: LONGEST_NAME - 3]}..."


def legend_height(labels: Iterable[str]) -> float:
    """Inches that a legend of these labels adds to a panel: rows beyond the first."""
    return ROW * max(0, -(-len(list(labels)) // _legend_columns(labels)) - 1)


def _legend_columns(labels: Iterable[str]) -> int:
    widest = max((len(short(label)) for label in labels), default=0) + HANDLE_LETTERS
    return max(1, LEGEND_LETTERS // widest)


def place_legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Above the axes; the layout makes room for it."""
    axes.figure.legend(
        handles,
        [short(label) for label in labels],
        loc="outside upper left",
        ncols=min(len(labels), _legend_columns(labels)) or 1,
        borderaxespad=0,
        columnspacing=1.4,
        handlelength=1.9,
        handletextpad=0.5,
        labelspacing=0.25,
    )


def draw_points(
    axes: Axes,
    lines: Sequence[Points],
    *,
    std: Literal["bars", "bands"] = "bars",
    marker: bool = True,
    connect: bool = True,
) -> None:
    """Lines through points, their std as error bars or shaded, and a legend above."""
    handles = []
    for number, line in enumerate(lines):
        colour = line.colour or COLOURS[number % len(COLOURS)]
        handles += axes.plot(
            line.x,
            line.y,
            color=colour,
            linewidth=1.7,
            linestyle=DASHES[number % len(DASHES)] if connect else "none",
            marker=MARKERS[number % len(MARKERS)] if marker else "none",
            markersize=4.5,
            clip_on=connect,  # half a marker at the end of an axis would look like another one
        )
        if line.std is None:
            continue
        y, half = np.asarray(line.y, dtype=float), np.asarray(line.std, dtype=float)
        if std == "bands":
            axes.fill_between(line.x, y - half, y + half, color=colour, alpha=0.16, linewidth=0)
        else:
            axes.errorbar(line.x, y, half, fmt="none", ecolor=colour, elinewidth=1, capsize=2)
    place_legend(axes, handles, [line.label for line in lines])


def means_table(results: Results, splits: str, column: str = "mean") -> pd.DataFrame:
    """Strict accuracy on clean graphs, methods x graphs in the plan's order; gaps are missing."""
    summary = summarise(results)[column]
    graphs = results.columns(splits, CLEAN)
    rows = results.rows(splits, CLEAN, graphs)
    values = [
        [summary.get((splits, CLEAN, name, graph), np.nan) for graph in graphs] for name in rows
    ]
    return pd.DataFrame(values, index=rows, columns=graphs, dtype=float)


def accuracy_plots(results: Results, splits: str, reference: str) -> list[Plot]:
    """Average ranks, then one panel per clean graph: every method with its 95% interval."""
    means = means_table(results, splits).dropna(axis=1, how="all")
    ranks = average_ranks(means)
    has_ranks = len(ranks) > 1 and means.shape[1] > 1
    left_out = [short(results.title(name)) for name in means.index if name not in ranks.index]
    caption = (
        "Accuracy on unseen nodes. Bars: 95% interval over pre-training seeds, or over splits "
        "where there is one seed."
    )
    if has_ranks:
        caption += " Methods by their average rank; 1 is the highest accuracy on every graph."
    if has_ranks and left_out:
        caption += f" Not ranked, since not run on every graph: {', '.join(left_out)}."
    plots = []
    if has_ranks:
        plots.append(
            _ladder(
                results,
                table_name(results, "ranks", splits),
                f"Average rank over {means.shape[1]} clean graphs ({splits} splits)",
                caption,
                ranks,
                None,
                reference,
            )
        )
    ends = [means_table(results, splits, column) for column in ("low", "high")]
    order = means.rank(ascending=False).mean(axis=1).sort_values(kind="stable").index
    for number, graph in enumerate(means.columns, start=1):
        present = means[graph].reindex(order).dropna()
        name = f"accuracy-{number}-{slug(results.graphs[graph][:40])}"
        intervals = np.stack([end[graph].reindex(present.index) for end in ends])
        title = short(results.graphs[graph])
        plots.append(
            _ladder(
                results,
                table_name(results, name, splits),
                title,
                caption,
                present,
                intervals,
                reference,
            )
        )
    return plots


def _ladder(
    results: Results,
    name: str,
    title: str,
    caption: str,
    values: pd.Series,
    ends: NDArray[np.float64] | None,
    reference: str,
) -> Plot:
    """One row per method, from top to bottom; the reference in another colour."""
    names = [short(results.title(each)) for each in values.index]
    numbers = values.to_numpy(dtype=float)
    colours = [PALETTE["orange" if each == reference else "blue"] for each in values.index]

    def paint(axes: Axes) -> None:
        rows = np.arange(len(names))
        if ends is None:
            axes.barh(rows, numbers, color=colours, height=0.62)
            for row, number in enumerate(numbers):
                axes.text(number, row, f" {number:.1f}", va="center", fontsize=8)
        else:
            axes.hlines(rows, ends[0], ends[1], color=colours, linewidth=1.6)
            axes.scatter(numbers, rows, c=colours, s=20, zorder=3)
        axes.set_yticks(rows, names, fontsize=8.5)
        for tick, each in zip(axes.get_yticklabels(), values.index, strict=True):
            tick.set_color(PALETTE["orange" if each == reference else "ink"])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("average rank" if ends is None else "accuracy (%)")

    told = "; ".join(f"{each} {number:.1f}" for each, number in zip(names, numbers, strict=True))
    height = 0.75 + 1.05 * ROW * max(len(names), 3)
    return Plot(name, title, caption, f"{title}: {told}.", paint, height=height)


def sweep_plots(results: Results) -> list[Plot]:
    """Accuracy as the budget grows: a panel per graph and perturbation, eight methods each."""
    plots = []
    for splits, graph, family in sweep_families(results):
        kept = common_splits(results, splits, graph, family)
        summary = summarise(results, kept=kept)[["mean", "std"]].dropna(subset="mean")
        setups = [results.perturbations[name] for name in family]
        states = dict(zip((CLEAN, *family), (0.0, *(each.budget for each in setups)), strict=True))
        lines = []
        for name in results.methods:
            places = [
                (budget, (splits, state, name, graph))
                for state, budget in states.items()
                if (splits, state, name, graph) in summary.index
            ]
            if places:
                rows = summary.loc[[place for _, place in places]]
                std = None if rows["std"].isna().any() else rows["std"].to_numpy()
                x = [PERCENT * budget for budget, _ in places]
                lines.append(Points(results.title(name), x, rows["mean"].to_numpy(), std))
        words = [setups[0].solver, setups[0].mode, "" if setups[0].features else "edges alone"]
        label = f"{setups[0].kind} ({', '.join(word for word in words if word)})"
        name = f"sweep-{setups[0].family}-{slug(results.graphs[graph])}-curves"
        parts = [
            lines[start : start + len(COLOURS)] for start in range(0, len(lines), len(COLOURS))
        ]
        plots += [
            _sweep_plot(
                table_name(results, name, splits) + (f"-{number}" if len(parts) > 1 else ""),
                f"{short(results.graphs[graph])} under {label}"
                + (f" ({number} of {len(parts)})" if len(parts) > 1 else ""),
                part,
            )
            for number, part in enumerate(parts, start=1)
        ]
    return plots


def _sweep_plot(name: str, title: str, lines: Sequence[Points]) -> Plot:
    ends = "; ".join(
        f"{short(line.label)} from {np.asarray(line.y)[0]:.1f}% to {np.asarray(line.y)[-1]:.1f}%"
        for line in lines
    )

    def paint(axes: Axes) -> None:
        draw_points(axes, lines, std="bands")
        axes.set(xlabel="budget (% of the edges)", ylabel="accuracy (%)")

    return Plot(
        name,
        title,
        "Accuracy on unseen nodes as the budget grows, a ratio of the edges; shaded: standard "
        "deviation over the splits. Flat is robust.",
        f"Accuracy as the budget grows: {ends}.",
        paint,
        height=HEIGHT + legend_height([line.label for line in lines]),
    )
