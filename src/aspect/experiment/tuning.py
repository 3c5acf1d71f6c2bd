"""The search for settings: workers that call Optuna's `study.optimize` on one journal file.

The folder of a search holds:

- search.yaml: what decides its trials; only an equal search continues it
- study.journal: Optuna's journal with every trial
- trials.csv: the trials as a table
- settings.yaml: the best so far; `aspect train --config` takes it as it is
- report.html: a page, written by `aspect tune`
- .lock, .journal.lock: held while processes work here; what is left of them means nothing
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import filelock
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from aspect.config import load_yaml, make_config, to_yaml
from aspect.data.files import naming
from aspect.data.tensors import FORMULA_STARTS
from aspect.errors import AspectError, RunError, SettingsError, sentence_of
from aspect.experiment.executor import Executor, Finished, Lost, News, Started
from aspect.experiment.search import BEST_SETTINGS, Search
from aspect.experiment.trial import (
    EPOCHS,
    ERROR,
    HEALTH,
    SECONDS,
    START,
    VALIDATION,
    score_trial,
)
from aspect.randomness import seed_for
from aspect.settings import Experiment
from aspect.training.health import Health
from aspect.workspace import FolderKind, Workspace

SEARCH, JOURNAL, TRIALS, PAGE = "search.yaml", "study.journal", "trials.csv", "report.html"
JOURNAL_LOCK = ".journal.lock"
FOLDER = FolderKind(
    foreign="holds no search",
    owns=lambda names: SEARCH in names,
    ignored=frozenset({JOURNAL_LOCK}),
)

STUDY = "search"  # name of the one study in a journal
EARLIER = "earlier"  # attribute of trials that version 0.2 ran again
TRIALS_BEFORE_PRUNING = 5  # that are complete
SEED_BITS = 32  # of numpy's generator, which a sampler uses


# The study


class _JournalLock(JournalFileOpenLock):
    """A lock that the system releases when its holder is killed; Optuna's own stays 30 seconds."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self.lock = filelock.FileLock(journal.parent / JOURNAL_LOCK)

    @override
    def acquire(self) -> bool:
        self.lock.acquire()
        return True

    @override
    def release(self) -> None:
        self.lock.release()


def pruner_of(search: Search) -> BasePruner:
    """The pruner that a search asks for."""
    if search.pruner == "halving":
        first = search.first_pruned
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=2)
    return optuna.pruners.MedianPruner(n_startup_trials=TRIALS_BEFORE_PRUNING)


