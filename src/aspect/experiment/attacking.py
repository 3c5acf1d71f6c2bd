"""The attacks of a bench whose files are not there yet: made before its cells, by its workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from aspect.attacks.file import AttackFacts, PerturbationFile
from aspect.attacks.run import run_attack
from aspect.data.files import is_file
from aspect.data.source import Reading
from aspect.errors import RunError
from aspect.experiment.attack_plan import plan_attack_again
from aspect.experiment.executor import Executor, Finished, Lost, Quiet, Started
from aspect.experiment.flips import Flips, FlipsFile, Slot, WantedFile
from aspect.experiment.graphs import read_unchanged
from aspect.experiment.store import BenchFolder

__all__ = ["AttackProgress", "AttackTask", "Attacking", "make_file"]


@dataclass(frozen=True)
class AttackTask:
    """A file to be made."""

    wanted: WantedFile
    reading: Reading
    path: Path


def make_file(task: AttackTask, *, data_dir: str | None = None, device: str = "cpu") -> FlipsFile:
    """Attack the graph, or go on where an earlier process was stopped.

    Args:
        task: The file.
        data_dir: Where files of named data sets lie.
        device: Where to attack.
    """
    facts = task.wanted.facts
    sha256 = facts.graph.sha256
    labelled = read_unchanged(task.wanted.graph, task.reading, data_dir, sha256)
    planned = plan_attack_again(facts, labelled, torch.device(device))
    trace = run_attack(planned, _open(task.path, planned.facts))
    return FlipsFile.of(task.path, trace, task.wanted.budgets)


def _open(path: Path, facts: AttackFacts) -> PerturbationFile:
    """The file to go on with; what cannot go on as it began is made anew.

    That is a shorter attack that was complete, or one that another version or kind of device began.
    """
    try:
        return PerturbationFile.open(path, facts, resume=True)
    except RunError:
        return PerturbationFile.open(path, facts, overwrite=True)


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
    """All attacks that a bench still needs; what becomes of them goes into its `Flips`."""

    def __init__(
        self, wanted: Iterable[WantedFile], reading: Reading, folder: BenchFolder, flips: Flips
    ) -> None:
        tasks = [
            AttackTask(each, reading, folder.perturbations / each.facts.file_name)
            for each in wanted
        ]
        self.tasks = sorted(tasks, key=_work, reverse=True)  # the largest first, as with cells
        self.folder, self.flips = folder, flips
        self.running: dict[Slot, AttackTask] = {}
        self._found = {task.wanted.slot: _kept(task) for task in self.tasks}

    @property
    def made(self) -> int:
        """Files that are complete."""
        return sum(task.wanted.slot in self.flips.files for task in self.tasks)

    @property
    def failed(self) -> int:
        """Files that cannot be made."""
        return sum(task.wanted.slot in self.flips.errors for task in self.tasks)

    def run(
        self, executor: Executor, work: Callable[[AttackTask], FlipsFile]
    ) -> Generator[AttackProgress, None, None]:
        """Make the files; tell how it stands."""
        started, before = time.monotonic(), sum(self._found.values())
        with closing(executor.run(work, iter(self.tasks))) as events:
            for news in events:
                if not isinstance(news, Quiet):
                    self._note(news)
                yield self._progress(time.monotonic() - started, before)

    def _progress(self, seconds: float, before: int) -> AttackProgress:
        """What the files of running attacks hold tells how far those have come."""
        self._found |= {slot: _kept(task) for slot, task in self.running.items()}
        left_to_find = [
            task.wanted for task in self.tasks if task.wanted.slot not in self.flips.errors
        ]
        flips = sum(self._found[each.slot] for each in left_to_find)
        wanted = sum(each.facts.wanted for each in left_to_find)
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
        self, news: Started[AttackTask] | Finished[AttackTask, FlipsFile] | Lost[AttackTask]
    ) -> None:
        slot, name = news.task.wanted.slot, news.task.path.name
        if isinstance(news, Started):
            self.running[slot] = news.task
            self.folder.write_log(f"attacks {name}")
            return
        del self.running[slot]
        if isinstance(news, Finished):
            self._found[slot] = news.task.wanted.facts.wanted
            self.flips.files[slot] = news.result
            self.folder.write_log(f"attacked {name}")
        else:
            self.flips.errors[slot] = news.reason
            self.folder.write_log(f"attack-failed {name}", f"{news.reason}\n{news.trace}")


def _work(task: AttackTask) -> int:
    """What an attack takes, in arbitrary units."""
    graph = task.wanted.facts.graph
    return task.wanted.facts.wanted * (graph.nodes + graph.edges)


def _kept(task: AttackTask) -> int:
    """The flips that the file holds by now."""
    if not is_file(task.path):
        return 0
    return min(len(PerturbationFile.read(task.path).keys), task.wanted.facts.wanted)
