"""A plan carried out: which runs are left, in which order, on which workers, and what is kept."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

import torch

from aspect.attacks.perturbation import Perturbation
from aspect.estimator import choose_device
from aspect.experiment.executor import (
    Executor,
    Finished,
    LocalProcesses,
    Lost,
    Quiet,
    RayTasks,
    Started,
    available_cores,
)
from aspect.experiment.perturbations import BenchFiles, Slot, slots_of
from aspect.experiment.plan import Plan, ReadFacts
from aspect.experiment.record import Record
from aspect.experiment.run import Outcome, PerturbedGraph, Task, failure
from aspect.experiment.spec import Cell
from aspect.experiment.store import BenchFolder
from aspect.methods.registry import find_method

State = Literal["done", "failed", "left"]
EngineName = Literal["local", "ray"]

# Small graphs leave a GPU idle between launches, so a few processes share it; each has its own copy
# of everything, hence no more than fit.
MOST_PER_GPU = 4
BYTES_PER_WORKER = 12 * 2**30

EPOCHS_PER_PROBE = 2.0  # what probing one split takes, in epochs of linear cost


@dataclass(frozen=True)
class Placement:
    """The kind of device, the number of workers, and the GPUs that they are spread over."""

    kind: Literal["cpu", "cuda"]
    workers: int
    gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them
    engine: EngineName = "local"

    @classmethod
    def choose(
        cls, device: str | None, workers: int | None, engine: EngineName = "local"
    ) -> Placement:
        """What was asked for; by default every core, or a few workers on each GPU.

        Args:
            device: As for `choose_device`; `cuda` without a number means all GPUs.
            workers: Their number, if it was asked for.
            engine: `ray` takes the CPUs of a cluster, or its GPUs if the device is `cuda`.
        """
        if engine == "ray":
            from aspect.scale.ray_engine import connect, num_gpus

            cores, kind = connect(workers), torch.device(device or "cpu").type
            most = num_gpus() * MOST_PER_GPU if kind == "cuda" else cores
            return cls("cuda" if kind == "cuda" else "cpu", workers or max(1, most), (), engine)
        chosen = choose_device(device)
        if chosen.type == "cpu":
            return cls("cpu", workers or available_cores())
        count = torch.cuda.device_count()
        numbers = range(count) if chosen.index is None else [chosen.index]
        room = torch.cuda.get_device_properties(numbers[0]).total_memory // BYTES_PER_WORKER
        most = max(1, min(MOST_PER_GPU, room, available_cores() // len(numbers)))
        names = _visible(count)
        gpus = tuple(names[number] for number in numbers)
        return cls("cuda", workers or most * len(gpus), gpus)

    def processes(self) -> Executor:
        """The workers; with several GPUs each sees one, in turn."""
        if self.engine == "ray":
            return RayTasks(self.workers, gpus=1 / MOST_PER_GPU if self.kind == "cuda" else 0.0)
        places = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in self.gpus]
        return LocalProcesses(self.workers, environments=places)


def _visible(count: int) -> list[str]:
    """Names of the GPUs that this process sees."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [name.strip() for name in given.split(",")] if given else list(map(str, range(count)))


def cost(cells: Sequence[Cell], facts: ReadFacts, *, trains: bool = True) -> float:
    """Work of the cells of one training in arbitrary units: by epochs, nodes (squared) and edges.

    Args:
        cells: Evaluations of one training.
        facts: Of their graph.
        trains: Off: of the evaluations alone.
    """
    spec = cells[0].spec
    method = find_method(spec.method).method
    linear = facts.nodes + facts.edges
    splits = sum(len(cell.spec.split_numbers) for cell in cells)
    probing = float(EPOCHS_PER_PROBE * linear * splits)
    if not trains:
        return probing
    epochs = spec.settings["epochs"] if method.trainable else 1
    return probing + epochs * (facts.nodes**2 if method.cost == "quadratic" else linear)


