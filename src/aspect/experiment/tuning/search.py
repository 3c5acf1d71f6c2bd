"""The search itself: ask, carry out, tell; and leave the best settings so far on disk."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aspect.errors import SettingsError
from aspect.experiment.executor import Executor, Finished, Lost
from aspect.experiment.tuning.folder import SearchFolder
from aspect.experiment.tuning.ledger import Asked, Ledger, TrialResult, best_of
from aspect.experiment.tuning.request import Search
from aspect.experiment.tuning.trial import TrialTask, run_trial

__all__ = ["Progress", "SearchResult", "tune"]


@dataclass(frozen=True)
class Progress:
    """How far a search is."""

    done: int  # trials that are over, of whatever end
    total: int
    running: int
    before: int  # of those done, the ones that an earlier call left
    results: tuple[TrialResult, ...]

    @property
    def best(self) -> TrialResult | None:
        """The best so far."""
        return best_of(self.results)


@dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    search: Search
    folder: Path
    results: tuple[TrialResult, ...]  # by number
    before: int  # trials that an earlier call left
    requeued: int  # trials that a killed process had left unfinished

    @property
    def best(self) -> TrialResult | None:
        """The trial to take; None if none came to its end with a healthy embedding."""
        return best_of(self.results)

    @property
    def start(self) -> TrialResult | None:
        """The settings that the search started from."""
        return next((each for each in self.results if each.number == 0), None)

    @property
    def settings(self) -> Path:
        """The file for `aspect train --config`."""
        return SearchFolder(self.folder, self.search).settings

    def changed(self) -> dict[str, Any]:
        """The best trial's settings that are not those of the start."""
        found = {} if self.best is None else self.best.settings
        start = self.search.settings
        return {name: value for name, value in found.items() if value != start[name]}

    def count(self, state: str) -> int:
        """Trials that ended so."""
        return sum(each.state == state for each in self.results)


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


def tune(
    search: Search,
    out: str | Path,
    trials: int,
    *,
    executor: Executor,
    data_dir: str | None = None,
    overwrite: bool = False,
    seconds: float | None = None,
    on_progress: Callable[[Progress], None] = _ignore,
) -> SearchResult:
    """Search until there are so many trials in all, those of earlier calls on the folder included.

    After `seconds` no trial is begun; those under way come to their end.

    A trial that fails counts, and the others go on. With one worker the same search gives the same
    trials, interrupted or not; several at a time know less of each other. Training with another
    number of threads than the workers have rounds otherwise, which can move a score by some nodes.
    """
    if trials < 1:
        raise SettingsError(f"Number of trials must be 1 or more. Got {trials}.")
    with SearchFolder.open(Path(out), search, overwrite=overwrite) as folder:
        until = math.inf if seconds is None else time.monotonic() + seconds
        under_way = _UnderWay(folder, trials, until, data_dir, on_progress)
        under_way.run(executor)
        return SearchResult(
            search, folder.path, under_way.results, under_way.before, under_way.requeued
        )


class _UnderWay:
    """A search while it goes on: asks for trials, tells how they went, and writes it down."""

    def __init__(
        self,
        folder: SearchFolder,
        trials: int,
        until: float,  # by the monotonic clock
        data_dir: str | None,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.folder, self.trials, self.until, self.data_dir = folder, trials, until, data_dir
        self.on_progress = on_progress
        self.ledger = Ledger(folder.journal, folder.search)
        self.requeued = self.ledger.requeue_stale()
        self.results = tuple(self.ledger.results())
        self.before = len(self.results)
        self.asked: dict[int, Asked] = {}

    def run(self, executor: Executor) -> None:
        """Until there are enough trials, or the time is over."""
        self._note()
        news = executor.run(run_trial, self._tasks())
        with closing(news):
            for each in news:
                if isinstance(each, Finished):
                    self.ledger.tell(self.asked.pop(each.task.number), each.result)
                elif isinstance(each, Lost):
                    self.ledger.tell_failure(self.asked.pop(each.task.number), each.reason)
                self._note()

    def _tasks(self) -> Iterator[TrialTask]:
        while self.ledger.begun() < self.trials and time.monotonic() < self.until:
            each = self.ledger.ask()
            self.asked[each.number] = each
            yield TrialTask(
                number=each.number,
                settings=each.settings,
                search=self.folder.search,
                journal=str(self.folder.journal),
                trial_id=each.trial_id,
                data_dir=self.data_dir,
            )

    def _note(self) -> None:
        results = tuple(self.ledger.results())
        if results != self.results or not self.asked:
            self.results = results
            self.folder.write(results)
        done = len(results)
        total, running = max(self.trials, done), len(self.asked)
        self.on_progress(Progress(done, total, running, self.before, results))
