"""The trials of a search: which are done, which is next. One process asks and tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from aspect.experiment.tuning.journal import create_study
from aspect.experiment.tuning.request import Search
from aspect.experiment.tuning.trial import TrialScore
from aspect.randomness import seed_for
from aspect.training.health import Health

__all__ = ["Asked", "Ledger", "TrialResult", "best_of"]

State = Literal["complete", "pruned", "unhealthy", "failed"]
STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}

# What is kept beside a trial in the journal. Its number is ours: a trial that was killed and is run
# again has two entries in the journal, and counts once.
NUMBER, STALE, SETTINGS, VALIDATION, EPOCHS, SECONDS, HEALTH, ERROR = (
    "number",
    "stale",
    "settings",
    "validation",
    "epochs",
    "seconds",
    "health",
    "error",
)

SAMPLER_SEED_BITS = 32  # all that numpy's generator takes


@dataclass(frozen=True)
class Asked:
    """A trial to carry out."""

    number: int  # 0 is the start
    trial_id: int  # in the journal
    settings: dict[str, Any]  # in full, but for the epochs that are found in passing


@dataclass(frozen=True)
class TrialResult:
    """A trial that is over."""

    number: int
    state: State
    validation: float | None  # in percent; None if it failed
    epochs: int | None
    seconds: float | None
    settings: dict[str, Any]  # in full
    health: Health | None = None  # of its embedding before any centring; None if it failed
    error: str = ""  # why it failed, or why its embedding is not healthy enough


def best_of(results: Iterable[TrialResult]) -> TrialResult | None:
    """The trial with the highest validation accuracy that came to its end; the first of equals."""
    complete = [each for each in results if each.state == "complete"]
    return max(complete, key=lambda each: (each.validation or 0.0, -each.number), default=None)


class Ledger:
    """A study with numbers of our own, which go on after a kill as if there had been none."""

    def __init__(self, journal: Path, search: Search) -> None:
        self.search, self.space = search, search.space
        self.study = create_study(journal)
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(self.space.start(), user_attrs={NUMBER: 0})

    def requeue_stale(self) -> int:
        """Mark trials that a killed process left unfinished, and queue them again; their count.

        Only for the one process that holds the search: others' trials look the same.
        """
        stale = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial in stale:
            _keep(self.study, trial, {STALE: True})
            self.study.tell(trial.number, state=TrialState.FAIL)
            # Killed while it was drawn, it lacks parameters: then it is drawn anew.
            if (
                NUMBER in trial.user_attrs
                and trial.params.keys() == self.space.distributions.keys()
            ):
                kept = {NUMBER: trial.user_attrs[NUMBER]}
                self.study.enqueue_trial(trial.params, user_attrs=kept)
        return len(stale)

    def ask(self) -> Asked:
        """The next trial: one that waits, or a new point of the space."""
        number = self._next_number()
        # A sampler of its own for every number: a search goes on as if it had not been interrupted.
        seed = seed_for(self.search.seeds[0], "trial", number) % 2**SAMPLER_SEED_BITS
        self.study.sampler = TPESampler(seed=seed, multivariate=True, constant_liar=True)
        trial = self.study.ask(dict(self.space.distributions))
        number = trial.user_attrs.get(NUMBER, number)
        settings = self.search.settings if number == 0 else self._drawn(trial.params)
        trial.set_user_attr(NUMBER, number)
        trial.set_user_attr(SETTINGS, settings)
        return Asked(number, trial._trial_id, settings)

    def _drawn(self, point: dict[str, Any]) -> dict[str, Any]:
        drawn, most = self.space.settings(point), self.search.max_epochs
        return {**drawn, "epochs": min(point.get("epochs", most), most)}

    def tell(self, asked: Asked, score: TrialScore) -> None:
        """Note how a trial went."""
        trial, (validation, health) = (
            self._find(asked),
            (score.score.validation, score.score.health),
        )
        kept = {VALIDATION: validation, EPOCHS: score.epochs, SECONDS: score.seconds}
        fault = "" if score.pruned else self.search.fault_of(health)
        _keep(self.study, trial, {**kept, HEALTH: health.to_dict(), ERROR: fault})
        # An unhealthy one counts as pruned for the sampler, which then draws elsewhere.
        if score.pruned or fault:
            self.study.tell(trial.number, state=TrialState.PRUNED)
        else:
            self.study.tell(trial.number, validation)

    def tell_failure(self, asked: Asked, error: str) -> None:
        """Note why a trial came to nothing."""
        trial = self._find(asked)
        _keep(self.study, trial, {ERROR: error})
        self.study.tell(trial.number, state=TrialState.FAIL)

    def results(self) -> list[TrialResult]:
        """All trials that are over, by number."""
        found = [_result(trial) for trial in self._counted() if trial.state in STATES]
        return sorted(found, key=lambda each: each.number)

    def begun(self) -> int:
        """Trials that are over or under way."""
        return sum(trial.state != TrialState.WAITING for trial in self._counted())

    def _counted(self) -> list[FrozenTrial]:
        """All but those that are run again, or were killed before they had a number."""
        every = self.study.get_trials(deepcopy=False)
        return [
            trial for trial in every if NUMBER in trial.user_attrs and STALE not in trial.user_attrs
        ]

    def _next_number(self) -> int:
        """The lowest that no trial has: one that was killed before it was queued leaves a gap."""
        taken = {trial.user_attrs[NUMBER] for trial in self._counted()}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _find(self, asked: Asked) -> FrozenTrial:
        return self.study._storage.get_trial(asked.trial_id)


def _keep(study: optuna.Study, trial: FrozenTrial, values: dict[str, Any]) -> None:
    for name, value in values.items():
        study._storage.set_trial_user_attr(trial._trial_id, name, value)


def _result(trial: FrozenTrial) -> TrialResult:
    kept, state = trial.user_attrs, STATES[trial.state]
    if state == "pruned" and kept[ERROR]:
        state = "unhealthy"
    epochs, settings = kept.get(EPOCHS), kept[SETTINGS]
    if epochs is not None and epochs < settings["epochs"]:
        settings = {**settings, "epochs": epochs, "patience": None}
    return TrialResult(
        number=kept[NUMBER],
        state=state,
        validation=kept.get(VALIDATION),
        epochs=epochs,
        seconds=kept.get(SECONDS),
        settings=settings,
        health=Health.from_dict(kept[HEALTH]) if HEALTH in kept else None,
        error=kept.get(ERROR, ""),
    )
