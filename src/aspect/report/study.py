"""The page of a search for settings: Optuna's own plots of its study, in one file."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import optuna
from markupsafe import Markup, escape
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import TrialState
from optuna.visualization import matplotlib as plots

from aspect.experiment.tuning import SearchResult, TrialResult, load_search
from aspect.report.html import render
from aspect.workspace import write_text

__all__ = ["study_page", "write_study_page"]

# As in report.css, which replaces them on a dark screen.
INK, SOFT, GRID, BLUE, ORANGE = "#1b1f24", "#6b7280", "#e3e6ea", "#0072b2", "#d55e00"
COLOURS = {INK: "ink", SOFT: "soft", GRID: "grid", BLUE: "blue", ORANGE: "orange"}

LATER_IS_BLUER = LinearSegmentedColormap.from_list("trials", ["#b8c4d0", BLUE])

MIN_TRIALS_FOR_IMPORTANCES = 4  # with different scores; fewer give no regression
WIDE_RANGE = 20  # of a logarithmic axis, which then has ticks at powers of ten alone
MOST_SLICES = 12  # of the most important settings
ACCURACY = "validation accuracy (%)"
COLUMNS = (
    "trial",
    "state",
    "validation",
    "epochs",
    "seconds",
    "mean cosine",
    "effective rank",
)
STATES = ("complete", "pruned", "unhealthy", "failed")
NO_DATE = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the same numbers, the same bytes


@dataclass(frozen=True)
class StudyPlot:
    """A plot with its words."""

    title: str
    caption: str
    svg: Markup


def write_study_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a search's folder, there or elsewhere."""
    result, study = load_search(folder)
    target = out or result.page
    write_text(target, study_page(result, study))
    return target


def study_page(result: SearchResult, study: optuna.Study) -> str:
    """The page as HTML; nothing is fetched by it.

    Args:
        result: The search.
        study: Its trials as an Optuna study.
    """
    best, search = result.best, result.search
    searched = list(search.space)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    varied = [name for name in searched if len({trial.params[name] for trial in complete}) > 1]
    with warnings.catch_warnings(), mpl.rc_context({"svg.fonttype": "none"}):
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        importances = None
        if len({trial.value for trial in complete}) >= MIN_TRIALS_FOR_IMPORTANCES:
            importances, varied = _importances(study, varied)
        return render(
            "study.html.j2",
            {
                "result": result,
                "search": search,
                "best": best,
                "start": result.start,
                "columns": [*COLUMNS, *searched, "why not"],
                "states": [state for state in STATES if result.count(state)],
                "history": _history(study) if complete else None,
                "curves": _curves(study, best),
                "importances": importances,
                "slices": [_slice(study, name) for name in varied[:MOST_SLICES]],
                "rows": [_row(trial, searched, best) for trial in result.trials],
                "settings": result.settings.name,
            },
        )


