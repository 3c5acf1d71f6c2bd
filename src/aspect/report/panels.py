"""More panels: densities, trends with their spread, and maps with a dot for every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D

from aspect.report.canvas import (
    HEIGHT,
    LEGEND_ROW,
    PALETTE,
    WIDTH,
    Axis,
    Picture,
    legend,
    legend_rows,
    picture,
)

__all__ = ["Hill", "Trend", "hills", "marked_dots", "shaded_dots", "trends"]

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[int, tuple[float, ...]], ...] = (
    (0, ()),
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
)

MIDDLE = "#d7dae0"  # of the scale from the high band's colour to the low band's
MOST_DOT, LEAST_DOT = 26.0, 2.0  # area of a dot in points, by how many there are
DOTS_AREA = 9000.0  # that all dots may take together
MANY_DOTS = 5000  # beyond, shades between the colours would be most of a file


@dataclass(frozen=True)
class Hill:
    """A density."""

    label: str
    colour: str  # a name of the palette
    heights: Sequence[float]
    mark: float | None = None  # a place on the x axis worth a line, such as the mean


@dataclass(frozen=True)
class Trend:
    """Means with their spread."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None  # below and above


def hills(positions: Sequence[float], groups: Sequence[Hill], x: Axis, y: Axis) -> Picture:
    """Filled densities over the same positions, told apart by colour and dashes."""

    def paint(axes: Axes) -> None:
        for number, group in enumerate(groups):
            colour = PALETTE[group.colour]
            axes.fill_between(positions, group.heights, color=colour, alpha=0.14, linewidth=0)
            axes.plot(positions, group.heights, color=colour, linewidth=1.7, ls=_dashes(number))
            if group.mark is not None:
                axes.axvline(group.mark, ymax=0.06, color=colour, linewidth=2.2)
        axes.set_ylim(bottom=0)
        _legend(axes, groups, has_markers=False)

    return picture(paint, x, y, height=_height(groups))


def trends(
    groups: Sequence[Trend],
    x: Axis,
    y: Axis,
    *,
    spread: Literal["bars", "bands"] = "bars",
    ticks: Sequence[str] = (),
    has_markers: bool = True,
    has_lines: bool = True,
) -> Picture:
    """Lines through means, their spread as error bars or shaded; without lines, the means alone.

    With `ticks` the x axis counts from 1 and bears these words.
    """

    def paint(axes: Axes) -> None:
        for number, group in enumerate(groups):
            colour = PALETTE[group.colour]
            axes.plot(group.x, group.y, **_line(number, colour, has_markers, has_lines))
            if group.spread is not None:
                _draw_spread(axes, group, colour, spread)
        if ticks:
            axes.set_xticks(range(1, len(ticks) + 1), ticks)
        _legend(axes, groups, has_markers, has_lines)

    return picture(paint, x, y, height=_height(groups))


def marked_dots(
    x: Sequence[float], y: Sequence[float], names: Sequence[tuple[str, str]], kinds: Sequence[int]
) -> Picture:
    """A map whose dots are of several kinds, each with a name and a colour of the palette."""
    labels = [label for label, _ in names]

    def paint(axes: Axes) -> None:
        colours = [PALETTE[colour] for _, colour in names]
        _scatter(axes, x, y, c=np.asarray(colours)[np.asarray(kinds, dtype=int)])
        handles: list[Artist] = [
            Line2D([], [], marker="o", ls="", color=colour, markersize=5) for colour in colours
        ]
        legend(axes, handles, labels)
        _frame_map(axes)

    return Picture(paint, WIDTH, WIDTH + LEGEND_ROW * legend_rows(labels))


def shaded_dots(
    x: Sequence[float], y: Sequence[float], values: Sequence[float], label: str
) -> Picture:
    """A map whose dots go from the high band's colour at 0 to the low band's at 1."""
    scale = LinearSegmentedColormap.from_list("gate", [PALETTE["orange"], MIDDLE, PALETTE["blue"]])
    norm = Normalize(0, 1)

    def paint(axes: Axes) -> None:
        _scatter(axes, x, y, c=np.asarray(values, dtype=float), cmap=scale, norm=norm)
        bar = axes.figure.colorbar(
            ScalarMappable(norm, scale), ax=axes, location="top", shrink=0.7, aspect=28, pad=0.02
        )
        bar.set_label(label)
        bar.outline.set_visible(False)
        _frame_map(axes)

    return Picture(paint, WIDTH, WIDTH + 3 * LEGEND_ROW)


def _scatter(axes: Axes, x: Sequence[float], y: Sequence[float], **colours: Any) -> None:  # noqa: ANN401 - matplotlib's own
    """As one image: a dot for every node would make a file of megabytes."""
    area = float(np.clip(DOTS_AREA / max(1, len(x)), LEAST_DOT, MOST_DOT))
    few = len(x) <= MANY_DOTS
    alpha = 0.85 if few else 1
    axes.scatter(
        x, y, s=area, linewidths=0, alpha=alpha, antialiased=few, rasterized=True, **colours
    )


def _frame_map(axes: Axes) -> None:
    """A map has no units: a square without axes."""
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=(), yticks=(), box_aspect=1)
    axes.spines[:].set_visible(False)


def _dashes(number: int) -> tuple[int, tuple[float, ...]]:
    return DASHES[number % len(DASHES)]


def _line(number: int, colour: str, has_markers: bool, has_lines: bool = True) -> dict[str, Any]:
    marker = MARKERS[number % len(MARKERS)] if has_markers else "None"
    return {
        "color": colour,
        "linewidth": 1.7,
        "ls": _dashes(number) if has_lines else "none",
        "clip_on": has_lines,  # half a dot at the end of an axis would look like another sign
        "marker": marker,
        "markersize": 4.5,
    }


def _draw_spread(axes: Axes, group: Trend, colour: str, kind: Literal["bars", "bands"]) -> None:
    assert group.spread is not None
    means, spread = np.asarray(group.y, dtype=float), np.asarray(group.spread, dtype=float)
    if kind == "bands":
        axes.fill_between(
            group.x, means - spread, means + spread, color=colour, alpha=0.16, linewidth=0
        )
    else:
        axes.errorbar(
            group.x, means, spread, fmt="none", ecolor=colour, elinewidth=1, capsize=2, alpha=0.75
        )


def _legend(
    axes: Axes, groups: Sequence[Hill | Trend], has_markers: bool, has_lines: bool = True
) -> None:
    handles: list[Artist] = [
        Line2D([], [], **_line(number, PALETTE[group.colour], has_markers, has_lines))
        for number, group in enumerate(groups)
    ]
    legend(axes, handles, [group.label for group in groups])


def _height(groups: Sequence[Hill | Trend]) -> float:
    """Legends of more than one line must not eat up the panel."""
    return HEIGHT + LEGEND_ROW * max(0, legend_rows([group.label for group in groups]) - 1)
