"""The perturbation files of a bench: which its runs need, which are there, how others are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from aspect.attacks.base import flips_within
from aspect.attacks.file import AttackFacts, PerturbationFile, find_difference
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.registry import IMPORTED
from aspect.attacks.run import AttackRequest, PlannedAttack, plan_attacks, run_attack
from aspect.data.files import is_file
from aspect.data.graph import LabelledGraph
from aspect.data.source import GraphSource, Reading
from aspect.errors import AspectError, CheckpointError, GraphError, RunError, SettingsError
from aspect.evaluation.stability import train_stand_in
from aspect.experiment.executor import Executor, Finished, Lost, Quiet, Started
from aspect.experiment.plan import Plan
from aspect.experiment.run import PerturbedGraph, read_graph
from aspect.experiment.spec import Cell
from aspect.experiment.store import BenchFolder


class Slot(NamedTuple):
    """What one file serves: a graph, an attack and a split, at all budgets and in both modes."""

    graph: str  # as the plan names it
    kind: str
    solver: str
    budget: float | None  # None: the attack is nested, and the file serves all budgets
    split: int

    @classmethod
    def of(cls, graph: str, perturbation: Perturbation, split: int) -> Slot:
        """The slot of a perturbation."""
        budget = None if perturbation.info.nested else perturbation.budget
        return cls(graph, perturbation.kind, perturbation.solver, budget, split)


@dataclass(frozen=True)
class NeededFile:
    """A file that runs need, whether it is there or not."""

    slot: Slot  # what it serves
    reading: Reading  # of the graph
    request: AttackRequest  # of the attack that makes it, to the largest budget
    facts: AttackFacts  # of that attack

    def kept(self, folder: Path) -> int:
        """The flips that the file in a folder holds by now."""
        path = folder / self.facts.file_name
        return min(len(PerturbationFile.read(path).keys), self.facts.wanted) if is_file(path) else 0

    def plan_attack(self, labelled: LabelledGraph, device: str = "cpu") -> PlannedAttack:
        """The attack that makes it, ready to run on a device."""
        name, splits = self.facts.graph.name, [self.facts.split]
        (planned,) = plan_attacks(
            labelled, name, self.request, splits, torch.device(device), train_stand_in
        )
        return planned


def needed_files(
    plan: Plan, graph: str, name: str, labelled: LabelledGraph, num_splits: int
) -> tuple[NeededFile, ...]:
    """All files that a plan needs of a graph; what speaks against an attack is said here.

    Attacks have default settings: a table of record compares methods, not attackers.

    Args:
        plan: What is asked for.
        graph: As the plan names it.
        name: Of the graph, for the files.
        labelled: The graph itself.
        num_splits: The first so many splits.
    """
    budgets: dict[Slot, set[float]] = {}  # of the files for the first split
    for perturbation, _ in plan.planned():
        if perturbation is not None and perturbation.has_file:
            budgets.setdefault(Slot.of(graph, perturbation, 0), set()).add(perturbation.budget)
    needed: list[NeededFile] = []
    for slot, served in budgets.items():
        request = AttackRequest(
            kind=slot.kind,
            settings={"solver": slot.solver} if slot.solver else {},
            budget=max(served),
            splits=plan.splits,
        )
        try:
            flips_within(min(served), labelled.graph)
            all_facts = _facts(labelled, name, request, num_splits)
        except AspectError as error:
            raise GraphError(f"The graph {graph!r} cannot be attacked. {error}") from error
        needed += [
            NeededFile(slot._replace(split=facts.split), plan.reading, request, facts)
            for facts in all_facts
        ]
    return tuple(needed)


def _facts(
    labelled: LabelledGraph, name: str, request: AttackRequest, num_splits: int
) -> list[AttackFacts]:
    """Of the attack for every split."""
    if request.kind == IMPORTED:
        return AttackFacts.by_split(
            labelled,
            name,
            range(num_splits),
            kind=IMPORTED,
            splits=request.splits,
            settings={},
            wanted=request.count(labelled.graph),
            complete=True,
            device="cpu",
        )
    planned = plan_attacks(
        labelled, name, request, range(num_splits), torch.device("cpu"), train_stand_in
    )
    return [attack.facts for attack in planned]


@dataclass
class BenchFiles:
    """All files of a bench that are there, and why there is none where its attack failed."""

    files: dict[Slot, PerturbationFile] = field(default_factory=dict)
    errors: dict[Slot, str] = field(default_factory=dict)  # a sentence

    def perturbed(
        self, graph: str, perturbation: Perturbation | None, splits: Sequence[int]
    ) -> tuple[PerturbedGraph, ...]:
        """The graph perturbed for each split; empty if it is clean, or if there is no file yet."""
        if perturbation is None:
            return ()
        if not perturbation.has_file:
            return tuple(PerturbedGraph(perturbation, split) for split in splits)
        slots = [Slot.of(graph, perturbation, split) for split in splits]
        if not self.files.keys() >= set(slots):
            return ()
        return tuple(PerturbedGraph.of(self.files[slot], perturbation) for slot in slots)

    def error(self, cell: Cell) -> str | None:
        """Why a run cannot be carried out, in sentences."""
        for slot in slots_of(cell):
            if slot in self.errors:
                return f"The attack for split {slot.split} failed. {self.errors[slot]}"
        return None


def slots_of(cell: Cell) -> list[Slot]:
    """The files that a run needs."""
    perturbation = cell.spec.perturbation
    if perturbation is None or not perturbation.has_file:
        return []
    return [Slot.of(cell.graph, perturbation, split) for split in cell.spec.split_numbers]


def find_files(
    needed: Iterable[NeededFile], given: Path | None, made: Path
) -> tuple[BenchFiles, list[NeededFile]]:
    """The files that are there, and those that are left to be made.

    A file goes by the name that `aspect attack` gives it. One that is too short counts for none;
    one of another graph, or of another attack than the plan's, is refused.

    Args:
        needed: By the runs.
        given: Folder to look into first, which is only read.
        made: Folder of the bench itself.
    """
    folders = [(made, "Remove it, or choose another --out.")]
    if given is not None:
        fix = "Name another folder with --perturbations, or move the file away."
        folders.insert(0, (given, fix))
    files, missing = BenchFiles(), []
    for need in needed:
        found = (_find(need, folder / need.facts.file_name, fix) for folder, fix in folders)
        file = next((file for file in found if file is not None), None)
        if file is None:
            missing.append(need)
        else:
            files.files[need.slot] = file
    return files, missing


def _find(need: NeededFile, path: Path, fix: str) -> PerturbationFile | None:
    """The file, if it is there and long enough; `fix` says what helps if it is a wrong one."""
    if not is_file(path):
        return None
    try:
        file = PerturbationFile.read(path)
        _check(need, file.facts, path)
    except (CheckpointError, GraphError, SettingsError) as error:
        raise type(error)(f"{error} {fix}") from error
    is_whole = file.facts.complete if need.slot.budget else len(file.keys) >= need.facts.wanted
    return file if is_whole else None


def _check(need: NeededFile, facts: AttackFacts, path: Path) -> None:
    """Refuse flips of another graph or attack: their scores would not belong into the table."""
    wanted, given = need.facts.graph, facts.graph
    if given.sha256 != wanted.sha256:
        raise GraphError(
            f"{str(path)!r} belongs to another graph than {need.slot.graph!r}: its sha256 must be "
            f"{wanted.sha256[:16]}... Got {given.name!r} with {given.nodes} nodes, {given.edges} "
            f"edges and sha256 {given.sha256[:16]}..."
        )
    # Where and by which version the flips were found changes nothing about what they are.
    ignored = ("settings",) if facts.kind == IMPORTED else ()  # which file they were read from
    difference = find_difference(facts, need.facts, of_machine=False, ignored=ignored)
    if difference is not None:
        raise SettingsError(
            f"{str(path)!r} holds another attack than the plan's: its {difference.name} must be "
            f"{difference.now!r}. Got {difference.before!r}."
        )


# Files that are made, before the runs and by the same workers


def make_file(
    need: NeededFile, folder: Path, *, data_dir: str | None = None, device: str = "cpu"
) -> None:
    """Attack the graph, or go on where an earlier process was stopped.

    Args:
        need: The file.
        folder: Where it goes.
        data_dir: Where files of named data sets lie.
        device: Where to attack.
    """
    source = GraphSource(graph=need.slot.graph, reading=need.reading)
    labelled = read_graph(source, data_dir, need.facts.graph.sha256)
    planned = need.plan_attack(labelled, device)
    path = folder / need.facts.file_name
    try:
        file = PerturbationFile.open(path, planned.facts, resume=True)
    except RunError:
        # A shorter attack that was complete, or one that another version or kind of device began.
        file = PerturbationFile.open(path, planned.facts, overwrite=True)
    run_attack(planned, file)


@dataclass(frozen=True)
class AttackProgress:
    """How far the attacks have come."""

    flips: int  # found so far, before and now
    wanted: int  # of all attacks that have not failed
    files: int
    made: int
    failed: int
    running: int
    seconds_left: float | None  # by the pace so far; None: nothing to go by yet


def make_files(
    needed: Iterable[NeededFile],
    folder: BenchFolder,
    files: BenchFiles,
    executor: Executor,
    work: Callable[[NeededFile], None],
) -> Generator[AttackProgress, None, None]:
    """Make what a bench still needs; what becomes of it goes into `files`, and is told."""
    # The largest first, as with runs.
    needed = sorted(
        needed,
        key=lambda need: -need.facts.wanted * (need.facts.graph.nodes + need.facts.graph.edges),
    )
    flips = {need.slot: need.kept(folder.perturbations) for need in needed}
    running: dict[Slot, NeededFile] = {}
    started, before = time.monotonic(), sum(flips.values())
    with closing(executor.run(work, iter(needed))) as events:
        for news in events:
            if not isinstance(news, Quiet):
                _note(news, running, folder, files)
            if isinstance(news, Finished):
                flips[news.task.slot] = news.task.facts.wanted
            flips |= {slot: need.kept(folder.perturbations) for slot, need in running.items()}
            possible = [need for need in needed if need.slot not in files.errors]
            flips_so_far = sum(flips[need.slot] for need in possible)
            flips_in_all = sum(need.facts.wanted for need in possible)
            pace = max(flips_so_far - before, 0) / max(time.monotonic() - started, 1e-9)
            yield AttackProgress(
                flips=flips_so_far,
                wanted=flips_in_all,
                files=len(needed),
                made=sum(need.slot in files.files for need in needed),
                failed=len(needed) - len(possible),
                running=len(running),
                seconds_left=(flips_in_all - flips_so_far) / pace if pace else None,
            )


def _note(
    news: Started[NeededFile] | Finished[NeededFile, None] | Lost[NeededFile],
    running: dict[Slot, NeededFile],
    folder: BenchFolder,
    files: BenchFiles,
) -> None:
    slot, name = news.task.slot, news.task.facts.file_name
    if isinstance(news, Started):
        running[slot] = news.task
        folder.write_log(f"attacks {name}")
        return
    del running[slot]
    if isinstance(news, Finished):
        files.files[slot] = PerturbationFile.read(folder.perturbations / name)
        folder.write_log(f"attacked {name}")
    else:
        files.errors[slot] = news.reason
        folder.write_log(f"attack-failed {name}", f"{news.reason}\n{news.trace}")
