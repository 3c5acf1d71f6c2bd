"""Runs of one method, probed beside the controls, on the clean graph and on perturbed ones.

Each model is probed by `run`, as a bench does: a poisoned one on the split of its file alone.
Beside the method stand controls that learn nothing, and rules that need no embedding. All scores
are lines of one table, from which `EvaluationTable` computes what is printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from typing_extensions import override

from aspect import __version__
from aspect.attacks.file import check_kind_of_splits, check_one_attack
from aspect.data.archives import content_sha256
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.source import GraphSource, Metric
from aspect.data.splits import SplitKind, make_splits, published_sha256
from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder, choose_device
from aspect.evaluation.baselines import MOST_TWIN_NODES, knn_probe, majority_probe, twin_probe
from aspect.evaluation.linear_probe import Probe, probe_named
from aspect.evaluation.metrics import PERCENT, ClassScore, Spread, mean_class_scores
from aspect.evaluation.paper_probe import PaperProbe
from aspect.evaluation.pruning import (
    SplitPruning,
    check_pruning,
    describe_pruning,
    pruned_name,
    with_all_edges,
)
from aspect.evaluation.result import ProbeResult, SplitScore
from aspect.evaluation.significance import drop_with_error, mean_drop
from aspect.experiment.embeddings import PRECOMPUTED, precomputed_model
from aspect.experiment.record import Record
from aspect.experiment.run import (
    Outcome,
    PerturbedGraph,
    Task,
    Training,
    draw_splits,
    run,
    target_notice,
)
from aspect.experiment.spec import Cell, Spec, method_source, metric_for
from aspect.experiment.trained import StoredRun, open_run
from aspect.methods.registry import find_method
from aspect.settings import Experiment
from aspect.training.health import Health
from aspect.training.progress import Advance

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
    "common neighbours": "Adamic-Adar index on the training graph; a rule, not an embedding",
    "degrees": "product of both degrees in the training graph; a rule, not an embedding",
}
CONTROLS = ("random", "raw", "propagated", "spectral")

CLASS_BALANCED_NOTICE = (
    "Class-balanced splits are only for comparison with published tables: their test sets have "
    "other shares of the classes than the graph. Use --splits random to judge embeddings."
)
CLEAN = 0.0  # the budget of the graph as it is
SCORE_FIELDS = [field.name for field in fields(SplitScore)]

# Perturbed graphs of one budget, the runs to probe there, and those whose seeds controls take.
_Group = tuple[Sequence[PerturbedGraph], Sequence[StoredRun], Sequence[StoredRun]]
Seed = TypeVar("Seed", StoredRun, Experiment)  # one pre-training
PoisonedRuns = tuple[PerturbedGraph, list[StoredRun]]  # the runs on one poisoned graph, by seed


@dataclass(frozen=True, eq=False)
class EvaluationTable:
    """Runs of one method on one graph, clean or under one attack, beside controls and rules.

    `scores` has a line for every name, budget, seed and split, ordered by these. Its further
    columns are the fields of `SplitScore`, `knn` (the accuracy of k-NN; on the clean graph),
    `prune` (the ratio of edges to prune that validation chose), `pruned` (the ratio that went),
    `prune_score` (the score they went by) and `is_constant`.
    """

    graph: str
    runs: tuple[str, ...]  # folders, those on the clean graph among them
    splits: SplitKind
    probe: str  # neutral, paper or published
    scores: pd.DataFrame  # the runs' method first
    class_names: tuple[str, ...]
    perturbations: tuple[PerturbedGraph, ...] = ()  # by budget and split; none: the graph is clean
    health: tuple[Health, ...] = ()  # of the runs' embeddings, before any centring; clean graph
    warnings: tuple[str, ...] = ()  # what the runs themselves warn of
    metric: Metric = "accuracy"  # what validation chose by
    scored_nodes: str = ""  # a sentence on them; empty: all test nodes

    @property
    def method(self) -> str:
        """Of the runs."""
        return str(self.rows[0]["name"])

    @property
    def per_class(self) -> tuple[ClassScore, ...]:
        """How every class fared with the runs' method, over seeds and splits."""
        return mean_class_scores(list(self._lines(self.method)["per_class"]))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The table that is printed, in percent: by name, and by budget if there are any.

        A mean is over seeds and splits; `std` is over splits, `std_seeds` over the means of seeds.
        """
        names = list(dict.fromkeys(self.scores["name"]))
        if not self.perturbations:
            return [_clean_row(name, self._lines(name)) for name in names]
        numbers: dict[float, list[int]] = {}
        for poison in self.perturbations:
            numbers.setdefault(poison.budget, []).append(poison.split)
        return [
            _perturbed_row(
                name,
                budget,
                splits,
                clean=self._lines(name, CLEAN, splits),
                perturbed=self._lines(name, budget, splits),
            )
            for name in names
            for budget, splits in numbers.items()
        ]

    def _lines(
        self, name: str, budget: float = CLEAN, splits: Sequence[int] | None = None
    ) -> pd.DataFrame:
        lines = self.scores[(self.scores["name"] == name) & (self.scores["budget"] == budget)]
        return lines if splits is None else lines[lines["split"].isin(splits)]

    @property
    def notices(self) -> list[str]:
        """What a reader must know beside the numbers."""
        of_method = self.scores[self.scores["name"] == self.method]
        groups = [lines for _, lines in of_method.groupby(["budget", "seed"])]
        most = max(groups, key=len)
        result = ProbeResult(
            self.probe,
            "",
            len(self.class_names),
            tuple(_split_scores(most)),
            is_constant=bool(most["is_constant"].iloc[0]),
        )
        sentences = [self.scored_nodes] if self.scored_nodes else []
        sentences += result.notices_naming(self.class_names)
        if self.perturbations:
            sentences += [*self._unpaired(), *self._left_out()]
        elif self.splits == "class-balanced":
            sentences.append(CLASS_BALANCED_NOTICE)
        name = pruned_name(self.method)
        pruned = self.scores[self.scores["name"] == name]
        for budget in sorted(set(pruned["budget"])):
            at = f" at a budget of {budget:g}" if budget else " clean"
            where = f"for {name}{at if self.perturbations else ''}"
            # A sentence for every score that was used: perturbed graphs may differ in it.
            for score, lines in self._lines(name, budget).groupby("prune_score", sort=False):
                splits = map(SplitPruning, lines["prune"], lines["pruned"])
                sentences.append(describe_pruning(where, splits, str(score)))
        return sentences

    def _unpaired(self) -> Iterator[str]:
        """A word where the clean and the perturbed scores are not of the same pre-trainings."""
        of_method = [row for row in self.rows if row["name"] == self.method]
        if not of_method[0]["clean_scores"]:  # it is the same at every budget
            yield f"For the drop of {self.method}, give its run on the clean graph as well."
            return
        for row in of_method:
            clean, perturbed = (
                ", ".join(dict.fromkeys(str(score["seed"]) for score in row[scores]))
                for scores in ("clean_scores", "scores")
            )
            if clean != perturbed:
                yield (
                    f"At a budget of {row['budget']:g} the perturbed scores are of the seeds "
                    f"{perturbed}, the clean ones of the seeds {clean}."
                )

    def _left_out(self) -> Iterator[str]:
        """A word on every control that cannot be tested on a perturbed graph."""
        if self.perturbations[0].perturbation.mode == "poison":
            return
        for name in sorted(set(CONTROLS) - set(self.scores["name"])):
            if not find_method(name).method.inductive:
                yield f"{name} has no row: it cannot embed a graph that it was not fitted to."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; on the clean graph the method's own scores stand at the top."""
        return {
            "graph": self.graph,
            "method": self.method,
            "runs": list(self.runs),
            "splits": self.splits,
            "probe": self.probe,
            "metric": self.metric,
            **(self._attack() if self.perturbations else self._clean_scores()),
            "rows": self.rows,
            "notices": self.notices,
            "warnings": list(self.warnings),
        }

    def _clean_scores(self) -> dict[str, Any]:
        return {
            **{key: value for key, value in self.rows[0].items() if key != "name"},
            "per_class": [
                {"name": self.class_names[score.label], **asdict(score)} for score in self.per_class
            ],
            "health": [health.to_dict() for health in self.health],
        }

    def _attack(self) -> dict[str, Any]:
        perturbation = self.perturbations[0].perturbation
        return {
            "mode": perturbation.mode,
            "kind": perturbation.kind,
            "solver": perturbation.solver,
            "features": perturbation.features,
            "perturbations": [one.file.to_dict(one.perturbation) for one in self.perturbations],
        }


