"""`aspect evaluate`: how well the classes can be read off the embeddings.

Beside them stand controls that learn nothing, and what perturbed graphs leave of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from aspect.cli.paths import CONFIG, is_run
from aspect.cli.perturbation_options import SweepOptions
from aspect.cli.perturbed import PerturbedEvaluation
from aspect.cli.plan import Plan, plan_run
from aspect.cli.scores import explain, interval_text, number_text, score_text
from aspect.cli.session import Session, command
from aspect.cli.train import run_all
from aspect.data.files import is_file
from aspect.data.source import GraphSource
from aspect.errors import RunError, SettingsError
from aspect.settings import load_experiment

if TYPE_CHECKING:
    from aspect.experiment.comparison import Comparison

__all__ = ["evaluate"]

Answer = tuple[Mapping[str, Any], Callable[[], None]]  # for a program, and for people


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
    sweep: SweepOptions,
    scores: ScoreOptions,
) -> None:
    """Probe runs, or train on a graph with several seeds and probe those.

    Runs of the graph that are there already are taken, or gone on with if they were stopped. With
    --perturbation the same is done on perturbed graphs, and what they cost is shown.
    """
    scores.check()
    sweep.check(targets)
    how.check()
    if how.doubt and sweep.mode == "evade":
        raise SettingsError(
            "--doubt does not go with --mode evade: validation would choose on the clean graph. "
            "Leave --doubt out, or take --mode poison on a graph."
        )
    paths = _folders(targets)
    given = [*wanted, *trained, session.seed is not None, reading != ReadingOptions()]
    if paths and any(given):
        raise SettingsError(
            "--method, --config, --set, --seed, --seeds, --retrain and options of reading belong "
            f"to a graph. {targets[0]} is a run."
        )
    perturbed = PerturbedEvaluation(session, sweep, how)
    if paths:
        content, show = _answer_of_runs(perturbed, paths)
    else:
        sweep.check_clean(paths)
        plans = _plans(session, targets[0], wanted, reading, trained, sweep)
        content, show = _answer_of_graph(perturbed, plans, retrain=trained.retrain)
    # Said before it is written: a disk that is full by now does not cost the scores.
    session.screen.answer(content, show)
    if scores.out is not None:
        from aspect.workspace import write_json

        write_json(scores.out, content)


def _answer_of_runs(perturbed: PerturbedEvaluation, paths: Sequence[Path]) -> Answer:
    """Probe what is trained already, on the graphs that it was trained on or on perturbed ones."""
    poisoned = [path for path in paths if _is_poisoned(path)]
    if poisoned:
        perturbed.sweep.check_poisoned(poisoned[0])
        return perturbed.answer(perturbed.of_poisoned_runs(paths, poisoned[0]))
    perturbed.sweep.check_clean(paths)
    if perturbed.sweep.perturbation:
        return perturbed.answer(perturbed.of_runs(paths))
    return _compare(perturbed.session, paths, perturbed.how)


def _answer_of_graph(
    perturbed: PerturbedEvaluation, plans: Sequence[Plan], *, retrain: bool
) -> Answer:
    """Train what is not trained yet, and probe it."""
    if perturbed.how.doubt:
        from aspect.evaluation.pruning import check_pruning

        check_pruning(plans[0].experiment.method, perturbed.how.doubt)
    if perturbed.sweep.perturbation:
        return perturbed.answer(perturbed.of_graph(plans, retrain=retrain))
    paths = run_all(perturbed.session, plans, retrain=retrain)
    return _compare(perturbed.session, paths, perturbed.how)


def _plans(
    session: Session,
    graph: str,
    wanted: SettingsOptions,
    reading: ReadingOptions,
    trained: SeedOptions,
    sweep: SweepOptions,
) -> list[Plan]:
    """One training on the clean graph for every seed."""
    first = session.seed or 0
    plans = [
        plan_run(graph, wanted, reading.reading(), seed)
        for seed in range(first, first + (trained.seeds or 1))
    ]
    named = plans[0].experiment.perturbation
    if named is not None and not sweep.perturbation:
        raise SettingsError(
            f"The settings in {wanted.config} are of a training on a perturbed graph. "
            f"Pass --perturbation {named.file} to evaluate that, or take other settings."
        )
    return [plan.on_clean_graph() for plan in plans]


def _is_poisoned(folder: Path) -> bool:
    """Whether a run's settings name a perturbation."""
    config = folder / CONFIG
    if not is_file(config):
        raise RunError(
            f"{folder} is not a run's folder. Train one with: aspect train --out {folder}."
        )
    return load_experiment(config).perturbation is not None


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


def _compare(
    session: Session,
    paths: Sequence[Path],
    how: ProbeOptions,
) -> Answer:
    with session.screen.activity("Starting"):
        from aspect.experiment.comparison import evaluate_runs
    with session.screen.progress("Evaluating") as advance:
        comparison = evaluate_runs(
            paths,
            splits=how.splits or "random",
            probe=how.probe,
            doubt=how.doubt or (),
            device=session.device,
            data_dir=session.data_dir,
            on_step=advance,
        )
    for warning in comparison.warnings:
        session.screen.warn(warning)
    return comparison.to_dict(), lambda: _show(session, comparison)


def _show(session: Session, comparison: Comparison) -> None:
    rows = [row.to_dict() for row in comparison.rows]
    names = {"optimistic": "optimistic*", "macro_f1": "macro-F1", "roc_auc": "ROC AUC"}
    columns = {key: name for key, name in names.items() if any(row[key] for row in rows)}
    columns["knn"] = "k-NN"
    cells = [
        [
            row["name"],
            score_text(row["strict"]),
            interval_text(row["strict"]),
            *(score_text(row[key]) for key in columns),
        ]
        for row in rows
    ]
    count = len(comparison.runs)
    title = (
        f"{comparison.graph}: percent over {count} run{'s' if count > 1 else ''} "
        f"and {rows[0]['strict']['splits']} {comparison.splits} splits; probe: {comparison.probe}"
    )
    screen = session.screen
    screen.table(["method", "accuracy", "95% interval", *columns.values()], cells, title=title)
    if "optimistic" in columns:
        screen.say("* chooses the step on the test set: only for comparison with published tables.")
    explain(screen, [row["name"] for row in rows[1:]])
    for notice in comparison.notices:
        screen.say(notice)
    _show_classes(session, comparison)


def _show_classes(session: Session, comparison: Comparison) -> None:
    cells = [
        [
            comparison.class_names[score.label],
            number_text(score.recall),
            number_text(score.precision),
            number_text(score.f1),
            number_text(score.roc_auc),
            f"{score.support:g}",
        ]
        for score in comparison.per_class
    ]
    session.screen.table(
        ["class", "recall", "precision", "F1", "ROC AUC", "test nodes"],
        cells,
        title=f"Classes of {comparison.graph} with {comparison.rows[0].name}, in percent",
    )
