"""Runs on poisoned graphs, put together where they met the same graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aspect.errors import RunError
from aspect.experiment.robustness.files import check_one_attack
from aspect.experiment.runs import StoredRun
from aspect.perturbation import FilePerturbation

__all__ = ["PoisonedRuns", "group_poisoned"]

Member = tuple[StoredRun, FilePerturbation]  # a run, and what its graph suffered


@dataclass(frozen=True, eq=False)
class PoisonedRuns:
    """The pre-trainings of one method on one poisoned graph."""

    perturbation: FilePerturbation
    runs: tuple[StoredRun, ...]  # by seed

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the pre-trainings, ascending."""
        return tuple(run.record["seed"] for run in self.runs)

    @property
    def where(self) -> str:
        """Words for an error: `split 3 at a budget of 0.1`."""
        return f"split {self.perturbation.facts.split} at a budget of {self.perturbation.budget:g}"


def group_poisoned(runs: Sequence[StoredRun]) -> list[PoisonedRuns]:
    """One group for every budget and split, in this order; what makes no whole is refused."""
    if not runs:
        raise RunError("None of these runs was trained on a perturbed graph.")
    grouped: dict[tuple[float, int], list[Member]] = {}
    masked: dict[bool, StoredRun] = {}
    for run in runs:
        perturbation = run.read_perturbation()
        assert perturbation is not None  # the run is poisoned
        key = perturbation.budget, perturbation.facts.split
        grouped.setdefault(key, []).append((run, perturbation))
        masked[perturbation.features] = run
    _check_features(masked)
    groups = [_group(members) for _, members in sorted(grouped.items(), key=lambda item: item[0])]
    check_one_attack({each.perturbation.path: each.perturbation.facts for each in groups})
    _check_seeds(groups)
    return groups


def _group(members: Sequence[Member]) -> PoisonedRuns:
    members = sorted(members, key=lambda member: member[0].record["seed"])
    runs = tuple(run for run, _ in members)
    group = PoisonedRuns(members[0][1], runs)
    for (run, own), (other, second) in pairwise(members):
        if run.record["seed"] == other.record["seed"]:
            raise RunError(
                f"Runs on {group.where} must differ in the seed. {run.path} and {other.path} "
                f"both have {run.record['seed']}."
            )
        if own.sha256 != second.sha256:
            raise RunError(
                f"Runs on {group.where} must have met the same flips. {run.path} is of {own.path}, "
                f"{other.path} of {second.path}, which differ."
            )
    return group


def _check_features(masked: Mapping[bool, StoredRun]) -> None:
    """Refuse runs with masked features beside those without."""
    if len(masked) > 1:
        raise RunError(
            "Runs that are evaluated together must be perturbed alike. "
            f"{masked[False].path} has flipped edges alone, {masked[True].path} masked features "
            "as well."
        )


def _check_seeds(groups: Sequence[PoisonedRuns]) -> None:
    """Refuse budgets at which some splits have more pre-trainings than others."""
    first: dict[float, PoisonedRuns] = {}
    for group in groups:
        other = first.setdefault(group.perturbation.budget, group)
        if group.seeds != other.seeds:
            raise RunError(
                "Every split of a budget needs runs of the same seeds. There are "
                f"{_listed(other.seeds)} on {other.where}, {_listed(group.seeds)} on {group.where}."
            )


def _listed(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
