"""The page of a search for settings: how its trials went, and which settings matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from aspect.experiment.tuning import SearchResult, TrialResult, load_search
from aspect.report.html import PALETTE, render
from aspect.report.plots import Plot
from aspect.workspace import write_text

BLUE, ORANGE, SOFT = PALETTE["blue"], PALETTE["orange"], PALETTE["soft"]
LATER_IS_BLUER = LinearSegmentedColormap.from_list("trials", ["#b8c4d0", BLUE])

MIN_TRIALS_FOR_IMPORTANCES = 4  # with different scores; fewer give no regression
WIDE_RANGE = 20  # of a logarithmic axis, which then has ticks at powers of ten alone
MOST_SLICES = 12  # of the most important settings
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
    importances: dict[str, float] = {}
    if len({trial.value for trial in complete}) >= MIN_TRIALS_FOR_IMPORTANCES:
        evaluator = FanovaImportanceEvaluator(seed=0)
        importances = get_param_importances(study, evaluator=evaluator, params=varied)
        varied = list(importances)  # the most important first
    return render(
        "study.html.j2",
        {
            "result": result,
            "search": search,
            "best": best,
            "start": result.start,
            "columns": [*COLUMNS, *searched, "why not"],
            "states": [state for state in STATES if result.count(state)],
            "history": _history(complete, search.score_name) if complete else None,
            "curves": _curves(study.get_trials(deepcopy=False), best, search.score_name),
            "importances": _importances(importances) if importances else None,
            "slices": [_slice(complete, name, search.score_name) for name in varied[:MOST_SLICES]],
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


def _history(complete: Sequence[FrozenTrial], score_name: str) -> Plot:
    numbers = [trial.number for trial in complete]
    values = np.array([trial.value for trial in complete], dtype=float)

    def paint(axes: Axes) -> None:
        axes.scatter(numbers, values, color=BLUE, s=20, zorder=3)
        axes.plot(numbers, np.maximum.accumulate(values), color=ORANGE)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="trial", ylabel=f"{score_name} (%)")
        axes.legend(["complete trial", "best so far"])

    return Plot(
        "history",
        "History",
        "Complete trials in their order; the line is the best so far. Trial 0 is the start.",
        f"Mean {score_name} of the trials in their order",
        paint,
    )


def _curves(trials: Sequence[FrozenTrial], best: TrialResult | None, score_name: str) -> Plot:
    def paint(axes: Axes) -> None:
        for trial in trials:
            is_best = best is not None and trial.number == best.number
            axes.plot(
                list(trial.intermediate_values),
                list(trial.intermediate_values.values()),
                marker=".",
                color=BLUE if is_best else SOFT,
                alpha=1.0 if is_best else 0.35,
                zorder=3 if is_best else 2,
                linewidth=1.8 if is_best else 1.0,
            )
        axes.set(xlabel="epoch", ylabel=f"{score_name} (%)")

    return Plot(
        "curves",
        "During training",
        "Score of each trial's first seed on the way; the best trial is blue. Short lines are "
        "pruned trials.",
        f"Mean {score_name} of the trials by epoch",
        paint,
    )


def _importances(importances: dict[str, float]) -> Plot:
    def paint(axes: Axes) -> None:
        bars = axes.barh(list(importances), list(importances.values()), color=BLUE)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=8.5)
        axes.invert_yaxis()
        axes.set_xlabel("share of the variance")
        axes.grid(visible=False, axis="y")

    return Plot(
        "importances",
        "Importances",
        "The share of the variance of the score that each setting explains (fANOVA of the complete "
        "trials). Few trials say little.",
        "Importance of the settings",
        paint,
        height=0.6 + 0.22 * len(importances),
    )


def _slice(complete: Sequence[FrozenTrial], name: str, score_name: str) -> Plot:
    def paint(axes: Axes) -> None:
        values = [trial.params[name] for trial in complete]
        is_number = not isinstance(values[0], str | bool)
        axes.scatter(
            values if is_number else [str(value) for value in values],
            np.array([trial.value for trial in complete], dtype=float),
            c=[trial.number for trial in complete],
            cmap=LATER_IS_BLUER,
            s=20,
        )
        if isinstance(values[0], int) and is_number:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if getattr(complete[0].distributions[name], "log", False):
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            subs = (1,) if high / low > WIDE_RANGE else (1, 2, 5)
            axes.xaxis.set_major_locator(LogLocator(subs=subs))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())

    alt = f"Mean {score_name} of the trials by {name}"
    return Plot(f"slice-{name}", name, "", alt, paint, height=2.0)
