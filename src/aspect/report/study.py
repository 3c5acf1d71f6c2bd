"""The page of a search for settings: its trials as tables and figures, in one file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from aspect.experiment.tuning import SearchResult, TrialResult, load_search
from aspect.report.html import PALETTE, render
from aspect.report.plots import ROW, Plot
from aspect.workspace import write_text

__all__ = ["study_page", "write_study_page"]

LATER_IS_BLUER = LinearSegmentedColormap.from_list("trials", ["#b8c4d0", PALETTE["blue"]])
MIN_TRIALS_FOR_IMPORTANCES = 4  # with different scores; fewer give no regression
MOST_SLICES = 12  # of the most important settings
ACCURACY = "validation accuracy (%)"
COLUMNS = ("trial", "state", "validation", "epochs", "seconds", "mean cosine", "effective rank")
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
    importances = None
    if len({trial.value for trial in complete}) >= MIN_TRIALS_FOR_IMPORTANCES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            ratios = get_param_importances(
                study, evaluator=FanovaImportanceEvaluator(seed=0), params=varied
            )
        importances, varied = _importances(ratios), list(ratios)
    content = {
        "result": result,
        "search": search,
        "best": best,
        "start": result.start,
        "columns": [*COLUMNS, *searched, "why not"],
        "states": [state for state in STATES if result.count(state)],
        "history": _history(complete) if complete else None,
        "curves": _curves(study.get_trials(deepcopy=False), best),
        "importances": importances,
        "slices": [_slice(complete, name) for name in varied[:MOST_SLICES]],
        "rows": [_row(trial, searched, best) for trial in result.trials],
        "settings": result.settings.name,
    }
    return render("study.html.j2", content)


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


def _history(complete: Sequence[FrozenTrial]) -> Plot:
    numbers = [trial.number for trial in complete]
    values = [trial.value or 0.0 for trial in complete]

    def paint(axes: Axes) -> None:
        axes.scatter(numbers, values, s=18, color=PALETTE["blue"], label="complete trial")
        best = np.maximum.accumulate(values)
        axes.plot(numbers, best, color=PALETTE["orange"], label="best so far")
        axes.legend(loc="lower right")
        axes.set(xlabel="trial", ylabel=ACCURACY)

    return Plot(
        "history",
        "History",
        "Complete trials in their order; the line is the best so far. Trial 0 is the start.",
        "Validation accuracy of the trials in their order",
        paint,
    )


def _curves(trials: Sequence[FrozenTrial], best: TrialResult | None) -> Plot:
    def paint(axes: Axes) -> None:
        for trial in trials:
            steps = sorted(trial.intermediate_values.items())
            is_best = best is not None and trial.number == best.number
            axes.plot(
                [epoch for epoch, _ in steps],
                [value for _, value in steps],
                color=PALETTE["blue" if is_best else "soft"],
                alpha=1.0 if is_best else 0.35,
                linewidth=1.8 if is_best else 1.0,
                marker="o",
                markersize=3,
                zorder=3 if is_best else 2,
            )
        axes.set(xlabel="epoch", ylabel=ACCURACY)

    return Plot(
        "curves",
        "During training",
        "Score of each trial's first seed on the way; the best trial is blue. Short lines are "
        "pruned trials.",
        "Validation accuracy of the trials by epoch",
        paint,
    )


def _importances(ratios: dict[str, float]) -> Plot:
    def paint(axes: Axes) -> None:
        axes.barh(list(ratios), list(ratios.values()), color=PALETTE["blue"], height=0.7)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("ratio of the variance")

    return Plot(
        "importances",
        "Importances",
        "The ratio of the variance of the score that each setting explains (fANOVA of the complete "
        "trials). Few trials say little.",
        "Importance of the settings",
        paint,
        height=0.75 + 1.05 * ROW * max(len(ratios), 3),
    )


def _slice(complete: Sequence[FrozenTrial], name: str) -> Plot:
    values = [trial.params[name] for trial in complete]
    distribution = complete[0].distributions[name]

    def paint(axes: Axes) -> None:
        is_number = not isinstance(distribution, optuna.distributions.CategoricalDistribution)
        axes.scatter(
            values if is_number else [str(value) for value in values],
            [trial.value or 0.0 for trial in complete],
            c=[trial.number for trial in complete],
            cmap=LATER_IS_BLUER,
            s=18,
        )
        if getattr(distribution, "log", False):
            axes.set_xscale("log")

    return Plot(f"slice-{name}", name, "", f"Validation accuracy of the trials by {name}", paint)