def _pruning(lines: pd.DataFrame) -> dict[str, Any]:
    """Of the row of a pruned method: ratios asked and reached, split by split, and the scores."""
    told = lines[[score is not None for score in lines["prune_score"]]]
    return {
        "prune": list(told["prune"]) or None,
        "pruned": list(told["pruned"]) or None,
        "prune_score": ", ".join(dict.fromkeys(told["prune_score"])) or None,
    }


def _clean_row(name: str, lines: pd.DataFrame) -> dict[str, Any]:
    ends = _by_seed(lines, "at_path_end")
    return {
        "name": name,
        **{
            metric: _spread(lines, metric)
            for metric in ("strict", "optimistic", "macro_f1", "roc_auc", "validation", "knn")
        },
        **_pruning(lines),
        "at_path_end": ends and sum(PERCENT * sum(seed) / len(seed) for seed in ends) / len(ends),
    }


def _perturbed_row(
    name: str,
    budget: float,
    splits: Sequence[int],
    *,
    clean: pd.DataFrame,
    perturbed: pd.DataFrame,
) -> dict[str, Any]:
    """Its drop is (clean - perturbed) / clean of the means, in percent."""
    before, after = _spread(clean, "strict"), _spread(perturbed, "strict")
    drop = None
    if before and after and before["mean"]:
        drop = PERCENT * (before["mean"] - after["mean"]) / before["mean"]
    return {
        "name": name,
        "budget": budget,
        "splits": list(splits),
        "clean": before,
        "perturbed": after,
        "drop": drop,
        "drop_interval": _drop_interval(clean, perturbed),
        "macro_f1": _spread(perturbed, "macro_f1"),
        "clean_macro_f1": _spread(clean, "macro_f1"),
        "optimistic": _spread(perturbed, "optimistic"),
        "validation": _spread(perturbed, "validation"),
        **_pruning(perturbed),
        **{
            key: [
                {"seed": seed, "split": split, **asdict(score)}
                for seed, split, score in zip(
                    lines["seed"], lines["split"], _split_scores(lines), strict=True
                )
            ]
            for key, lines in (("scores", perturbed), ("clean_scores", clean))
        },
    }


