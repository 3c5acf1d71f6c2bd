"""A plan carried out: which cells are left, in which order, and what is kept of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

from aspect.experiment.executor import Executor, Finished, Lost, Quiet, Started
from aspect.experiment.facts import ReadFacts
from aspect.experiment.flips import Flips, Slot, slots_of
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.perturbed import Change
from aspect.experiment.plan import Plan
from aspect.experiment.record import Cell, Record
from aspect.experiment.run import Outcome, Task
from aspect.experiment.schedule import Clock, cost
from aspect.experiment.store import BenchFolder
from aspect.provenance import versions

__all__ = ["Bench", "Progress", "State"]

State = Literal["done", "failed", "left"]


@dataclass(frozen=True)
class Progress:
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
    flips: Flips = field(default_factory=Flips)  # where those of the cells are found
    states: dict[str, State] = field(default_factory=dict)  # by the cell's key
    running: dict[str, float] = field(default_factory=dict)  # key: when it was started

    def __post_init__(self) -> None:
        costs = {cell.key: cost(cell, self.facts[cell.graph]) for cell in self.cells}
        self.clock = Clock(costs)
        for cell in self.cells:
            record = self.folder.done(cell)
            if record is not None:
                self.clock.note(cell, sum(record.seconds.values()))
            self.states[cell.key] = self._state(cell, record)

    def _state(self, cell: Cell, record: Record | None) -> State:
        """What became of a cell so far; done without the details that are wanted is not done."""
        has_details = not self._wants_details(cell) or self.folder.has_details(cell)
        if record is not None and has_details:
            return "done"
        return "left" if self.folder.failed(cell) is None else "failed"

    def retry_failed(self) -> None:
        """Let the cells that failed be tried again."""
        for key, state in self.states.items():
            if state == "failed":
                self.states[key] = "left"

    def run(
        self, executor: Executor, work: Callable[[Task], Outcome]
    ) -> Generator[Progress, None, None]:
        """Carry out what is left, expensive cells first; tell how it stands."""
        self.folder.expect(self.plan, self.cells)
        try:
            self._fail_without_flips()
            with closing(executor.run(work, map(self._task, self._left()))) as events:
                for news in events:
                    if not isinstance(news, Quiet):
                        self._note(news)
                    # A worker that is free is not worth telling while it is about to begin again.
                    if isinstance(news, Started | Quiet) or not self._has_waiting():
                        yield self.progress()
        finally:
            self.folder.conclude()

    def _fail_without_flips(self) -> None:
        """Make records of cells whose attack failed; there is nothing to carry out."""
        for cell in self._left():
            reason = self.flips.error(cell)
            if reason is not None:
                self._keep(Outcome(_lost(cell, reason)), seconds=0.0)

    def is_given_up(self, slot: Slot) -> bool:
        """Whether all cells that need a perturbation file failed for want of it."""
        states = [
            self.states[cell.key]
            for cell in self.cells
            if cell.work.perturbation_sha256 is None and slot in slots_of(cell)
        ]
        return set(states) == {"failed"}

    def _has_waiting(self) -> bool:
        left = {key for key, state in self.states.items() if state == "left"}
        return bool(left - self.running.keys())

    def progress(self) -> Progress:
        """Where it stands now."""
        states, now = list(self.states.values()), time.monotonic()
        left = self._left()
        waiting = [cell for cell in left if cell.key not in self.running]
        running = [
            (cell, now - self.running[cell.key]) for cell in left if cell.key in self.running
        ]
        return Progress(
            cells=len(self.cells),
            done=states.count("done"),
            failed=states.count("failed"),
            running=len(self.running),
            seconds_left=self.clock.left(waiting, running, self.workers),
        )

    def _left(self) -> list[Cell]:
        """What is not over, the largest first: the end is not one long cell that all wait for."""
        left = [cell for cell in self.cells if self.states[cell.key] == "left"]
        return sorted(left, key=lambda cell: -self.clock.costs[cell.key])

    def _note(self, news: Started[Task] | Finished[Task, Outcome] | Lost[Task]) -> None:
        cell = news.task.cell
        if isinstance(news, Started):
            self.running[cell.key] = time.monotonic()
            self.folder.log("started", cell)
            return
        seconds = time.monotonic() - self.running.pop(cell.key)
        if isinstance(news, Finished):
            outcome = news.result
        else:
            outcome = Outcome(_lost(cell, news.reason), trace=news.trace)
        self._keep(outcome, seconds)

    def _keep(self, outcome: Outcome, seconds: float) -> None:
        record = outcome.record
        self.folder.write(record, outcome.details)
        self.states[record.key] = record.status
        if record.status == "done":
            self.folder.log("done", record.cell)
            self.clock.note(record.cell, seconds)
        else:
            self.folder.log("failed", record.cell, f"{record.error}\n{outcome.trace}")

    def _task(self, cell: Cell) -> Task:
        task = Task(cell, self.flips.paths(cell))
        if not self._wants_details(cell):
            return task
        return replace(task, has_details=True, shown=tuple(self._shown(cell.graph)))

    def _shown(self, graph: str) -> Iterator[Change]:
        """What is done to a graph for its first split; attacks that failed are left out."""
        for each in _largest(self.plan):
            if not each.has_file:
                yield Change(each, 0)
                continue
            file = self.flips.files.get(Slot(graph, each.kind, each.solver, 0))
            if file is not None:
                yield Change(each, 0, file.path, file.sha256[each.budget])

    def _wants_details(self, cell: Cell) -> bool:
        work = cell.work
        return cell.entry in self.plan.details and work.seed == 0 and work.perturbation is None


def _lost(cell: Cell, reason: str) -> Record:
    return Record(status="failed", cell=cell, error=reason, versions=versions())


def _largest(plan: Plan) -> tuple[Perturbation, ...]:
    """Every kind of perturbation of the plan, at its largest budget."""
    largest: dict[tuple[str, str], Perturbation] = {}
    for each, _ in plan.planned():
        if each is not None:
            kind = (each.kind, each.solver)
            if kind not in largest or largest[kind].budget < each.budget:
                largest[kind] = each
    return tuple(largest.values())
