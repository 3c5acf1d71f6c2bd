"""What runs are worth, beside what no training gives: random weights, raw features, one class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.neighbours import knn_probe, majority_probe
from aspect.evaluation.probe import ProbeSettings
from aspect.evaluation.protocol import Evaluation, Spread, evaluate_embeddings
from aspect.evaluation.readings import (
    check_doubt,
    doubting,
    probe_readings,
    read_doubting,
    told_choice,
    with_all_edges,
)
from aspect.experiments import Experiment
from aspect.graph.data import UNLABELLED, Graph, LabelledGraph
from aspect.graph.splits import Split, SplitKind, make_splits
from aspect.methods.registry import find_method
from aspect.runs import LoadedRun, StoredRun, load_run

__all__ = [
    "MAJORITY",
    "Comparison",
    "Row",
    "check_labels",
    "check_same_method",
    "check_seeds",
    "controls",
    "evaluate_runs",
    "plain_spread",
    "probe_settings",
]

MAJORITY = "majority class"


@dataclass(frozen=True)
class Row:
    """One line of the table: a method and its scores."""

    name: str
    linear: Evaluation  # of the majority class: its accuracy, without any probe
    neighbours: Evaluation | None  # None where there is no embedding, or several
    doubt: tuple[float, ...] = ()  # shares of edges left out: by seed, then by split

    def to_dict(self) -> dict[str, Any]:
        """Plain values in percent; `std` is over splits, `std_seeds` over the means of seeds."""
        linear = self.linear
        return {
            "name": self.name,
            "strict": plain_spread(linear.strict),
            "optimistic": plain_spread(linear.optimistic),
            "macro_f1": plain_spread(linear.macro_f1),
            "roc_auc": plain_spread(linear.roc_auc),
            "validation": plain_spread(linear.validation),
            "knn": plain_spread(self.neighbours.strict if self.neighbours else None),
            "doubt": list(self.doubt) or None,
        }


@dataclass(frozen=True)
class Comparison:
    """Runs of one method on one graph, beside the rows that every table needs."""

    graph: str
    runs: tuple[str, ...]  # folders
    splits: SplitKind
    probe: str  # ours or published
    rows: tuple[Row, ...]  # the runs' method first
    notices: tuple[str, ...]  # what a reader must know beside the numbers
    warnings: tuple[str, ...]  # what the runs themselves warn of

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
            "rows": [row.to_dict() for row in self.rows],
            "notices": list(self.notices),
            "warnings": list(self.warnings),
        }


def plain_spread(spread: Spread | None) -> dict[str, Any] | None:
    """A mean and its spread as tables and JSON have them; None stays None."""
    if spread is None:
        return None
    values = spread.to_dict()
    return {"mean": values.pop("mean"), "std": values.pop("std_splits"), **values}


def evaluate_runs(
    paths: Sequence[str | Path],
    *,
    splits: SplitKind = "class-balanced",
    probe: str = "ours",
    doubt: Sequence[float] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_row: Callable[[str], object] = lambda _: None,
) -> Comparison:
    """Probe complete runs of one method on one graph; several of them are its pre-training seeds.

    Args:
        paths: The runs' folders.
        splits: Kind of splits.
        probe: `ours` for the protocol's probe, `published` for the one that the settings came with.
        doubt: Shares of doubtful edges to leave out; a further row is read, split by split, with
            the one that validation prefers, all edges being one of them.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_row: Told the name of each row before it is computed.
    """
    runs = [load_run(path, device=device) for path in paths]
    _check_comparable(runs)
    check_doubt(runs[0].model.name, doubt)
    labelled = runs[0].read_graph(data_dir)
    check_labels(labelled, runs[0])
    settings = probe_settings(runs[0].experiment, probe)
    drawn = make_splits(splits, labelled.labels, labelled.num_classes, masks=labelled.masks)
    judge = _Judge(labelled, drawn, settings)
    rows = list(_rows(judge, _entrants(runs, labelled.graph), labelled.graph, doubt, on_row))
    return Comparison(
        graph=runs[0].record["graph"]["name"],
        runs=tuple(str(run.path) for run in runs),
        splits=splits,
        probe=probe,
        rows=tuple(rows),
        notices=(
            *rows[0].linear.results[0].notices_naming(labelled.class_names),
            *(told_choice(f"for {row.name}", row.doubt) for row in rows if row.doubt),
        ),
        warnings=tuple(f"{run.path}: {text}" for run in runs for text in run.record["warnings"]),
    )


def _rows(
    judge: _Judge,
    entrants: Mapping[str, Sequence[Embedder]],
    graph: Graph,
    doubt: Sequence[float],
    on_row: Callable[[str], object],
) -> Iterator[Row]:
    method = next(iter(entrants))
    for name, models in entrants.items():
        on_row(name)
        yield judge.row(name, [model.embed(graph).to(model.device) for model in models])
        if doubt and name == method:
            on_row(doubting(name))
            shares = with_all_edges(doubt)
            readings = [read_doubting(model, graph, shares) for model in models]
            yield judge.doubting_row(doubting(name), readings, shares)
    on_row(MAJORITY)
    yield judge.majority()


def probe_settings(experiment: Experiment, probe: str) -> ProbeSettings:
    """Our protocol's probe, or the published one with its single weight decay."""
    if probe == "ours":
        return ProbeSettings()
    if probe != "published":
        raise SettingsError(f"--probe must be ours or published. Got {probe!r}.")
    published = experiment.probe
    if published is None:
        raise SettingsError(
            "The settings of this run name no published probe. "
            "Train with --config published, or pass --probe ours."
        )
    return ProbeSettings(published.learning_rate, published.steps, (published.weight_decay,))


