"""`aspect attack`: a graph in, a file of ordered flips out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.attacks.names import attack_title
from aspect.cli.attack_options import (
    AttackOptions,
    BudgetOptions,
    FileOptions,
    SplitOptions,
)
from aspect.cli.console import duration
from aspect.cli.options import ReadingOptions
from aspect.cli.session import Session, command
from aspect.data.source import GraphSource

if TYPE_CHECKING:
    from aspect.attacks.run import AttackRequest, PlannedAttack, Progress
    from aspect.attacks.trace import Trace
    from aspect.attacks.trace_file import TraceFile

__all__ = ["attack"]

MIB = 2**20


@command
def attack(
    session: Session,
    graph: Annotated[
        str,
        typer.Argument(help="Data set, or files of a graph with labels.", metavar="GRAPH"),
    ],
    how: AttackOptions,
    much: BudgetOptions,
    known: SplitOptions,
    reading: ReadingOptions,
    files: FileOptions,
    out: Annotated[
        Path,
        typer.Option(
            help="Perturbation file; for several splits, the folder of their files.",
            metavar="FILE",
        ),
    ],
) -> None:
    """Find the flips of edges that harm a graph most, and keep them in order.

    The attacker sees the labels of the split's training nodes and no others. A smaller budget's
    flips are the first of a larger one's, so that one file serves all budgets up to its own.
    """
    much.check()
    numbers = known.numbers()
    settings = how.values()
    source = GraphSource.named(graph, reading.reading())
    files.check(out, numbers, source)
    with session.screen.activity("Starting"):
        from aspect.attacks.run import AttackRequest

        request = AttackRequest(
            kind=how.kind,
            settings=settings,
            budget=much.budget,
            flips=much.flips,
            splits=known.splits,
            seed=session.seed or 0,
        )
        planned = _plan(session, source, request, numbers)
        tasks = _tasks(planned, out, files, several=numbers is None or len(numbers) > 1)
    content = _run_all(session, tasks, out)
    session.screen.answer(content, lambda: _show(session, content))


@dataclass(frozen=True)
class _Task:
    """One attack of the command, with its file."""

    planned: PlannedAttack
    file: TraceFile

    @property
    def title(self) -> str:
        facts = self.planned.facts
        attack = attack_title(facts.kind, facts.solver)
        return f"{attack} on {facts.graph.name}, {facts.splits} split {facts.split}"


def _plan(
    session: Session,
    source: GraphSource,
    request: AttackRequest,
    numbers: Sequence[int] | None,
) -> list[PlannedAttack]:
    """Read the graph and prepare all attacks; what is wrong is said here, with nothing written."""
    from aspect.attacks.run import plan_attacks
    from aspect.estimator import choose_device

    device = choose_device(session.device)
    labelled = source.read(session.data_dir)
    for notice in labelled.graph.notices:
        session.screen.note(f"Note: {notice}")
    return plan_attacks(labelled, source.name, request, numbers, device)


def _tasks(
    planned: Sequence[PlannedAttack], out: Path, files: FileOptions, *, several: bool
) -> list[_Task]:
    """Every attack with its file, all looked at before the first is run."""
    from aspect.attacks.trace_file import TraceFile

    return [
        _Task(
            each,
            TraceFile.open(
                out / each.facts.file_name if several else out, each.facts, **files._asdict()
            ),
        )
        for each in planned
    ]


def _run_all(session: Session, tasks: Sequence[_Task], out: Path) -> dict[str, Any]:
    from aspect.experiment.memory import forget_peak, peak_bytes

    device = tasks[0].planned.device
    forget_peak(device)
    results = []
    for task in tasks:
        before = task.file.kept
        trace = _run(session, task)
        results.append(_content(trace, task.file, before))
    return {
        "out": str(out),
        "flips": sum(each["flips"] for each in results),
        "seconds": sum(each["seconds"] for each in results),
        "peak_memory_bytes": peak_bytes(device),
        "files": results,
    }


def _run(session: Session, task: _Task) -> Trace:
    """Attack with progress on the screen; the first flips tell how long the rest will take."""
    from aspect.attacks.run import run_attack
    from aspect.experiment.memory import peak_bytes

    screen, planned = session.screen, task.planned
    if task.file.begun is not None:
        screen.note(f"{task.title}: {task.file.kept} flips are in {task.file.path} already.")
        if task.file.begun.facts.complete:
            return task.file.begun
    most = peak_bytes(planned.device) + planned.working_bytes
    screen.note(
        f"{task.title}: {planned.facts.wanted} flips on {planned.device}, "
        f"with about {most / MIB:.0f} MiB of memory."
    )
    is_first = True
    try:
        with screen.progress("Flips") as advance:

            def show(progress: Progress) -> None:
                nonlocal is_first
                left = f"about {duration(progress.seconds_left)} left"
                if is_first and progress.made < progress.wanted:
                    screen.note(f"{task.title}: {left}, by the pace of the first flips.")
                is_first = False
                advance(progress.made, progress.wanted, left)

            return run_attack(planned, task.file, show)
    except KeyboardInterrupt as interrupt:
        kept = f"{task.file.kept} of {planned.facts.wanted} flips are in {task.file.path}"
        then = f"{kept}. Go on with --resume." if task.file.kept else "Nothing was written."
        raise KeyboardInterrupt(f"Interrupted. {then}") from interrupt


def _content(trace: Trace, file: TraceFile, before: int) -> dict[str, Any]:
    facts = trace.facts
    return {
        "out": str(file.path),
        "graph": facts.graph.model_dump(),
        **facts.model_dump(
            mode="json",
            include={"kind", "solver", "settings", "splits", "split", "seed", "complete", "device"},
        ),
        "flips": len(trace.keys),
        "kept": before,
        "reached": trace.reached,
        "seconds": facts.seconds,
    }


def _show(session: Session, content: dict[str, Any]) -> None:
    rows = [
        [
            each["out"],
            each["split"],
            each["flips"],
            f"{100 * each['reached']:.1f}%",
            f"{each['seconds']:.1f}",
        ]
        for each in content["files"]
    ]
    session.screen.table(["file", "split", "flips", "of the edges", "seconds"], rows)
    peak = content["peak_memory_bytes"] / MIB
    session.screen.say(f"{content['flips']} flips; {peak:.0f} MiB of memory at most.")
