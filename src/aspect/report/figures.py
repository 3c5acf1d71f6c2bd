"""Panels: histograms, curves, ladders and clouds. What they are drawn on stands in `canvas`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from aspect.report.canvas import (
    PALETTE,
    Axis,
    Drawing,
    Picture,
    limit,
    name_above,
    name_ends,
    picture,
    shown,
)

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


DOTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 3.2, "clip_on": False}


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
    curves: Sequence[Sequence[float]]  # nan: nothing is known there


@dataclass(frozen=True)
class Cloud:
    """Points of one kind."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]


def areas(edges: Sequence[float], groups: Sequence[Area], x: Axis, y: Axis) -> Picture:
    """Filled histograms; names stand above, from left to right in the order of the marks."""

    def paint(axes: Axes) -> None:
        for group in groups:
            colour = PALETTE[group.colour]
            axes.stairs(group.shares, edges, fill=True, color=colour, alpha=0.35)
            axes.stairs(group.shares, edges, color=colour, linewidth=1.4, baseline=None)
            if group.mark is not None:
                axes.axvline(group.mark, color=colour, linewidth=1.2, linestyle=(0, (3, 2)))
        ordered = sorted(groups, key=lambda group: group.mark or 0.0)
        name_above(axes, [(group.label, group.colour) for group in ordered])

    return picture(paint, x, y)


def bundles(
    positions: Sequence[float],
    groups: Sequence[Bundle],
    x: Axis,
    y: Axis,
    background: tuple[Sequence[float], Area] | None = None,
) -> Picture:
    """Curves over the same positions: seeds thin, their mean thick and named at its end.

    A curve with gaps is one of dots. `background` puts a histogram behind them, scaled to a third
    of the height.
    """

    def paint(axes: Axes) -> None:
        ends = []
        for group in groups:
            curves, colour = np.asarray(group.curves, dtype=float), PALETTE[group.colour]
            if len(curves) > 1:
                axes.plot(positions, curves.T, color=colour, linewidth=0.6, alpha=0.35)
            mean = curves.mean(axis=0)
            is_known = np.isfinite(mean)
            style = {"linewidth": 2.0} if is_known.all() else DOTS
            axes.plot(positions, mean, color=colour, **style)
            ends.append((float(mean[is_known][-1]), group.label, colour))
        limit(axes, x, y)
        if background is not None:
            _draw_background(axes, *background)
        name_ends(axes, positions[-1], ends)

    return picture(paint, x, y)


def ladder(names: Sequence[str], groups: Sequence[Cloud], x: Axis) -> Picture:
    """One rung per name, from top to bottom, and on it one dot of every group."""

    def paint(axes: Axes) -> None:
        rungs = range(len(names))
        ends = np.asarray([group.x for group in groups], dtype=float)
        axes.hlines(rungs, ends.min(axis=0), ends.max(axis=0), color=PALETTE["soft"], linewidth=1)
        for group in groups:
            axes.plot(group.x, rungs, "o", color=PALETTE[group.colour], markersize=5)
        axes.set_yticks(rungs, [shown(name) for name in names], color=PALETTE["ink"])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        name_above(axes, [(group.label, group.colour) for group in groups])

    return picture(paint, x, Axis("", -0.6, len(names) - 0.4))


def clouds(groups: Sequence[Cloud], x: Axis, y: Axis) -> Picture:
    """One small dot per point; names stand above."""

    def paint(axes: Axes) -> None:
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
        name_above(axes, [(group.label, group.colour) for group in groups])

    return picture(paint, x, y)


def _draw_background(axes: Axes, edges: Sequence[float], area: Area) -> None:
    top = axes.get_ylim()[1]
    shares = np.asarray(area.shares, dtype=float)
    scaled = shares / max(shares.max(), np.finfo(float).tiny) * top / 3
    colour = PALETTE[area.colour]
    axes.stairs(scaled, edges, fill=True, color=colour, alpha=0.25)
    middle = float(edges[int(shares.argmax())])
    axes.text(middle, top / 3, shown(area.label), color=colour, ha="center", va="bottom")