def _row(trial: TrialResult, searched: list[str], best: TrialResult | None) -> dict[str, Any]:
    health = trial.health
    numbers = [
        (trial.validation, ".2f"),
        (trial.epochs, "d"),
        (trial.seconds, ".1f"),
        (health and health.mean_cosine, ".2f"),
        (health and health.effective_rank, ".1f"),
    ]
    cells = [
        ("-", None) if value is None else (f"{value:{form}}", value) for value, form in numbers
    ]
    for name in searched:
        value = trial.settings[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        cells.append((str(value), value if is_number else None))
    return {
        "number": trial.number,
        "state": trial.state,
        "is_best": best is not None and trial.number == best.number,
        "cells": cells,
        "error": trial.error,
    }


# The plots


def _history(study: optuna.Study) -> StudyPlot:
    def draw() -> Axes:
        axes = plots.plot_optimization_history(study, target_name=ACCURACY)
        axes.collections[0].set_color(BLUE)
        axes.lines[0].set(color=ORANGE, alpha=1.0)
        axes.set_xlabel("trial")
        axes.legend(["complete trial", "best so far"], frameon=False, labelcolor=SOFT)
        return axes

    return StudyPlot(
        "History",
        "Complete trials in their order; the line is the best so far. Trial 0 is the start.",
        _svg("history", "Validation accuracy of the trials in their order", draw),
    )


def _curves(study: optuna.Study, best: TrialResult | None) -> StudyPlot:
    def draw() -> Axes:
        axes = plots.plot_intermediate_values(study)
        for line in axes.lines:
            is_best = best is not None and line.get_label() == f"Trial{best.number}"
            line.set(color=BLUE if is_best else SOFT, alpha=1.0 if is_best else 0.35)
            line.set(zorder=3 if is_best else 2, linewidth=1.8 if is_best else 1.0)
        if legend := axes.get_legend():
            legend.remove()
        axes.set(xlabel="epoch", ylabel=ACCURACY)
        return axes

    return StudyPlot(
        "During training",
        "Score of each trial's first seed on the way; the best trial is blue. Short lines are "
        "pruned trials.",
        _svg("curves", "Validation accuracy of the trials by epoch", draw),
    )


def _importances(study: optuna.Study, names: Sequence[str]) -> tuple[StudyPlot, list[str]]:
    """The plot, and the settings with the most important first."""
    order: list[str] = []

    def draw() -> Axes:
        evaluator = FanovaImportanceEvaluator(seed=0)
        axes = plots.plot_param_importances(study, evaluator=evaluator, params=list(names))
        order.extend(label.get_text() for label in reversed(axes.get_yticklabels()))
        for bar in axes.patches:
            bar.set_color(BLUE)
        if legend := axes.get_legend():
            legend.remove()
        axes.set(xlabel="share of the variance", ylabel="")
        axes.grid(visible=False, axis="y")
        return axes

    plot = StudyPlot(
        "Importances",
        "The share of the variance of the score that each setting explains (fANOVA of the complete "
        "trials). Few trials say little.",
        _svg("importances", "Importance of the settings", draw, (6.4, 0.6 + 0.22 * len(names))),
    )
    return plot, order


def _slice(study: optuna.Study, name: str) -> StudyPlot:
    def draw() -> Axes:
        axes = plots.plot_slice(study, params=[name], target_name="")
        assert isinstance(axes, Axes)  # of one setting
        for other in axes.figure.axes:
            if other is not axes:
                other.remove()  # the colour bar
        points = axes.collections[0]
        points.set(cmap=LATER_IS_BLUER, edgecolor="none")
        axes.set_xlabel("")
        if axes.get_xscale() == "log":
            low, high = axes.get_xlim()
            subs = (1,) if high / low > WIDE_RANGE else (1, 2, 5)
            axes.xaxis.set_major_locator(LogLocator(subs=subs))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        return axes

    alt = f"Validation accuracy of the trials by {name}"
    return StudyPlot(name, "", _svg(f"slice-{name}", alt, draw, (3.2, 2.0)))


def _svg(
    name: str, alt: str, draw: Callable[[], Axes], inches: tuple[float, float] = (4.3, 2.9)
) -> Markup:
    """A plot of Optuna in the look of the page."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):  # Optuna changes the style of all later figures
        axes = draw()
        figure = axes.get_figure()
        assert isinstance(figure, Figure)  # it was just drawn
        figure.set_size_inches(*inches)
        _restyle(axes)
        figure.savefig(file, format="svg", bbox_inches="tight", transparent=True, metadata=NO_DATE)
        plt.close(figure)
    svg = file.getvalue()
    head, body = svg[svg.index("<svg") :].split(">", 1)
    view = re.search(r'viewBox="[\d. ]+"', head)
    assert view is not None  # matplotlib always writes one
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", body)  # several plots share a page
    for colour, variable in COLOURS.items():
        body = body.replace(colour, f"var(--{variable})")
    # matplotlib escapes the text that it writes.
    return Markup(f'<svg role="img" aria-label="{escape(alt)}" {view[0]}>{body}')  # noqa: S704


def _restyle(axes: Axes) -> None:
    """Replace the colours and the title that Optuna's plots come with."""
    axes.set_title("", loc="left")
    axes.set_title("")
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    for gridline in (*axes.get_xgridlines(), *axes.get_ygridlines()):
        gridline.set_color(GRID)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=SOFT, linewidth=0.8)
    axes.tick_params(which="both", colors=SOFT, labelsize=9, length=0)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set(color=SOFT, fontsize=9.5)
    for text in axes.texts:
        text.set(color=INK, fontsize=8.5)
