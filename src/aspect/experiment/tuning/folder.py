"""A search's folder: what was asked, all trials, the best settings; one process at a time.

- search.yaml: what was asked; a search goes on only with the same
- study.journal: Optuna's journal, with every trial
- trials.csv: the trials as a table
- settings.yaml: the best so far; `aspect train --config` takes it as it is
- .lock, .journal.lock: taken while processes work here; what is left of them means nothing
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from aspect.config import load_yaml, make_config, to_yaml
from aspect.data.embeddings import FORMULA_STARTS
from aspect.data.files import LEFT_BEHIND, LOCK, is_file, is_folder, locked, naming, reason
from aspect.errors import AspectError, FileError, RunError
from aspect.experiment.tuning.journal import JOURNAL_LOCK, mend
from aspect.experiment.tuning.ledger import TrialResult, best_of
from aspect.experiment.tuning.request import Search
from aspect.settings import Experiment
from aspect.training.folder import write_text

__all__ = ["SETTINGS", "SearchFolder", "origin_of"]

SEARCH, JOURNAL, TRIALS, SETTINGS = (
    "search.yaml",
    "study.journal",
    "trials.csv",
    "settings.yaml",
)


class SearchFolder:
    """Where one search is kept; open it with `SearchFolder.open`."""

    def __init__(self, path: Path, search: Search) -> None:
        self.path, self.search = path, search

    @property
    def journal(self) -> Path:
        """The file with every trial."""
        return self.path / JOURNAL

    @property
    def settings(self) -> Path:
        """The file with the best settings."""
        return self.path / SETTINGS

    @classmethod
    @contextmanager
    def open(cls, path: Path, search: Search, *, overwrite: bool = False) -> Iterator[SearchFolder]:
        """Take the folder for this process.

        An empty folder is taken, and one with the same search; another search is replaced, or
        refused without `overwrite`; anything else is refused and left untouched.
        """
        folder = cls(path, search)
        with ExitStack() as cleanup:
            with naming(path):
                if path.exists() and not path.is_dir():
                    raise FileError(f"{path} must be a folder. Got a file.")
                path.mkdir(parents=True, exist_ok=True)
                folder._refuse_foreign()
                cleanup.enter_context(locked(path))
            try:
                folder._claim(overwrite=overwrite)
                yield folder
            except OSError as error:  # of the journal, which Optuna writes
                raise FileError(f"Cannot write to {path}: {reason(error)}.") from error

    def check(self, *, overwrite: bool = False) -> None:
        """Refuse beforehand, and write nothing, what opening would refuse."""
        if not is_folder(self.path):
            return
        self._refuse_foreign()
        if is_file(self.path / SEARCH) and not overwrite:
            self._check_same()

    def _refuse_foreign(self) -> None:
        names = {item.name for item in self.path.iterdir()} - {LOCK, JOURNAL_LOCK}
        others = {name for name in names if not LEFT_BEHIND.fullmatch(name)}
        if others and SEARCH not in others:
            raise RunError(f"{self.path} is not empty and holds no search. Choose another --out.")

    def _claim(self, *, overwrite: bool) -> None:
        self.check(overwrite=overwrite)
        is_begun = is_file(self.path / SEARCH)
        if is_begun and overwrite:
            # The request last: the folder is a search's at any moment.
            for name in (SETTINGS, TRIALS, JOURNAL):
                (self.path / name).unlink(missing_ok=True)
        for item in self.path.iterdir():
            if LEFT_BEHIND.fullmatch(item.name):
                item.unlink()
        if overwrite or not is_begun:
            write_text(self.path / SEARCH, to_yaml(self.search.model_dump(mode="json")))
        mend(self.journal)

    def _check_same(self) -> None:
        file = self.path / SEARCH
        try:
            kept = make_config(Search, load_yaml(file), owner=str(file))
        except AspectError as error:
            raise RunError(
                f"{file} does not tell what was asked. {error} Pass --overwrite to search anew."
            ) from error
        for name, (before, now) in _differences(kept, self.search).items():
            raise RunError(
                f"{self.path} holds another search, with {name} {before!r}. Got {now!r}. "
                "Choose another --out, or pass --overwrite."
            )

    def write(self, results: Sequence[TrialResult]) -> None:
        """The table of all trials and the best settings, each all or nothing."""
        write_text(self.path / TRIALS, _table(self.search, results))
        best = best_of(results)
        if best is None:
            return
        text = _experiment_text(self.search, best, origin_of(self.search, results))
        if not is_file(self.settings) or self.settings.read_bytes() != text.encode():
            write_text(self.settings, text)


def _differences(before: Search, now: Search) -> dict[str, tuple[Any, Any]]:
    """What two searches differ in, setting by setting; where settings come from decides nothing."""
    first, second = (
        each.model_dump(mode="json", exclude={"settings_from"}) for each in (before, now)
    )
    first |= {f"setting {name}": value for name, value in first.pop("settings").items()}
    second |= {f"setting {name}": value for name, value in second.pop("settings").items()}
    names = list(dict.fromkeys([*first, *second]))
    pairs = {name: (first.get(name), second.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _experiment_text(search: Search, best: TrialResult, origin: str) -> str:
    """Settings in full, as `aspect train --config` takes them."""
    experiment = Experiment(
        method=search.method,
        graph=search.graph,
        reading=search.reading,
        graph_sha256=search.graph_sha256,
        seed=search.seeds[0],
        settings=best.settings,
        origin=origin,
    )
    shown = experiment.model_dump(mode="json", exclude_defaults=True)
    return to_yaml({"method": search.method, "graph": search.graph, **shown})


def origin_of(search: Search, results: Sequence[TrialResult]) -> str:
    """How the best settings were chosen, in sentences."""
    best, start = best_of(results), next((each for each in results if each.number == 0), None)
    assert best is not None  # there is something to tell of
    assert best.health is not None  # it came to its end
    states = [each.state for each in results]
    others = ", ".join(
        f"{states.count(state)} {state}" for state in ("pruned", "unhealthy", "failed")
    )
    seeds = f"seed{'s' if len(search.seeds) > 1 else ''} {', '.join(map(str, search.seeds))}"
    reached = "failed"
    if start is not None and start.validation is not None:
        reached = f"{start.validation:.2f}%"
    return (
        f"Highest mean validation accuracy, {best.validation:.2f}%, of {len(results)} trials "
        f"({others}) of aspect tune {search.version}; it is trial {best.number}. "
        f"Mean over {search.num_splits} {search.splits} splits and pre-training {seeds}, by the "
        f"{search.probe} probe. Mean cosine of two nodes {best.health.mean_cosine:.2f}, effective "
        f"rank {best.health.effective_rank:.1f}. Start: {search.settings_from}, {reached}. "
        "The labels of each split's test nodes were masked."
    )


def _table(search: Search, results: Sequence[TrialResult]) -> str:
    """One line per trial; what was drawn stands in columns of its own."""
    drawn = list(search.space.distributions)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head = ["trial", "state", "validation", "epochs", "seconds", "mean_cosine", "effective_rank"]
    writer.writerow([*head, *drawn, "error"])
    for each in results:
        seconds = "" if each.seconds is None else f"{each.seconds:.2f}"
        health = each.health
        row = [each.number, each.state, each.validation, each.epochs, seconds]
        row += [None, None] if health is None else [health.mean_cosine, health.effective_rank]
        row += [each.settings[name] for name in drawn]
        writer.writerow([*row, _disarmed(each.error)])
    return file.getvalue()


def _disarmed(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