def _drop_interval(clean: pd.DataFrame, perturbed: pd.DataFrame) -> dict[str, float | None]:
    """The 95% interval, as in reports: over splits, each a mean over its seeds."""
    columns = ["seed", "split", "strict"]
    pairs = clean[columns].merge(perturbed[columns], on=["seed", "split"], suffixes=("", "_after"))
    means = pairs.astype(float).groupby("split").mean()
    if not means["strict"].any():
        return {"low": None, "high": None}
    ratio = perturbed["test_to_train"].max()
    drop, error = drop_with_error(means["strict"], means["strict_after"], test_to_train=ratio)
    _, *ends = mean_drop([drop], [error], [len(means)])
    low, high = (None if math.isnan(end) else end for end in ends)
    return {"low": low, "high": high}


def _by_seed(lines: pd.DataFrame, metric: str) -> list[list[Any]] | None:
    """The values of every seed; None where one is missing."""
    if lines.empty or None in list(lines[metric]):
        return None
    return [list(values) for _, values in lines.groupby("seed")[metric]]


def _spread(lines: pd.DataFrame, metric: str) -> dict[str, Any] | None:
    """Mean, deviations and interval over seeds and splits; None where a value is missing."""
    values = _by_seed(lines, metric)
    return None if values is None else asdict(Spread.of_scores(values))


