"""`aspect attack`: a graph in, a file of ordered flips out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from aspect.attacks.perturbation import SUFFIX
from aspect.attacks.registry import attack_info, attack_names
from aspect.cli.console import duration
from aspect.cli.options import Overwrite, ReadingOptions
from aspect.cli.paths import check_target, is_run
from aspect.cli.session import Session, command
from aspect.config import parse_overrides
from aspect.data.files import is_file, is_folder, is_present
from aspect.data.source import GraphSource
from aspect.errors import FileError, SettingsError

if TYPE_CHECKING:
    from aspect.attacks.file import PerturbationFile
    from aspect.attacks.run import AttackRequest, FlipProgress, PlannedAttack

__all__ = ["attack"]

MIB = 2**20
SOLVERS = {name: own for name in attack_names() if (own := attack_info(name).solvers)}
DRAWN_SPLITS = 10  # of every kind but the published ones


class AttackOptions(NamedTuple):
    """Which attack, with which settings."""

    kind: Annotated[
        str, typer.Option(help=f"Attack: {', '.join(attack_names())}.", metavar="ATTACK")
    ] = "metattack"
    solver: Annotated[
        str | None,
        typer.Option(
            help="Variant of an attack that has several: "
            + "; ".join(f"{', '.join(own)} of {name}" for name, own in SOLVERS.items())
            + ".  [default: implicit]",
            metavar="SOLVER",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting; may be repeated.", metavar="KEY=VALUE"),
    ] = None

    def values(self) -> dict[str, Any]:
        """All settings that are given, the solver among them; a wrong name is refused."""
        values, solvers = parse_overrides(self.settings or []), attack_info(self.kind).solvers
        if self.solver is None:
            return values
        if not solvers:
            owners = " and ".join(SOLVERS)
            raise SettingsError(f"--solver belongs to {owners}. Got it with {self.kind!r}.")
        if self.solver not in solvers:
            raise SettingsError(
                f"Solver of {self.kind} must be {' or '.join(solvers)}. Got {self.solver!r}."
            )
        if values.get("solver", self.solver) != self.solver:
            raise SettingsError(
                f"The solver is given twice: {self.solver!r} and {values['solver']!r}."
            )
        return {**values, "solver": self.solver}


class BudgetOptions(NamedTuple):
    """How many pairs are flipped."""

    budget: Annotated[
        float | None, typer.Option(help="Flips as a ratio of the edges.", metavar="RATIO")
    ] = None
    flips: Annotated[
        int | None, typer.Option(help="Flips as a number, in place of --budget.", metavar="N")
    ] = None

    def check(self) -> None:
        """Refuse what is wrong for every graph."""
        if (self.budget is None) == (self.flips is None):
            given = "neither" if self.budget is None else "both"
            raise SettingsError(f"Pass --budget RATIO or --flips N, one of them. Got {given}.")
        if self.budget is not None and not 0 < self.budget <= 1:
            raise SettingsError(f"Attack budget must be a ratio in (0, 1]. Got {self.budget}.")
        if self.flips is not None and self.flips < 1:
            raise SettingsError(f"Number of flips must be 1 or more. Got {self.flips}.")


class SplitOptions(NamedTuple):
    """The splits whose training labels the attacker knows."""

    split: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of the split whose training labels are known; may be repeated.",
            metavar="K",
            min=0,
        ),
    ] = None
    all_splits: Annotated[
        bool, typer.Option("--all-splits", help="One attack for every split.")
    ] = False
    splits: Annotated[
        Literal["class-balanced", "random", "published"], typer.Option(help="Kind of splits.")
    ] = "class-balanced"

    def numbers(self) -> list[int] | None:
        """Numbers of the splits; None: all of them."""
        if self.all_splits == bool(self.split):
            given = "both" if self.split else "neither"
            raise SettingsError(f"Pass --split K or --all-splits, one of them. Got {given}.")
        if self.all_splits:
            return None
        numbers = list(dict.fromkeys(self.split or []))
        if self.splits != "published" and max(numbers) >= DRAWN_SPLITS:
            raise SettingsError(
                f"Split must be from 0 to {DRAWN_SPLITS - 1}, the {self.splits} splits. "
                f"Got {max(numbers)}."
            )
        return numbers


class FileOptions(NamedTuple):
    """What becomes of a file that is there."""

    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an attack that was interrupted.")
    ] = False
    overwrite: Overwrite = False

    def check(self, out: Path, numbers: Sequence[int] | None, source: GraphSource) -> None:
        """Refuse before all the work what could not be written after it, or would be regretted."""
        if self.resume and self.overwrite:
            raise SettingsError("Pass --resume or --overwrite, one of them. Got both.")
        if numbers is None or len(numbers) > 1:
            _check_folder(out)
            return
        if is_present(out) and not (is_folder(out) or self.resume or self.overwrite):
            raise FileError(
                f"{str(out)!r} exists. Pass --resume to go on with it, --overwrite to replace it, "
                "or choose another --out."
            )
        _check_inputs(out, source)
        check_target(out, overwrite=True)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that could not be made or written later, or that is a run's."""
    if is_present(folder) and not is_folder(folder):
        raise FileError(f"--out must be a folder for several splits. Got the file {str(folder)!r}.")
    if is_folder(folder) and is_run(folder):
        raise FileError(f"{folder} is a run's folder. Choose another --out.")
    nearest = next(path for path in (folder, *folder.parents) if is_present(path))
    check_target(nearest / f"perturbation{SUFFIX}", overwrite=True)


