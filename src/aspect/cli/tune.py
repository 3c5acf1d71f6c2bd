"""`aspect tune`: search for settings by scores on validation nodes, and leave them in a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from aspect.cli.completion import graph_argument
from aspect.cli.console import number_text
from aspect.cli.options import Engine, Overwrite, SettingsOptions
from aspect.cli.session import Session, command, require
from aspect.cli.train import PlannedRun, plan_run
from aspect.config import Config, Count, parse_overrides
from aspect.data.source import METRICS, NO_READING, Reading
from aspect.errors import SettingsError, TrainingError, counted
from aspect.experiment.search import SearchRequest, plan_search
from aspect.methods.registry import short_name

if TYPE_CHECKING:
    from aspect.experiment.search import Search
    from aspect.experiment.tuning import SearchResult

FOLDER = Path("runs/tune")
ENDS = ("pruned", "unhealthy", "failed")  # of trials that cannot be the best
MOST_WORKERS = 8  # by default: the more at a time, the less each trial knows of the others


class TuneOptions(Config):
    """What is tuned from where, and how, the same for every graph and method."""

    method: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None
    """A method of `aspect methods`.  [default: that of the settings file, or aspect]"""
    config: Annotated[str | None, typer.Option(metavar="FILE|NAME")] = None
    """Where to start: a settings file, `defaults`, `published` or `paper`.  [default: what is
    shipped for the graph]"""
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None
    """Fix a setting."""
    trials: Count = 30
    """Trials in all, those of an interrupted search included."""
    workers: Annotated[int | None, Field(ge=1)] = None
    """Trials at a time.  [default: the cores, or up to 4 on each GPU; at most 8]"""
    engine: Engine = "local"
    seconds: Annotated[float | None, Field(ge=0), typer.Option(metavar="N")] = None
    """Begin no trial after so many seconds; of several searches together.  [default: no limit]"""
    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """The search's folder; for several searches, the folder of their folders.  [default:
    runs/tune/GRAPH-METHOD]"""
    overwrite: Overwrite = False


@command
def tune(
    session: Session,
    graphs: Annotated[list[str], graph_argument("Data sets, or files of graphs with labels.")],
    options: TuneOptions,
    request: SearchRequest,
    reading: Reading,
) -> None:
    """Search for settings by their scores on validation nodes; test labels are masked.

    The same command goes on after an interrupt. The first trial has the settings of the start.
    """
    require("optuna", "matplotlib", "jinja2")  # its page is drawn at the end
    started, screen = time.monotonic(), session.screen
    plans = _plans(graphs, options, reading, session.seed)
    for plan in plans.values():
        experiment = plan.experiment
        done = {"perturbed": experiment.perturbation, "pruned": experiment.prune}
        words = [word for word, asked in done.items() if asked is not None]
        if words:
            screen.warn(
                f"The settings of {options.config or plan.settings_from} were for a graph that is "
                f"{' and '.join(words)}. The search is on {experiment.source.name} as it is."
            )
    with screen.activity("Starting"):
        from aspect.experiment.tuning import check_folder

        fixed = list(parse_overrides(options.settings or []))
        searches = {
            out: plan_search(
                plan.experiment,
                request,
                settings_from=plan.settings_from,
                fixed=fixed,
                device=session.device,
                data_dir=session.data_dir,
            )
            for out, plan in plans.items()
        }
        for out, search in searches.items():  # before the first one begins
            check_folder(out, search, overwrite=options.overwrite)
    results = []
    for out, search in searches.items():
        left = None
        if options.seconds is not None:
            left = max(0.0, started + options.seconds - time.monotonic())
        results.append(_run(session, search, out, options, left))
    if not any(result.best for result in results):
        raise TrainingError(_reason_for_none(results[0]))
    contents = [_content(result) for result in results]
    screen.answer({"searches": contents}, lambda: _show(session, contents, results))


def _plans(
    graphs: Sequence[str], options: TuneOptions, reading: Reading, seed: int | None
) -> dict[Path, PlannedRun]:
    """One search for every graph and method, by folder; wrong names are refused here."""
    if len(graphs) > 1 and reading != NO_READING:
        raise SettingsError(
            f"Options of reading belong to one graph. Got {len(graphs)}: tune them one by one."
        )
    methods: list[str | None] = [*dict.fromkeys(options.method)] if options.method else [None]
    starts = [
        SettingsOptions(method=method, config=options.config, settings=options.settings)
        for method in methods
    ]
    plans: dict[Path, PlannedRun] = {}
    for graph in dict.fromkeys(graphs):
        for start in starts:
            plan = plan_run(graph, start, reading, seed)
            name = f"{plan.experiment.source.name}-{short_name(plan.experiment.method)}"
            folder = (options.out or FOLDER) / name
            if folder in plans:
                raise SettingsError(
                    f"Two searches would share the folder {name!r}. Tune them one by one, "
                    "each with its own --out."
                )
            plans[folder] = plan
    if options.out is not None and len(plans) == 1:
        (plan,) = plans.values()
        return {options.out: plan}
    return plans


def _run(
    session: Session, search: Search, out: Path, options: TuneOptions, seconds: float | None
) -> SearchResult:
    from aspect.experiment.runner import Placement
    from aspect.experiment.tuning import tune as search_for
    from aspect.report.study import write_study_page

    screen, trials = session.screen, options.trials
    placement = Placement.choose(session.device, options.workers, options.engine)
    workers = min(placement.workers, options.workers or MOST_WORKERS, trials)
    epochs = search.settings["epochs"]  # of the first trial, which keeps its own number
    longer = f", the first of {epochs}" if epochs > search.max_epochs else ""
    screen.note(
        f"Tuning {search.method} on {search.source.name}: {counted(trials, 'trial')}, "
        f"{workers} at a time, of up to {search.max_epochs} epochs{longer}; "
        f"start: {search.settings_from}."
    )
    try:
        with screen.progress("Trial") as advance:
            result = search_for(
                search,
                out,
                trials,
                executor=replace(placement, workers=workers).processes(),
                data_dir=session.data_dir,
                overwrite=options.overwrite,
                seconds=seconds,
                on_progress=lambda now: advance(
                    len(now.trials), max(trials, len(now.trials)), _word(now)
                ),
            )
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("Interrupted. The same command goes on.") from interrupt
    if result.trials:
        with screen.activity("Drawing"):
            write_study_page(out)
    _note(session, result, trials)
    return result


def _word(result: SearchResult) -> str:
    """Where the search stands."""
    best = result.best
    words = [] if best is None else [f"best {best.validation:.2f}% (trial {best.number})"]
    words += [f"{count} {state}" for state in ENDS if (count := result.count(state))]
    return ", ".join([*words, f"{result.running} running"])


def _note(session: Session, result: SearchResult, trials: int) -> None:
    """What the user should know beside the table."""
    screen, done = session.screen, len(result.trials)
    if result.before >= trials:
        screen.note(
            f"The search in {result.folder} has its {counted(result.before, 'trial')} already."
        )
    elif result.before or result.run_again:
        screen.note(
            f"Went on with the search in {result.folder}: {counted(result.before, 'trial')} done, "
            f"{result.run_again} unfinished run again."
        )
    if done < trials:
        screen.note(
            f"Time is over: {done} of {counted(trials, 'trial')} done. The same command goes on."
        )
    for state, words in (("failed", "failed"), ("unhealthy", "are close to collapse")):
        concerned = [trial for trial in result.trials if trial.state == state]
        if concerned:
            screen.warn(
                f"{len(concerned)} of {counted(done, 'trial')} of {result.search.method} on "
                f"{result.search.source.name} {words}. "
                f"Trial {concerned[0].number}: {concerned[0].error}"
            )


def _reason_for_none(result: SearchResult) -> str:
    name = f"{result.search.method} on {result.search.source.name}"
    if not result.trials:
        return f"No trial of {name} was done within the time. Allow more --seconds."
    is_failure = result.count("failed") == len(result.trials)
    words = "failed" if is_failure else "failed or are close to collapse"
    return f"All {len(result.trials)} trials of {name} {words}. The first: {result.trials[0].error}"


def _content(result: SearchResult) -> dict[str, Any]:
    search, best, start = result.search, result.best, result.start
    return {
        "graph": search.source.name,
        "method": search.method,
        "trials": len(result.trials),
        **{state: result.count(state) for state in ("complete", *ENDS)},
        "validation": None if best is None else best.validation,
        "trial": None if best is None else best.number,
        "health": None if best is None or best.health is None else best.health.to_dict(),
        "start": None if start is None else start.validation,
        **search.model_dump(
            mode="json", include={"max_cosine", "probe", "metric", "splits", "num_splits", "seeds"}
        ),
        "changed": result.changed(),
        "folder": str(result.folder),
        "settings": None if best is None else str(result.settings),
        "report": str(result.page) if result.trials else None,
        "done_before": result.before,
        "run_again": result.run_again,
    }


def _show(
    session: Session, contents: Sequence[dict[str, Any]], results: Sequence[SearchResult]
) -> None:
    screen = session.screen
    columns = ["graph", "method", "trials", *ENDS, "best validation", "at the start", "mean cosine"]
    rows = []
    for content in contents:
        cosine = content["health"] and content["health"]["mean_cosine"]
        numbers = map(number_text, (content["validation"], content["start"], cosine))
        rows.append([*(content[column] for column in columns[:-3]), *numbers])
    metrics = " or ".join(dict.fromkeys(METRICS[result.search.metric] for result in results))
    title = (
        f"Validation {metrics} in percent, mean over splits ({contents[0]['splits']}) and seeds, "
        "and the mean cosine of the best trial; unhealthy trials cannot be the best:"
    )
    screen.table(columns, rows, title=title)
    for content, result in zip(contents, results, strict=True):
        if result.best is None:
            continue
        changed = " ".join(f"{name}={value}" for name, value in content["changed"].items())
        screen.say(f"{content['graph']}, {content['method']}: {changed or 'the start is the best'}")
        graph = [result.search.graph] if result.search.source.is_named else []
        screen.say(f"Trials: {content['report']}")
        screen.say(f"Next: {join(['aspect', 'train', *graph, '--config', content['settings']])}")
