"""`aspect bench`: a plan in, a folder of records out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from aspect.cli.completion import complete_plan
from aspect.cli.options import Engine
from aspect.cli.session import OUR_ERROR, Session, command
from aspect.config import Config
from aspect.data.files import is_folder
from aspect.errors import FileError, SettingsError, counted
from aspect.experiment.plan import short_names
from aspect.training.progress import duration

if TYPE_CHECKING:
    from aspect.experiment.perturbations import AttackProgress, NeededFile
    from aspect.experiment.record import Record
    from aspect.experiment.runner import Bench, BenchProgress, Placement
    from aspect.experiment.store import BenchFolder

PERTURBATIONS = Path("results") / "perturbations"


class BenchOptions(Config):
    """Which part of a plan is meant, and what is run although it is over."""

    entries: Annotated[list[str] | None, typer.Option("--entry", metavar="NAME")] = None
    """Only this variant of the plan."""
    graphs: Annotated[list[str] | None, typer.Option("--graph", metavar="NAME")] = None
    """Only this graph."""
    redo: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None
    """Run this variant again, done or not."""
    retry_failed: bool = False
    """Try the runs that failed again."""
    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder of the records.  [default: runs/PLAN]"""
    workers: Annotated[int | None, Field(ge=1)] = None
    """Runs at a time.  [default: the cores, or up to 4 on each GPU]"""
    seconds: Annotated[float | None, Field(ge=0), typer.Option(metavar="N")] = None
    """Begin no run after so many seconds; the same command goes on.  [default: no limit]"""
    engine: Engine = "local"
    searches: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder of a search by `aspect tune`, or of several: the best settings of a method on a graph
    that it holds come before all others."""
    perturbations: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder of perturbation files to use; what it lacks is made in the records' folder.  [default:
    results/perturbations, if it is there]"""
    done: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None
    """Records of an earlier bench, a folder or a .jsonl file: its runs are not run again."""
    show_list: Annotated[bool, typer.Option("--list")] = False
    """Only show what is done, failed and left."""


@command(without=("seed",))
def bench(
    session: Session,
    plan: Annotated[
        str,
        typer.Argument(
            help="A shipped plan's name, or a file of one.",
            metavar="PLAN",
            autocompletion=complete_plan,
        ),
    ],
    options: BenchOptions,
) -> None:
    """Run a plan: methods x graphs x perturbations x splits x seeds, one record per run.

    Perturbation files that attacks (metattack, dice) lack are made first. Runs that are done are
    kept, and the same command goes on after an interrupt; a method whose source was edited is run
    again. Exit code 1: some runs failed.
    """
    from aspect.experiment.plan import load_plan

    if options.done and options.show_list:
        raise SettingsError("--list shows what --out holds: leave --done out, or run the plan.")
    whole = load_plan(plan, options.searches)
    chosen = whole.only(tuple(options.entries or ()), tuple(options.graphs or ()))
    chosen.only(tuple(options.redo or ()))  # an unknown entry is refused
    given = _perturbations(options.perturbations)
    with session.screen.activity("Starting"):
        from aspect.experiment.perturbations import find_files
        from aspect.experiment.plan import lay_out, read_facts
        from aspect.experiment.runner import Bench, Placement
        from aspect.experiment.store import BenchFolder, read_records

        whole.check_changes()
        earlier = [record for path in options.done or () for record in read_records(path)]
        placement = Placement.choose(session.device, options.workers, options.engine)
        folder = BenchFolder(options.out or Path("runs") / whole.name)
        folder.check(whole)
    with session.screen.activity("Reading graphs"):
        facts = dict(read_facts(whole, session.data_dir, chosen.graphs))
        needed = [file for read in facts.values() for file in read.files]
        files, missing = find_files(needed, given, folder.perturbations)

    def laid_out(folder: BenchFolder) -> Bench:
        """The runs, as far as the perturbation files that are there by now decide them."""
        cells = lay_out(chosen, facts, placement.kind, files)
        return Bench(whole, cells, facts, folder, placement.workers, files)

    before = laid_out(folder)  # what it refuses is refused before any attack
    missing = [need for need in missing if need.slot in before.slots]
    if options.show_list:
        _list(session, before, missing)
        return
    if options.retry_failed:
        before.retry_failed()
    with BenchFolder.open(folder.path, whole) as opened:
        for record in earlier:
            opened.write(record)
        counts = _attack(session, before, opened, placement, missing)
        running = laid_out(opened)
        content = {**_run(session, running, placement, options), "perturbations": counts}
    session.screen.answer(content, lambda: _show(session, running, content))
    if content["failed"]:
        raise typer.Exit(OUR_ERROR)