def _entrants(runs: Sequence[LoadedRun], graph: Graph) -> dict[str, list[Embedder]]:
    """The method first, then the rivals that learn nothing, with the same seeds and settings."""
    name, device = runs[0].model.name, str(runs[0].model.device)
    return {name: [run.model for run in runs], **controls(runs, graph, device)}


def controls(
    runs: Sequence[StoredRun], graph: Graph, device: str | None = None
) -> dict[str, list[Embedder]]:
    """Random weights for every run's seed, and raw features; but not what the runs are of."""
    rivals = {"random": runs, "raw": runs[:1]}
    return {
        rival: [_untrained(rival, run, graph, device) for run in some]
        for rival, some in rivals.items()
        if rival != runs[0].record["method"]
    }


def _untrained(rival: str, run: StoredRun, graph: Graph, device: str | None) -> Embedder:
    """A method that learns nothing, in the run's settings if the run's method has all of them."""
    known = set(find_method(rival).config.model_fields)
    given = run.record["settings"]
    settings = {name: given[name] for name in known} if known <= set(given) else {}
    return Embedder(rival, seed=run.record["seed"], device=device, **settings).fit(graph)


class _Judge:
    """The same splits and probes for every row."""

    def __init__(
        self, labelled: LabelledGraph, splits: list[Split], settings: ProbeSettings
    ) -> None:
        self.labelled = labelled
        self.labels, self.num_classes = labelled.labels, labelled.num_classes
        self.splits, self.settings = splits, settings

    def row(self, name: str, embeddings: Sequence[Tensor]) -> Row:
        linear = evaluate_embeddings(
            embeddings,
            self.labels,
            self.splits,
            num_classes=self.num_classes,
            settings=self.settings,
        )
        neighbours = [
            knn_probe(each, self.labels, self.splits, num_classes=self.num_classes)
            for each in embeddings
        ]
        return Row(name, linear, Evaluation(tuple(neighbours)))

    def doubting_row(
        self, name: str, readings: Sequence[Iterable[Tensor]], shares: Sequence[float]
    ) -> Row:
        """By seed, a reading for each share; validation chooses for every split."""
        found = [
            probe_readings(each, self.labelled, self.splits, self.settings) for each in readings
        ]
        doubt = tuple(shares[place] for _, chosen in found for place in chosen)
        return Row(name, Evaluation(tuple(result for result, _ in found)), None, doubt)

    def majority(self) -> Row:
        result = majority_probe(self.labels, self.splits, num_classes=self.num_classes)
        return Row(MAJORITY, Evaluation((result,)), None)


def _check_comparable(runs: Sequence[LoadedRun]) -> None:
    """Several runs are seeds of one method: same settings and graph, different seeds."""
    check_same_method(runs)
    for run in runs:
        if run.is_poisoned:
            raise RunError(
                f"{run.path} was trained on a graph that was perturbed for one split, and must not "
                "be judged on others. Evaluate it with evaluate_poisoned."
            )
    check_seeds(runs)


def check_same_method(runs: Sequence[StoredRun]) -> None:
    """Refuse runs that differ in method, settings or graph."""
    if not runs:
        raise RunError("Evaluation needs one or more runs. Got none.")
    first = _identity(runs[0])
    for run in runs[1:]:
        other = [what for what, value in _identity(run).items() if value != first[what]]
        if other:
            raise RunError(
                "Runs that are evaluated together must differ in the seed alone. "
                f"{run.path} has another {' and another '.join(other)} than {runs[0].path}."
            )


def check_seeds(runs: Sequence[StoredRun]) -> None:
    """Refuse runs on one graph that share a seed."""
    seeds = [run.record["seed"] for run in runs]
    if len(set(seeds)) < len(seeds):
        listed = ", ".join(map(str, seeds))
        raise RunError(f"Runs that are evaluated together must differ in the seed. Got {listed}.")


def _identity(run: StoredRun) -> dict[str, object]:
    record = run.record
    return {
        "method": record["method"],
        "setting": record["settings"],
        "graph": record["graph"]["sha256"],
    }


def check_labels(labelled: LabelledGraph, run: StoredRun) -> None:
    """Refuse a graph on which no probe could be trained."""
    if not bool((labelled.labels != UNLABELLED).any()):
        raise GraphError(
            f"The graph of {run.path} has no labels, and a probe needs some. Name their column "
            "with --label when training; `aspect embed` needs none."
        )
