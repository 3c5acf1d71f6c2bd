"""Figures by matplotlib: how they are drawn and saved, and those of accuracies, ranks and budgets.

A panel is as wide as a phone; a page sets panels side by side where there is room. Colours are
those of Okabe and Ito; dashes and markers tell lines apart without them. The same numbers give the
same bytes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from aspect.report.benchmark_tables import Sweep, fewer_splits_note
from aspect.report.html import NO_METADATA, PALETTE, inline_svg
from aspect.report.results import PERCENT, Results
from aspect.report.statistics import ranking, score_means, tied_groups
from aspect.report.tables import slug

Format = Literal["svg", "pdf", "png"]
Std = Literal["bars", "bands"]

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


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with its words; it is drawn when a format is needed."""

    name: str  # small letters, digits and dashes: it becomes part of ids
    title: str
    caption: str  # how to read it
    alt: str  # its content in words, for screen readers
    paint: Callable[[Axes], object]
    height: float = HEIGHT  # inches; a legend of several rows adds to it

    def render(self, kind: Format) -> bytes:
        """The figure in one format."""
        file = io.BytesIO()
        with mpl.rc_context(STYLE), warnings.catch_warnings():
            # The text of an SVG is drawn by the reader's browser, which has more fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
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
        """As a part of a page."""
        return inline_svg(self.render("svg").decode(), self.name, self.alt)


class Points(NamedTuple):
    """One line of a figure; values that are not finite are gaps."""

    label: str
    x: ArrayLike
    y: ArrayLike
    std: ArrayLike | None = None
    colour: str = ""  # empty: by its place among the lines


