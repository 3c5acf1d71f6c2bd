"""Runs on perturbed graphs, probed as the protocol says: poisoned before training, or evaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from aspect.attacks.perturbation import Mode
from aspect.data.graph import Graph
from aspect.errors import RunError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.pruning import (
    check_pruning,
    describe_pruning,
    embed_pruned,
    pruned_name,
    with_all_edges,
)
from aspect.experiment.comparison import check_same_method, check_seeds, controls
from aspect.experiment.robustness.files import check_one_attack
from aspect.experiment.robustness.grouping import PoisonedRuns, group_poisoned
from aspect.experiment.robustness.result import PerturbedRow, Robustness
from aspect.experiment.robustness.study import CLEAN, Study
from aspect.experiment.runs import StoredRun, open_run
from aspect.methods.registry import find_method
from aspect.perturbation import FilePerturbation

__all__ = ["check_inductive", "evaluate_evaded", "evaluate_poisoned"]

OnStep = Callable[[int, int, str], object]  # steps done, of how many, and what comes now

CLEAN_STEP = "clean graph"


def _ignore(done: int, total: int, word: str) -> None:
    """Nobody asked to be told."""


def evaluate_poisoned(
    paths: Sequence[str | Path],
    *,
    probe: str = "neutral",
    doubt: Sequence[float] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep = _ignore,
) -> Robustness:
    """Probe every run that was trained on a poisoned graph, on the split of its file alone.

    Args:
        paths: Folders of runs of one method and graph: poisoned ones, of one attack at any budgets,
            splits and seeds; and clean ones, which tell what the perturbation took.
        probe: As of `evaluate_runs`.
        doubt: As of `evaluate_runs`.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Told how far it is.
    """
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    check_pruning(runs[0].record["method"], doubt)
    clean = [run for run in runs if not run.is_poisoned]
    check_seeds(clean)
    groups = group_poisoned([run for run in runs if run.is_poisoned])
    study = Study.begin(runs, [each.perturbation for each in groups], probe, data_dir)
    on_step(0, 1 + len(groups), CLEAN_STEP)
    seeds = {run.record["seed"]: run for group in groups for run in group.runs}
    graph, shares = study.labelled.graph, with_all_edges(doubt) if doubt else []
    choices: dict[float, list[float]] = {}  # the shares left out, by budget
    for name, model in _entrants(study.method, clean, list(seeds.values()), graph, device):
        study.enter_clean(name, model.seed, _embedded(model, graph))
        if shares and name == study.method:
            readings = embed_pruned(model, graph, shares)
            chosen = study.enter_clean(pruned_name(name), model.seed, *readings)
            choices.setdefault(CLEAN, []).extend(shares[place] for place in chosen)
    study.enter_rule(graph)
    for done, group in enumerate(groups, start=1):
        on_step(done, 1 + len(groups), group.perturbation.title)
        own = _enter_poisoned(study, group, shares, device)
        choices.setdefault(group.perturbation.budget, []).extend(own)
    return _result(study, "poison", runs, probe, _told_choices(study.method, choices))


def _enter_poisoned(
    study: Study, group: PoisonedRuns, shares: Sequence[float], device: str | None
) -> list[float]:
    """The rows of one perturbed graph; the controls meet the same one as the method.

    Returns:
        The share of doubtful edges that validation chose to leave out, run by run.
    """
    graph, choices = group.perturbation.apply(study.labelled), []
    for name, model in _entrants(study.method, group.runs, group.runs, graph, device):
        study.enter_poisoned(name, model.seed, group.perturbation, _embedded(model, graph))
        if shares and name == study.method:
            readings = embed_pruned(model, graph, shares)
            chosen = study.enter_poisoned(
                pruned_name(name), model.seed, group.perturbation, *readings
            )
            choices += [shares[place] for place in chosen]
    study.enter_rule(graph, group.perturbation)
    return choices


def _told_choices(method: str, choices: Mapping[float, Sequence[float]]) -> list[str]:
    return [
        describe_pruning(
            f"for {pruned_name(method)} {f'at a budget of {budget:g}' if budget else 'clean'}",
            shares,
        )
        for budget, shares in choices.items()
        if shares
    ]


def evaluate_evaded(
    paths: Sequence[str | Path],
    perturbations: Sequence[FilePerturbation],
    *,
    probe: str = "neutral",
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep = _ignore,
) -> Robustness:
    """Fit the probe on the clean graph, and test it on what the runs make of perturbed ones.

    Args:
        paths: Folders of runs of one method on the clean graph; several are its seeds.
        perturbations: One for every budget and split, as `read_perturbations` gives them.
        probe: As of `evaluate_runs`.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Told how far it is.
    """
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    _check_clean(runs)
    check_seeds(runs)
    check_inductive(runs[0].record["method"])
    check_one_attack({each.path: each.facts for each in perturbations})
    study = Study.begin(runs, perturbations, probe, data_dir)
    on_step(0, 1 + len(perturbations), CLEAN_STEP)
    graph = study.labelled.graph
    entrants = list(_entrants(study.method, runs, runs, graph, device, inductive=True))
    clean = [_embedded(model, graph) for _, model in entrants]
    for (name, model), own in zip(entrants, clean, strict=True):
        study.enter_clean(name, model.seed, own)
    study.enter_rule(graph)
    for done, each in enumerate(study.perturbations, start=1):
        on_step(done, 1 + len(perturbations), each.title)
        perturbed = each.apply(study.labelled)
        for (name, model), own in zip(entrants, clean, strict=True):
            study.enter_evaded(name, model.seed, each, own, _embedded(model, perturbed))
        study.enter_rule(perturbed, each)
    return _result(study, "evade", runs, probe)


def check_inductive(method: str) -> None:
    """Refuse a method that embeds nothing but the graph it was trained on."""
    if not find_method(method).method.inductive:
        raise SettingsError(
            f"{method} cannot embed a graph that it was not trained on, so that --mode evade "
            "cannot test it. Use --mode poison."
        )


def _check_clean(runs: Sequence[StoredRun]) -> None:
    for run in runs:
        if run.is_poisoned:
            raise RunError(
                f"{run.path} was trained on a perturbed graph. Evasion tests runs on the clean one."
            )


def _entrants(
    method: str,
    trained: Sequence[StoredRun],
    seeds: Sequence[StoredRun],
    graph: Graph,
    device: str | None,
    *,
    inductive: bool = False,
) -> Iterator[tuple[str, Embedder]]:
    """The method's runs one by one, then the controls, with the seeds of others if need be.

    Models are read when it is their turn: a sweep has more of them than memory has room for.
    """
    for run in trained:
        yield method, run.load_model(device)
    rivals = controls(seeds, graph, device, inductive=inductive)
    for name, models in rivals.items():
        yield from ((name, model) for model in models)


def _embedded(model: Embedder, graph: Graph) -> Tensor:
    return model.embed(graph, normalise="none").to(model.device)


def _result(
    study: Study,
    mode: Mode,
    runs: Sequence[StoredRun],
    probe: str,
    choices: Sequence[str] = (),
) -> Robustness:
    rows = study.rows()
    most = max(rows, key=lambda row: len(row.splits))
    found = next(iter(most.perturbed.values()))
    return Robustness(
        graph=runs[0].record["graph"]["name"],
        method=study.method,
        mode=mode,
        probe=probe,
        runs=tuple(str(run.path) for run in runs),
        perturbations=tuple(study.perturbations),
        rows=tuple(rows),
        notices=(
            *found.notices_naming(study.labelled.class_names),
            *_unpaired(study.method, rows),
            *choices,
        ),
        warnings=tuple(f"{run.path}: {text}" for run in runs for text in run.record["warnings"]),
    )


def _unpaired(method: str, rows: Sequence[PerturbedRow]) -> Iterator[str]:
    """A word where the clean and the perturbed scores are not of the same pre-trainings."""
    own = [row for row in rows if row.name == method]
    if not own[0].clean:  # it is the same at every budget
        yield f"For the drop of {method}, give its run on the clean graph as well."
        return
    for row in own:
        clean, perturbed = (", ".join(map(str, found)) for found in (row.clean, row.perturbed))
        if clean != perturbed:
            yield (
                f"At a budget of {row.budget:g} the perturbed scores are of the seeds {perturbed}, "
                f"the clean ones of the seeds {clean}."
            )
