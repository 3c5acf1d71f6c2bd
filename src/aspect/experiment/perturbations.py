"""The perturbation files of a bench: which its runs need, which are there, how others are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from aspect.attacks.base import flips_within
from aspect.attacks.file import AttackFacts, PerturbationFile, find_difference
from aspect.attacks.perturbation import Perturbation, group_by_file
from aspect.attacks.registry import attack_info
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

__all__ = [
    "AttackProgress",
    "AttackTask",
    "Attacking",
    "BenchFiles",
    "KnownFile",
    "NeededFile",
    "Slot",
    "find_files",
    "make_file",
    "needed_files",
]


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

    graph: str  # as the plan names it
    facts: AttackFacts  # of the attack that makes it, to the largest budget
    budgets: tuple[float, ...]  # rising

    @property
    def slot(self) -> Slot:
        """What it serves."""
        facts = self.facts
        budget = None if attack_info(facts.kind).nested else self.budgets[-1]
        return Slot(self.graph, facts.kind, facts.solver, budget, facts.split)


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
    needed: list[NeededFile] = []
    for group in group_by_file(one for one, _ in plan.planned() if one is not None):
        budgets = tuple(sorted({perturbation.budget for perturbation in group}))
        request = AttackRequest(
            kind=group[0].kind,
            settings=_settings(group[0].solver),
            budget=budgets[-1],
            splits=plan.splits,
        )
        try:
            for budget in budgets:
                flips_within(budget, labelled.graph)
            planned = plan_attacks(
                labelled, name, request, range(num_splits), torch.device("cpu"), train_stand_in
            )
        except AspectError as error:
            raise GraphError(f"The graph {graph!r} cannot be attacked. {error}") from error
        needed += [NeededFile(graph, attack.facts, budgets) for attack in planned]
    return tuple(needed)


def _settings(solver: str) -> dict[str, str]:
    return {"solver": solver} if solver else {}


@dataclass(frozen=True)
class KnownFile:
    """A file that is there."""

    path: Path
    sha256: Mapping[float, str]  # of all that a budget does, see `PerturbationFile.digest`

    @classmethod
    def of(cls, path: Path, file: PerturbationFile, budgets: Iterable[float]) -> KnownFile:
        """What was read from the path, at these budgets."""
        return cls(path, {budget: file.digest(budget) for budget in budgets})


@dataclass
class BenchFiles:
    """All files of a bench, as far as they are known, and why there is none where it failed."""

    files: dict[Slot, KnownFile] = field(default_factory=dict)
    errors: dict[Slot, str] = field(default_factory=dict)  # a sentence

    def sha256(
        self, graph: str, perturbation: Perturbation | None, splits: Sequence[int]
    ) -> tuple[str, ...] | None:
        """What is done to the graph, split by split; None where no file tells, or not yet."""
        if perturbation is None or not perturbation.has_file:
            return None
        known = [self.files.get(Slot.of(graph, perturbation, split)) for split in splits]
        digests = tuple(file.sha256[perturbation.budget] for file in known if file is not None)
        return digests if digests and len(digests) == len(known) else None

    def paths(self, cell: Cell) -> tuple[Path, ...]:
        """The files of a run's splits; none where it needs none."""
        return tuple(self.files[slot].path for slot in slots_of(cell) if slot in self.files)

    def error(self, cell: Cell) -> str | None:
        """Why a run cannot be carried out, in sentences."""
        for slot in slots_of(cell):
            if slot in self.errors:
                return f"The attack for split {slot.split} failed. {self.errors[slot]}"
        return None

    def first(self, graph: str, perturbation: Perturbation) -> PerturbedGraph | None:
        """A perturbation for the first split; None where its attack failed."""
        if not perturbation.has_file:
            return PerturbedGraph(perturbation, 0)
        file = self.files.get(Slot.of(graph, perturbation, 0))
        if file is None:
            return None
        return PerturbedGraph(perturbation, 0, file.path, file.sha256[perturbation.budget])


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
    files, missing = BenchFiles(), []
    for need in needed:
        known = None
        if given is not None:
            fix = "Name another folder with --perturbations, or move the file away."
            known = _find(need, given / need.facts.file_name, fix)
        if known is None:
            known = _find(need, made / need.facts.file_name, "Remove it, or choose another --out.")
        if known is None:
            missing.append(need)
        else:
            files.files[need.slot] = known
    return files, missing


def _find(need: NeededFile, path: Path, fix: str) -> KnownFile | None:
    """The file, if it is there and long enough."""
    if not is_file(path):
        return None
    with _fixing(fix):
        file = PerturbationFile.read(path)
        _check(need, file.facts, path)
    is_whole = file.facts.complete if need.slot.budget else len(file.keys) >= need.facts.wanted
    return KnownFile.of(path, file, need.budgets) if is_whole else None


@contextmanager
def _fixing(fix: str) -> Iterator[None]:
    """End what is wrong with what would be right."""
    try:
        yield
    except (CheckpointError, GraphError, SettingsError) as error:
        raise type(error)(f"{error} {fix}") from error