def _split_scores(lines: pd.DataFrame) -> list[SplitScore]:
    return [SplitScore(*values) for values in lines[SCORE_FIELDS].itertuples(index=False)]


# What can be evaluated together


def check_same_method(runs: Sequence[StoredRun]) -> None:
    """Refuse runs that differ in more than the seed."""
    if not runs:
        raise RunError("Evaluation needs one or more runs. Got none.")
    first = runs[0].identity
    for stored in runs[1:]:
        other = [what for what, value in stored.identity.items() if value != first[what]]
        if other:
            raise RunError(
                "Runs that are evaluated together must differ in the seed alone. "
                f"{stored.path} has another {' and another '.join(other)} than {runs[0].path}."
            )


def check_seeds(runs: Sequence[StoredRun]) -> None:
    """Refuse runs on one graph that share a seed."""
    seeds = [stored.record["seed"] for stored in runs]
    if len(set(seeds)) < len(seeds):
        listed = ", ".join(map(str, seeds))
        raise RunError(f"Runs that are evaluated together must differ in the seed. Got {listed}.")


def open_seeds(paths: Sequence[str | Path]) -> list[StoredRun]:
    """Complete runs that differ in the seed alone; others are refused."""
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    check_seeds(runs)
    return runs


def check_before_training(labelled: LabelledGraph, name: str, splits: SplitKind | None) -> None:
    """Refuse a graph on which no probe could be trained after all the work."""
    check_labels(labelled, f"The graph {name!r}")
    make_splits(splits or "random", labelled.labels, labelled.num_classes, masks=labelled.masks)


def check_labels(labelled: LabelledGraph, graph: str) -> None:
    """Refuse a graph on which no probe could be trained; `graph` begins the sentence."""
    if not bool((labelled.labels != UNLABELLED).any()):
        raise GraphError(
            f"{graph} has no labels, and a probe needs some. Name their column with --label when "
            "training; `aspect train` and `aspect embed` need none."
        )


def check_inductive(method: str) -> None:
    """Refuse a method that embeds nothing but the graph it was trained on."""
    if not find_method(method).method.inductive:
        raise SettingsError(
            f"{method} cannot embed a graph that it was not trained on, so that mode evade "
            "cannot test it. Leave the method out, or take mode poison."
        )


def chosen_probe(experiment: Experiment, name: str, metric: Metric | None = None) -> Probe:
    """A probe by its name; `published` is the paper's with the single weight decay of a run.

    Without a metric it chooses by that of the data set.
    """
    if name != "published":
        return probe_named(name, metric or metric_for(name, experiment.source))
    probe_named("paper", metric)
    published = experiment.probe
    if published is None:
        raise SettingsError(
            "The settings of this run name no published probe. "
            "Train with --config published, or pass --probe neutral or --probe paper."
        )
    return PaperProbe(published.learning_rate, published.steps, (published.weight_decay,))


def controls_of(method: str) -> list[str]:
    """What stands beside a method."""
    return [name for name in CONTROLS if name != method]


def with_seeds(controls: Iterable[str], seeds: Sequence[Seed]) -> Iterator[tuple[str, Seed]]:
    """Controls, each with those whose seeds it takes: untrained weights need all of them."""
    for name in controls:
        for one in seeds if name == "random" else seeds[:1]:
            yield name, one


def control_settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a control beside a method: its own in full, or the method's where they are the same."""
    config = find_method(name).config
    known = set(config.model_fields)
    settings = {key: given[key] for key in known} if known <= set(given) else {}
    return config(**settings).model_dump(mode="json")


