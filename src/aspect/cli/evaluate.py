"""`aspect evaluate`: how well the classes, or clusters or edges, can be read off the embeddings.

Beside them stand controls that learn nothing, and what perturbed graphs leave of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aspect.cli.completion import graph_argument
from aspect.cli.console import explain, health_text, interval_text, number_text, score_text
from aspect.cli.options import (
    NumbersFile,
    ProbeOptions,
    SeedOptions,
    SettingsOptions,
    SweepOptions,
    is_of_store,
)
from aspect.cli.session import Session, command
from aspect.cli.tasks import evaluate_task, show_task
from aspect.cli.train import PlannedRun, plan_run, run_all
from aspect.data.files import is_file
from aspect.data.source import METRICS, NO_READING, GraphSource, Reading
from aspect.errors import RunError, SettingsError, counted
from aspect.settings import Experiment, load_experiment
from aspect.training.files import CONFIG, check_run, is_run
from aspect.workspace import MANIFEST

if TYPE_CHECKING:
    from aspect.attacks.perturbation import Mode
    from aspect.data.graph import LabelledGraph
    from aspect.experiment.evaluate import EvaluationTable
    from aspect.experiment.run import PerturbedGraph


@command
def evaluate(
    session: Session,
    targets: Annotated[
        list[str],
        graph_argument(
            "Folders of runs (seeds of one method), or one graph to train on.", "RUN|GRAPH"
        ),
    ],
    settings: SettingsOptions,
    reading: Reading,
    how: ProbeOptions,
    trained: SeedOptions,
    sweep: SweepOptions,
    scores: NumbersFile,
) -> None:
    """Probe runs, or train on a graph with several seeds and probe those.

    Runs of the graph that are there already are taken, or gone on with if they were stopped. With
    --perturbation the same is done on perturbed graphs, and the drop in accuracy is shown. --task
    measures something else than classes. With --embeddings nothing is trained: the files are
    probed.
    """
    inputs = (*targets, reading.nodes, *(trained.embeddings or ()), *(sweep.perturbation or ()))
    scores.check(inputs, " Pass --retrain to replace runs.")
    sweep.check(targets)
    how.check_task()
    paths = _folders(targets)
    of_files = (SettingsOptions(), SweepOptions(), SeedOptions(embeddings=trained.embeddings))
    is_mixed = paths or how.task != "classify" or (settings, sweep, trained) != of_files
    if trained.embeddings and is_mixed:
        raise SettingsError(
            "--embeddings belongs to a graph, in place of a training: runs, --method, --config, "
            "--set, --seeds, --retrain, --task and options of perturbed graphs do not go with it."
        )
    given = (settings, trained, reading, session.seed)
    if paths and given != (SettingsOptions(), SeedOptions(), NO_READING, None):
        raise SettingsError(
            "--method, --config, --set, --seed, --seeds, --retrain and options of reading belong "
            f"to a graph. {targets[0]} is a run."
        )
    is_trained = not (paths or trained.embeddings)
    plans = _plans(session, targets[0], settings, reading, trained, sweep) if is_trained else []
    if how.task != "classify":
        content = evaluate_task(session, how, sweep, paths, plans, retrain=trained.retrain)
        session.screen.answer(content, lambda: show_task(session, content), scores.out)
        return
    evaluation = _Evaluation(session, sweep, how)
    if trained.embeddings:
        source = GraphSource.named(targets[0], reading)
        table = evaluation.of_embeddings(source, trained.embeddings)
    elif paths:
        table = evaluation.of_runs(paths)
    else:
        sweep.check_clean(paths)
        table = evaluation.of_graph(plans, retrain=trained.retrain)
    content = {"task": how.task, **table.to_dict()}
    show = _show_perturbed if table.perturbations else _show
    session.screen.answer(content, lambda: show(session, table), scores.out)


@dataclass(frozen=True)
class _Evaluation:
    """How runs are evaluated, as the command line says."""

    session: Session
    sweep: SweepOptions
    how: ProbeOptions

    def of_runs(self, paths: Sequence[Path]) -> EvaluationTable:
        """Probe what is trained already, on the graphs it was trained on or on perturbed ones."""
        for path in paths:
            check_run(path, is_complete=False)
        poisoned = [path for path in paths if load_experiment(path / CONFIG).perturbation]
        if poisoned:
            self.sweep.check_poisoned(poisoned[0])
        else:
            self.sweep.check_clean(paths)
        if not self.sweep.perturbation:
            return self._evaluate(paths)
        with self.session.screen.activity("Starting"):
            from aspect.experiment.trained import open_run

            labelled = open_run(paths[0]).read_graph(self.session.data_dir)
            evasion = self._perturbed(labelled, "evade")
        return self._evaluate(paths, evasion)

    def of_embeddings(self, source: GraphSource, files: Sequence[Path]) -> EvaluationTable:
        """Probe embeddings that were made elsewhere."""
        if self.how.probe == "published" or self.how.prune:
            raise SettingsError(
                "--probe published and --prune need a trained model, and --embeddings gives none."
            )
        from aspect.experiment.evaluate import evaluate_embeddings

        return self._shown(partial(evaluate_embeddings, source, files, **self._read))

    def of_graph(self, plans: Sequence[PlannedRun], *, retrain: bool) -> EvaluationTable:
        """Train what is not trained yet, and probe it."""
        with self.session.screen.activity("Starting"):
            perturbed = self._prepare(plans[0].experiment)
        if self.sweep.mode == "evade" or not perturbed:
            return self._evaluate(run_all(self.session, plans, retrain=retrain), perturbed)
        poisoned = [plan.on_graph(one) for one in perturbed for plan in plans]
        self.session.screen.note(
            f"{len(plans) + len(poisoned)} trainings: {len(plans)} on the clean graph and "
            f"{len(poisoned)} on perturbed ones. What is complete under runs/ is taken from there."
        )
        return self._evaluate(run_all(self.session, [*plans, *poisoned], retrain=retrain))

    def _prepare(self, experiment: Experiment) -> list[PerturbedGraph]:
        """Read graph and files, and refuse before the first training what the end would refuse."""
        from aspect.evaluation.metrics import check_metric
        from aspect.evaluation.pruning import check_pruning
        from aspect.experiment.evaluate import check_before_training, check_inductive, chosen_probe
        from aspect.scale.store import is_store

        how, source = self.how, experiment.source
        evades = self.sweep.mode == "evade"
        check_pruning(experiment.method, how.prune or (), evades=evades)
        if evades:
            check_inductive(experiment.method)
        if is_store(Path(source.graph)):
            self._check_store(f"{source.graph} is")
            return []  # it is read piece by piece
        chosen_probe(experiment, how.probe, how.metric)
        labelled = source.read(self.session.data_dir)
        if how.metric is not None:
            check_metric(how.metric, labelled.num_classes)
        if not self.sweep.perturbation:  # its files decide the kind of splits
            check_before_training(labelled, source.name, how.splits)
            return []
        perturbed = self._perturbed(labelled, self.sweep.mode or "poison")
        for one in perturbed:
            one.file.split_of(labelled)
        return perturbed

    def _perturbed(self, labelled: LabelledGraph, mode: Mode) -> list[PerturbedGraph]:
        """Every perturbation file at the budgets that all of them reach."""
        from aspect.attacks.file import check_kind_of_splits, common_budgets, read_files
        from aspect.experiment.run import PerturbedGraph

        files = read_files(self.sweep.perturbation or (), labelled)
        budgets = common_budgets(files, self.sweep.budget or ())
        check_kind_of_splits(files, self.how.splits)
        features = not self.sweep.edges_only
        return [
            PerturbedGraph.of(file, file.perturbation(budget, mode=mode, features=features))
            for budget in budgets
            for file in files
        ]

    def _evaluate(
        self, paths: Sequence[Path], evasion: Sequence[PerturbedGraph] = ()
    ) -> EvaluationTable:
        """Probe runs of graphs in memory, or of a store."""
        from aspect.experiment.evaluate import evaluate_runs
        from aspect.experiment.trained_store import evaluate_store_runs

        if not all(map(is_of_store, paths)):
            given = {"evasion": evasion, "prune": self.how.prune or (), **self._read}
            return self._shown(partial(evaluate_runs, paths, **given))
        self._check_store(f"{paths[0]} was trained on")
        return self._shown(partial(evaluate_store_runs, paths))

    def _check_store(self, what: str) -> None:
        """Refuse what a graph that stays on the disk has no place for."""
        how = self.how
        if self.sweep.perturbation or how.prune or how.splits not in (None, "random"):
            raise SettingsError(
                f"{what} a store, which is probed on random splits of some of its nodes. "
                "Leave --perturbation, --prune and --splits out."
            )

    @property
    def _read(self) -> dict[str, Any]:
        return {"splits": self.how.splits, "data_dir": self.session.data_dir}

    def _shown(self, evaluate: Callable[..., EvaluationTable]) -> EvaluationTable:
        """Evaluate with progress on the screen, and say what the runs warn of."""
        probe, metric, device = self.how.probe, self.how.metric, self.session.device
        with self.session.screen.progress("Evaluating") as advance:
            table = evaluate(probe=probe, metric=metric, device=device, on_step=advance)
        self.session.screen.warn(*table.warnings)
        return table


def _plans(
    session: Session,
    graph: str,
    settings: SettingsOptions,
    reading: Reading,
    trained: SeedOptions,
    sweep: SweepOptions,
) -> list[PlannedRun]:
    """One training on the clean graph for every seed."""
    first = plan_run(graph, settings, reading, session.seed)  # a settings file may name the seed
    seeds = range(first.experiment.seed, first.experiment.seed + (trained.seeds or 1))
    plans = [plan_run(graph, settings, reading, seed) for seed in seeds]
    named = plans[0].experiment.perturbation
    if named is not None and not sweep.perturbation:
        raise SettingsError(
            f"The settings in {settings.config} are of a training on a perturbed graph. "
            f"Pass --perturbation {named.file} to evaluate that, or take other settings."
        )
    return [plan.on_graph(None) for plan in plans]


def _folders(targets: Sequence[str]) -> list[Path]:
    """The runs, or nothing if the target is a graph: its name wins over a folder without a run."""
    place = Path(targets[0])
    if len(targets) == 1 and not is_run(place):
        if GraphSource(graph=targets[0]).is_named:
            return []
        if is_file(place / MANIFEST):
            from aspect.scale.store import is_store  # which imports torch

            if is_store(place):
                return []
    folders = [Path(target) for target in targets if Path(target).is_dir()]
    if len(targets) > 1 and len(folders) < len(targets):
        other = next(target for target in targets if not Path(target).is_dir())
        raise RunError(f"{other} is not a run's folder. Give folders of runs, or a single graph.")
    if not folders and not Path(targets[0]).suffix and len(Path(targets[0]).parts) > 1:
        raise RunError(
            f"There is no run in {targets[0]}. Train one with: aspect train --out {targets[0]}."
        )
    return folders


def _show(session: Session, table: EvaluationTable) -> None:
    rows = table.rows
    names = {"optimistic": "optimistic*", "macro_f1": "macro-F1", "roc_auc": "ROC AUC"}
    columns = {key: name for key, name in names.items() if any(row[key] for row in rows)}
    columns["knn"] = "k-NN"
    cells = [
        [
            row["name"],
            score_text(row["strict"]),
            interval_text(row["strict"]),
            *(score_text(row[key]) for key in columns),
        ]
        for row in rows
    ]
    count = len(table.runs)
    title = (
        f"{table.graph}: percent over {counted(count, 'run')} "
        f"and {rows[0]['strict']['splits']} {table.splits} splits; probe: {table.probe}"
    )
    if table.metric != "accuracy":
        title += f", chosen by {METRICS[table.metric]}"
    screen = session.screen
    screen.table(["method", "accuracy", "95% interval", *columns.values()], cells, title=title)
    if "optimistic" in columns:
        screen.say("* chooses the step on the test set: only for comparison with published tables.")
    explain(screen, rows)
    screen.say(*table.notices)
    for health in table.health[:1]:
        screen.say(health_text(health.to_dict()))
    _show_classes(session, table)


def _show_classes(session: Session, table: EvaluationTable) -> None:
    cells = [
        [
            table.class_names[score.label],
            *map(number_text, (score.recall, score.precision, score.f1, score.roc_auc)),
            f"{score.support:g}",
        ]
        for score in table.per_class
    ]
    session.screen.table(
        ["class", "recall", "precision", "F1", "ROC AUC", "test nodes"],
        cells,
        title=f"Classes of {table.graph} with {table.method}, in percent",
    )


def _show_perturbed(session: Session, table: EvaluationTable) -> None:
    """The table, and what its columns mean."""
    screen, perturbation = session.screen, table.perturbations[0].perturbation
    seeds, counts = table.rows[0]["perturbed"]["seeds"], {len(row["splits"]) for row in table.rows}
    splits = f"{table.splits} split"
    splits = counted(min(counts), splits) if len(counts) == 1 else f"{splits}s"
    title = (
        f"{table.graph} under {perturbation.attack}, mode {perturbation.mode}: strict accuracy in "
        f"percent over {counted(seeds, 'seed')} and {splits}; probe: {table.probe}"
    )
    uneven = ["splits"] if len(counts) > 1 else []
    names = ["method", "budget", *uneven, "clean", "perturbed", "drop", "95% interval", "macro-F1"]
    cells = [
        [
            row["name"],
            f"{100 * row['budget']:.4g}%",
            *([len(row["splits"])] if uneven else []),
            score_text(row["clean"]),
            score_text(row["perturbed"]),
            number_text(row["drop"]),
            interval_text(row["drop_interval"]),
            score_text(row["macro_f1"]),
        ]
        for row in table.rows
    ]
    screen.table(names, cells, title=title)
    masked = (
        " and of feature entries masked" if perturbation.features else ", with all features kept"
    )
    screen.say(f"budget: ratio of edges flipped{masked}. macro-F1: perturbed.")
    screen.say(
        "drop: (clean - perturbed) / clean of the two means, in percent, with a 95% interval over "
        "splits (seeds averaged), widened for the splits' overlap."
    )
    explain(screen, table.rows)
    screen.say(*table.notices)
