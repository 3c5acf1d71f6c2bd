"""`aspect bench`: a plan in, a folder of records out."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from aspect.cli.bench_attacks import PerturbationCounts, attack, find_folder
from aspect.cli.console import duration
from aspect.cli.session import OUR_ERROR, Session, command
from aspect.errors import SettingsError

if TYPE_CHECKING:
    from aspect.experiment.bench import Bench, Progress
    from aspect.experiment.facts import ReadFacts
    from aspect.experiment.flips import Flips, WantedFile
    from aspect.experiment.placement import Placement
    from aspect.experiment.plan import Plan
    from aspect.experiment.store import BenchFolder

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
    perturbations: Annotated[
        Path | None,
        typer.Option(
            help="Folder of perturbation files to use; what it lacks is made in the records' "
            "folder.  [default: results/perturbations, if it is there]",
            metavar="DIR",
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

    Perturbation files that attacks (metattack, dice) lack are made first. Cells that are done are
    kept, so that a bench that was stopped goes on where it stood. Exit code 1: some cells failed.
    """
    from aspect.experiment.plan import load_plan

    if session.seed is not None:
        raise SettingsError("A plan names its seeds itself: leave out --seed.")
    whole = load_plan(plan)
    wanted = whole.only(tuple(part.entries or ()), tuple(part.graphs or ()))
    given = find_folder(perturbations)
    with session.screen.activity("Starting"):
        from aspect.experiment.placement import Placement
        from aspect.experiment.store import BenchFolder

        whole.check_changes()
        placement = Placement.choose(session.device, workers)
        folder = BenchFolder(out or Path("runs") / whole.name)
        folder.check(whole)
    prepared = _prepare(session, whole, wanted, placement, folder, given)
    before = prepared.bench(folder)  # what it refuses is refused before any attack
    if show_list:
        _list(session, before, prepared)
        return
    with BenchFolder.open(folder.path, whole) as opened:
        counts = _attack(session, prepared, before, opened, retry_failed)
        running = prepared.bench(opened)
        content = _run(session, running, placement, retry_failed)
    content["perturbations"] = asdict(counts)
    session.screen.answer(content, lambda: _show(session, running, content))
    if content["failed"]:
        raise typer.Exit(OUR_ERROR)


@dataclass(frozen=True)
class _Prepared:
    """All that is known before anything is carried out."""

    whole: Plan
    wanted: Plan  # the part that is meant
    facts: dict[str, ReadFacts]
    placement: Placement
    flips: Flips  # grows as perturbation files are made
    missing: list[WantedFile]  # at first

    def bench(self, folder: BenchFolder) -> Bench:
        """The cells, as far as the files that are there by now decide them."""
        from aspect.experiment.bench import Bench
        from aspect.experiment.layout import lay_out

        cells = lay_out(self.wanted, self.facts, self.placement.kind, self.flips)
        workers = self.placement.workers
        return Bench(self.whole, cells, self.facts, folder, workers, self.flips)


def _prepare(
    session: Session,
    whole: Plan,
    wanted: Plan,
    placement: Placement,
    folder: BenchFolder,
    given: Path | None,
) -> _Prepared:
    """Read the graphs, and find the perturbation files that there are."""
    from aspect.experiment.facts import read_facts
    from aspect.experiment.flips import find_files, wanted_files

    with session.screen.activity("Reading graphs"):
        facts = dict(read_facts(whole, session.data_dir, wanted.graphs))
        files = wanted_files(whole, facts)
        flips, missing = find_files(files, given, folder.perturbations)
    return _Prepared(whole, wanted, facts, placement, flips, missing)


def _attack(
    session: Session, prepared: _Prepared, before: Bench, folder: BenchFolder, retry_failed: bool
) -> PerturbationCounts:
    """Make the perturbation files that are missing, but for those that failed before."""
    from aspect.experiment.attacking import Attacking

    found = len(prepared.flips.files)
    if retry_failed:
        before.retry_failed()
    wanted = [each for each in prepared.missing if not before.is_given_up(each.slot)]
    attacking = Attacking(wanted, prepared.whole.reading, folder, prepared.flips)
    attack(session, attacking, prepared.placement)
    return PerturbationCounts(found, attacking.made, len(prepared.missing) - attacking.made)


def _run(
    session: Session, bench: Bench, placement: Placement, retry_failed: bool
) -> dict[str, Any]:
    """Carry out what is left, and say before what is not."""
    from aspect.experiment.run import run_cell

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
        "collapsed": _collapsed(bench),
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


def _collapsed(bench: Bench) -> int:
    """Cells whose embedding is close to representation collapse."""
    from aspect.training.health import Health

    keys = {cell.key for cell in bench.cells}
    told = (record.health for record in bench.folder.records() if record.key in keys)
    return sum(health is not None and Health.from_dict(health).is_collapsed for health in told)


def _list(session: Session, bench: Bench, prepared: _Prepared) -> None:
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
        "perturbations": {"found": len(prepared.flips.files), "missing": len(prepared.missing)},
        "rows": rows,
    }

    def show() -> None:
        columns = ["entry", "graph", "done", "failed", "left"]
        session.screen.table(columns, [[row[name] for name in columns] for row in rows])
        session.screen.say(f"{now.done} of {now.cells} cells are done, {now.failed} failed.")
        if prepared.missing:
            session.screen.say(f"{len(prepared.missing)} perturbation files are not there yet.")

    session.screen.answer(content, show)


def _show(session: Session, bench: Bench, content: dict[str, Any]) -> None:
    from aspect.experiment.summary import strict_scores

    say, folder = session.screen.say, content["out"]
    keys = {cell.key for cell in bench.cells}
    table = strict_scores(record for record in bench.folder.records() if record.key in keys)
    names = bench.plan.short_names()
    shown = [graph for graph in names if any(graph in scores for scores in table.values())]
    rows = [[line, *(own.get(graph, "-") for graph in shown)] for line, own in table.items()]
    if rows:
        say("Test accuracy in percent, mean ± std over splits:")
        session.screen.table(["entry", *(names[graph] for graph in shown)], rows)
    say(
        f"{content['done']} of {content['cells']} cells are done, {content['kept']} before; "
        f"{duration(content['seconds'])}. Records are in {folder}."
    )
    if content["collapsed"]:
        say(
            f"{content['collapsed']} cells have an embedding close to representation collapse; "
            "their records say so under `health` and `warnings`."
        )
    if content["failed"]:
        say(f"{content['failed']} cells failed. The first: {content['first_error']}")
        say(f"Tracebacks are in {folder}/log.txt; --retry-failed tries them again.")
    say(f"Next: aspect report {folder} --out {folder}/report.html")