def _perturbations(given: Path | None) -> Path | None:
    """The folder to look for perturbation files in; None where there is none."""
    if given is None:
        return PERTURBATIONS if is_folder(PERTURBATIONS) else None
    if not is_folder(given):
        raise FileError(f"--perturbations must be a folder. There is none at {str(given)!r}.")
    return given


def _attack(
    session: Session,
    bench: Bench,
    folder: BenchFolder,
    placement: Placement,
    missing: Sequence[NeededFile],
) -> dict[str, int]:
    """Make the perturbation files that are missing, but for those that failed before."""
    from aspect.experiment.perturbations import make_file, make_files

    files, known = bench.files, len(bench.files.files)
    needed = [need for need in missing if not bench.is_given_up(need.slot)]
    count, screen = counted(len(needed), "perturbation file"), session.screen
    if needed:
        screen.note(f"{count} must be made first, into {folder.perturbations}.")
        work = partial(
            make_file,
            folder=folder.perturbations,
            data_dir=session.data_dir,
            device=placement.kind,
        )
        try:
            with (
                screen.progress("Flips", guesses_time=False) as advance,
                closing(make_files(needed, folder, files, placement.processes(), work)) as news,
            ):
                for now in news:
                    advance(now.flips, now.wanted, _word(now, f"{now.made} of {now.files} files, "))
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"Interrupted. {len(files.files) - known} of {count} are made. "
                "The same command goes on."
            ) from interrupt
    errors, made = list(files.errors.values()), len(files.files) - known
    if errors:
        screen.warn(
            f"{counted(len(errors), 'perturbation file')} could not be made, and the runs that "
            f"need them fail. The first: {errors[0]}"
        )
    failed = len(missing) - made  # before, unless tried again, and now
    return {"found": known, "made": made, "failed": failed}


def _run(
    session: Session, bench: Bench, placement: Placement, options: BenchOptions
) -> dict[str, Any]:
    """Carry out what is left, and say before what is not."""
    from aspect.experiment.run import run_cells
    from aspect.training.health import Health

    bench.redo(options.redo or ())
    if options.retry_failed:
        bench.retry_failed()
    before, started, screen = bench.progress(), time.monotonic(), session.screen
    if before.done:
        screen.note(f"{before.done} of {before.cells} runs are done already and kept.")
    if before.failed:
        screen.note(
            f"{before.failed} runs failed before and stay so; --retry-failed tries them again."
        )
    seconds = math.inf if options.seconds is None else options.seconds
    work = partial(run_cells, data_dir=session.data_dir, device=placement.kind)
    try:
        with (
            screen.progress("Runs", guesses_time=False) as advance,
            closing(bench.run(placement.processes(), work, seconds)) as news,
        ):
            for now in news:
                advance(now.done + now.failed, now.cells, _word(now))
    except KeyboardInterrupt as interrupt:
        now = bench.progress()
        raise KeyboardInterrupt(
            f"Interrupted. {now.done} of {now.cells} runs are done. The same command goes on."
        ) from interrupt
    failed = [cell for cell in bench.cells if bench.states[cell.key] == "failed"]
    errors = [record.error for record in map(bench.folder.failed, failed) if record is not None]
    health = [record.health for record in _records(bench) if record.health is not None]
    content = _content(bench)
    return {
        **content,
        "kept": before.done,
        "left": content["cells"] - content["done"] - content["failed"],
        "collapsed": sum(Health.from_dict(one).is_collapsed for one in health),
        "first_error": errors[0] if errors else None,
        "seconds": time.monotonic() - started,
    }