class Clock:
    """Time left, from what the most alike of the cells that are done took.

    The cells of one training go by the first of them.
    """

    def __init__(self, costs: dict[str, float]) -> None:
        self.costs = costs  # by the cell's key
        self.taken: dict[tuple[str, ...], tuple[float, float]] = {}  # seconds and cost, by likeness

    def note(self, cell: Cell, seconds: float, cost: float | None = None) -> None:
        """Learn from a cell that is done; its cost is that of its training, unless it is given."""
        cost = self.costs[cell.key] if cost is None else cost
        for likeness in _likenesses(cell):
            before = self.taken.get(likeness, (0.0, 0.0))
            self.taken[likeness] = (before[0] + seconds, before[1] + cost)

    def left(
        self, waiting: Iterable[Cell], running: Sequence[tuple[Cell, float]], workers: int
    ) -> float | None:
        """Seconds until the last cell ends; None as long as nothing is known.

        Args:
            waiting: Cells that no worker has begun.
            running: Each with the seconds that it has taken so far.
            workers: Cells at a time.
        """
        if not self.taken:
            return None
        # One that takes longer than expected may be late by as much again.
        seconds_each = [abs(self._expected(cell) - seconds) for cell, seconds in running]
        seconds_each += map(self._expected, waiting)
        return max([sum(seconds_each) / workers, *seconds_each])

    def _expected(self, cell: Cell) -> float:
        near = next(likeness for likeness in _likenesses(cell) if likeness in self.taken)
        seconds, units = self.taken[near]
        return self.costs[cell.key] * seconds / units