def group_poisoned(runs: Sequence[StoredRun]) -> list[PoisonedRuns]:
    """The runs of every budget and split, in this order and by seed; others are refused."""
    pairs = [(stored.poison, stored) for stored in runs if stored.poison is not None]
    masked = {poison.perturbation.features: stored for poison, stored in pairs}
    if len(masked) > 1:
        raise RunError(
            "Runs that are evaluated together must be perturbed alike. "
            f"{masked[False].path} has flipped edges alone, {masked[True].path} masked features "
            "as well."
        )
    pairs.sort(key=lambda pair: (pair[0].budget, pair[0].split, pair[1].record["seed"]))
    groups: list[PoisonedRuns] = []
    for _, group in groupby(pairs, lambda pair: (pair[0].budget, pair[0].split)):
        members = list(group)
        _check_one_graph(members)
        groups.append((members[0][0], [stored for _, stored in members]))
    check_one_attack([poison.file for poison, _ in groups])
    for (one, some), (other, more) in pairwise(groups):
        lists = [[stored.record["seed"] for stored in members] for members in (some, more)]
        if one.budget == other.budget and lists[0] != lists[1]:
            raise RunError(
                "Every split of a budget needs runs of the same seeds. There are "
                f"{_listed(lists[0])} on {_where(one)}, {_listed(lists[1])} on {_where(other)}."
            )
    return groups


def _check_one_graph(members: Sequence[tuple[PerturbedGraph, StoredRun]]) -> None:
    """Refuse runs on one split and budget that share a seed or met different flips."""
    for (one, first), (other, second) in pairwise(members):
        if first.record["seed"] == second.record["seed"]:
            raise RunError(
                f"Runs on {_where(one)} must differ in the seed. {first.path} and {second.path} "
                f"both have {first.record['seed']}."
            )
        if one.sha256 != other.sha256:
            raise RunError(
                f"Runs on {_where(one)} must have met the same flips. {first.path} is of "
                f"{one.path}, {second.path} of {other.path}, which differ."
            )


def _where(poison: PerturbedGraph) -> str:
    return f"split {poison.split} at a budget of {poison.budget:g}"


