"""Drawing: small panels as SVG with text as text, the same bytes for the same numbers.

A panel is as wide as a phone; a page sets panels side by side where there is room. Colours are
those of Okabe and Ito, distinct for colour-blind readers as well; lines and areas bear their names.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

__all__ = [
    "PALETTE",
    "Area",
    "Axis",
    "Bundle",
    "Cloud",
    "Drawing",
    "areas",
    "bundles",
    "clouds",
    "ladder",
]

# A page may replace these by colours of its own, for instance on a dark background.
PALETTE: Mapping[str, str] = {
    "ink": "#1b1f24",
    "soft": "#6b7280",
    "grid": "#e3e6ea",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
}

WIDTH, HEIGHT = 4.3, 2.9  # inches
LONGEST = 24  # letters of a name in a picture
NEAREST = 0.09  # labels at the ends of lines stay so far apart, as a share of the axis

STYLE: dict[Any, Any] = {  # matplotlib spells out every key in its type
    "svg.fonttype": "none",
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
    "grid.linewidth": 0.8,
    "xtick.color": PALETTE["soft"],
    "ytick.color": PALETTE["soft"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Drawing:
    """A finished picture."""

    name: str  # letters and dashes: unique on a page
    title: str
    caption: str  # how to read it
    alt: str  # what it shows, for those who cannot see it
    svg: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):  # it becomes part of ids
            raise ValueError(
                "The name of a drawing must be of small letters, digits and dashes. "
                f"Got {self.name!r}."
            )


@dataclass(frozen=True)
class Axis:
    """What one axis is called and how far it reaches; None: as far as the numbers do."""

    label: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Area:
    """Shares of something in bins."""

    label: str
    colour: str  # a name of the palette
    shares: Sequence[float]
    mark: float | None = None  # a place on the x axis worth a line, such as the mean


@dataclass(frozen=True)
class Bundle:
    """The same curve from several seeds."""

    label: str
    colour: str
    curves: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Cloud:
    """Points of one kind."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]


def areas(edges: Sequence[float], groups: Sequence[Area], x: Axis, y: Axis) -> str:
    """Filled histograms; names stand above, from left to right in the order of the marks."""
    with _panel(x, y) as (axes, result):
        for group in groups:
            colour = PALETTE[group.colour]
            axes.stairs(group.shares, edges, fill=True, color=colour, alpha=0.35)
            axes.stairs(group.shares, edges, color=colour, linewidth=1.4, baseline=None)
            if group.mark is not None:
                axes.axvline(group.mark, color=colour, linewidth=1.2, linestyle=(0, (3, 2)))
        ordered = sorted(groups, key=lambda group: group.mark or 0.0)
        _name_above(axes, [(group.label, group.colour) for group in ordered])
    return result[0]


def bundles(
    positions: Sequence[float],
    groups: Sequence[Bundle],
    x: Axis,
    y: Axis,
    background: tuple[Sequence[float], Area] | None = None,
) -> str:
    """Curves over the same positions: seeds thin, their mean thick and named at its end.

    `background` puts a histogram behind them, scaled to a third of the height.
    """
    with _panel(x, y) as (axes, result):
        ends = []
        for group in groups:
            curves, colour = np.asarray(group.curves, dtype=float), PALETTE[group.colour]
            if len(curves) > 1:
                axes.plot(positions, curves.T, color=colour, linewidth=0.6, alpha=0.35)
            axes.plot(positions, curves.mean(axis=0), color=colour, linewidth=2)
            ends.append((float(curves.mean(axis=0)[-1]), group.label, colour))
        _limit(axes, x, y)
        if background is not None:
            _draw_background(axes, *background)
        _name_ends(axes, positions[-1], ends)
    return result[0]


def ladder(names: Sequence[str], groups: Sequence[Cloud], x: Axis) -> str:
    """One rung per name, from top to bottom, and on it one dot of every group."""
    with _panel(x, Axis("", -0.6, len(names) - 0.4)) as (axes, result):
        rungs = range(len(names))
        ends = np.asarray([group.x for group in groups], dtype=float)
        axes.hlines(rungs, ends.min(axis=0), ends.max(axis=0), color=PALETTE["soft"], linewidth=1)
        for group in groups:
            axes.plot(group.x, rungs, "o", color=PALETTE[group.colour], markersize=5)
        axes.set_yticks(rungs, [_shown(name) for name in names], color=PALETTE["ink"])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        _name_above(axes, [(group.label, group.colour) for group in groups])
    return result[0]


def clouds(groups: Sequence[Cloud], x: Axis, y: Axis) -> str:
    """One small dot per point; names stand above."""
    with _panel(x, y) as (axes, result):
        for group in groups:
            axes.plot(
                group.x,
                group.y,
                "o",
                color=PALETTE[group.colour],
                markersize=2.6,
                markeredgewidth=0,
                alpha=0.55,
            )
        _name_above(axes, [(group.label, group.colour) for group in groups])
    return result[0]


@contextmanager
def _panel(x: Axis, y: Axis) -> Iterator[tuple[Axes, list[str]]]:
    """Axes to draw on; at the end the list holds the SVG."""
    result: list[str] = []
    with mpl.rc_context({**STYLE, "svg.hashsalt": "aspect"}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        yield axes, result
        axes.set_xlabel(x.label)
        axes.set_ylabel(y.label)
        _limit(axes, x, y)
        result.append(_svg(figure))


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings():
        # Text stays text: what a font here lacks, the reader's browser has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return file.getvalue()


def _shown(name: str) -> str:
    """A name that fits a picture: one printable line, cut where it is too long."""
    printable = "".join(letter if letter.isprintable() else " " for letter in name)
    return printable if len(printable) <= LONGEST else f"{printable[: LONGEST - 3]}..."


def _limit(axes: Axes, x: Axis, y: Axis) -> None:
    if x.low is not None or x.high is not None:
        axes.set_xlim(x.low, x.high)
    if y.low is not None or y.high is not None:
        axes.set_ylim(*((y.high, y.low) if axes.yaxis_inverted() else (y.low, y.high)))


def _name_above(axes: Axes, names: Sequence[tuple[str, str]]) -> None:
    """The first name at the left end, the last at the right, a third between them."""
    places = [(0.0, "left"), (1.0, "right")]
    if len(names) == 3:  # noqa: PLR2004 - as the docstring says
        places.insert(1, (0.5, "center"))
    for (label, colour), (place, side) in zip(names, places, strict=False):
        axes.text(
            place,
            1.03,
            _shown(label),
            transform=axes.transAxes,
            ha=side,
            va="bottom",
            color=PALETTE[colour],
            fontweight="bold",
        )


def _name_ends(axes: Axes, position: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names to the right of the last points, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    least = NEAREST * (high - low)
    place = -np.inf
    for value, label, colour in sorted(ends):
        place = max(value, place + least)
        axes.annotate(
            _shown(label),
            (position, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontweight="bold",
            annotation_clip=False,
        )


def _draw_background(axes: Axes, edges: Sequence[float], area: Area) -> None:
    top = axes.get_ylim()[1]
    shares = np.asarray(area.shares, dtype=float)
    scaled = shares / max(shares.max(), np.finfo(float).tiny) * top / 3
    colour = PALETTE[area.colour]
    axes.stairs(scaled, edges, fill=True, color=colour, alpha=0.25)
    middle = float(edges[int(shares.argmax())])
    axes.text(middle, top / 3, _shown(area.label), color=colour, ha="center", va="bottom")