def open_study(journal: Path) -> optuna.Study:
    """The study of a journal, begun if there is none."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # failures are reported in our own words
    try:
        storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=_JournalLock(journal)))
        if STUDY not in optuna.get_all_study_names(storage):
            optuna.create_study(storage=storage, study_name=STUDY, direction="maximize")
        return optuna.load_study(study_name=STUDY, storage=storage)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise RunError(
            f"{journal} is damaged ({type(error).__name__}). Pass --overwrite to search anew."
        ) from error


def _counted(study: optuna.Study) -> list[FrozenTrial]:
    """The trials in their order, without those that a killed process left half drawn.

    Until version 0.2 a trial that was run again had a new number, and those of earlier attempts.
    """
    trials = study.get_trials(deepcopy=False)
    counted = [
        trial for trial in trials if trial.state != TrialState.FAIL or ERROR in trial.user_attrs
    ]
    return sorted(counted, key=lambda trial: min(trial.user_attrs.get(EARLIER, [trial.number])))


def _unfinished(study: optuna.Study, search: Search) -> list[int]:
    """Numbers of the trials that a killed process left behind, to be run again.

    Optuna's heartbeat would need a database. It is not needed: the lock of the folder says that no
    other process works on the search. A trial that was killed while it was drawn is given up, and
    drawn anew; the start is a point that is known.
    """
    unfinished = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if trial.params.keys() == search.space.keys() or START in trial.user_attrs:
            unfinished.append(trial.number)
        else:
            study.tell(trial.number, state=TrialState.FAIL)
    return unfinished


# Results

State = Literal["complete", "pruned", "unhealthy", "failed"]


@dataclass(frozen=True)
class TrialResult:
    """A trial that has ended."""

    number: int  # 0 is the start
    state: State
    validation: float | None  # in percent; None if it failed
    epochs: int | None
    settings: dict[str, Any]  # in full
    health: Health | None  # of its embedding before any centring; None if it failed
    error: str  # why it failed, or why its embedding is not healthy enough
    seconds: float | None = field(compare=False)

    @classmethod
    def of(cls, number: int, trial: FrozenTrial, search: Search) -> TrialResult:
        """Read a trial of the study."""
        kept = trial.user_attrs
        state: State = "complete"
        if trial.state == TrialState.FAIL:
            state = "failed"
        elif trial.state == TrialState.PRUNED:
            state = "unhealthy" if ERROR in kept else "pruned"
        epochs = kept.get(EPOCHS)
        settings = search.settings if START in kept else search.settings_at(trial.params)
        if epochs is not None and epochs < settings["epochs"]:
            settings = {**settings, "epochs": epochs, "patience": None}
        return cls(
            number=number,
            state=state,
            validation=kept.get(VALIDATION),
            epochs=epochs,
            settings=settings,
            health=Health.from_dict(kept[HEALTH]) if HEALTH in kept else None,
            error=kept.get(ERROR, ""),
            seconds=kept.get(SECONDS, trial.duration and trial.duration.total_seconds()),
        )


@dataclass(frozen=True)
class SearchResult:
    """A search as far as it is."""

    search: Search
    folder: Path
    trials: tuple[TrialResult, ...]  # those that have ended, by number
    before: int = 0  # of these, the trials of an earlier call
    run_again: int = 0  # trials that a killed process had left unfinished
    running: int = 0

    @property
    def best(self) -> TrialResult | None:
        """The complete trial with the highest validation score; the first of equals."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return max(complete, key=lambda trial: (trial.validation, -trial.number), default=None)

    @property
    def start(self) -> TrialResult | None:
        """The first trial, with the settings that the search started from."""
        return next((trial for trial in self.trials if trial.number == 0), None)

    @property
    def settings(self) -> Path:
        """The file for `aspect train --config`."""
        return self.folder / BEST_SETTINGS

    @property
    def page(self) -> Path:
        """The page, if it was written."""
        return self.folder / PAGE

    def changed(self) -> dict[str, Any]:
        """The best trial's settings that are not those of the start."""
        best, start = {} if self.best is None else self.best.settings, self.search.settings
        return {name: value for name, value in best.items() if value != start[name]}

    def count(self, state: str) -> int:
        """Trials that ended so."""
        return sum(trial.state == state for trial in self.trials)

    def origin(self) -> str:
        """How the best settings were chosen, in sentences."""
        search, best, start = self.search, self.best, self.start
        assert best is not None
        assert best.health is not None
        states = ("pruned", "unhealthy", "failed")
        others = ", ".join(f"{self.count(state)} {state}" for state in states)
        seeds = f"seed{'s' if len(search.seeds) > 1 else ''} {', '.join(map(str, search.seeds))}"
        at_start = "failed"
        if start is not None and start.validation is not None:
            at_start = f"{start.validation:.2f}%"
        return (
            f"Highest mean {search.score_name}, {best.validation:.2f}%, of {len(self.trials)} "
            f"trials ({others}) of aspect tune {search.version}; it is trial {best.number}. Mean "
            f"over {search.num_splits} {search.splits} splits and pre-training {seeds}, by the "
            f"{search.probe} probe. Mean cosine of two nodes {best.health.mean_cosine:.2f}, "
            f"effective rank {best.health.effective_rank:.1f}. Start: {search.settings_from}, "
            f"{at_start}. Device: {search.device}. The labels of each split's test nodes were "
            "masked."
        )

    def settings_yaml(self) -> str:
        """The best settings in full, as `aspect train --config` takes them."""
        search, best = self.search, self.best
        assert best is not None
        experiment = Experiment(
            method=search.method,
            graph=search.graph,
            reading=search.reading,
            graph_sha256=search.graph_sha256,
            seed=search.seeds[0],
            settings=best.settings,
            origin=self.origin(),
        )
        shown = experiment.model_dump(mode="json", exclude_defaults=True)
        return to_yaml({"method": search.method, "graph": search.graph, **shown})

    def table(self) -> str:
        """One line of CSV per trial; searched settings have columns of their own."""
        file, searched = io.StringIO(), list(self.search.space)
        writer = csv.writer(file, lineterminator="\n")
        head = ["trial", "state", "validation", "epochs", "seconds"]
        writer.writerow([*head, "mean_cosine", "effective_rank", *searched, "error"])
        for trial in self.trials:
            seconds = "" if trial.seconds is None else f"{trial.seconds:.2f}"
            row = [trial.number, trial.state, trial.validation, trial.epochs, seconds]
            health = trial.health
            row += [None, None] if health is None else [health.mean_cosine, health.effective_rank]
            row += [trial.settings[name] for name in searched]
            is_formula = trial.error.startswith(FORMULA_STARTS)  # to a spreadsheet
            writer.writerow([*row, f"'{trial.error}" if is_formula else trial.error])
        return file.getvalue()


