"""`aspect attack`: a graph in, a file of ordered flips out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from aspect.attacks.perturbation import SUFFIX, Budget
from aspect.attacks.registry import AttackName, attack_info, attack_names
from aspect.cli.console import duration
from aspect.cli.options import Overwrite, check_target, is_run
from aspect.cli.session import Session, command
from aspect.config import Config, parse_overrides
from aspect.data.files import is_file, is_folder, is_present
from aspect.data.source import GraphSource, Reading
from aspect.errors import FileError, SettingsError

if TYPE_CHECKING:
    from aspect.attacks.file import PerturbationFile
    from aspect.attacks.run import FlipProgress, PlannedAttack, TrainModel

__all__ = ["attack"]

MIB = 2**20
SOLVERS = {name: solvers for name in attack_names() if (solvers := attack_info(name).solvers)}


class AttackOptions(Config):
    """Which attack, how many flips, and the splits whose training labels the attacker knows."""

    kind: Annotated[
        AttackName, typer.Option(help=f"Attack: {', '.join(attack_names())}.", metavar="ATTACK")
    ] = "metattack"
    solver: Annotated[
        str | None,
        typer.Option(
            help="Variant of an attack that has several: "
            + "; ".join(f"{', '.join(solvers)} of {name}" for name, solvers in SOLVERS.items())
            + ".  [default: implicit]",
            metavar="NAME",
        ),
    ] = None
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None
    """Change one setting; may be repeated."""
    budget: Annotated[Budget | None, typer.Option(metavar="RATIO")] = None
    """Flips as a ratio of the edges."""
    flips: Annotated[int | None, Field(gt=0)] = None
    """Flips as a number, in place of --budget."""
    split: Annotated[list[int] | None, typer.Option(metavar="K", min=0)] = None
    """Number of the split whose training labels are known; may be repeated."""
    all_splits: bool = False
    """One attack for every split."""
    splits: Literal["class-balanced", "random", "published"] = "class-balanced"
    """Kind of splits."""
    resume: bool = False
    """Go on with an attack that was interrupted."""
    overwrite: Overwrite = False

    @property
    def numbers(self) -> list[int] | None:
        """Numbers of the splits; None: all of them."""
        return None if self.all_splits else list(dict.fromkeys(self.split or []))

    @property
    def is_several(self) -> bool:
        """Whether there is a file for each of several splits."""
        return self.numbers is None or len(self.numbers) > 1

    def check(self) -> None:
        """Refuse what is wrong for every graph."""
        for pair, first, second in (
            ("--budget RATIO or --flips N", self.budget is not None, self.flips is not None),
            ("--split K or --all-splits", bool(self.split), self.all_splits),
        ):
            if first == second:
                given = "both" if first else "neither"
                raise SettingsError(f"Pass {pair}, one of them. Got {given}.")
        if self.resume and self.overwrite:
            raise SettingsError("Pass --resume or --overwrite, one of them. Got both.")

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

    def check_out(self, out: Path, source: GraphSource) -> None:
        """Refuse before all the work what could not be written after it, or would be regretted."""
        if self.is_several:
            if is_present(out) and not is_folder(out):
                raise FileError(
                    f"--out must be a folder for several splits. Got the file {str(out)!r}."
                )
            if is_folder(out) and is_run(out):
                raise FileError(f"{out} is a run's folder. Choose another --out.")
            nearest = next(path for path in (out, *out.parents) if is_present(path))
            check_target(nearest / f"perturbation{SUFFIX}", overwrite=True)
            return
        if is_present(out) and not (is_folder(out) or self.resume or self.overwrite):
            raise FileError(
                f"{str(out)!r} exists. Pass --resume to go on with it, --overwrite to replace it, "
                "or choose another --out."
            )
        for given in (source.graph, source.reading.nodes):
            if given is not None and is_file(out) and is_file(Path(given)) and out.samefile(given):
                raise FileError(f"{str(out)!r} is one of the inputs. Choose another --out.")
        check_target(out, overwrite=True)


@command
def attack(
    session: Session,
    graph: Annotated[
        str,
        typer.Argument(help="Data set, or files of a graph with labels.", metavar="GRAPH"),
    ],
    options: AttackOptions,
    reading: Reading,
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
    options.check()
    settings = options.values()
    source = GraphSource.named(graph, reading)
    options.check_out(out, source)
    with session.screen.activity("Starting"):
        from aspect.attacks.file import PerturbationFile
        from aspect.attacks.run import AttackRequest, plan_attacks
        from aspect.estimator import choose_device
        from aspect.provenance import forget_peak, peak_bytes

        train_model: TrainModel | None = None
        if attack_info(options.kind).needs_model:
            from aspect.evaluation.stability import train_stand_in

            train_model = train_stand_in
        device = choose_device(session.device)
        labelled = source.read(session.data_dir)
        for notice in labelled.graph.notices:
            session.screen.note(f"Note: {notice}")
        request = AttackRequest(
            kind=options.kind,
            settings=settings,
            budget=options.budget,
            flips=options.flips,
            splits=options.splits,
            seed=session.seed or 0,
        )
        planned = plan_attacks(labelled, source.name, request, options.numbers, device, train_model)
        files = [  # all looked at before the first attack is run
            PerturbationFile.open(
                out / plan.facts.file_name if options.is_several else out,
                plan.facts,
                resume=options.resume,
                overwrite=options.overwrite,
            )
            for plan in planned
        ]
    forget_peak(device)
    results = []
    for plan, file in zip(planned, files, strict=True):
        kept = file.kept
        results.append({**_content(_run(session, plan, file)), "kept": kept})
    content = {
        "out": str(out),
        "flips": sum(result["flips"] for result in results),
        "seconds": sum(result["seconds"] for result in results),
        "peak_memory_bytes": peak_bytes(device),
        "files": results,
    }
    session.screen.answer(content, lambda: _show(session, content))


def _run(session: Session, planned: PlannedAttack, file: PerturbationFile) -> PerturbationFile:
    """Attack with progress on the screen; the first flips say how long the rest will take."""
    from aspect.attacks.run import run_attack
    from aspect.provenance import peak_bytes

    screen, facts = session.screen, planned.facts
    title = f"{facts.attack} on {facts.graph.name}, {facts.splits} split {facts.split}"
    if file.kept:
        screen.note(f"{title}: {file.kept} flips are in {file.path} already.")
        if file.facts.complete:
            return file
    most = peak_bytes(planned.device) + planned.working_bytes
    screen.note(
        f"{title}: {facts.wanted} flips on {planned.device}, "
        f"with about {most / MIB:.0f} MiB of memory."
    )
    is_first = True
    try:
        with screen.progress("Flips") as advance:

            def show(progress: FlipProgress) -> None:
                nonlocal is_first
                left = f"about {duration(progress.seconds_left)} left"
                if is_first and progress.made < progress.wanted:
                    screen.note(f"{title}: {left}, by the pace of the first flips.")
                is_first = False
                advance(progress.made, progress.wanted, left)

            return run_attack(planned, file, show)
    except KeyboardInterrupt as interrupt:
        kept = f"{file.kept} of {facts.wanted} flips are in {file.path}"
        then = f"{kept}. Go on with --resume." if file.kept else "Nothing was written."
        raise KeyboardInterrupt(f"Interrupted. {then}") from interrupt


def _content(file: PerturbationFile) -> dict[str, Any]:
    facts = file.facts
    return {
        "out": str(file.path),
        "graph": facts.graph.model_dump(),
        **facts.model_dump(
            mode="json",
            include={"kind", "solver", "settings", "splits", "split", "seed", "complete", "device"},
        ),
        "flips": len(file.keys),
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
