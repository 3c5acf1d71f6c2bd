"""`aspect bench`: a plan in, a folder of records out."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from aspect.cli.console import duration
from aspect.cli.session import OUR_ERROR, Session, command
from aspect.errors import SettingsError

if TYPE_CHECKING:
    from aspect.benchmark.bench import Bench, Progress
    from aspect.benchmark.placement import Placement
    from aspect.benchmark.plan import Plan, ReadFacts

__all__ = ["bench"]


class PartOptions(NamedTuple):
    """Which part of a plan is meant."""

    entries: Annotated[
        list[str] | None,
        typer.Option("--entry", help="Only this entry; may be repeated.", metavar="NAME"),
    ] = None
    graphs: Annotated[
        list[str] | None,
        typer.Option("--graph", help="Only this graph; may be repeated.", metavar="NAME"),
    ] = None


@command
def bench(
    session: Session,
    part: PartOptions,
    plan: Annotated[
        str, typer.Argument(help="A shipped plan's name, or a file of one.", metavar="PLAN")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the records.  [default: runs/PLAN]", metavar="DIR"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Cells at a time.  [default: the cores, or up to 4 on each GPU]",
            metavar="N",
            min=1,
        ),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try the cells that failed again.")
    ] = False,
    show_list: Annotated[
        bool, typer.Option("--list", help="Only show what is done, failed and left.")
    ] = False,
) -> None:
    """Run a plan: methods x graphs x perturbations x splits x seeds, one record per cell.

    Cells that are done are kept, so that a bench that was stopped goes on where it stood. Exit code
    1: some cells failed.
    """
    from aspect.benchmark.plan import load_plan

    if session.seed is not None:
        raise SettingsError("A plan names its seeds itself: leave out --seed.")
    whole = load_plan(plan)
    wanted = whole.only(tuple(part.entries or ()), tuple(part.graphs or ()))
    folder = out or Path("runs") / whole.name
    with session.screen.activity("Starting"):
        from aspect.benchmark.bench import Bench
        from aspect.benchmark.placement import Placement
        from aspect.benchmark.store import BenchFolder

        whole.check_changes()
        placement = Placement.choose(session.device, workers)
    facts = _read_facts(session, wanted)
    cells = wanted.cells(facts, placement.kind)
    if show_list:
        unopened = BenchFolder(folder)
        unopened.check(whole)
        _list(session, Bench(whole, cells, facts, unopened))
        return
    with BenchFolder.open(folder, whole) as opened:
        running = Bench(whole, cells, facts, opened, placement.workers)
        content = _run(session, running, placement, retry_failed)
    session.screen.answer(content, lambda: _show(session, running, content))
    if content["failed"]:
        raise typer.Exit(OUR_ERROR)


def _read_facts(session: Session, plan: Plan) -> dict[str, ReadFacts]:
    from aspect.benchmark.facts import read_facts

    with session.screen.activity("Reading graphs"):
        return dict(read_facts(plan, session.data_dir))


def _run(
    session: Session, bench: Bench, placement: Placement, retry_failed: bool
) -> dict[str, Any]:
    """Carry out what is left, and say before what is not."""
    from aspect.benchmark.run import run_cell

    if retry_failed:
        bench.retry_failed()
    before, started = bench.progress(), time.monotonic()
    _say_kept(session, before)
    work = partial(run_cell, data_dir=session.data_dir, device=placement.kind)
    try:
        with (
            session.screen.progress("Cells", guesses_time=False) as advance,
            closing(bench.run(placement.processes(), work)) as news,
        ):
            for now in news:
                advance(now.done + now.failed, now.cells, _word(now))
    except KeyboardInterrupt as interrupt:
        now = bench.progress()
        raise KeyboardInterrupt(
            f"Interrupted. {now.done} of {now.cells} cells are done. The same command goes on."
        ) from interrupt
    end = bench.progress()
    return {
        "plan": bench.plan.name,
        "out": str(bench.folder.path),
        "cells": end.cells,
        "done": end.done,
        "kept": before.done,
        "failed": end.failed,
        "first_error": _first_error(bench),
        "seconds": time.monotonic() - started,
    }


def _say_kept(session: Session, before: Progress) -> None:
    if before.done:
        session.screen.note(f"{before.done} of {before.cells} cells are done already and kept.")
    if before.failed:
        session.screen.note(
            f"{before.failed} cells failed before and stay so; --retry-failed tries them again."
        )


def _word(now: Progress) -> str:
    failed = f", {now.failed} failed" if now.failed else ""
    left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)} left"
    return f"{now.running} running{failed}{left}"


def _first_error(bench: Bench) -> str | None:
    failed = (cell for cell in bench.cells if bench.states[cell.key] == "failed")
    found = (bench.folder.failed(cell) for cell in failed)
    return next((record.error for record in found if record is not None), None)


def _list(session: Session, bench: Bench) -> None:
    """What became of the cells so far, by entry and graph."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    names = bench.plan.short_names()
    for cell in bench.cells:
        place = (cell.entry, names[cell.graph])
        own = counts.setdefault(place, {"done": 0, "failed": 0, "left": 0})
        own[bench.states[cell.key]] += 1
    rows = [{"entry": entry, "graph": graph, **own} for (entry, graph), own in counts.items()]
    now = bench.progress()
    content = {
        "plan": bench.plan.name,
        "out": str(bench.folder.path),
        "cells": now.cells,
        "done": now.done,
        "failed": now.failed,
        "rows": rows,
    }

    def show() -> None:
        columns = ["entry", "graph", "done", "failed", "left"]
        session.screen.table(columns, [[row[name] for name in columns] for row in rows])
        session.screen.say(f"{now.done} of {now.cells} cells are done, {now.failed} failed.")

    session.screen.answer(content, show)


def _show(session: Session, bench: Bench, content: dict[str, Any]) -> None:
    from aspect.benchmark.summary import strict_scores

    say, folder = session.screen.say, content["out"]
    keys = {cell.key for cell in bench.cells}
    table = strict_scores(record for record in bench.folder.records() if record.key in keys)
    names = bench.plan.short_names()
    shown = [graph for graph in names if any(graph in scores for scores in table.values())]
    rows = [[line, *(own.get(graph, "-") for graph in shown)] for line, own in table.items()]
    if rows:
        say("Test accuracy (strict) in percent, mean ± standard deviation over splits:")
        session.screen.table(["entry", *(names[graph] for graph in shown)], rows)
    say(
        f"{content['done']} of {content['cells']} cells are done, {content['kept']} before; "
        f"{duration(content['seconds'])}. Records are in {folder}."
    )
    if content["failed"]:
        say(f"{content['failed']} cells failed. The first: {content['first_error']}")
        say(f"Tracebacks are in {folder}/log.txt; --retry-failed tries them again.")
    say(f"Next: aspect report {folder} --out {folder}/report.html")
