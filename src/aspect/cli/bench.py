"""`aspect bench`: a plan in, a folder of records out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from aspect.cli.console import duration
from aspect.cli.session import OUR_ERROR, Session, command
from aspect.config import Config
from aspect.data.files import is_folder
from aspect.errors import FileError

if TYPE_CHECKING:
    from aspect.experiment.perturbations import AttackProgress, BenchFiles, NeededFile
    from aspect.experiment.plan import Plan, ReadFacts
    from aspect.experiment.record import Record
    from aspect.experiment.runner import Bench, BenchProgress, Placement
    from aspect.experiment.store import BenchFolder

__all__ = ["bench"]

PERTURBATIONS = Path("results") / "perturbations"


class BenchOptions(Config):
    """Which part of a plan is meant, and what is run although it is over."""

    entries: Annotated[list[str] | None, typer.Option("--entry", metavar="NAME")] = None
    """Only this entry; may be repeated."""
    graphs: Annotated[list[str] | None, typer.Option("--graph", metavar="NAME")] = None
    """Only this graph; may be repeated."""
    redo: Annotated[list[str] | None, typer.Option(metavar="ENTRY")] = None
    """Run this entry again, done or not; may be repeated."""
    retry_failed: bool = False
    """Try the runs that failed again."""
    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder of the records.  [default: runs/PLAN]"""
    workers: Annotated[int | None, Field(ge=1)] = None
    """Runs at a time.  [default: the cores, or up to 4 on each GPU]"""
    perturbations: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder of perturbation files to use; what it lacks is made in the records' folder.  [default:
    results/perturbations, if it is there]"""
    show_list: Annotated[bool, typer.Option("--list")] = False
    """Only show what is done, failed and left."""


@command(without=("seed",))
def bench(
    session: Session,
    plan: Annotated[
        str, typer.Argument(help="A shipped plan's name, or a file of one.", metavar="PLAN")
    ],
    options: BenchOptions,
) -> None:
    """Run a plan: methods x graphs x perturbations x splits x seeds, one record per run.

    Perturbation files that attacks (metattack, dice) lack are made first. Runs that are done are
    kept, so that a bench that was stopped goes on where it stood; a method whose source was edited
    is run again. Exit code 1: some runs failed.
    """
    from aspect.experiment.plan import load_plan

    whole = load_plan(plan)
    chosen = whole.only(tuple(options.entries or ()), tuple(options.graphs or ()))
    chosen.only(tuple(options.redo or ()))  # an unknown entry is refused
    given = _perturbations(options.perturbations)
    with session.screen.activity("Starting"):
        from aspect.experiment.runner import Placement
        from aspect.experiment.store import BenchFolder

        whole.check_changes()
        placement = Placement.choose(session.device, options.workers)
        folder = BenchFolder(options.out or Path("runs") / whole.name)
        folder.check(whole)
    prepared = _prepare(session, whole, chosen, placement, folder, given)
    before = prepared.bench(folder)  # what it refuses is refused before any attack
    if options.show_list:
        _list(session, before, prepared)
        return
    with BenchFolder.open(folder.path, whole) as opened:
        counts = _attack(session, prepared, before, opened, options)
        running = prepared.bench(opened)
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


@dataclass(frozen=True)
class _Prepared:
    """All that is known before anything is carried out."""

    whole: Plan
    chosen: Plan  # the part that is meant
    facts: dict[str, ReadFacts]
    placement: Placement
    files: BenchFiles  # grows as perturbation files are made
    missing: list[NeededFile]  # at first

    def bench(self, folder: BenchFolder) -> Bench:
        """The runs, as far as the files that are there by now decide them."""
        from aspect.experiment.plan import lay_out
        from aspect.experiment.runner import Bench

        cells = lay_out(self.chosen, self.facts, self.placement.kind, self.files)
        workers = self.placement.workers
        return Bench(self.whole, cells, self.facts, folder, workers, self.files)


def _prepare(
    session: Session,
    whole: Plan,
    chosen: Plan,
    placement: Placement,
    folder: BenchFolder,
    given: Path | None,
) -> _Prepared:
    """Read the graphs, and find the perturbation files that there are."""
    from aspect.experiment.perturbations import find_files
    from aspect.experiment.plan import read_facts

    with session.screen.activity("Reading graphs"):
        facts = dict(read_facts(whole, session.data_dir, chosen.graphs))
        needed = [file for read in facts.values() for file in read.files]
        files, missing = find_files(needed, given, folder.perturbations)
    return _Prepared(whole, chosen, facts, placement, files, missing)


def _attack(
    session: Session, prepared: _Prepared, before: Bench, folder: BenchFolder, options: BenchOptions
) -> dict[str, int]:
    """Make the perturbation files that are missing, but for those that failed before."""
    from aspect.experiment.perturbations import Attacking, make_file

    known = len(prepared.files.files)
    if options.retry_failed:
        before.retry_failed()
    needed = [need for need in prepared.missing if not before.is_given_up(need.slot)]
    attacking = Attacking(needed, prepared.whole.reading, folder, prepared.files)
    count, screen = _count(len(attacking.tasks), "perturbation file"), session.screen
    if attacking.tasks:
        screen.note(f"{count} must be made first, into {folder.perturbations}.")
        work = partial(make_file, data_dir=session.data_dir, device=prepared.placement.kind)
        try:
            with (
                screen.progress("Flips", guesses_time=False) as advance,
                closing(attacking.run(prepared.placement.processes(), work)) as news,
            ):
                for now in news:
                    advance(now.flips, now.wanted, _word(now, f"{now.made} of {now.files} files, "))
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"Interrupted. {attacking.made} of {count} are made. The same command goes on."
            ) from interrupt
    errors = list(prepared.files.errors.values())
    if errors:
        screen.warn(
            f"{_count(len(errors), 'perturbation file')} could not be made, and the runs that need "
            f"them fail. The first: {errors[0]}"
        )
    failed = len(prepared.missing) - attacking.made  # before, unless tried again, and now
    return {"found": known, "made": attacking.made, "failed": failed}


def _run(
    session: Session, bench: Bench, placement: Placement, options: BenchOptions
) -> dict[str, Any]:
    """Carry out what is left, and say before what is not."""
    from aspect.experiment.run import run_cell

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
    work = partial(run_cell, data_dir=session.data_dir, device=placement.kind)
    try:
        with (
            screen.progress("Runs", guesses_time=False) as advance,
            closing(bench.run(placement.processes(), work)) as news,
        ):
            for now in news:
                advance(now.done + now.failed, now.cells, _word(now))
    except KeyboardInterrupt as interrupt:
        now = bench.progress()
        raise KeyboardInterrupt(
            f"Interrupted. {now.done} of {now.cells} runs are done. The same command goes on."
        ) from interrupt
    end = bench.progress()
    return {
        "plan": bench.plan.name,
        "out": str(bench.folder.path),
        "cells": end.cells,
        "done": end.done,
        "kept": before.done,
        "failed": end.failed,
        "collapsed": _collapsed(_records(bench)),
        "first_error": _first_error(bench),
        "seconds": time.monotonic() - started,
    }


def _word(now: BenchProgress | AttackProgress, first: str = "") -> str:
    failed = f", {now.failed} failed" if now.failed else ""
    left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)} left"
    return f"{first}{now.running} running{failed}{left}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _records(bench: Bench) -> list[Record]:
    """Of the part of the plan that is meant."""
    keys = {cell.key for cell in bench.cells}
    return [record for record in bench.folder.records() if record.key in keys]


def _first_error(bench: Bench) -> str | None:
    failed = (cell for cell in bench.cells if bench.states[cell.key] == "failed")
    records = (bench.folder.failed(cell) for cell in failed)
    return next((record.error for record in records if record is not None), None)


def _collapsed(records: Iterable[Record]) -> int:
    """Runs whose embedding is close to representation collapse."""
    from aspect.training.health import Health

    health = [record.health for record in records if record.health is not None]
    return sum(Health.from_dict(one).is_collapsed for one in health)


def _list(session: Session, bench: Bench, prepared: _Prepared) -> None:
    """What became of the runs so far, by entry and graph."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    names = bench.plan.short_names()
    for cell in bench.cells:
        key = (cell.entry, names[cell.graph])
        counts.setdefault(key, {"done": 0, "failed": 0, "left": 0})[bench.states[cell.key]] += 1
    rows = [{"entry": entry, "graph": graph, **count} for (entry, graph), count in counts.items()]
    now = bench.progress()
    content = {
        "plan": bench.plan.name,
        "out": str(bench.folder.path),
        "cells": now.cells,
        "done": now.done,
        "failed": now.failed,
        "perturbations": {"found": len(prepared.files.files), "missing": len(prepared.missing)},
        "rows": rows,
    }

    def show() -> None:
        columns = ["entry", "graph", "done", "failed", "left"]
        session.screen.table(columns, [[row[name] for name in columns] for row in rows])
        session.screen.say(f"{now.done} of {now.cells} runs are done, {now.failed} failed.")
        if prepared.missing:
            session.screen.say(f"{len(prepared.missing)} perturbation files are not there yet.")

    session.screen.answer(content, show)


