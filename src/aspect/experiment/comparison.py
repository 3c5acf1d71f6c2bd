"""Scores of runs beside the controls: what untrained weights, features and plain rules give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, make_splits
from aspect.errors import GraphError, RunError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.baselines import MOST_TWIN_NODES, knn_probe, majority_probe, twin_probe
from aspect.evaluation.linear_probe import PaperProbe, Probe, linear_probe, probe_named
from aspect.evaluation.metrics import ClassScore
from aspect.evaluation.protocol import Evaluation, Spread
from aspect.evaluation.pruning import (
    check_pruning,
    describe_pruning,
    embed_pruned,
    probe_embeddings,
    pruned_name,
    with_all_edges,
)
from aspect.experiment.runs import LoadedRun, StoredRun, load_run
from aspect.methods.registry import find_method
from aspect.settings import Experiment
from aspect.training.health import Health

__all__ = [
    "EXPLANATIONS",
    "MAJORITY",
    "TWINS",
    "Comparison",
    "Row",
    "check_labels",
    "check_same_method",
    "check_seeds",
    "chosen_probe",
    "controls",
    "evaluate_runs",
    "plain_spread",
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

CLASS_BALANCED_NOTICE = (
    "Class-balanced splits are only for comparison with published tables: their test sets have "
    "other shares of the classes than the graph. Use --splits random to judge embeddings."
)

OnStep = Callable[[int, int, str], object]  # rows done, of how many, and the name of the next


def _ignore(done: int, total: int, name: str) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a method and its scores."""

    name: str
    linear: Evaluation  # of a rule: its accuracy, without any probe
    neighbours: Evaluation | None = None  # None where there is no embedding, or several
    doubt: tuple[float, ...] = ()  # shares of edges left out: by seed, then by split

    def to_dict(self) -> dict[str, Any]:
        """Plain values in percent; `std` is over splits, `std_seeds` over the means of seeds."""
        linear, ends = self.linear, [result.at_path_end for result in self.linear.results]
        return {
            "name": self.name,
            "strict": plain_spread(linear.strict),
            "optimistic": plain_spread(linear.optimistic),
            "macro_f1": plain_spread(linear.macro_f1),
            "roc_auc": plain_spread(linear.roc_auc),
            "validation": plain_spread(linear.validation),
            "knn": plain_spread(self.neighbours.strict if self.neighbours else None),
            "doubt": list(self.doubt) or None,
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


def plain_spread(spread: Spread | None) -> dict[str, Any] | None:
    """A mean and its spread as tables and JSON have them; None stays None."""
    if spread is None:
        return None
    values = spread.to_dict()
    return {"mean": values.pop("mean"), "std": values.pop("std_splits"), **values}


def evaluate_runs(
    paths: Sequence[str | Path],
    *,
    splits: SplitKind = "random",
    probe: str = "neutral",
    doubt: Sequence[float] = (),
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
        doubt: Shares of doubtful edges to leave out; a further row is read, split by split, with
            the one that validation prefers, all edges being one of them.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Told of each row before it is computed.
    """
    runs = [load_run(path, device=device) for path in paths]
    _check_comparable(runs)
    check_pruning(runs[0].model.name, doubt)
    labelled = runs[0].read_graph(data_dir)
    check_labels(labelled, runs[0])
    chosen = chosen_probe(runs[0].experiment, probe)
    drawn = make_splits(splits, labelled.labels, labelled.num_classes, masks=labelled.masks)
    judge = _Judge(labelled, drawn, chosen)
    rows = _rows(judge, _entrants(runs, labelled.graph), doubt, on_step)
    health = tuple(run.model.health(labelled.graph) for run in runs)
    return Comparison(
        graph=runs[0].record["graph"]["name"],
        runs=tuple(str(run.path) for run in runs),
        splits=splits,
        probe=probe,
        rows=tuple(rows),
        class_names=tuple(labelled.class_names),
        health=health,
        notices=tuple(_notices(rows, splits, labelled.class_names)),
        warnings=tuple(_warnings(runs, health)),
    )


def _notices(rows: Sequence[Row], splits: SplitKind, class_names: Sequence[str]) -> Iterator[str]:
    """What a reader must know beside the numbers."""
    yield from rows[0].linear.results[0].notices_naming(class_names)
    if splits == "class-balanced":
        yield CLASS_BALANCED_NOTICE
    yield from (describe_pruning(f"for {row.name}", row.doubt) for row in rows if row.doubt)


def _warnings(runs: Sequence[LoadedRun], health: Sequence[Health]) -> Iterator[str]:
    """What the runs' records warn of, and their embeddings as they are now; each once."""
    for run, found in zip(runs, health, strict=True):
        for text in dict.fromkeys([*run.record["warnings"], *found.warnings()]):
            yield f"{run.path}: {text}"


def _rows(
    judge: _Judge,
    entrants: Mapping[str, Sequence[Embedder]],
    doubt: Sequence[float],
    on_step: OnStep,
) -> list[Row]:
    """The method, what it makes of pruned graphs if that is asked for, then the controls."""
    graph, method = judge.labelled.graph, next(iter(entrants))
    steps: dict[str, Callable[[], Row]] = {}
    for name, models in entrants.items():
        steps[name] = partial(judge.row, name, models)
        if doubt and name == method:
            shares = with_all_edges(doubt)
            steps[pruned_name(name)] = partial(
                judge.doubting_row, pruned_name(name), models, shares
            )
    if graph.num_nodes <= MOST_TWIN_NODES:
        steps[TWINS] = judge.twins
    steps[MAJORITY] = judge.majority
    rows = []
    for done, (name, make) in enumerate(steps.items()):
        on_step(done, len(steps), name)
        rows.append(make())
    return rows


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


def _entrants(runs: Sequence[LoadedRun], graph: Graph) -> dict[str, list[Embedder]]:
    """The method first, then the controls, with the same seeds and settings."""
    name, device = runs[0].model.name, str(runs[0].model.device)
    return {name: [run.model for run in runs], **controls(runs, graph, device)}


def controls(
    runs: Sequence[StoredRun], graph: Graph, device: str | None = None, *, inductive: bool = False
) -> dict[str, list[Embedder]]:
    """Untrained weights for every run's seed, and features; but not what the runs are of.

    Args:
        runs: Whose seeds and settings are taken.
        graph: That the controls are fitted to.
        device: Where they embed.
        inductive: Leave out those that embed no graph but this one.
    """
    seeds = {"random": runs, "raw": runs[:1], "propagated": runs[:1], "spectral": runs[:1]}
    return {
        name: [_untrained(name, run, graph, device) for run in some]
        for name, some in seeds.items()
        if name != runs[0].record["method"]
        and (find_method(name).method.inductive or not inductive)
    }


def _untrained(name: str, run: StoredRun, graph: Graph, device: str | None) -> Embedder:
    """A method that learns nothing, in the run's settings if the run's method has all of them."""
    known = set(find_method(name).config.model_fields)
    given = run.record["settings"]
    settings = {field: given[field] for field in known} if known <= set(given) else {}
    return Embedder(name, seed=run.record["seed"], device=device, **settings).fit(graph)


class _Judge:
    """The same splits and probe for every row."""

    def __init__(self, labelled: LabelledGraph, splits: list[Split], probe: Probe) -> None:
        self.labelled, self.splits, self.probe = labelled, splits, probe
        self.labels, self.num_classes = labelled.labels, labelled.num_classes

    def row(self, name: str, models: Sequence[Embedder]) -> Row:
        """By seed, the linear probe and the nearest neighbours of an embedding."""
        graph, classes = self.labelled.graph, self.num_classes
        embeddings = [model.embed(graph, normalise="none").to(model.device) for model in models]
        linear = [
            linear_probe(rows, self.labels, self.splits, num_classes=classes, probe=self.probe)
            for rows in embeddings
        ]
        neighbours = [
            knn_probe(rows, self.labels, self.splits, num_classes=classes) for rows in embeddings
        ]
        return Row(name, Evaluation(tuple(linear)), Evaluation(tuple(neighbours)))

    def doubting_row(self, name: str, models: Sequence[Embedder], shares: Sequence[float]) -> Row:
        """By seed, a reading for each share; validation chooses for every split."""
        probed = [
            probe_embeddings(
                embed_pruned(model, self.labelled.graph, shares),
                self.labelled,
                self.splits,
                self.probe,
            )
            for model in models
        ]
        doubt = tuple(shares[index] for _, chosen in probed for index in chosen)
        return Row(name, Evaluation(tuple(result for result, _ in probed)), doubt=doubt)

    def twins(self) -> Row:
        result = twin_probe(
            self.labelled.graph, self.labels, self.splits, num_classes=self.num_classes
        )
        return Row(TWINS, Evaluation((result,)))

    def majority(self) -> Row:
        result = majority_probe(self.labels, self.splits, num_classes=self.num_classes)
        return Row(MAJORITY, Evaluation((result,)))


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