def _content(bench: Bench) -> dict[str, Any]:
    """How far the runs of the plan are."""
    now = bench.progress()
    return {
        "plan": bench.plan.name,
        "out": str(bench.folder.path),
        "cells": now.cells,
        "done": now.done,
        "failed": now.failed,
    }


def _word(now: BenchProgress | AttackProgress, first: str = "") -> str:
    failed = f", {now.failed} failed" if now.failed else ""
    left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)} left"
    return f"{first}{now.running} running{failed}{left}"


def _records(bench: Bench) -> list[Record]:
    """Of the part of the plan that is meant."""
    keys = {cell.key for cell in bench.cells}
    return [record for record in bench.folder.records() if record.key in keys]


def _list(session: Session, bench: Bench, missing: Sequence[NeededFile]) -> None:
    """What became of the runs so far, by entry and graph."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    names = short_names(bench.plan.graphs)
    for cell in bench.cells:
        key = (cell.entry, names[cell.graph])
        counts.setdefault(key, {"done": 0, "failed": 0, "left": 0})[bench.states[cell.key]] += 1
    rows = [{"entry": entry, "graph": graph, **count} for (entry, graph), count in counts.items()]
    content = {
        **_content(bench),
        "perturbations": {"found": len(bench.files.files), "missing": len(missing)},
        "rows": rows,
    }

    def show() -> None:
        columns = ["variant", "graph", "done", "failed", "left"]
        session.screen.table(columns, [list(row.values()) for row in rows])
        done, failed = content["done"], content["failed"]
        session.screen.say(f"{done} of {content['cells']} runs are done, {failed} failed.")
        if missing:
            session.screen.say(f"{len(missing)} perturbation files are not there yet.")

    session.screen.answer(content, show)


def _show(session: Session, bench: Bench, content: dict[str, Any]) -> None:
    say, folder, names = session.screen.say, content["out"], short_names(bench.plan.graphs)
    splits = bench.plan.splits
    table = _accuracy(record for record in _records(bench) if record.spec.splits == splits)
    shown = [graph for graph in names if any(graph in scores for scores in table.values())]
    if table:
        say(f"Test accuracy in percent, mean ± std over {splits} splits:")
        rows = [
            [title, *(scores.get(graph, "-") for graph in shown)]
            for (_, title), scores in table.items()
        ]
        is_area = {graph: bench.plan.source(graph).metric == "roc-auc" for graph in shown}
        columns = [
            f"{names[graph]} (ROC AUC)" if is_area[graph] else names[graph] for graph in shown
        ]
        session.screen.table(["variant", *columns], rows)
    say(
        f"{content['done']} of {content['cells']} runs are done, {content['kept']} before; "
        f"{duration(content['seconds'])}. Records are in {folder}."
    )
    if content["left"]:
        say(f"{content['left']} runs are left. The same command goes on.")
    if content["collapsed"]:
        say(
            f"{content['collapsed']} runs have an embedding close to representation collapse; "
            "their records say so under `health` and `warnings`."
        )
    if content["failed"]:
        say(f"{content['failed']} runs failed. The first: {content['first_error']}")
        say(f"Tracebacks are in {folder}/log.txt; --retry-failed tries them again.")
    say(f"Next: {join(['aspect', 'report', folder, '--out', f'{folder}/report.html'])}")


def _accuracy(records: Iterable[Record]) -> dict[tuple[str, str], dict[str, str]]:
    """The report's scores by entry and title, such as `ASPECT, random 10% poison`, and by graph."""
    from aspect.report.results import CLEAN, collect
    from aspect.report.statistics import summarise

    results = collect(list(records))
    summary = summarise(results).dropna(subset="mean")
    rows: dict[tuple[str, str], dict[str, str]] = {}
    numbers = zip(summary.index, summary["mean"], summary["std"], strict=True)
    for (_, name, entry, graph), mean, std in numbers:
        text = f"{mean:.1f}" if math.isnan(std) else f"{mean:.1f} ± {std:.1f}"
        title = results.title(entry)
        if name != CLEAN:
            state = results.perturbations[name]
            edges = "" if state.features else ", edges alone"
            title += f", {state.label} {state.mode}{edges}"
        rows.setdefault((entry, title), {})[graph] = text
    return rows
