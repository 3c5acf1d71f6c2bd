"""`aspect evaluate`: how well the classes can be read off the embeddings.

Beside them stands what no training gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.cli.options import (
    ProbeOptions,
    ReadingOptions,
    ScoreOptions,
    SeedOptions,
    SettingsOptions,
)
from aspect.cli.paths import is_run
from aspect.cli.plan import Plan, plan_run
from aspect.cli.session import Session, command
from aspect.cli.train import run_plan
from aspect.errors import CheckpointError, RunError, SettingsError
from aspect.graph.source import GraphSource

if TYPE_CHECKING:
    from aspect.comparison import Comparison

__all__ = ["evaluate"]

ROWS = 4  # the method, random weights, raw features, majority class


@command
def evaluate(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs (seeds of one method), or one graph to train on.",
            metavar="RUN...|GRAPH",
        ),
    ],
    wanted: SettingsOptions,
    reading: ReadingOptions,
    how: ProbeOptions,
    trained: SeedOptions,
    scores: ScoreOptions,
) -> None:
    """Probe runs, or train on a graph with several seeds and probe those.

    Runs of the graph that are there already are taken, or gone on with if they were stopped.
    """
    scores.check()
    paths = _folders(targets)
    given = [*wanted, *trained, session.seed is not None, reading != ReadingOptions()]
    if paths and any(given):
        raise SettingsError(
            "--method, --config, --set, --seed, --seeds, --retrain and options of reading belong "
            f"to a graph. {targets[0]} is a run."
        )
    if not paths:
        first = session.seed or 0
        plans = [
            plan_run(targets[0], wanted, reading.reading(), seed)
            for seed in range(first, first + (trained.seeds or 1))
        ]
        paths = _train_all(session, plans, retrain=trained.retrain)
    comparison = _compare(session, paths, how)
    content = comparison.to_dict()
    # Said before it is written: a disk that is full by now does not cost the scores.
    session.screen.answer(content, lambda: _show(session, comparison))
    if scores.out is not None:
        from aspect.training.folder import write_json

        write_json(scores.out, content)


def _folders(targets: Sequence[str]) -> list[Path]:
    """The runs, or nothing if the target is a graph: its name wins over a folder without a run."""
    if (
        len(targets) == 1
        and GraphSource(graph=targets[0]).is_named
        and not is_run(Path(targets[0]))
    ):
        return []
    folders = [Path(target) for target in targets if Path(target).is_dir()]
    if len(targets) > 1 and len(folders) < len(targets):
        other = next(target for target in targets if not Path(target).is_dir())
        raise RunError(f"{other} is not a run's folder. Give folders of runs, or a single graph.")
    if not folders and not Path(targets[0]).suffix and len(Path(targets[0]).parts) > 1:
        raise RunError(f"There is no run in {targets[0]}. Train one with: aspect train --out.")
    return folders


def _train_all(session: Session, plans: Sequence[Plan], *, retrain: bool) -> list[Path]:
    """One run per plan under runs/; those that are complete are taken as they are."""
    try:
        for plan in plans:
            run_plan(session, plan, plan.default_out, resume=not retrain, overwrite=retrain)
    except (RunError, CheckpointError) as error:
        # What `train` calls --overwrite would here replace the file of scores.
        raise type(error)(str(error).replace("--overwrite", "--retrain")) from error
    return [plan.default_out for plan in plans]


def _compare(
    session: Session,
    paths: Sequence[Path],
    how: ProbeOptions,
) -> Comparison:
    with session.screen.activity("Starting"):
        from aspect.comparison import evaluate_runs
    with session.screen.progress("Evaluating") as advance:
        done = iter(range(ROWS))
        comparison = evaluate_runs(
            paths,
            splits=how.splits,
            probe=how.probe,
            device=session.device,
            data_dir=session.data_dir,
            on_row=lambda name: advance(next(done), ROWS, name),
        )
    for warning in comparison.warnings:
        session.screen.warn(warning)
    return comparison


def _show(session: Session, comparison: Comparison) -> None:
    rows = [row.to_dict() for row in comparison.rows]
    columns = {"optimistic": "optimistic*", "macro_f1": "macro-F1", "roc_auc": "ROC AUC"}
    if not any(row["roc_auc"] for row in rows):
        del columns["roc_auc"]
    columns["knn"] = "k-NN"
    cells = [
        [
            row["name"],
            _score(row["strict"]),
            _interval(row["strict"]),
            *(_score(row[key]) for key in columns),
        ]
        for row in rows
    ]
    count = len(comparison.runs)
    title = (
        f"{comparison.graph}: percent over {count} run{'s' if count > 1 else ''} "
        f"and {rows[0]['strict']['splits']} {comparison.splits} splits; probe: {comparison.probe}"
    )
    screen = session.screen
    screen.table(["method", "strict", "95% interval", *columns.values()], cells, title=title)
    screen.say("* chooses the step on the test set: only for comparison with published tables.")
    for notice in comparison.notices:
        screen.say(notice)


def _score(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return "-"
    spread = "" if values["std"] is None else f" ± {values['std']:.2f}"
    return f"{values['mean']:.2f}{spread}"


def _interval(values: Mapping[str, Any]) -> str:
    return "-" if values["low"] is None else f"{values['low']:.2f} to {values['high']:.2f}"
