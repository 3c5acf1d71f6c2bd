"""`aspect tune`: search for settings by validation accuracy, and leave them in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from aspect.cli.console import duration
from aspect.cli.options import Overwrite, ReadingOptions, SettingsOptions
from aspect.cli.session import Session, command
from aspect.cli.train import PlannedRun as Plan
from aspect.cli.train import plan_run
from aspect.config import parse_overrides
from aspect.errors import SettingsError, TrainingError

if TYPE_CHECKING:
    from aspect.experiment.tuning.request import Search
    from aspect.experiment.tuning.search import Progress, SearchResult

__all__ = ["tune"]

FOLDER = Path("runs/tune")
ENDS = ("pruned", "unhealthy", "failed")  # of trials that cannot be the best
MOST_WORKERS = 8  # unless asked for: the more at a time, the less each trial knows of the others


class StartOptions(NamedTuple):
    """What is tuned, and from where."""

    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `aspect methods`; may be repeated.  "
            "[default: that of the settings file, or aspect]",
            metavar="NAME",
        ),
    ] = None
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Where to start: a settings file, `defaults`, `published` or `paper`.  "
            "[default: what is shipped for the graph]",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Fix one setting; may be repeated.", metavar="KEY=VALUE"),
    ] = None

    def each(self) -> list[SettingsOptions]:
        """The same for one method after the other; none named: that of the settings."""
        names: list[str | None] = [*dict.fromkeys(self.method)] if self.method else [None]
        return [SettingsOptions(name, self.config, self.settings) for name in names]


class SearchOptions(NamedTuple):
    """How a search is carried out, the same for every graph and method."""

    trials: Annotated[
        int,
        typer.Option(
            help="Trials in all, those of an interrupted search included.", metavar="N", min=1
        ),
    ] = 30
    workers: Annotated[
        int | None,
        typer.Option(
            help="Trials at a time.  [default: the cores, or up to 4 on each GPU; at most 8]",
            metavar="N",
            min=1,
        ),
    ] = None
    seeds: Annotated[
        int, typer.Option(help="Pre-trainings of a trial, one seed each.", metavar="N", min=1)
    ] = 1
    splits: Annotated[
        Literal["search", "random", "published", "class-balanced"],
        typer.Option(
            help="Kind of splits; all of them count. `search`: stratified random ones that no "
            "table reports."
        ),
    ] = "search"
    max_cosine: Annotated[
        float,
        typer.Option(
            help="Highest mean cosine of two nodes, before centring, of the best trial.",
            metavar="X",
        ),
    ] = 0.9
    max_epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of a trial at most, but for the start, which keeps its own.  "
            "[default: 200, or those of the start if more]",
            metavar="N",
            min=1,
        ),
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Begin no trial after so many seconds; of several searches together.  "
            "[default: no limit]",
            metavar="N",
            min=0,
        ),
    ] = None

    def ending(self) -> Callable[[], float | None]:
        """From now on: the seconds that are left; None without a limit."""
        seconds, started = self.seconds, time.monotonic()
        if seconds is None:
            return lambda: None
        return lambda: max(0.0, started + seconds - time.monotonic())


@dataclass(frozen=True)
class _Planned:
    """One search of the command, with its place."""

    plan: Plan
    out: Path


@command
def tune(
    session: Session,
    graphs: Annotated[
        list[str],
        typer.Argument(help="Data sets, or files of graphs with labels.", metavar="GRAPH"),
    ],
    start: StartOptions,
    reading: ReadingOptions,
    how: SearchOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The search's folder; for several searches, the folder of their folders.  "
            "[default: runs/tune/GRAPH-METHOD]",
            metavar="DIR",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Search for settings by validation accuracy; test labels are masked.

    The same command goes on with a search that was interrupted. The first trial is the start.
    """
    left = how.ending()
    planned = _plan(graphs, start, reading, session.seed, out)
    for each in planned:
        if each.plan.experiment.perturbation is not None:
            session.screen.warn(
                f"The settings of {start.config or each.plan.settings_from} were for a perturbed "
                f"graph. The search is on {each.plan.source.name} as it is."
            )
    fixed = list(parse_overrides(start.settings or []))
    with session.screen.activity("Starting"):
        searches = [_prepare(session, each.plan, how, fixed) for each in planned]
        _check_folders(searches, [each.out for each in planned], overwrite=overwrite)
    results = [
        _run(session, search, each.out, how, left(), overwrite=overwrite)
        for search, each in zip(searches, planned, strict=True)
    ]
    if not any(result.best for result in results):
        raise TrainingError(_none_taken(results[0]))
    content = {"searches": [_content(result) for result in results]}
    session.screen.answer(content, lambda: _show(session, results))