def short(name: str) -> str:
    """A name that fits a figure: one printable line; a long one is cut in its middle."""
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2 - 1]}...{name[2 - LONGEST_NAME // 2 :]}"
    return "".join(letter if letter.isprintable() else " " for letter in name)


def place_legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Above the axes; the figure grows by the rows beyond the first."""
    names = [short(label) for label in labels]
    widest = max(map(len, names), default=0) + HANDLE_LETTERS
    columns = max(1, min(len(names), LEGEND_LETTERS // widest))
    figure = axes.figure
    assert isinstance(figure, Figure)  # no part of another one
    figure.set_figheight(figure.get_figheight() + ROW * max(0, -(-len(names) // columns) - 1))
    figure.legend(
        handles,
        names,
        loc="outside upper left",
        ncols=columns,
        borderaxespad=0,
        columnspacing=1.4,
        handlelength=1.9,
        handletextpad=0.5,
        labelspacing=0.25,
    )


def line_plot(  # noqa: PLR0913 - the figure's words, then options of which most have few
    name: str,
    title: str,
    caption: str,
    alt: str,
    lines: Sequence[Points],
    *,
    std: Std = "bars",
    marker: bool = True,
    connect: bool = True,
    decorate: Callable[[Axes], object] = id,
    **axis: Any,  # noqa: ANN401 - of `Axes.set`
) -> Plot:
    """Lines through points, their std as error bars or shaded, and a legend above.

    Lines with gaps are dots. First and last values are added to `alt` if it ends with a colon;
    `decorate` draws on the axes before their limits and labels are set.
    """
    if alt.endswith(":"):
        ends = []
        for line in lines:
            known = np.asarray(line.y, dtype=float)
            known = known[np.isfinite(known)]
            ends.append(f"{short(line.label)} from {known[0]:.2f} to {known[-1]:.2f}")
        alt = f"{alt} {'; '.join(ends)}."

    def paint(axes: Axes) -> None:
        handles = []
        for number, line in enumerate(lines):
            colour = line.colour or COLOURS[number % len(COLOURS)]
            y = np.asarray(line.y, dtype=float)
            is_line = connect and bool(np.isfinite(y).all())
            handles += axes.plot(
                line.x,
                y,
                color=colour,
                linewidth=1.7,
                linestyle=DASHES[number % len(DASHES)] if is_line else "none",
                marker=MARKERS[number % len(MARKERS)] if marker or not is_line else "none",
                markersize=4.5,
                clip_on=is_line,  # half a marker at the end of an axis would look like another one
            )
            if line.std is None:
                continue
            half = np.asarray(line.std, dtype=float)
            if std == "bands":
                axes.fill_between(line.x, y - half, y + half, color=colour, alpha=0.16, linewidth=0)
            else:
                axes.errorbar(line.x, y, half, fmt="none", ecolor=colour, elinewidth=1, capsize=2)
        place_legend(axes, handles, [line.label for line in lines])
        decorate(axes)
        axes.set(**axis)

    return Plot(name, title, caption, alt, paint)


def accuracy_plots(results: Results, splits: str, reference: str) -> Iterator[Plot]:
    """Mean ranks, then one panel per clean graph: every method with its 95% interval."""
    means = score_means(results, splits).dropna(axis=1, how="all")
    low, high = (score_means(results, splits, column=end) for end in ("low", "high"))
    caption = (
        "Score on unseen nodes. Bars: 95% interval over pre-training seeds, or over splits "
        "where there is one seed."
    )
    caption = " ".join(filter(None, [caption, fewer_splits_note(results, splits)]))
    if plot := rank_plot(results, splits, reference):
        yield plot
    order = means.rank(ascending=False).mean(axis=1).sort_values(kind="stable").index
    for number, graph in enumerate(means.columns, start=1):
        title = results.column(graph)
        name = results.table_name(f"accuracy-{number}-{slug(title[:40])}", splits)
        present = means[graph].reindex(order).dropna()
        ends = np.stack([end[graph].reindex(present.index) for end in (low, high)])
        yield _ladder(results, name, short(title), caption, present, ends, reference)


def _ladder(
    results: Results,
    name: str,
    title: str,
    caption: str,
    values: pd.Series,
    ends: NDArray[np.float64],
    reference: str,
) -> Plot:
    """One row per method, from top to bottom; the reference in another colour."""
    names = [short(results.title(variant)) for variant in values.index]
    numbers = values.to_numpy(dtype=float)
    is_reference = values.index == reference
    colours = np.where(is_reference, PALETTE["orange"], PALETTE["blue"]).tolist()

    def paint(axes: Axes) -> None:
        rows = np.arange(len(names))
        axes.hlines(rows, ends[0], ends[1], color=colours, linewidth=1.6)
        axes.scatter(numbers, rows, c=colours, s=20, zorder=3)
        _name_rows(axes, names, is_reference)
        axes.set_xlabel("ROC AUC (%)" if "(ROC AUC)" in title else "accuracy (%)")

    words = "; ".join(f"{each} {number:.1f}" for each, number in zip(names, numbers, strict=True))
    height = 0.75 + 1.05 * ROW * max(len(names), 3)
    return Plot(name, title, caption, f"{title}: {words}.", paint, height=height)


def _name_rows(axes: Axes, names: Sequence[str], is_reference: NDArray[np.bool_]) -> None:
    """One row per method, from top to bottom."""
    axes.set_yticks(np.arange(len(names)), names, fontsize=8.5)
    for tick, is_orange in zip(axes.get_yticklabels(), is_reference, strict=True):
        tick.set_color(PALETTE["orange" if is_orange else "ink"])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def rank_plot(results: Results, splits: str, reference: str) -> Plot | None:
    """The critical-difference diagram: mean ranks, and bars beside those that differ too little."""
    found = ranking(results, splits)
    if found is None:
        return None
    names = [short(results.title(str(variant))) for variant in found.ranks.index]
    numbers = found.ranks.to_numpy(dtype=float)
    groups = tied_groups(numbers.tolist(), found.difference)
    is_reference = np.asarray(found.ranks.index == reference)

    def paint(axes: Axes) -> None:
        colours = np.where(is_reference, PALETTE["orange"], PALETTE["blue"]).tolist()
        axes.scatter(numbers, np.arange(len(names)), c=colours, s=20, zorder=3)
        for row, number in enumerate(numbers):
            axes.annotate(
                f"{number:.1f}",
                (number, row),
                xytext=(6, 0),  # points: a page would swallow leading blanks
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        right = float(numbers[-1]) + 0.12 * len(names)
        for place, (first, last) in enumerate(groups):
            x = right + 0.025 * len(names) * place
            axes.vlines(x, first - 0.25, last + 0.25, color=PALETTE["soft"], linewidth=2.4)
        _name_rows(axes, names, is_reference)
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 < tick <= len(names)])
        axes.set_xlabel("mean rank")

    left_out = [short(results.title(name)) for name in found.unranked]
    more = f" Not ranked, since not run on every graph: {', '.join(left_out)}." if left_out else ""
    if fewer := fewer_splits_note(results, splits):
        more = f"{more} {fewer}"
    words = "; ".join(f"{each} {number:.1f}" for each, number in zip(names, numbers, strict=True))
    title = f"Critical differences over {found.num_graphs} clean graphs ({splits} splits)"
    return Plot(
        results.table_name("ranks", splits),
        title,
        "Mean rank; 1 is the best on every graph. A bar on the right joins methods whose ranks "
        f"differ by less than Nemenyi's critical difference at 5%, {found.difference:.2f}.{more}",
        f"{title}: {words}.",
        paint,
        height=0.75 + 1.05 * ROW * max(len(names), 3),
    )


def sweep_plots(sweeps: Sequence[Sweep]) -> Iterator[Plot]:
    """Accuracy as the budget grows: a panel per graph and perturbation, eight methods each."""
    for sweep in sweeps:
        lines = []
        for row in sweep.table.lines:
            known = [
                (PERCENT * budget, cell.value, np.nan if cell.std is None else cell.std)
                for budget, cell in zip(sweep.budgets, row.cells, strict=True)
                if cell.value is not None
            ]
            if known:
                x, y, std = np.array(known).T
                lines.append(Points(row.title, x, y, None if np.isnan(std).any() else std))
        parts = [
            lines[start : start + len(COLOURS)] for start in range(0, len(lines), len(COLOURS))
        ]
        for number, part in enumerate(parts, start=1):
            several = len(parts) > 1
            part_title = f" ({number} of {len(parts)})" if several else ""
            yield line_plot(
                f"{sweep.table.name}-curves{f'-{number}' * several}",
                f"{short(sweep.graph)} under {sweep.label}{part_title}",
                "Accuracy on unseen nodes as the budget grows, a ratio of the edges; shaded: "
                "standard deviation over the splits. Flat is robust.",
                "Accuracy in percent as the budget grows:",
                part,
                std="bands",
                xlabel="budget (% of the edges)",
                ylabel="accuracy (%)",
            )