def _listed(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


# Every model on every graph


class _Evaluator:
    """The same graph, splits and probe for every model; all scores become lines of one table."""

    def __init__(
        self,
        runs: Sequence[StoredRun],
        splits: SplitKind,
        probe: str,
        metric: Metric | None,
        device: str | None,
        data_dir: str | None,
        poisons: Sequence[PerturbedGraph],
        prune: Sequence[float],
    ) -> None:
        self.runs, self.splits, self.probe_name, self.prune = runs, splits, probe, prune
        self.poisons = sorted(poisons, key=lambda poison: (poison.budget, poison.split))
        self.method, self.label = str(runs[0].record["method"]), runs[0].label
        self.labelled = labelled = runs[0].read_graph(data_dir)
        check_labels(labelled, f"The graph of {runs[0].path}")
        self.probe = chosen_probe(runs[0].experiment, probe, metric)
        self.device = choose_device(device)
        for poison in poisons:
            poison.file.check(labelled)
        if poisons:
            self.numbers = tuple(sorted({poison.split for poison in poisons}))
        else:
            drawn = make_splits(splits, labelled.labels, labelled.num_classes, masks=labelled.masks)
            self.numbers = tuple(range(len(drawn)))
        self.targets = poisons[0].targets if poisons else ()
        tested = draw_splits(labelled, splits, self.numbers, self.targets)
        self.scored_nodes = target_notice(
            self.targets, dict(zip(self.numbers, tested, strict=True))
        )
        is_evaded = any(poison.perturbation.mode == "evade" for poison in poisons)
        self.controls = [
            name
            for name in controls_of(self.method)
            if find_method(name).method.inductive or not is_evaded
        ]
        self.health: list[Health] = []
        self.lines: list[dict[str, Any]] = []

    def evaluate(self, groups: Sequence[_Group], on_step: Advance) -> EvaluationTable:
        """Probe runs, controls and rules on every graph."""
        names = [self.method, *self.controls, TWINS]
        total = len(groups) * len(names)
        for number, (poisons, trained, seeds) in enumerate(groups):
            done, graph = number * len(names), "clean graph: " if len(groups) > 1 else ""
            if poisons:
                is_evaded = poisons[0].perturbation.mode == "evade"
                graph = f"{poisons[0].perturbation.label if is_evaded else poisons[0].title}: "
            for spec, model in self.models(trained, seeds):
                word = self.label if spec.method == self.method else spec.method
                on_step(done + names.index(spec.method), total, f"{graph}{word}")
                self.probe_model(spec, model, poisons)
            on_step(done + len(names) - 1, total, f"{graph}{TWINS}")
            if not poisons:
                self.probe_rules(self.labelled.graph, CLEAN, self.numbers)
            for poison in poisons:
                self.probe_rules(poison.apply(self.labelled), poison.budget, (poison.split,))
        return self._table()

    def models(
        self, trained: Sequence[StoredRun], seeds: Sequence[StoredRun]
    ) -> Iterator[tuple[Spec, Embedder | None]]:
        """The method's runs one by one, then the controls, which are fitted to their graph.

        Models are read when it is their turn: a sweep has more of them than memory has room for.

        Args:
            trained: Runs of the method.
            seeds: Whose seeds and settings the controls take; untrained weights need every seed.
        """
        for stored in trained:
            spec = self._spec(self.method, stored.record["settings"], stored.record["seed"])
            spec = spec.model_copy(update={"pruning": stored.experiment.prune})
            yield spec, stored.load_model(str(self.device))
        for name, stored in with_seeds(self.controls, seeds):
            settings = control_settings(name, stored.record["settings"])
            yield self._spec(name, settings, stored.record["seed"]), None

    def _spec(self, method: str, settings: dict[str, Any], seed: int) -> Spec:
        return Spec(
            method=method,
            source=method_source(method),
            settings=settings,
            graph_sha256=self.runs[0].record["graph"]["sha256"],
            splits=self.splits,
            splits_sha256=published_sha256(self.splits, self.labelled.masks),
            split_numbers=self.numbers,
            seed=seed,
            device="cuda" if self.device.type == "cuda" else "cpu",
            version=__version__,
        )

    def probe_model(
        self, spec: Spec, model: Embedder | None, poisons: Sequence[PerturbedGraph]
    ) -> None:
        """Probe on the clean graph, or on perturbed ones; the method also with pruned edges."""
        budget = CLEAN
        if poisons:
            budget = poisons[0].budget
            spec = spec.model_copy(
                update={
                    "split_numbers": tuple(poison.split for poison in poisons),
                    "perturbation": poisons[0].perturbation,
                    "perturbation_sha256": tuple(poison.sha256 for poison in poisons),
                }
            )
        training = Training(model)
        outcome = self._run(spec, poisons, training)
        assert outcome.probed is not None  # a run with splits
        knn: Sequence[float | None] = ()
        if not self.poisons:
            assert training.model is not None  # fitted by the run, or given
            knn = self._knn_accuracies(spec.method, training.model)
            if spec.method == self.method:
                self.health.append(Health.from_dict(outcome.record.health or {}))
        where = budget, spec.seed, spec.split_numbers
        self.lines += score_lines(spec.method, *where, outcome.probed, knn=knn)
        if self.prune and spec.method == self.method:
            ratios = tuple(with_all_edges(self.prune))
            pruned = self._run(spec.model_copy(update={"prune": ratios}), poisons, training)
            assert pruned.probed is not None  # a run with splits
            self.lines += score_lines(
                pruned_name(self.method), *where, pruned.probed, record=pruned.record
            )

    def _knn_accuracies(self, method: str, model: Embedder) -> list[float]:
        """Of k-NN on every split, by the rows that a run stores and `aspect embed` writes.

        Centring turns cosines, so that other rows would give other neighbours. The rows of a file
        are left as they are.
        """
        graph, labels = self.labelled.graph, self.labelled.labels
        rows = model.embed(graph, normalise="none" if method == PRECOMPUTED else "centre")
        splits = draw_splits(self.labelled, self.splits, self.numbers)
        classes = self.labelled.num_classes
        voted = knn_probe(rows.to(self.device), labels, splits, num_classes=classes)
        return [score.strict for score in voted.splits]

    def _run(self, spec: Spec, poisons: Sequence[PerturbedGraph], training: Training) -> Outcome:
        cell = Cell.outside_plans("evaluate", spec.method, self.runs[0].experiment.source, spec)
        return run(
            Task(cell, tuple(poisons), targets=self.targets),
            labelled=self.labelled,
            device=str(self.device),
            training=training,
            probe=self.probe,
        )

    def probe_rules(self, graph: Graph, budget: float, numbers: tuple[int, ...]) -> None:
        """Neighbour sets and the majority class, on the clean graph or on a perturbed one."""
        labels, classes = self.labelled.labels, self.labelled.num_classes
        splits = draw_splits(self.labelled, self.splits, numbers, self.targets)
        if graph.num_nodes <= MOST_TWIN_NODES:
            twins = twin_probe(graph, labels, splits, num_classes=classes)
            self.lines += score_lines(TWINS, budget, 0, numbers, twins)
        majority = majority_probe(labels, splits, num_classes=classes)
        self.lines += score_lines(MAJORITY, budget, 0, numbers, majority)

    def _table(self) -> EvaluationTable:
        """All that was found, with the warnings of the records and of the embeddings, each once."""
        order = [self.method, pruned_name(self.method), *self.controls, TWINS, MAJORITY]
        lines = sorted(
            self.lines,
            key=lambda line: (
                order.index(line["name"]),
                line["budget"],
                line["seed"],
                line["split"],
            ),
        )
        shown = {name(self.method): name(self.label) for name in (str, pruned_name)}
        for line in lines:
            line["name"] = shown.get(line["name"], line["name"])
        warnings: list[str] = []
        for index, stored in enumerate(self.runs):
            measured = self.health[index].warnings() if self.health else []
            told = [f"{stored.path}: {text}" for text in measured]
            warnings += dict.fromkeys([*stored.warnings, *told])
        return EvaluationTable(
            graph=self.runs[0].record["graph"]["name"],
            runs=tuple(str(stored.path) for stored in self.runs),
            splits=self.splits,
            probe=self.probe_name,
            metric=self.probe.metric,
            scores=pd.DataFrame(lines, dtype=object),  # None and whole numbers stay as they are
            class_names=tuple(self.labelled.class_names),
            perturbations=tuple(self.poisons),
            health=tuple(self.health),
            warnings=tuple(warnings),
            scored_nodes=self.scored_nodes,
        )


def score_lines(
    name: str,
    budget: float,
    seed: int,
    numbers: Sequence[int],
    result: ProbeResult,
    *,
    knn: Sequence[float | None] = (),
    record: Record | None = None,
) -> list[dict[str, Any]]:
    """The lines of `EvaluationTable.scores`, one for every split; a record tells of pruning."""
    prunings: list[tuple[float | None, float | None]] = [(None, None)] * len(numbers)
    if record is not None:
        prunings = [(scores.prune, scores.pruned) for scores in record.scores]
    return [
        {
            "name": name,
            "budget": budget,
            "seed": seed,
            "split": number,
            **vars(score),
            "knn": knn[index] if knn else None,
            "prune": prunings[index][0],
            "pruned": prunings[index][1],
            "prune_score": None if record is None else record.prune_score,
            "is_constant": result.is_constant,
        }
        for index, (number, score) in enumerate(zip(numbers, result.splits, strict=True))
    ]


def evaluate_runs(  # noqa: PLR0913 - how runs are evaluated, each word on its own
    paths: Sequence[str | Path],
    *,
    evasion: Sequence[PerturbedGraph] = (),
    splits: SplitKind | None = None,
    probe: str = "neutral",
    metric: Metric | None = None,
    prune: Sequence[float] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: Advance = lambda *_: None,
) -> EvaluationTable:
    """Probe complete runs of one method on one graph; several of them are its pre-training seeds.

    Runs on poisoned graphs, of one attack at any budgets, splits and seeds, are probed on the
    split of their file alone; clean runs beside them tell what the perturbation took. With
    `evasion`, the probe is fitted on the clean graph and tested on perturbed ones.

    Args:
        paths: The runs' folders.
        evasion: Perturbations in mode `evade` of one attack, for every budget and split.
        splits: Kind of splits; none: random, or that of the perturbation files, which must be it.
        probe: `neutral` for the headline; `paper` for that of published tables, or `published` for
            the same with the learning rate and weight decay that the settings came with.
        metric: What validation chooses by; none: that of the data set, or accuracy.
        prune: Ratios of edges to prune; a further row is embedded, split by split, with the one
            that validation prefers, no pruning being one of them.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Called before each model is evaluated on a graph, with how far it is.
    """
    runs = [open_run(path) for path in paths]
    check_same_method(runs)
    check_pruning(runs[0].record["method"], prune, evades=bool(evasion))
    if prune and runs[0].experiment.prune is not None:
        raise RunError(
            f"{runs[0].path} was trained pruned, and prunes by its own rule. Leave --prune out."
        )
    clean = [stored for stored in runs if not stored.is_poisoned]
    poisoned = [stored for stored in runs if stored.is_poisoned]
    check_seeds(clean)
    if evasion and poisoned:
        raise RunError(
            f"{poisoned[0].path} was trained on a perturbed graph. "
            "Evasion tests runs on the clean one."
        )
    if evasion:
        check_inductive(runs[0].record["method"])
        check_one_attack([poison.file for poison in evasion])
    groups = group_poisoned(poisoned) if poisoned else []
    poisons = [*evasion, *(poison for poison, _ in groups)]
    if poisons:
        check_kind_of_splits([poison.file for poison in poisons], splits)
        splits = poisons[0].file.facts.splits
    evaluator = _Evaluator(
        runs, splits or "random", probe, metric, device, data_dir, poisons, prune
    )
    # Beside poisoned runs, controls on the clean graph have the seeds of these.
    by_seed = {stored.record["seed"]: stored for _, members in groups for stored in members}
    evaded = groupby(evaluator.poisons, lambda poison: poison.budget) if evasion else ()
    return evaluator.evaluate(
        [
            ((), clean, list(by_seed.values()) or clean),
            *((list(group), clean, clean) for _, group in evaded),
            *(((poison,), members, members) for poison, members in groups),
        ],
        on_step,
    )


# Embeddings that were made elsewhere


@dataclass(frozen=True, eq=False)
class _GivenRun(StoredRun):
    """A file of embeddings in the place of a run."""

    labelled: LabelledGraph

    @property
    @override
    def label(self) -> str:
        name = self.path.stem
        return self.path.name if name in EXPLANATIONS else name

    @override
    def load_model(self, device: str | None = None) -> Embedder:
        return precomputed_model(self.path, None, device).fit(self.labelled, progress=False)

    @override
    def read_graph(self, data_dir: str | None = None) -> LabelledGraph:
        return self.labelled


def evaluate_embeddings(
    source: GraphSource,
    files: Sequence[str | Path],
    *,
    splits: SplitKind | None = None,
    probe: str = "neutral",
    metric: Metric | None = None,
    device: str | None = None,
    data_dir: str | None = None,
    on_step: Advance = lambda *_: None,
) -> EvaluationTable:
    """Probe embeddings that were made elsewhere, as `evaluate_runs` does with those of runs.

    Args:
        source: The graph that they are of.
        files: Of one method; several are its seeds. See `EmbeddingFile.read` for their form.
        splits: Kind of splits; random by default.
        probe: `neutral` or `paper`.
        metric: As in `evaluate_runs`.
        device: Where they are probed.
        data_dir: Where files of named data sets lie.
        on_step: Called before each model is evaluated, with how far it is.
    """
    labelled = source.read(data_dir)
    graph = {"name": source.name, "sha256": content_sha256(labelled), "data_dir": data_dir}
    experiment = Experiment(method=PRECOMPUTED, graph=source.graph, reading=source.reading)
    runs = [
        _GivenRun(
            Path(file),
            experiment,
            {"method": PRECOMPUTED, "seed": seed, "settings": {}, "graph": graph, "warnings": []},
            labelled,
        )
        for seed, file in enumerate(files)
    ]
    for stored in runs:  # all are looked at before the first is probed
        stored.load_model("cpu").embed(labelled)
    evaluator = _Evaluator(runs, splits or "random", probe, metric, device, data_dir, (), ())
    return evaluator.evaluate([((), runs, runs)], on_step)
