"""`aspect attack`: a graph in, a file of ordered flips out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from aspect.attacks.perturbation import SUFFIX, Budget
from aspect.attacks.registry import AttackName, attack_info, attack_names, check_flips_edges
from aspect.cli.completion import graph_argument
from aspect.cli.options import Overwrite, check_target
from aspect.cli.session import Session, command
from aspect.config import Config, parse_overrides
from aspect.data.files import is_folder, is_present, target_of
from aspect.data.source import GraphSource, Reading
from aspect.errors import FileError, SettingsError
from aspect.training.files import is_run
from aspect.training.progress import duration

if TYPE_CHECKING:
    from aspect.attacks.file import PerturbationFile
    from aspect.attacks.run import FlipProgress, PlannedAttack, TrainModel
    from aspect.data.graph import Graph

MIB = 2**20
FLIPPING = [name for name in attack_names() if attack_info(name).changes == "edges"]
SOLVERS = {name: solvers for name in attack_names() if (solvers := attack_info(name).solvers)}


class AttackOptions(Config):
    """Which attack, how many flips, and the splits whose training labels the attacker knows."""

    kind: Annotated[
        AttackName, typer.Option(help=f"Attack: {', '.join(FLIPPING)}.", metavar="ATTACK")
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
    """Change a setting of the attack."""
    budget: Annotated[Budget | None, typer.Option(metavar="RATIO")] = None
    """Flips as a ratio of the edges."""
    flips: Annotated[int | None, Field(gt=0)] = None
    """Flips as a number, in place of --budget; at each target, if there are some."""
    target_node: Annotated[list[str] | None, typer.Option(metavar="NODE")] = None
    """Node to attack, of a targeted attack: its id, or its row from 0 on if there are no ids."""
    split: Annotated[list[Annotated[int, Field(ge=0)]] | None, typer.Option(metavar="K")] = None
    """Number of the split that the file is for, whose training labels are known.
    [default: 0]"""
    all_splits: bool = False
    """One attack for every split."""
    splits: Literal["class-balanced", "random", "published"] = "class-balanced"
    """Kind of splits."""
    perturbed: Annotated[Path | None, typer.Option("--from", metavar="FILE")] = None
    """Attack nothing, and import what was found elsewhere: the adjacency after it (.npz of SciPy)
    or the edge list after it (.csv, .tsv, .txt)."""
    from_flips: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """The same from a list of the flipped pairs (.csv, .tsv, .txt); --budget or --flips take the
    first of them."""
    resume: bool = False
    """Go on with an attack that was interrupted."""
    overwrite: Overwrite = False

    @property
    def numbers(self) -> list[int] | None:
        """Numbers of the splits, the first if none is named; None: all of them."""
        return None if self.all_splits else list(dict.fromkeys(self.split or [0]))

    @property
    def is_several(self) -> bool:
        """Whether there is a file for each of several splits."""
        return self.numbers is None or len(self.numbers) > 1

    @property
    def default_split(self) -> str:
        """What it means that no split is named."""
        if self.imported or attack_info(self.kind).needs_labels:
            return (
                f"No split is named: the attacker knows the training labels of {self.splits} "
                "split 0, and the result counts on that split alone."
            )
        return (
            f"No split is named: the file is for {self.splits} split 0, and its scores count on "
            f"that split alone. {self.kind} reads no labels."
        )

    @property
    def imported(self) -> Path | None:
        """The file of an import; None: the graph is attacked."""
        return self.perturbed or self.from_flips

    def check(self) -> None:
        """Refuse what is wrong for every graph."""
        check_flips_edges(self.kind)
        exclusive = {
            "--budget RATIO or --flips N": (self.budget, self.flips),
            "--split K or --all-splits": (self.split, self.all_splits),
            "--resume or --overwrite": (self.resume, self.overwrite),
            "--from FILE or --from-flips FILE": (self.perturbed, self.from_flips),
        }
        for options, given in exclusive.items():
            if all(given):
                raise SettingsError(f"Pass {options}, one of them. Got both.")
        is_targeted, has_size = attack_info(self.kind).targeted, self.budget or self.flips
        if self.imported is not None:
            self._check_import()
        elif not (is_targeted or has_size):
            raise SettingsError("Pass --budget RATIO or --flips N, one of them. Got neither.")
        if self.target_node and not is_targeted:
            owners = " and ".join(name for name in attack_names() if attack_info(name).targeted)
            raise SettingsError(f"--target-node belongs to {owners}. Got it with {self.kind!r}.")

    def _check_import(self) -> None:
        """Refuse what does not go with the import of a perturbation."""
        if self.perturbed and (self.budget or self.flips):
            raise SettingsError(
                "--from imports all flips, in no order: leave --budget and --flips out."
            )
        default = AttackOptions()
        names = ("kind", "solver", "settings", "target_node", "resume")
        if any(getattr(self, name) != getattr(default, name) for name in names):
            raise SettingsError(
                "--kind, --solver, --set, --target-node and --resume belong to an attack, and "
                "not to the import of one."
            )

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

    def targets(self, graph: Graph) -> dict[str, list[int]]:
        """The setting of a targeted attack: rows of the nodes that are named, if any are."""
        from aspect.evaluation.nearest import row_of

        rows = [row_of(node, graph.ids, graph.num_nodes) for node in self.target_node or ()]
        return {"targets": rows} if rows else {}

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
        # A file that exists is for the attack to open, which knows whether it can go on with it.
        inputs = source.graph, source.reading.nodes, self.imported
        check_target(out, overwrite=True, inputs=inputs)


@command
def attack(
    session: Session,
    graph: Annotated[str, graph_argument("Data set, or files of a graph.")],
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

    The attacker sees the labels of the split's training nodes and no others; random and gradient
    see none, and need none. A smaller budget's
    flips are the first of a larger one's, so that one file serves all budgets up to its own. With
    --from or --from-flips a perturbation that was found elsewhere becomes such a file.
    """
    options.check()
    settings = options.values()
    source = GraphSource.named(graph, reading)
    options.check_out(out, source)
    if not options.split and not options.all_splits:
        session.screen.note(options.default_split)
    if options.imported is not None:
        _import(session, options, options.imported, source, out)
        return
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
        session.screen.notices(labelled.graph.notices)
        request = AttackRequest(
            kind=options.kind,
            settings={**settings, **options.targets(labelled.graph)},
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


def _import(
    session: Session, options: AttackOptions, given: Path, source: GraphSource, out: Path
) -> None:
    """Make files of a perturbation that was found elsewhere."""
    with session.screen.activity("Reading"):
        import torch

        from aspect.attacks.imported import imported_files, read_flips, read_perturbed
        from aspect.attacks.run import AttackRequest
        from aspect.data.graph import edge_keys

        labelled = source.read(session.data_dir)
        graph = labelled.graph
        flips = (read_flips if options.perturbed is None else read_perturbed)(given, graph)
        if options.budget is not None or options.flips is not None:
            wanted = AttackRequest(budget=options.budget, flips=options.flips).count(graph)
            if wanted > len(flips):
                raise SettingsError(
                    f"{given} lists {len(flips)} flips. Got a budget of {wanted}: lower --budget "
                    "or --flips."
                )
            flips = flips[:wanted]
        files = imported_files(
            labelled,
            source.name,
            flips,
            source=given,
            splits=options.splits,
            numbers=options.numbers,
        )
        paths = [out / file.facts.file_name if options.is_several else out for file in files]
        for path in paths:
            target_of(path, options.overwrite)
        for path, file in zip(paths, files, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            file.path = path
            file.write(path)
    removed = int(torch.isin(files[0].keys, edge_keys(graph).cpu()).sum())
    added = len(flips) - removed
    content = {
        "out": str(out),
        "flips": len(flips),
        "added": added,
        "removed": removed,
        "files": [_content(file) for file in files],
    }
    screen = session.screen
    screen.answer(
        content,
        lambda: screen.say(
            f"Wrote {len(flips)} flips ({added} added edges, {removed} removed), a "
            f"budget of {files[0].reached:.4g}, for {options.splits} split"
            f"{'s' if len(files) > 1 else ''} {', '.join(str(f.facts.split) for f in files)}: {out}"
        ),
    )


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
    device = planned.target.graph.device
    taken, more = peak_bytes(device), planned.working_bytes
    memory = f"about {(taken + (more or 0)) / MIB:.0f} MiB of memory"
    screen.note(
        f"{title}: {facts.wanted} flips on {device}, "
        f"with {memory}{' so far; the search takes more' if more is None else ''}."
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