def _check_inputs(out: Path, source: GraphSource) -> None:
    """Refuse to replace the graph by what is made of it."""
    for given in (source.graph, source.reading.nodes):
        if given is not None and is_file(out) and is_file(Path(given)) and out.samefile(given):
            raise FileError(f"{str(out)!r} is one of the inputs. Choose another --out.")


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
    """Find the flips of edges that perturb a graph most, and keep them in order.

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
    file: PerturbationFile

    @property
    def title(self) -> str:
        facts = self.planned.facts
        return f"{facts.attack} on {facts.graph.name}, {facts.splits} split {facts.split}"


def _plan(
    session: Session,
    source: GraphSource,
    request: AttackRequest,
    numbers: Sequence[int] | None,
) -> list[PlannedAttack]:
    """Read the graph and prepare all attacks; what is wrong is refused before any is run."""
    from aspect.attacks.run import plan_attacks
    from aspect.estimator import choose_device

    device = choose_device(session.device)
    labelled = source.read(session.data_dir)
    for notice in labelled.graph.notices:
        session.screen.note(f"Note: {notice}")
    if not attack_info(request.kind).needs_model:
        return plan_attacks(labelled, source.name, request, numbers, device)
    from aspect.evaluation.stability import train_stand_in

    return plan_attacks(labelled, source.name, request, numbers, device, train_stand_in)


def _tasks(
    planned: Sequence[PlannedAttack], out: Path, files: FileOptions, *, several: bool
) -> list[_Task]:
    """Every attack with its file, all looked at before the first is run."""
    from aspect.attacks.file import PerturbationFile

    return [
        _Task(
            attack,
            PerturbationFile.open(
                out / attack.facts.file_name if several else out, attack.facts, **files._asdict()
            ),
        )
        for attack in planned
    ]


def _run_all(session: Session, tasks: Sequence[_Task], out: Path) -> dict[str, Any]:
    from aspect.provenance import forget_peak, peak_bytes

    device = tasks[0].planned.device
    forget_peak(device)
    results = []
    for task in tasks:
        before = task.file.kept
        results.append(_content(_run(session, task), before))
    return {
        "out": str(out),
        "flips": sum(result["flips"] for result in results),
        "seconds": sum(result["seconds"] for result in results),
        "peak_memory_bytes": peak_bytes(device),
        "files": results,
    }


def _run(session: Session, task: _Task) -> PerturbationFile:
    """Attack with progress on the screen; the first flips tell how long the rest will take."""
    from aspect.attacks.run import run_attack
    from aspect.provenance import peak_bytes

    screen, planned = session.screen, task.planned
    if task.file.kept:
        screen.note(f"{task.title}: {task.file.kept} flips are in {task.file.path} already.")
        if task.file.facts.complete:
            return task.file
    most = peak_bytes(planned.device) + planned.working_bytes
    screen.note(
        f"{task.title}: {planned.facts.wanted} flips on {planned.device}, "
        f"with about {most / MIB:.0f} MiB of memory."
    )
    is_first = True
    try:
        with screen.progress("Flips") as advance:

            def show(progress: FlipProgress) -> None:
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


def _content(file: PerturbationFile, before: int) -> dict[str, Any]:
    facts = file.facts
    return {
        "out": str(file.path),
        "graph": facts.graph.model_dump(),
        **facts.model_dump(
            mode="json",
            include={"kind", "solver", "settings", "splits", "split", "seed", "complete", "device"},
        ),
        "flips": len(file.keys),
        "kept": before,
        "reached": file.reached,
        "seconds": facts.seconds,
    }


def _show(session: Session, content: dict[str, Any]) -> None:
    rows = [
        [
            file["out"],
            file["split"],
            file["flips"],
            f"{100 * file['reached']:.1f}%",
            f"{file['seconds']:.1f}",
        ]
        for file in content["files"]
    ]
    session.screen.table(["file", "split", "flips", "of the edges", "seconds"], rows)
    peak = content["peak_memory_bytes"] / MIB
    session.screen.say(f"{content['flips']} flips; {peak:.0f} MiB of memory at most.")
