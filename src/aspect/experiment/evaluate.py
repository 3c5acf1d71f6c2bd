"""Runs of one method, probed beside the controls, on the clean graph and on perturbed ones.

Each model is probed by `run`, as a bench does: a poisoned one on the split of its file alone.
Beside the method stand controls that learn nothing, and rules that need no embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from aspect import __version__
from aspect.attacks.file import PerturbationFile
from aspect.attacks.files import check_one_attack
from aspect.attacks.perturbation import Mode
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, make_splits, published_sha256
from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder, choose_device
from aspect.evaluation.baselines import MOST_TWIN_NODES, knn_probe, majority_probe, twin_probe
from aspect.evaluation.linear_probe import PaperProbe, Probe, probe_named
from aspect.evaluation.metrics import PERCENT, ClassScore
from aspect.evaluation.protocol import Evaluation, Spread
from aspect.evaluation.pruning import (
    check_pruning,
    describe_pruning,
    pruned_name,
    with_all_edges,
)
from aspect.evaluation.result import ProbeResult, SplitScore
from aspect.experiment.run import Outcome, Task, draw_splits, run
from aspect.experiment.spec import Cell, Spec, method_source
from aspect.experiment.trained import Poison, StoredRun, open_run, source_of
from aspect.methods.registry import find_method
from aspect.settings import Experiment
from aspect.training.health import Health

__all__ = [
    "EXPLANATIONS",
    "MAJORITY",
    "TWINS",
    "Comparison",
    "PerturbedRow",
    "Robustness",
    "Row",
    "check_inductive",
    "check_labels",
    "check_same_method",
    "check_seeds",
    "chosen_probe",
    "evaluate_evaded",
    "evaluate_poisoned",
    "evaluate_runs",
]

MAJORITY = "majority class"
TWINS = "neighbour sets"

EXPLANATIONS = {
    "random": "ASPECT's encoder with untrained weights",
    "raw": "the features as they are",
    "propagated": "the features beside those of one and two hops, without training",
    "spectral": "leading singular vectors of the normalised adjacency beside the features",
    TWINS: "the class of the training node with the most similar set of neighbours; a rule, not "
    "an embedding",
    MAJORITY: "the most frequent class of the validation nodes, for every node",
}
CONTROLS = ("random", "raw", "propagated", "spectral")

CLASS_BALANCED_NOTICE = (
    "Class-balanced splits are only for comparison with published tables: their test sets have "
    "other shares of the classes than the graph. Use --splits random to judge embeddings."
)
CLEAN = 0.0  # the budget of the graph as it is
CLEAN_STEP = "clean graph"

OnStep = Callable[[int, int, str], object]  # steps done, of how many, and what comes now


def _ignore(done: int, total: int, name: str) -> None:
    """The default of callbacks."""


# Results


@dataclass(frozen=True)
class Row:
    """One line of the table: a method and its scores."""

    name: str
    linear: Evaluation  # of a rule: its accuracy, without any probe
    neighbours: Evaluation | None = None  # None where there is no embedding, or several
    prune: tuple[float, ...] = ()  # ratios of pruned edges: by seed, then by split

    def to_dict(self) -> dict[str, Any]:
        """Plain values in percent; `std` is over splits, `std_seeds` over the means of seeds."""
        linear, ends = self.linear, [result.at_path_end for result in self.linear.results]
        return {
            "name": self.name,
            "strict": _plain(linear.strict),
            "optimistic": _plain(linear.optimistic),
            "macro_f1": _plain(linear.macro_f1),
            "roc_auc": _plain(linear.roc_auc),
            "validation": _plain(linear.validation),
            "knn": _plain(self.neighbours.strict if self.neighbours else None),
            "prune": list(self.prune) or None,
            "at_path_end": None if None in ends else sum(filter(None, ends)) / len(ends),
        }


@dataclass(frozen=True)
class Comparison:
    """Runs of one method on one graph, beside the rows that every table needs."""

    graph: str
    runs: tuple[str, ...]  # folders
    splits: SplitKind
    probe: str  # neutral, paper or published
    rows: tuple[Row, ...]  # the runs' method first
    class_names: tuple[str, ...]
    health: tuple[Health, ...]  # of the runs' embeddings, before any centring
    notices: tuple[str, ...]  # what a reader must know beside the numbers
    warnings: tuple[str, ...]  # what the runs themselves warn of

    @property
    def per_class(self) -> tuple[ClassScore, ...]:
        """How every class fared with the runs' method, over seeds and splits."""
        return self.rows[0].linear.per_class

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the method's own scores stand at the top."""
        first = self.rows[0]
        return {
            "graph": self.graph,
            "method": first.name,
            "runs": list(self.runs),
            "splits": self.splits,
            "probe": self.probe,
            **{key: value for key, value in first.to_dict().items() if key != "name"},
            "per_class": [
                {"name": self.class_names[score.label], **asdict(score)} for score in self.per_class
            ],
            "health": [health.to_dict() for health in self.health],
            "rows": [row.to_dict() for row in self.rows],
            "notices": list(self.notices),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class PerturbedRow:
    """One line of the table: a method at a budget, on the clean and on the perturbed graph."""

    name: str
    budget: float
    splits: tuple[int, ...]  # their numbers, in the order of the scores
    clean: Mapping[int, ProbeResult]  # by seed; empty where no clean run was given
    perturbed: Mapping[int, ProbeResult]  # by seed

    @property
    def drop(self) -> float | None:
        """What the perturbation takes: (clean - perturbed) / clean of the means, in percent."""
        if not self.clean or not self.perturbed:
            return None
        before, after = _joined(self.clean).strict.mean, _joined(self.perturbed).strict.mean
        return PERCENT * (before - after) / before if before else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values in percent, those of every seed and split among them."""
        clean, perturbed = _joined(self.clean) if self.clean else None, _joined(self.perturbed)
        return {
            "name": self.name,
            "budget": self.budget,
            "splits": list(self.splits),
            "clean": _plain(clean.strict if clean else None),
            "perturbed": _plain(perturbed.strict),
            "drop": self.drop,
            "macro_f1": _plain(perturbed.macro_f1),
            "clean_macro_f1": _plain(clean.macro_f1 if clean else None),
            "optimistic": _plain(perturbed.optimistic),
            "validation": _plain(perturbed.validation),
            "scores": self._scores(self.perturbed),
            "clean_scores": self._scores(self.clean),
        }

    def _scores(self, results: Mapping[int, ProbeResult]) -> list[dict[str, Any]]:
        return [
            {"seed": seed, "split": number, **asdict(score)}
            for seed, result in results.items()
            for number, score in zip(self.splits, result.splits, strict=True)
        ]


@dataclass(frozen=True)
class Robustness:
    """Runs of one method on one graph under one attack, beside the controls under the same."""

    graph: str
    method: str
    mode: Mode
    probe: str  # neutral, paper or published
    runs: tuple[str, ...]  # folders, those on the clean graph among them
    perturbations: tuple[Poison, ...]  # by budget and split
    rows: tuple[PerturbedRow, ...]  # the runs' method first; budgets ascending
    notices: tuple[str, ...]  # what a reader must know beside the numbers
    warnings: tuple[str, ...]  # what the runs themselves warn of

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first = self.perturbations[0]
        return {
            "graph": self.graph,
            "method": self.method,
            "mode": self.mode,
            "kind": first.perturbation.kind,
            "solver": first.perturbation.solver,
            "splits": first.file.facts.splits,
            "features": first.perturbation.features,
            "probe": self.probe,
            "runs": list(self.runs),
            "perturbations": [poison.to_dict() for poison in self.perturbations],
            "rows": [row.to_dict() for row in self.rows],
            "notices": list(self.notices),
            "warnings": list(self.warnings),
        }


def _plain(spread: Spread | None) -> dict[str, Any] | None:
    """A mean and its deviations as tables and JSON have them; None stays None."""
    if spread is None:
        return None
    values = spread.to_dict()
    return {"mean": values.pop("mean"), "std": values.pop("std_splits"), **values}


def _joined(results: Mapping[int, ProbeResult]) -> Evaluation:
    return Evaluation(tuple(results.values()))


# What can be evaluated together


def check_same_method(runs: Sequence[StoredRun]) -> None:
    """Refuse runs that differ in method, settings or graph."""
    if not runs:
        raise RunError("Evaluation needs one or more runs. Got none.")
    first = _identity(runs[0])
    for stored in runs[1:]:
        identity = _identity(stored)
        other = [what for what in first if identity[what] != first[what]]
        if other:
            raise RunError(
                "Runs that are evaluated together must differ in the seed alone. "
                f"{stored.path} has another {' and another '.join(other)} than {runs[0].path}."
            )


def _identity(stored: StoredRun) -> dict[str, object]:
    record = stored.record
    return {
        "method": record["method"],
        "setting": record["settings"],
        "graph": record["graph"]["sha256"],
    }


def check_seeds(runs: Sequence[StoredRun]) -> None:
    """Refuse runs on one graph that share a seed."""
    seeds = [stored.record["seed"] for stored in runs]
    if len(set(seeds)) < len(seeds):
        listed = ", ".join(map(str, seeds))
        raise RunError(f"Runs that are evaluated together must differ in the seed. Got {listed}.")


def check_labels(labelled: LabelledGraph, stored: StoredRun) -> None:
    """Refuse a graph on which no probe could be trained."""
    if not bool((labelled.labels != UNLABELLED).any()):
        raise GraphError(
            f"The graph of {stored.path} has no labels, and a probe needs some. Name their column "
            "with --label when training; `aspect embed` needs none."
        )


def check_inductive(method: str) -> None:
    """Refuse a method that embeds nothing but the graph it was trained on."""
    if not find_method(method).method.inductive:
        raise SettingsError(
            f"{method} cannot embed a graph that it was not trained on, so that --mode evade "
            "cannot test it. Use --mode poison."
        )


def chosen_probe(experiment: Experiment, name: str) -> Probe:
    """A probe by its name; `published` is the paper's with the single weight decay of a run."""
    if name != "published":
        return probe_named(name)
    published = experiment.probe
    if published is None:
        raise SettingsError(
            "The settings of this run name no published probe. "
            "Train with --config published, or pass --probe neutral or --probe paper."
        )
    return PaperProbe(published.learning_rate, published.steps, (published.weight_decay,))


# One model on one graph


@dataclass(frozen=True)
class _Entrant:
    """A method or a control that is probed."""

    name: str
    settings: dict[str, Any]
    seed: int
    model: Embedder | None = None  # None: a control, which is fitted to its graph


class _Judge:
    """The same graph, splits and probe for every model."""

    def __init__(
        self, runs: Sequence[StoredRun], probe: str, device: str | None, data_dir: str | None
    ) -> None:
        self.method = str(runs[0].record["method"])
        self.source = source_of(runs[0].experiment)
        self.graph_sha256 = runs[0].record["graph"]["sha256"]
        self.labelled = runs[0].read_graph(data_dir)
        check_labels(self.labelled, runs[0])
        self.probe = chosen_probe(runs[0].experiment, probe)
        self.device = choose_device(device)

    def entrants(
        self,
        trained: Sequence[StoredRun],
        seeds: Sequence[StoredRun],
        *,
        inductive: bool = False,
    ) -> Iterator[_Entrant]:
        """The method's runs one by one, then the controls, but not what the runs are of.

        Models are read when it is their turn: a sweep has more of them than memory has room for.

        Args:
            trained: Runs of the method.
            seeds: Whose seeds and settings the controls take; untrained weights need every seed.
            inductive: Leave out controls that embed no graph but the one they are fitted to.
        """
        for stored in trained:
            model = stored.load_model(str(self.device))
            yield _Entrant(self.method, stored.record["settings"], stored.record["seed"], model)
        for name in CONTROLS:
            registration = find_method(name)
            if name == self.method or (inductive and not registration.method.inductive):
                continue
            for stored in seeds if name == "random" else seeds[:1]:
                known, given = set(registration.config.model_fields), stored.record["settings"]
                settings = {key: given[key] for key in known} if known <= set(given) else {}
                config = registration.config(**settings).model_dump(mode="json")
                yield _Entrant(name, config, stored.record["seed"])

    def outcome(
        self,
        entrant: _Entrant,
        splits: SplitKind,
        numbers: Sequence[int],
        poisons: Sequence[Poison] = (),
        prune: Sequence[float] = (),
    ) -> Outcome:
        """Probe a model on some splits; with poisons each on its own perturbed graph."""
        spec = Spec(
            method=entrant.name,
            source=method_source(entrant.name),
            settings=entrant.settings,
            graph_sha256=self.graph_sha256,
            splits=splits,
            splits_sha256=published_sha256(splits, self.labelled.masks),
            split_numbers=tuple(numbers),
            perturbation=poisons[0].perturbation if poisons else None,
            perturbation_sha256=tuple(poison.sha256 for poison in poisons) or None,
            prune=tuple(prune) or None,
            seed=entrant.seed,
            device="cuda" if self.device.type == "cuda" else "cpu",
            version=__version__,
        )
        cell = Cell(
            plan="evaluate",
            entry=entrant.name,
            title=entrant.name,
            graph=self.source.graph,
            reading=self.source.reading,
            spec=spec,
        )
        files = tuple(poison.file.path for poison in poisons if poison.file.path is not None)
        return run(
            Task(cell, files),
            labelled=self.labelled,
            device=str(self.device),
            model=entrant.model,
            probe=self.probe,
        )

    def majority(self, splits: SplitKind, numbers: Sequence[int]) -> ProbeResult:
        """One class for all nodes: no flip and no mask changes that."""
        labels, classes = self.labelled.labels, self.labelled.num_classes
        drawn = draw_splits(self.labelled, splits, tuple(numbers))
        return majority_probe(labels, drawn, num_classes=classes)

    def twins(self, graph: Graph, splits: SplitKind, numbers: Sequence[int]) -> ProbeResult | None:
        """Neighbour sets, which need no embedding; None for a graph that is too large."""
        if graph.num_nodes > MOST_TWIN_NODES:
            return None
        labels, classes = self.labelled.labels, self.labelled.num_classes
        drawn = draw_splits(self.labelled, splits, tuple(numbers))
        return twin_probe(graph, labels, drawn, num_classes=classes)


def _result(outcome: Outcome) -> ProbeResult:
    assert outcome.probed is not None  # a run with splits
    return outcome.probed


# The clean graph


def evaluate_runs(
    paths: Sequence[str | Path],
    *,
    splits: SplitKind = "random",
    probe: str = "neutral",
    prune: Sequence[float] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep = _ignore,
) -> Comparison:
    """Probe complete runs of one method on one graph; several of them are its pre-training seeds.

    Args:
        paths: The runs' folders.
        splits: Kind of splits.
        probe: `neutral` for the headline; `paper` for that of published tables, or `published` for
            the same with the learning rate and weight decay that the settings came with.
        prune: Ratios of edges to prune; a further row is embedded, split by split, with the one
            that validation prefers, no pruning being one of them.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Called before each row is computed.
    """
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    for stored in runs:
        if stored.is_poisoned:
            raise RunError(
                f"{stored.path} was trained on a graph that was perturbed for one split, and must "
                "not be judged on others. Evaluate it with evaluate_poisoned."
            )
    check_seeds(runs)
    check_pruning(runs[0].record["method"], prune)
    judge = _Judge(runs, probe, device, data_dir)
    labelled = judge.labelled
    drawn = make_splits(splits, labelled.labels, labelled.num_classes, masks=labelled.masks)
    numbers = range(len(drawn))
    groups: dict[str, list[_Entrant]] = {}
    for entrant in judge.entrants(runs, runs):
        groups.setdefault(entrant.name, []).append(entrant)
    names = [judge.method, *([pruned_name(judge.method)] if prune else []), *list(groups)[1:]]
    names += [TWINS, MAJORITY]
    rows, health = [], []
    for done, name in enumerate(names):
        on_step(done, len(names), name)
        if name in groups:
            row, measured = _row(judge, groups[name], splits, drawn)
            rows.append(row)
            health += measured if name == judge.method else []
        elif name == pruned_name(judge.method):
            rows.append(_pruned_row(judge, groups[judge.method], splits, numbers, prune))
        else:
            rule = (
                judge.majority(splits, numbers)
                if name == MAJORITY
                else judge.twins(labelled.graph, splits, numbers)
            )
            rows += [Row(name, Evaluation((rule,)))] if rule is not None else []
    return Comparison(
        graph=runs[0].record["graph"]["name"],
        runs=tuple(str(stored.path) for stored in runs),
        splits=splits,
        probe=probe,
        rows=tuple(rows),
        class_names=tuple(labelled.class_names),
        health=tuple(health),
        notices=tuple(_notices(rows, splits, labelled.class_names)),
        warnings=tuple(_warnings(runs, health)),
    )


def _row(
    judge: _Judge, entrants: Sequence[_Entrant], splits: SplitKind, drawn: Sequence[Split]
) -> tuple[Row, list[Health]]:
    """By seed, the linear probe and the nearest neighbours of an embedding."""
    labels, classes = judge.labelled.labels, judge.labelled.num_classes
    results, neighbours, health = [], [], []
    for entrant in entrants:
        outcome = judge.outcome(entrant, splits, range(len(drawn)))
        assert outcome.embeddings is not None  # computed in this process
        results.append(_result(outcome))
        neighbours.append(knn_probe(outcome.embeddings, labels, drawn, num_classes=classes))
        health.append(Health.from_dict(outcome.record.health or {}))
    row = Row(entrants[0].name, Evaluation(tuple(results)), Evaluation(tuple(neighbours)))
    return row, health


def _pruned_row(
    judge: _Judge,
    entrants: Sequence[_Entrant],
    splits: SplitKind,
    numbers: Sequence[int],
    prune: Sequence[float],
) -> Row:
    """By seed, an embedding for each ratio; validation chooses for every split."""
    ratios = with_all_edges(prune)
    outcomes = [judge.outcome(entrant, splits, numbers, prune=ratios) for entrant in entrants]
    linear = Evaluation(tuple(map(_result, outcomes)))
    return Row(pruned_name(judge.method), linear, prune=_chosen(outcomes))


def _chosen(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """The ratios that validation chose."""
    scores = [score for outcome in outcomes for score in outcome.record.scores]
    return tuple(score.prune for score in scores if score.prune is not None)


def _notices(rows: Sequence[Row], splits: SplitKind, class_names: Sequence[str]) -> Iterator[str]:
    """What a reader must know beside the numbers."""
    yield from rows[0].linear.results[0].notices_naming(class_names)
    if splits == "class-balanced":
        yield CLASS_BALANCED_NOTICE
    yield from (describe_pruning(f"for {row.name}", row.prune) for row in rows if row.prune)


def _warnings(runs: Sequence[StoredRun], health: Sequence[Health]) -> Iterator[str]:
    """What the runs' records warn of, and their embeddings as they are now; each once."""
    for stored, measured in zip(runs, health, strict=True):
        for text in dict.fromkeys([*stored.record["warnings"], *measured.warnings()]):
            yield f"{stored.path}: {text}"


# Perturbed graphs


@dataclass
class _Scores:
    """Scores by row and budget, seed and split, and the table that they make up."""

    judge: _Judge
    poisons: Sequence[Poison]  # by budget and split
    by_row: dict[tuple[str, float], dict[int, dict[int, SplitScore]]] = field(default_factory=dict)
    prune: dict[float, list[float]] = field(default_factory=dict)  # chosen ratios by budget

    def __post_init__(self) -> None:
        self.poisons = sorted(self.poisons, key=lambda poison: (poison.budget, poison.split))
        self.splits = self.poisons[0].file.facts.splits
        self.numbers = sorted({poison.split for poison in self.poisons})
        self.by_budget: dict[float, list[Poison]] = {}
        for poison in self.poisons:
            self.by_budget.setdefault(poison.budget, []).append(poison)

    def enter(
        self, name: str, budget: float, seed: int, numbers: Sequence[int], result: ProbeResult
    ) -> None:
        scores = dict(zip(numbers, result.splits, strict=True))
        self.by_row.setdefault((name, budget), {}).setdefault(seed, {}).update(scores)

    def probe(
        self, entrant: _Entrant, poisons: Sequence[Poison] = (), prune: Sequence[float] = ()
    ) -> Outcome:
        """Probe on the clean graph, or on perturbed ones; then once more with pruned edges."""
        numbers = [poison.split for poison in poisons] or self.numbers
        budget = poisons[0].budget if poisons else CLEAN
        outcome = self.judge.outcome(entrant, self.splits, numbers, poisons)
        self.enter(entrant.name, budget, entrant.seed, numbers, _result(outcome))
        if prune and entrant.name == self.judge.method:
            pruned = self.judge.outcome(entrant, self.splits, numbers, poisons, prune)
            name = pruned_name(entrant.name)
            self.enter(name, budget, entrant.seed, numbers, _result(pruned))
            self.prune.setdefault(budget, []).extend(_chosen([pruned]))
        return outcome

    def enter_rules(self, poison: Poison | None = None) -> None:
        """Neighbour sets and the majority class, on the clean graph or on a perturbed one."""
        labelled = self.judge.labelled
        numbers = self.numbers if poison is None else [poison.split]
        graph = labelled.graph if poison is None else poison.apply(labelled)
        budget = CLEAN if poison is None else poison.budget
        twins = self.judge.twins(graph, self.splits, numbers)
        if twins is not None:
            self.enter(TWINS, budget, 0, numbers, twins)

    def rows(self) -> list[PerturbedRow]:
        """The table: name by name in the order they were entered, the method first."""
        for budget in (CLEAN, *self.by_budget):
            result = self.judge.majority(self.splits, self.numbers)
            self.enter(MAJORITY, budget, 0, self.numbers, result)
        names = dict.fromkeys([self.judge.method, *(name for name, _ in self.by_row)])
        return [
            PerturbedRow(
                name,
                budget,
                numbers := tuple(poison.split for poison in poisons),
                clean=self._results(name, CLEAN, numbers),
                perturbed=self._results(name, budget, numbers),
            )
            for name in names
            for budget, poisons in self.by_budget.items()
        ]

    def _results(self, name: str, budget: float, numbers: Sequence[int]) -> dict[int, ProbeResult]:
        """The scores of a row by seed, on these splits; nothing where there are none."""
        probe, classes = self.judge.probe, self.judge.labelled.num_classes
        return {
            seed: ProbeResult(
                probe.name,
                probe.choice_name,
                classes,
                tuple(scores[number] for number in numbers),
            )
            for seed, scores in sorted(self.by_row.get((name, budget), {}).items())
        }

    def table(self, mode: Mode, runs: Sequence[StoredRun], probe: str) -> Robustness:
        """All that was found."""
        rows, method = self.rows(), self.judge.method
        most = max(rows, key=lambda row: len(row.splits))
        first = next(iter(most.perturbed.values()))
        choices = [
            describe_pruning(
                f"for {pruned_name(method)} {f'at a budget of {budget:g}' if budget else 'clean'}",
                ratios,
            )
            for budget, ratios in self.prune.items()
        ]
        return Robustness(
            graph=runs[0].record["graph"]["name"],
            method=method,
            mode=mode,
            probe=probe,
            runs=tuple(str(stored.path) for stored in runs),
            perturbations=tuple(self.poisons),
            rows=tuple(rows),
            notices=(
                *first.notices_naming(self.judge.labelled.class_names),
                *_unpaired(method, rows),
                *choices,
            ),
            warnings=tuple(
                f"{stored.path}: {text}" for stored in runs for text in stored.record["warnings"]
            ),
        )


def _unpaired(method: str, rows: Sequence[PerturbedRow]) -> Iterator[str]:
    """A word where the clean and the perturbed scores are not of the same pre-trainings."""
    of_method = [row for row in rows if row.name == method]
    if not of_method[0].clean:  # it is the same at every budget
        yield f"For the drop of {method}, give its run on the clean graph as well."
        return
    for row in of_method:
        clean, perturbed = (", ".join(map(str, seeds)) for seeds in (row.clean, row.perturbed))
        if clean != perturbed:
            yield (
                f"At a budget of {row.budget:g} the perturbed scores are of the seeds {perturbed}, "
                f"the clean ones of the seeds {clean}."
            )


def evaluate_poisoned(
    paths: Sequence[str | Path],
    *,
    probe: str = "neutral",
    prune: Sequence[float] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep = _ignore,
) -> Robustness:
    """Probe every run that was trained on a poisoned graph, on the split of its file alone.

    Args:
        paths: Folders of runs of one method and graph: poisoned ones, of one attack at any budgets,
            splits and seeds; and clean ones, which tell what the perturbation took.
        probe: As of `evaluate_runs`.
        prune: As of `evaluate_runs`.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Called with how far it is.
    """
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    check_pruning(runs[0].record["method"], prune)
    clean = [stored for stored in runs if not stored.is_poisoned]
    check_seeds(clean)
    groups = group_poisoned([stored for stored in runs if stored.is_poisoned])
    judge = _Judge(runs, probe, device, data_dir)
    for group in groups:
        group.poison.file.check(judge.labelled)
    ratios = with_all_edges(prune) if prune else []
    scores = _Scores(judge, [group.poison for group in groups])
    on_step(0, 1 + len(groups), CLEAN_STEP)
    seeds = {stored.record["seed"]: stored for group in groups for stored in group.runs}
    for entrant in judge.entrants(clean, list(seeds.values())):
        scores.probe(entrant, prune=ratios)
    scores.enter_rules()
    for done, group in enumerate(groups, start=1):
        on_step(done, 1 + len(groups), group.poison.title)
        for entrant in judge.entrants(group.runs, group.runs):
            scores.probe(entrant, [group.poison], ratios)
        scores.enter_rules(group.poison)
    return scores.table("poison", runs, probe)


def evaluate_evaded(
    paths: Sequence[str | Path],
    files: Sequence[PerturbationFile],
    budgets: Sequence[float],
    *,
    features: bool = True,
    probe: str = "neutral",
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep = _ignore,
) -> Robustness:
    """Fit the probe on the clean graph, and test it on what the runs make of perturbed ones.

    Args:
        paths: Folders of runs of one method on the clean graph; several are its seeds.
        files: One for every split, as `read_files` gives them.
        budgets: Flips per edge, as `common_budgets` gives them.
        features: Mask features as well.
        probe: As of `evaluate_runs`.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Called with how far it is.
    """
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    for stored in runs:
        if stored.is_poisoned:
            raise RunError(
                f"{stored.path} was trained on a perturbed graph. "
                "Evasion tests runs on the clean one."
            )
    check_seeds(runs)
    check_inductive(runs[0].record["method"])
    check_one_attack(files)
    judge = _Judge(runs, probe, device, data_dir)
    poisons = [
        Poison(file, file.perturbation(budget, mode="evade", features=features))
        for budget in budgets
        for file in files
    ]
    for poison in poisons:
        poison.file.check(judge.labelled)
    scores = _Scores(judge, poisons)
    steps = 1 + len(scores.by_budget)
    on_step(0, steps, CLEAN_STEP)
    entrants = [
        _Entrant(entrant.name, entrant.settings, entrant.seed, scores.probe(entrant).model)
        for entrant in judge.entrants(runs, runs, inductive=True)
    ]
    scores.enter_rules()
    for done, (budget, own) in enumerate(scores.by_budget.items(), start=1):
        on_step(done, steps, f"{own[0].file.facts.attack}, {PERCENT * budget:.4g}%")
        for entrant in entrants:
            scores.probe(entrant, own)
        for poison in own:
            scores.enter_rules(poison)
    return scores.table("evade", runs, probe)


# Runs on poisoned graphs, put together where they met the same graph


@dataclass(frozen=True, eq=False)
class PoisonedRuns:
    """The pre-trainings of one method on one poisoned graph."""

    poison: Poison
    runs: tuple[StoredRun, ...]  # by seed

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the pre-trainings, ascending."""
        return tuple(stored.record["seed"] for stored in self.runs)

    @property
    def where(self) -> str:
        """Words for an error: `split 3 at a budget of 0.1`."""
        return f"split {self.poison.split} at a budget of {self.poison.budget:g}"


def group_poisoned(runs: Sequence[StoredRun]) -> list[PoisonedRuns]:
    """One group for every budget and split, in this order; what makes no whole is refused."""
    if not runs:
        raise RunError("None of these runs was trained on a perturbed graph.")
    grouped: dict[tuple[float, int], list[tuple[StoredRun, Poison]]] = {}
    masked: dict[bool, StoredRun] = {}
    for stored in runs:
        poison = stored.poison
        assert poison is not None  # the run is poisoned
        grouped.setdefault((poison.budget, poison.split), []).append((stored, poison))
        masked[poison.perturbation.features] = stored
    if len(masked) > 1:
        raise RunError(
            "Runs that are evaluated together must be perturbed alike. "
            f"{masked[False].path} has flipped edges alone, {masked[True].path} masked features "
            "as well."
        )
    groups = [_group(members) for _, members in sorted(grouped.items(), key=lambda item: item[0])]
    check_one_attack([group.poison.file for group in groups])
    _check_equal_seeds(groups)
    return groups


def _group(members: Sequence[tuple[StoredRun, Poison]]) -> PoisonedRuns:
    members = sorted(members, key=lambda member: member[0].record["seed"])
    group = PoisonedRuns(members[0][1], tuple(stored for stored, _ in members))
    for (first, poison), (second, other) in pairwise(members):
        if first.record["seed"] == second.record["seed"]:
            raise RunError(
                f"Runs on {group.where} must differ in the seed. {first.path} and {second.path} "
                f"both have {first.record['seed']}."
            )
        if poison.sha256 != other.sha256:
            raise RunError(
                f"Runs on {group.where} must have met the same flips. {first.path} is of "
                f"{poison.file.path}, {second.path} of {other.file.path}, which differ."
            )
    return group


def _check_equal_seeds(groups: Sequence[PoisonedRuns]) -> None:
    """Refuse budgets at which some splits have more pre-trainings than others."""
    first: dict[float, PoisonedRuns] = {}
    for group in groups:
        other = first.setdefault(group.poison.budget, group)
        if group.seeds != other.seeds:
            raise RunError(
                "Every split of a budget needs runs of the same seeds. There are "
                f"{_listed(other.seeds)} on {other.where}, {_listed(group.seeds)} on {group.where}."
            )


def _listed(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