def _plan(
    graphs: Sequence[str],
    start: StartOptions,
    reading: ReadingOptions,
    seed: int | None,
    out: Path | None,
) -> list[_Planned]:
    """One search for every graph and method; wrong names are answered here."""
    if len(graphs) > 1 and reading != ReadingOptions():
        raise SettingsError(
            f"Options of reading belong to one graph. Got {len(graphs)}: tune them one by one."
        )
    plans = [
        plan_run(graph, wanted, reading.reading(), seed)
        for graph in dict.fromkeys(graphs)
        for wanted in start.each()
    ]
    names = [f"{plan.source.name}-{plan.experiment.method}" for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(
                f"Two searches would share the folder {name!r}. Tune them one by one, "
                "each with its own --out."
            )
    if out is not None and len(plans) == 1:
        return [_Planned(plans[0], out)]
    return [_Planned(plan, (out or FOLDER) / name) for plan, name in zip(plans, names, strict=True)]


def _prepare(session: Session, plan: Plan, how: SearchOptions, fixed: Sequence[str]) -> Search:
    """Read the graph and refuse what cannot be searched, before anything is written."""
    from aspect.experiment.tuning.request import plan_search

    return plan_search(
        plan.experiment,
        settings_from=plan.settings_from,
        fixed=fixed,
        splits=how.splits,
        seeds=how.seeds,
        max_cosine=how.max_cosine,
        max_epochs=how.max_epochs,
        device=session.device,
        data_dir=session.data_dir,
    )


def _check_folders(searches: Sequence[Search], places: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse before the first search what the last one could not be written to."""
    from aspect.experiment.tuning.folder import SearchFolder

    for search, place in zip(searches, places, strict=True):
        SearchFolder(place, search).check(overwrite=overwrite)


def _run(
    session: Session,
    search: Search,
    out: Path,
    how: SearchOptions,
    seconds: float | None,
    *,
    overwrite: bool,
) -> SearchResult:
    from aspect.experiment.runner import Placement
    from aspect.experiment.tuning.search import tune as search_for

    screen, name = session.screen, search.source.name
    placement = Placement.choose(session.device, how.workers)
    workers = min(placement.workers, how.workers or MOST_WORKERS, how.trials)
    screen.note(
        f"Tuning {search.method} on {name}: {how.trials} trials, {workers} at a time, of up to "
        f"{search.max_epochs} epochs; start: {search.settings_from}."
    )
    try:
        with screen.progress("Trial") as advance:
            result = search_for(
                search,
                out,
                how.trials,
                executor=replace(placement, workers=workers).processes(),
                data_dir=session.data_dir,
                overwrite=overwrite,
                seconds=seconds,
                on_progress=_watch(advance, with_time=not screen.side.is_terminal),
            )
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("Interrupted. The same command goes on.") from interrupt
    _tell(session, result, how.trials)
    return result


def _watch(
    advance: Callable[[int, int, str], None], *, with_time: bool
) -> Callable[[Progress], None]:
    """Show progress in a line; a bar knows by itself how much time is left."""
    started = time.monotonic()

    def show(progress: Progress) -> None:
        words = list(_words(progress))
        new = progress.done - progress.before
        if with_time and new:
            seconds = (time.monotonic() - started) / new * (progress.total - progress.done)
            words.append(f"about {duration(seconds)} left")
        advance(progress.done, progress.total, ", ".join(words))

    return show


def _words(progress: Progress) -> Iterator[str]:
    if progress.best is not None:
        yield f"best {progress.best.validation:.2f}% (trial {progress.best.number})"
    for state in ENDS:
        count = sum(each.state == state for each in progress.results)
        if count:
            yield f"{count} {state}"
    yield f"{progress.running} running"


def _tell(session: Session, result: SearchResult, trials: int) -> None:
    """What the user should know beside the table."""
    note = session.screen.note
    if result.before >= trials:
        note(f"The search in {result.folder} has its {result.before} trials already.")
    elif result.before or result.requeued:
        note(
            f"Went on with the search in {result.folder}: {result.before} trials were done, "
            f"{result.requeued} unfinished ones were run again."
        )
    done = len(result.results)
    if done < trials:
        note(f"Time is over: {done} of {trials} trials are done. The same command goes on.")
    for state, words in (("failed", "failed"), ("unhealthy", "are close to collapse")):
        concerned = [trial for trial in result.results if trial.state == state]
        if concerned:
            session.screen.warn(
                f"{len(concerned)} of {done} trials of {result.search.method} on "
                f"{result.search.source.name} {words}. "
                f"Trial {concerned[0].number}: {concerned[0].error}"
            )


def _none_taken(result: SearchResult) -> str:
    name = f"{result.search.method} on {result.search.source.name}"
    if not result.results:
        return f"No trial of {name} was done within the time. Allow more --seconds."
    states = {trial.state for trial in result.results}
    words = "failed" if states == {"failed"} else "failed or are close to collapse"
    return (
        f"All {len(result.results)} trials of {name} {words}. The first: {result.results[0].error}"
    )


def _content(result: SearchResult) -> dict[str, Any]:
    best, start = result.best, result.start
    return {
        "graph": result.search.source.name,
        "method": result.search.method,
        "trials": len(result.results),
        **{state: result.count(state) for state in ("complete", *ENDS)},
        "validation": None if best is None else best.validation,
        "trial": None if best is None else best.number,
        "health": None if best is None or best.health is None else best.health.to_dict(),
        "start": None if start is None else start.validation,
        "max_cosine": result.search.max_cosine,
        "probe": result.search.probe,
        "splits": result.search.splits,
        "num_splits": result.search.num_splits,
        "seeds": list(result.search.seeds),
        "changed": result.changed(),
        "folder": str(result.folder),
        "settings": None if best is None else str(result.settings),
        "done_before": result.before,
        "run_again": result.requeued,
    }


def _show(session: Session, results: Sequence[SearchResult]) -> None:
    contents = [_content(result) for result in results]
    rows = [
        [
            each["graph"],
            each["method"],
            each["trials"],
            *(each[state] for state in ENDS),
            _decimals(each["validation"]),
            _decimals(each["start"]),
            _decimals(each["health"] and each["health"]["mean_cosine"]),
        ]
        for each in contents
    ]
    screen = session.screen
    columns = ["graph", "method", "trials", *ENDS, "best validation", "at the start", "mean cosine"]
    title = (
        f"Validation accuracy in percent, mean over splits ({contents[0]['splits']}) and seeds, "
        "and the mean cosine of the best trial; unhealthy trials cannot be the best:"
    )
    screen.table(columns, rows, title=title)
    for each, result in zip(contents, results, strict=True):
        if result.best is None:
            continue
        changed = " ".join(f"{name}={value}" for name, value in each["changed"].items())
        screen.say(f"{each['graph']}, {each['method']}: {changed or 'the start is the best'}")
        target = result.search.graph if result.search.source.is_named else ""
        screen.say(f"Next: aspect train {target}{' ' if target else ''}--config {each['settings']}")


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
