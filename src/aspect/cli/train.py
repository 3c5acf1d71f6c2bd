"""`aspect train`: a graph in, a run's folder out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.cli.options import FolderOptions, ReadingOptions, SettingsOptions
from aspect.cli.paths import CONFIG
from aspect.cli.plan import Plan, plan_run
from aspect.cli.session import Session, command
from aspect.errors import RunError

if TYPE_CHECKING:
    from aspect.graph.data import LabelledGraph
    from aspect.runs import RunOptions
    from aspect.training.trainer import EpochReport

__all__ = ["run_plan", "train"]


@command
def train(
    session: Session,
    wanted: SettingsOptions,
    reading: ReadingOptions,
    folder: FolderOptions,
    graph: Annotated[
        str | None,
        typer.Argument(
            help="Data set, .npz, edge table or saved Data.  [default: the embedded mixed graph]",
            metavar="GRAPH",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's folder.  [default: runs/GRAPH-METHOD-SEED]", metavar="DIR"),
    ] = None,
) -> None:
    """Learn embeddings of a graph; no labels are looked at."""
    if folder.resume and graph is None and wanted.config is None and out is not None:
        wanted = _settings_of_run(out, wanted)
    plan = plan_run(graph, wanted, reading.reading(), session.seed)
    record = run_plan(session, plan, out or plan.default_out, **folder._asdict())
    session.screen.answer(record, lambda: _show(session, record))


def _settings_of_run(out: Path, wanted: SettingsOptions) -> SettingsOptions:
    """`--out RUN --resume` is enough to go on: the folder knows the rest."""
    config = out / CONFIG
    if not config.is_file():
        raise RunError(f"There is no run to go on with in {out}. Name a graph to begin one.")
    return wanted._replace(config=str(config))


def run_plan(session: Session, plan: Plan, out: Path, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Train with progress on the screen; what the record warns of is said as well.

    `changes` are fields of `RunOptions`.
    """
    screen, experiment = session.screen, plan.experiment
    screen.note(
        f"Training {experiment.method} on {plan.source.name} with seed {experiment.seed}; "
        f"settings: {plan.settings_from}."
    )
    with screen.activity("Starting"):
        from aspect.runs import RunOptions, train_run
    options = RunOptions(
        device=session.device, data_dir=session.data_dir, settings_from=plan.settings_from
    )
    try:
        with screen.progress("Epoch") as advance:

            def show_epoch(report: EpochReport) -> None:
                advance(report.epoch, report.epochs, f"loss {report.values['loss']:.4f}")

            options = replace(_telling(session, options), on_epoch=show_epoch, **changes)
            record = train_run(experiment, out, options)
    except KeyboardInterrupt as interrupt:
        begun = (out / CONFIG).is_file()
        then = f"Go on with: aspect train --out {out} --resume" if begun else "Nothing was written."
        raise KeyboardInterrupt(f"Interrupted. {then}") from interrupt
    for warning in record["warnings"]:
        screen.warn(warning)
    return record


def _telling(session: Session, options: RunOptions) -> RunOptions:
    """The same options, with what was found and mended in the graph said on the screen."""

    def note_graph(labelled: LabelledGraph) -> None:
        for notice in labelled.graph.notices:
            session.screen.note(f"Note: {notice}")

    return replace(options, on_graph=note_graph)


def _show(session: Session, record: dict[str, Any]) -> None:
    graph, gate, run = record["graph"], record["gate"], record["run"]
    say = session.screen.say
    say(
        f"Trained {record['method']} on {graph['name']} ({graph['nodes']} nodes, "
        f"{graph['edges']} edges, {graph['features']} features): {record['epochs']} epochs "
        f"in {record['seconds']:.1f} s on {record['device']}."
    )
    if gate is not None:
        say(
            f"Nodes trust the low band with {gate['mean']:.2f} on average "
            f"(standard deviation {gate['std']:.2f})."
        )
    say(f"Embeddings, model and record are in {run}.")
    has_labels = graph["classes"] > 1
    say(f"Next: aspect {f'evaluate {run}' if has_labels else f'embed {run} --out nodes.parquet'}")
