"""Accuracy as the budget of a perturbation grows."""

from __future__ import annotations

from collections.abc import Sequence

from aspect.report.benchmark.sweeps import Curve, Sweep
from aspect.report.canvas import SERIES, Axis, Drawing, shown
from aspect.report.panels import Trend, trends

__all__ = ["sweep_drawings"]


def sweep_drawings(sweeps: Sequence[Sweep]) -> list[Drawing]:
    """One panel for every graph and perturbation; more where more lines than colours are there."""
    drawings = []
    for sweep in sweeps:
        curves = [curve for curve in sweep.curves if curve.budgets]
        parts = [
            curves[start : start + len(SERIES)] for start in range(0, len(curves), len(SERIES))
        ]
        drawings += [
            _panel(sweep, part, number, len(parts)) for number, part in enumerate(parts, 1)
        ]
    return drawings


def _panel(sweep: Sweep, curves: Sequence[Curve], number: int, count: int) -> Drawing:
    part = f" ({number} of {count})" if count > 1 else ""
    highest = max(max(curve.budgets) for curve in curves)
    ends = "; ".join(
        f"{shown(curve.title)} from {curve.means[0]:.1f}% to {curve.means[-1]:.1f}%"
        for curve in curves
    )
    return Drawing(
        f"{sweep.name}-curves" + (f"-{number}" if count > 1 else ""),
        f"{shown(sweep.graph)} under {_short_label(sweep)}{part}",
        "Accuracy on unseen nodes as the budget grows, a share of the edges; shaded: standard "
        "deviation over the splits. Flat is robust.",
        f"Accuracy up to a budget of {100 * highest:g}%: {ends}.",
        trends(
            [_trend(curve, colour) for curve, colour in zip(curves, SERIES, strict=False)],
            Axis("budget (% of the edges)"),
            Axis("accuracy (%)"),
            spread="bands",
        ),
    )


def _short_label(sweep: Sweep) -> str:
    """The label on one line: beside a solver, poison goes without saying."""
    mode = "" if sweep.solver and sweep.mode == "poison" else sweep.mode
    words = [shown(sweep.solver), mode, "" if sweep.features else "edges alone"]
    return f"{sweep.kind} ({', '.join(word for word in words if word)})"


def _trend(curve: Curve, colour: str) -> Trend:
    spread = None if None in curve.stds else [std or 0.0 for std in curve.stds]
    return Trend(curve.title, colour, [100 * b for b in curve.budgets], curve.means, spread)