def _likenesses(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """From the closest to the loosest, which all cells share.

    Units of linear and of quadratic work differ by orders of magnitude: one kind says little of the
    other, and is asked last.
    """
    method = cell.spec.method
    kind = find_method(method).method.cost
    return (method, cell.graph), (method,), ("every method", "of cost", kind), ()


@dataclass(frozen=True)
class BenchProgress:
    """Where a bench stands."""

    cells: int
    done: int  # before and now
    failed: int  # before, unless they are tried again, and now
    running: int
    seconds_left: float | None  # None: nothing to go by yet


@dataclass
class Bench:
    """The cells of a plan, or of a part of it, in a folder that is open."""

    plan: Plan
    cells: Sequence[Cell]
    facts: Mapping[str, ReadFacts]  # by graph
    folder: BenchFolder
    workers: int = 1
    files: BenchFiles = field(default_factory=BenchFiles)  # perturbation files
    states: dict[str, State] = field(default_factory=dict)  # by the cell's key
    running: dict[str, float] = field(default_factory=dict)  # key: when it was started

    def __post_init__(self) -> None:
        self.trainings = {cell.key: cell.spec.training for cell in self.cells}
        self.clock = Clock({})
        for cell in self.cells:
            record = self.folder.done(cell)
            if record is not None:
                work = cost([cell], self.facts[cell.graph], trains="train" in record.seconds)
                self.clock.note(cell, sum(record.seconds.values()), work)
            self.states[cell.key] = self._state(cell, record)

    def _state(self, cell: Cell, record: Record | None) -> State:
        """What became of a cell so far; done without the details that are wanted is not done."""
        has_details = not self._wants_details(cell) or self.folder.has_details(cell)
        if record is not None and has_details:
            return "done"
        return "left" if self.folder.failed(cell) is None else "failed"

    def redo(self, entries: Sequence[str]) -> None:
        """Forget what became of these entries, so that they are run again."""
        for cell in self.cells:
            if cell.entry in entries:
                self.folder.forget(cell)
                self.states[cell.key] = "left"

    def retry_failed(self) -> None:
        """Let the cells that failed be tried again."""
        for key, state in self.states.items():
            if state == "failed":
                self.states[key] = "left"

    def run(
        self,
        executor: Executor,
        work: Callable[[list[Task]], list[Outcome]],
        seconds: float = math.inf,
    ) -> Generator[BenchProgress, None, None]:
        """Carry out what is left, expensive trainings first; tell how it stands.

        The runs of one training are one piece of work. After so many seconds nothing is begun; what
        is under way is waited for.
        """
        self.folder.expect(self.plan, self.cells)
        end = time.monotonic() + seconds
        try:
            self._fail_without_files()
            begun = takewhile(lambda _: time.monotonic() < end, self._trainings_left())
            tasks = ([self._task(cell) for cell in cells] for cells in begun)
            with closing(executor.run(work, tasks)) as events:
                for news in events:
                    if not isinstance(news, Quiet):
                        self._note(news)
                    # A worker that is free is not worth telling while it is about to begin again.
                    at_work = (cells[0].key in self.running for cells in self._trainings_left())
                    if isinstance(news, Started | Quiet) or all(at_work):
                        yield self.progress()
        finally:
            self.folder.conclude()

    def _fail_without_files(self) -> None:
        """Make records of cells whose attack failed; there is nothing to carry out."""
        for cell in self._left():
            reason = self.files.error(cell)
            if reason is not None:
                self._keep(failure(cell, reason))

    @property
    def slots(self) -> set[Slot]:
        """The perturbation files that its cells need."""
        return {slot for cell in self.cells for slot in slots_of(cell)}

    def is_given_up(self, slot: Slot) -> bool:
        """Whether all cells that need a perturbation file failed for want of it."""
        states = [
            self.states[cell.key]
            for cell in self.cells
            if cell.spec.perturbation_sha256 is None and slot in slots_of(cell)
        ]
        return set(states) == {"failed"}

    def progress(self) -> BenchProgress:
        """Where it stands now."""
        states, now = list(self.states.values()), time.monotonic()
        left = [cells[0] for cells in self._trainings_left()]
        waiting = [cell for cell in left if cell.key not in self.running]
        running = [
            (cell, now - self.running[cell.key]) for cell in left if cell.key in self.running
        ]
        return BenchProgress(
            cells=len(self.cells),
            done=states.count("done"),
            failed=states.count("failed"),
            running=len(self.running),
            seconds_left=self.clock.left(waiting, running, self.workers),
        )

    def _left(self) -> list[Cell]:
        return [cell for cell in self.cells if self.states[cell.key] == "left"]

    def _trainings_left(self) -> list[list[Cell]]:
        """What is not over, cells of one training together.

        The largest come first: the end is not one long training that all wait for.
        """
        trainings: dict[str, list[Cell]] = {}
        for cell in self._left():
            trainings.setdefault(self.trainings[cell.key], []).append(cell)
        costs = self.clock.costs
        for cells in trainings.values():
            costs.setdefault(cells[0].key, cost(cells, self.facts[cells[0].graph]))
        return sorted(trainings.values(), key=lambda cells: -costs[cells[0].key])

    def _note(
        self, news: Started[list[Task]] | Finished[list[Task], list[Outcome]] | Lost[list[Task]]
    ) -> None:
        cells = [task.cell for task in news.task]
        if isinstance(news, Started):
            self.running[cells[0].key] = time.monotonic()
            for cell in cells:
                self.folder.log("started", cell)
            return
        seconds = time.monotonic() - self.running.pop(cells[0].key)
        if isinstance(news, Finished):
            outcomes = news.result
        else:
            outcomes = [failure(cell, news.reason, news.trace) for cell in cells]
        for outcome in outcomes:
            self._keep(outcome)
        if outcomes[0].record.status == "done":
            self.clock.note(cells[0], seconds)

    def _keep(self, outcome: Outcome) -> None:
        record = outcome.record
        self.folder.write(record, outcome.details)
        self.states[record.key] = record.status
        if record.status == "done":
            self.folder.log("done", record.cell)
        else:
            self.folder.log("failed", record.cell, f"{record.error}\n{outcome.trace}")

    def _task(self, cell: Cell) -> Task:
        spec = cell.spec
        shown: tuple[PerturbedGraph, ...] = ()
        if self._wants_details(cell):  # with the graph under each attack, for the first split
            shown = tuple(
                perturbed
                for perturbation in _largest(self.plan)
                for perturbed in self.files.perturbed(cell.graph, perturbation, (0,))
            )
        return Task(
            cell,
            self.files.perturbed(cell.graph, spec.perturbation, spec.split_numbers),
            has_details=self._wants_details(cell),
            shown=shown,
        )

    def _wants_details(self, cell: Cell) -> bool:
        spec = cell.spec
        is_first = spec.seed == 0 and spec.perturbation is None and spec.splits == self.plan.splits
        return is_first and cell.entry in self.plan.details


def _largest(plan: Plan) -> tuple[Perturbation, ...]:
    """Every kind of perturbation of the plan, at its largest budget."""
    largest: dict[tuple[str, str], Perturbation] = {}
    for perturbation, _ in plan.planned():
        if perturbation is not None:
            kind = (perturbation.kind, perturbation.solver)
            if kind not in largest or largest[kind].budget < perturbation.budget:
                largest[kind] = perturbation
    return tuple(largest.values())