def _ended(study: optuna.Study, search: Search) -> tuple[TrialResult, ...]:
    return tuple(
        TrialResult.of(number, trial, search)
        for number, trial in enumerate(_counted(study))
        if trial.state.is_finished()
    )


# The folder


def load_search(folder: Path) -> tuple[SearchResult, optuna.Study]:
    """The search of a folder as far as it is, and a copy of its study with the same numbers."""
    search = _read_search(folder)
    study = open_study(folder / JOURNAL)
    copy = optuna.create_study(direction="maximize")
    copy.add_trials(trial for trial in _counted(study) if trial.state.is_finished())
    return SearchResult(search, folder, _ended(study, search)), copy


def _read_search(folder: Path) -> Search:
    file = folder / SEARCH
    try:
        return make_config(Search, load_yaml(file), owner=str(file))
    except AspectError as error:
        raise RunError(f"{file} is damaged. {error} Pass --overwrite to search anew.") from error


def check_folder(path: Path, search: Search, *, overwrite: bool = False) -> None:
    """Refuse a folder of another kind or of another search; nothing is written."""
    workspace = Workspace(path, FOLDER)
    workspace.check()
    if overwrite or not workspace.has(SEARCH):
        return
    before, now = _read_search(path).decisive(), search.decisive()
    for name in {**before, **now}:
        if before.get(name) == now.get(name):
            continue
        if name == "source_sha256":
            raise RunError(
                f"The source of {search.method} changed since the search in {path} began. Bring it "
                "back to go on, or pass --overwrite to search anew."
            )
        raise RunError(
            f"{path} holds another search, with {name} {before.get(name)!r}. "
            f"Got {now.get(name)!r}. Choose another --out, or pass --overwrite."
        )


