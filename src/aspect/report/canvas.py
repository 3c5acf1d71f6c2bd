"""What every panel is drawn on, and the formats that it can be had in.

A panel is as wide as a phone; a page sets panels side by side where there is room. Colours are
those of Okabe and Ito, distinct for colour-blind readers as well; dashes and dots tell lines apart
without any. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "PALETTE",
    "SERIES",
    "Axis",
    "Drawing",
    "Format",
    "Picture",
    "legend",
    "legend_rows",
    "limit",
    "name_above",
    "name_ends",
    "picture",
    "shown",
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
    "amber": "#e69f00",
    "sky": "#56b4e9",
}

# Lines and classes in this order; more than eight cannot be told apart.
SERIES = ("blue", "orange", "green", "purple", "amber", "sky", "ink", "soft")

Format = Literal["svg", "pdf", "png"]

WIDTH, HEIGHT = 4.3, 2.9  # inches
LEGEND_ROW = 0.17  # inches
DOTS_PER_INCH = {"png": 300, "svg": 110, "pdf": 110}  # the last two of images inside them
LONGEST = 24  # letters of a name in a picture
LEGEND_LETTERS = 54  # that fit side by side
HANDLE_LETTERS = 6  # as wide as the sample of a line before its name
NEAREST = 0.09  # labels at the ends of lines stay so far apart, as a share of the axis

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
    "grid.linewidth": 0.8,
    "xtick.color": PALETTE["soft"],
    "ytick.color": PALETTE["soft"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
}

# No date, no version: the same numbers, the same bytes.
NO_METADATA: dict[Format, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}


@dataclass(frozen=True)
class Axis:
    """What one axis is called and how far it reaches; None: as far as the numbers do."""

    label: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Picture:
    """How a panel is drawn; nothing is drawn until a format is asked for."""

    paint: Callable[[Axes], object]
    width: float = WIDTH  # inches
    height: float = HEIGHT

    def render(self, kind: Format) -> bytes:
        """The picture in one format."""
        file = io.BytesIO()
        with mpl.rc_context(STYLE), warnings.catch_warnings():
            # In an SVG text stays text: what a font here lacks, the reader's browser has. Elsewhere
            # a box shows that something is missing.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure = Figure(figsize=(self.width, self.height), layout="constrained")
            self.paint(figure.add_subplot())
            figure.savefig(
                file,
                format=kind,
                dpi=DOTS_PER_INCH[kind],
                transparent=kind != "png",  # a viewer's dark ground would hide dark letters
                metadata=NO_METADATA[kind],
            )
        return file.getvalue()

    @cached_property
    def svg(self) -> str:
        """The picture as text."""
        return self.render("svg").decode()


@dataclass(frozen=True)
class Drawing:
    """A picture with its words."""

    name: str  # letters and dashes: unique on a page
    title: str
    caption: str  # how to read it
    alt: str  # what it shows, for those who cannot see it
    picture: Picture

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):  # it becomes part of ids
            raise ValueError(
                "The name of a drawing must be of small letters, digits and dashes. "
                f"Got {self.name!r}."
            )

    @property
    def svg(self) -> str:
        """The picture as text, for a page."""
        return self.picture.svg


def picture(
    paint: Callable[[Axes], object],
    x: Axis,
    y: Axis,
    *,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Picture:
    """A panel with its axes named and cut to their reach after `paint` has drawn on it."""

    def whole(axes: Axes) -> None:
        paint(axes)
        axes.set_xlabel(x.label)
        axes.set_ylabel(y.label)
        limit(axes, x, y)

    return Picture(whole, width, height)


def shown(name: str) -> str:
    """A name that fits a picture: one printable line, cut where it is too long."""
    start = name[: LONGEST + 1]
    printable = "".join(letter if letter.isprintable() else " " for letter in start)
    return printable if len(printable) <= LONGEST else f"{printable[: LONGEST - 3]}..."


def limit(axes: Axes, x: Axis, y: Axis) -> None:
    """Cut the axes to their reach."""
    if x.low is not None or x.high is not None:
        axes.set_xlim(x.low, x.high)
    if y.low is not None or y.high is not None:
        axes.set_ylim(*((y.high, y.low) if axes.yaxis_inverted() else (y.low, y.high)))


def name_above(axes: Axes, names: Sequence[tuple[str, str]]) -> None:
    """The first name at the left end, the last at the right, a third between them."""
    places = [(0.0, "left"), (1.0, "right")]
    if len(names) == 3:  # noqa: PLR2004 - as the docstring says
        places.insert(1, (0.5, "center"))
    for (label, colour), (place, side) in zip(names, places, strict=False):
        axes.text(
            place,
            1.03,
            shown(label),
            transform=axes.transAxes,
            ha=side,
            va="bottom",
            color=PALETTE[colour],
            fontweight="bold",
        )


def name_ends(axes: Axes, position: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names to the right of the last points, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    least = NEAREST * (high - low)
    place = -np.inf
    for value, label, colour in sorted(ends):
        place = max(value, place + least)
        axes.annotate(
            shown(label),
            (position, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontweight="bold",
            annotation_clip=False,
        )


def _legend_columns(labels: Sequence[str]) -> int:
    widest = max(len(shown(label)) for label in labels) + HANDLE_LETTERS
    return max(1, min(len(labels), LEGEND_LETTERS // widest))


def legend_rows(labels: Sequence[str]) -> int:
    """How many lines a legend of these names takes; 0 without names."""
    return -(-len(labels) // _legend_columns(labels)) if labels else 0


def legend(axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """Names with a sample of what they stand for, above the axes."""
    axes.figure.legend(
        handles,
        [shown(label) for label in labels],
        loc="outside upper left",  # the layout makes room for it
        ncols=_legend_columns(labels),
        frameon=False,
        borderaxespad=0,
        columnspacing=1.4,
        handlelength=1.9,
        handletextpad=0.5,
        labelspacing=0.25,
        fontsize=8.5,
    )