def _show(session: Session, bench: Bench, content: dict[str, Any]) -> None:
    say, folder, names = session.screen.say, content["out"], bench.plan.short_names()
    table = _accuracy(_records(bench))
    shown = [graph for graph in names if any(graph in scores for scores in table.values())]
    if table:
        say("Test accuracy in percent, mean ± std over splits:")
        rows = [
            [title, *(scores.get(graph, "-") for graph in shown)]
            for (_, title), scores in table.items()
        ]
        session.screen.table(["entry", *(names[graph] for graph in shown)], rows)
    say(
        f"{content['done']} of {content['cells']} runs are done, {content['kept']} before; "
        f"{duration(content['seconds'])}. Records are in {folder}."
    )
    if content["collapsed"]:
        say(
            f"{content['collapsed']} runs have an embedding close to representation collapse; "
            "their records say so under `health` and `warnings`."
        )
    if content["failed"]:
        say(f"{content['failed']} runs failed. The first: {content['first_error']}")
        say(f"Tracebacks are in {folder}/log.txt; --retry-failed tries them again.")
    say(f"Next: aspect report {folder} --out {folder}/report.html")


def _accuracy(records: Iterable[Record]) -> dict[tuple[str, str], dict[str, str]]:
    """Strict accuracy by entry and title, such as `ASPECT, random 10% poison`, and by graph.

    The mean is over seeds and splits, the std over the splits of one seed, averaged over the seeds.
    """
    values: dict[tuple[str, str], dict[str, dict[int, list[float]]]] = {}
    for record in records:
        if record.status == "done":
            cell, perturbation = record.cell, record.spec.perturbation
            title = cell.title
            if perturbation is not None:
                alone = "" if perturbation.features else ", edges alone"
                title += f", {perturbation.label} {perturbation.mode}{alone}"
            by_graph = values.setdefault((cell.entry, title), {}).setdefault(cell.graph, {})
            scores = [score.strict for score in record.scores]
            by_graph.setdefault(record.spec.seed, []).extend(scores)
    return {
        line: {graph: _mean_and_std(list(seeds.values())) for graph, seeds in by_graph.items()}
        for line, by_graph in values.items()
    }


def _mean_and_std(seeds: list[list[float]]) -> str:
    stds = [stdev(splits) for splits in seeds if len(splits) > 1]
    mean = fmean(value for splits in seeds for value in splits)
    return f"{mean:.1f} ± {fmean(stds):.1f}" if stds else f"{mean:.1f}"