@contextmanager
def _claimed(path: Path, search: Search, *, overwrite: bool) -> Iterator[Workspace]:
    """Hold the folder: an empty one, one of the same search, or with `overwrite` of any search."""
    with Workspace.open(path, FOLDER) as workspace, naming(path):  # Optuna writes there as well
        check_folder(path, search, overwrite=overwrite)
        if overwrite:  # search.yaml is replaced last, so the folder is never without one
            workspace.remove(BEST_SETTINGS, TRIALS, PAGE, JOURNAL)
        if overwrite or not workspace.has(SEARCH):
            workspace.write(SEARCH, to_yaml(search.model_dump(mode="json")))
        if workspace.has(JOURNAL):  # a power cut or a full disk leaves its last line unfinished
            with (path / JOURNAL).open("r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)
        yield workspace


# The search


def run_trial(number: int, search: Search, journal: Path, data_dir: str | None) -> None:
    """Carry out a trial in a worker; a worker that replaces a killed one begins it anew.

    Args:
        number: Of the trial in the study, where its point is drawn already.
        search: The search.
        journal: File of its study.
        data_dir: Folder with the files of named data sets.
    """
    study = open_study(journal)
    study.pruner = pruner_of(search)
    if study.get_trials(deepcopy=False)[number].state.is_finished():
        return  # the worker was killed right after
    trial = optuna.Trial(study, number)  # of the only study, trials have their numbers for ids
    value, state, started = None, TrialState.COMPLETE, time.perf_counter()
    try:
        value = score_trial(trial, search, data_dir)
    except optuna.TrialPruned:
        state = TrialState.PRUNED
    except Exception as error:
        trial.set_user_attr(ERROR, sentence_of(error))
        state = TrialState.FAIL
    trial.set_user_attr(SECONDS, time.perf_counter() - started)
    study.tell(trial, value, state)


def tune(
    search: Search,
    out: str | Path,
    trials: int,
    *,
    executor: Executor,
    data_dir: str | None = None,
    overwrite: bool = False,
    seconds: float | None = None,
    on_progress: Callable[[SearchResult], None] = lambda _: None,
) -> SearchResult:
    """Search until there are so many trials in all, those of earlier calls on the folder included.

    A trial that fails counts, and the others go on. With one worker the same search gives the same
    trials, interrupted or not; several at a time know less of each other. Training with another
    number of threads than the workers have rounds otherwise, which can move a score by some nodes.

    Args:
        search: What is searched.
        out: The folder of the search.
        trials: Their number in all.
        executor: Runs the trials.
        data_dir: Folder with the files of named data sets.
        overwrite: Replace another search in the folder.
        seconds: No trial is begun after so many; those under way come to their end.
        on_progress: Called whenever a trial begins or ends.
    """
    if trials < 1:
        raise SettingsError(f"Number of trials must be 1 or more. Got {trials}.")
    until = math.inf if seconds is None else time.monotonic() + seconds
    with _claimed(Path(out), search, overwrite=overwrite) as workspace:
        journal = workspace.path / JOURNAL
        study = open_study(journal)
        if not study.get_trials(deepcopy=False):
            study.enqueue_trial(search.start(), user_attrs={START: True})
        unfinished = _unfinished(study, search)
        before, run_again = len(_ended(study, search)), len(unfinished)

        def note(running: int) -> SearchResult:
            ended = _ended(study, search)
            result = SearchResult(search, workspace.path, ended, before, run_again, running)
            _write(workspace, result)
            on_progress(result)
            return result

        work = partial(run_trial, search=search, journal=journal, data_dir=data_dir)
        # A worker that is free gets the next trial, which knows how the earlier ones ended.
        numbers = _next_numbers(study, search, unfinished)
        until_then = takewhile(lambda _: time.monotonic() < until, range(trials - before))
        result = note(running=0)
        with closing(executor.run(work, (next(numbers) for _ in until_then))) as events:
            for running in _follow(events, study):
                result = note(running)
        return result


def _next_numbers(study: optuna.Study, search: Search, unfinished: list[int]) -> Iterator[int]:
    """First the trials that were left unfinished, then new ones, each drawn when it is needed."""
    yield from unfinished
    while True:
        # Seeded by the trial's number: an interrupted search ends as one that was not.
        seed = seed_for(search.seeds[0], "trial", len(_counted(study))) % 2**SEED_BITS
        study.sampler = TPESampler(seed=seed, multivariate=True, constant_liar=True)
        yield study.ask(dict(search.space)).number


def _follow(events: Iterable[News[int, None]], study: optuna.Study) -> Iterator[int]:
    """The number of running trials after every event; the trial of a lost worker fails."""
    running: set[int] = set()
    for event in events:
        if isinstance(event, Started):
            running.add(event.task)
        elif isinstance(event, Finished | Lost):
            running.discard(event.task)
        if isinstance(event, Lost):
            if event.trace:  # an error outside of a trial
                raise RunError(f"The search cannot go on. {event.reason}")
            optuna.Trial(study, event.task).set_user_attr(ERROR, event.reason)
            study.tell(event.task, state=TrialState.FAIL)
        yield len(running)


def _write(workspace: Workspace, result: SearchResult) -> None:
    texts = {TRIALS: result.table()}
    if result.best is not None:
        texts[BEST_SETTINGS] = result.settings_yaml()
    for name, text in texts.items():
        if not workspace.has(name) or (workspace.path / name).read_bytes() != text.encode():
            workspace.write(name, text)