def _check(need: NeededFile, facts: AttackFacts, path: Path) -> None:
    """Refuse flips of another graph or attack: their scores would not belong into the table."""
    wanted, given = need.facts.graph, facts.graph
    if given.sha256 != wanted.sha256:
        raise GraphError(
            f"{str(path)!r} belongs to another graph than {need.graph!r}: its sha256 must be "
            f"{wanted.sha256[:16]}... Got {given.name!r} with {given.nodes} nodes, {given.edges} "
            f"edges and sha256 {given.sha256[:16]}..."
        )
    # Where and by which version the flips were found changes nothing about what they are.
    difference = find_difference(facts, need.facts, of_machine=False)
    if difference is not None:
        raise SettingsError(
            f"{str(path)!r} holds another attack than the plan's: its {difference.name} must be "
            f"{difference.now!r}. Got {difference.before!r}."
        )


# Files that are made, before the runs and by the same workers


@dataclass(frozen=True)
class AttackTask:
    """A file to be made."""

    need: NeededFile
    reading: Reading
    path: Path

    @property
    def kept(self) -> int:
        """The flips that the file holds by now."""
        if not is_file(self.path):
            return 0
        return min(len(PerturbationFile.read(self.path).keys), self.need.facts.wanted)


def make_file(task: AttackTask, *, data_dir: str | None = None, device: str = "cpu") -> KnownFile:
    """Attack the graph, or go on where an earlier process was stopped.

    Args:
        task: The file.
        data_dir: Where files of named data sets lie.
        device: Where to attack.
    """
    facts = task.need.facts
    source = GraphSource(graph=task.need.graph, reading=task.reading)
    labelled = read_graph(source, data_dir, facts.graph.sha256)
    planned = _planned_again(facts, labelled, torch.device(device))
    try:
        file = PerturbationFile.open(task.path, planned.facts, resume=True)
    except RunError:
        # A shorter attack that was complete, or one that another version or kind of device began.
        file = PerturbationFile.open(task.path, planned.facts, overwrite=True)
    return KnownFile.of(task.path, run_attack(planned, file), task.need.budgets)


def _planned_again(
    facts: AttackFacts, labelled: LabelledGraph, device: torch.device
) -> PlannedAttack:
    """The attack that the facts describe, ready to run on a device."""
    request = AttackRequest(
        kind=facts.kind,
        settings=_settings(facts.solver),
        flips=facts.wanted,
        splits=facts.splits,
        seed=facts.seed,
    )
    (planned,) = plan_attacks(
        labelled, facts.graph.name, request, [facts.split], device, train_stand_in
    )
    return planned


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


class Attacking:
    """All attacks that a bench still needs; what becomes of them goes into its `BenchFiles`."""

    def __init__(
        self,
        needed: Iterable[NeededFile],
        reading: Reading,
        folder: BenchFolder,
        files: BenchFiles,
    ) -> None:
        tasks = [
            AttackTask(need, reading, folder.perturbations / need.facts.file_name)
            for need in needed
        ]
        self.tasks = sorted(tasks, key=_cost, reverse=True)  # the largest first, as with runs
        self.folder, self.files = folder, files
        self.running: dict[Slot, AttackTask] = {}
        self._flips = {task.need.slot: task.kept for task in self.tasks}

    @property
    def made(self) -> int:
        """Files that are complete."""
        return sum(task.need.slot in self.files.files for task in self.tasks)

    @property
    def failed(self) -> int:
        """Files that cannot be made."""
        return sum(task.need.slot in self.files.errors for task in self.tasks)

    def run(
        self, executor: Executor, work: Callable[[AttackTask], KnownFile]
    ) -> Generator[AttackProgress, None, None]:
        """Make the files; report the progress."""
        started, before = time.monotonic(), sum(self._flips.values())
        with closing(executor.run(work, iter(self.tasks))) as events:
            for news in events:
                if not isinstance(news, Quiet):
                    self._note(news)
                yield self._progress(time.monotonic() - started, before)

    def _progress(self, seconds: float, before: int) -> AttackProgress:
        """By what the files of running attacks hold."""
        self._flips |= {slot: task.kept for slot, task in self.running.items()}
        possible = [task.need for task in self.tasks if task.need.slot not in self.files.errors]
        flips = sum(self._flips[need.slot] for need in possible)
        wanted = sum(need.facts.wanted for need in possible)
        pace = max(flips - before, 0) / seconds if seconds > 0 else 0.0
        return AttackProgress(
            flips=flips,
            wanted=wanted,
            files=len(self.tasks),
            made=self.made,
            failed=self.failed,
            running=len(self.running),
            seconds_left=(wanted - flips) / pace if pace else None,
        )

    def _note(
        self, news: Started[AttackTask] | Finished[AttackTask, KnownFile] | Lost[AttackTask]
    ) -> None:
        slot, name = news.task.need.slot, news.task.path.name
        if isinstance(news, Started):
            self.running[slot] = news.task
            self.folder.write_log(f"attacks {name}")
            return
        del self.running[slot]
        if isinstance(news, Finished):
            self._flips[slot] = news.task.need.facts.wanted
            self.files.files[slot] = news.result
            self.folder.write_log(f"attacked {name}")
        else:
            self.files.errors[slot] = news.reason
            self.folder.write_log(f"attack-failed {name}", f"{news.reason}\n{news.trace}")


def _cost(task: AttackTask) -> int:
    """What an attack takes, in arbitrary units."""
    graph = task.need.facts.graph
    return task.need.facts.wanted * (graph.nodes + graph.edges)
