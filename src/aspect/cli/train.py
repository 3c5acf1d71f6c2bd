"""`aspect train`: a graph in, a run's folder out.

Wrong names are answered before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.attacks.pruning import edge_score_text, reached_text
from aspect.attacks.registry import attack_title
from aspect.cli.completion import graph_argument
from aspect.cli.console import health_text
from aspect.cli.options import (
    FolderOptions,
    PoisonOptions,
    PruneOptions,
    ScaleOptions,
    SettingsOptions,
)
from aspect.cli.session import Session, command
from aspect.config import parse_overrides
from aspect.data.source import MIXED, NO_READING, GraphSource, Reading
from aspect.errors import CheckpointError, RunError, SettingsError, counted
from aspect.methods.registry import require_method_name, short_name
from aspect.settings import Experiment, PerturbedBy, find_experiment
from aspect.training.files import CONFIG

if TYPE_CHECKING:
    from aspect.experiment.run import PerturbedGraph

ENGINE = {"engine", "workers", "storage"}  # options of a training on a store
NAMED_CHOICES = ("defaults", "published", "paper")


@dataclass(frozen=True)
class PlannedRun:
    """What will be trained, and where its settings come from."""

    experiment: Experiment
    settings_from: str
    poison: PerturbedGraph | None = None  # as read; what the experiment names is a path

    @property
    def default_out(self) -> Path:
        """Where the run goes if the user does not say."""
        method = short_name(self.experiment.method)
        words = [self.experiment.source.name, method, str(self.experiment.seed)]
        if self.poison is not None:
            words.append(self.poison.name)
        if self.experiment.prune is not None:
            words.append("pruned")
        return Path("runs") / "-".join(words)

    @property
    def title(self) -> str:
        """What is trained on what, for a line on the screen."""
        perturbed = "" if self.poison is None else f", perturbed by {self.poison.title}"
        pruned = "" if self.experiment.prune is None else ", pruned"
        seed = f"with seed {self.experiment.seed}"
        return (
            f"{self.experiment.method} {seed} on {self.experiment.source.name}{perturbed}{pruned}"
        )

    def on_graph(self, poison: PerturbedGraph | None) -> PlannedRun:
        """The same on a perturbed graph; None: on the clean one."""
        described = None if poison is None else poison.described
        experiment = self.experiment.model_copy(update={"perturbation": described})
        return replace(self, experiment=experiment, poison=poison)


def plan_run(
    graph: str | None,
    options: SettingsOptions,
    reading: Reading,
    seed: int | None,
    perturbation: PerturbedBy | None = None,
) -> PlannedRun:
    """Join graph, method, settings, seed and perturbation.

    What the command line says wins over a settings file, and that over what is shipped. Without
    either a graph is the embedded one.
    """
    if graph is not None:
        GraphSource.named(graph, reading)
    if options.method is not None:
        require_method_name(options.method)
    is_file = options.config is not None and options.config not in NAMED_CHOICES
    named = GraphSource(graph=MIXED if graph is None else graph)
    # Settings are shipped for names alone, and not for a file of the user's.
    name = named.name if named.is_named and not is_file else None
    chosen, settings_from = find_experiment(options.method or "aspect", name, options.config)
    overrides = parse_overrides(options.settings or [])
    if graph is None and is_file and chosen.graph is not None:
        if reading != NO_READING:
            raise SettingsError(
                "Options of reading belong to a graph on the command line. "
                f"Name {chosen.graph!r} there."
            )
        source = GraphSource.named(chosen.graph, chosen.reading)
    else:
        source = GraphSource.named(graph or MIXED, reading)
    experiment = chosen.model_copy(
        update={
            "method": require_method_name(options.method or chosen.method),
            "graph": source.graph,
            "reading": source.reading,
            "perturbation": perturbation or chosen.perturbation,
            "seed": chosen.seed if seed is None else seed,
            "settings": {**chosen.settings, **overrides},
        }
    )
    changed = f", {' '.join(options.settings)}" if options.settings else ""
    return PlannedRun(experiment, f"{settings_from}{changed}")


@command
def train(  # noqa: PLR0913, PLR0917 - groups of options
    session: Session,
    options: SettingsOptions,
    reading: Reading,
    folder: FolderOptions,
    poison: PoisonOptions,
    pruning: PruneOptions,
    scale: ScaleOptions,
    graph: Annotated[
        str | None,
        graph_argument(
            "Data set, .npz, edge table or saved Data.  [default: the embedded mixed graph]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run's folder.  [default: runs/GRAPH-METHOD-SEED, with the perturbation]",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Learn embeddings of a graph; no labels are looked at."""
    if folder.resume and folder.overwrite:
        raise SettingsError("Pass --resume or --overwrite, one of them. Got both.")
    perturbation, prune = poison.described(), pruning.described()
    if folder.resume and graph is None and options.config is None and out is not None:
        config = out / CONFIG  # the folder knows the rest
        if not config.is_file():
            raise RunError(f"There is no run to go on with in {out}. Name a graph to begin one.")
        options = options.model_copy(update={"config": str(config)})
    plan = plan_run(graph, options, reading, session.seed, perturbation)
    # --prune 0 wins over a settings file that prunes.
    changes = scale.changes() | ({} if pruning.prune is None else {"prune": prune})
    plan = replace(plan, experiment=plan.experiment.model_copy(update=changes))
    if plan.experiment.perturbation is not None:  # a budget that its file cannot serve is refused
        with session.screen.activity("Reading the perturbation"):
            from aspect.experiment.run import PerturbedGraph

            plan = plan.on_graph(PerturbedGraph.read(plan.experiment.perturbation))
    record = run_plan(session, plan, out or plan.default_out, folder, scale=scale)
    if record:  # of several processes, the first one has it
        session.screen.answer(record, lambda: _show(session, record))


def run_all(session: Session, plans: Sequence[PlannedRun], *, retrain: bool) -> list[Path]:
    """One run per plan under runs/; those that are complete are taken as they are."""
    folder = FolderOptions(resume=not retrain, overwrite=retrain)
    try:
        for number, plan in enumerate(plans, start=1):
            turn = f"{number} of {len(plans)}: " if len(plans) > 1 else ""
            # It is the same graph, and seldom another method: what there is to say was said.
            run_plan(session, plan, plan.default_out, folder, turn=turn, is_told=number == 1)
    except (RunError, CheckpointError) as error:
        # What `train` calls --overwrite would here replace the file of scores.
        raise type(error)(str(error).replace("--overwrite", "--retrain")) from error
    except KeyboardInterrupt as interrupt:
        without = " without --retrain" if retrain else ""
        raise KeyboardInterrupt(f"Interrupted. The same command{without} goes on.") from interrupt
    return [plan.default_out for plan in plans]


def run_plan(
    session: Session,
    plan: PlannedRun,
    out: Path,
    folder: FolderOptions,
    *,
    turn: str = "",
    is_told: bool = True,
    scale: ScaleOptions | None = None,
) -> dict[str, Any]:
    """Train with progress on the screen; what the record warns of is said as well.

    Args:
        session: The call.
        plan: What is trained.
        out: The run's folder.
        folder: What is done with it.
        turn: Which of several it is.
        is_told: Whether to say what was cleaned in the graph, and what lies ahead.
        scale: Who trains on a store.
    """
    screen = session.screen
    screen.note(f"{turn}Training {plan.title}; settings: {plan.settings_from}.")
    with screen.activity("Starting"):
        from aspect.experiment.trained import RunOptions, train_run

    def note(*sentences: str) -> None:
        screen.notices(sentences if is_told else ())

    try:
        with screen.progress("Epoch") as advance:
            options = RunOptions(
                device=session.device,
                data_dir=session.data_dir,
                settings_from=plan.settings_from,
                on_graph=lambda labelled: note(*labelled.graph.notices),
                on_outlook=note,
                on_epoch=lambda report: advance(
                    report.epoch, report.epochs, f"loss {report.values['loss']:.4f}"
                ),
                **folder.model_dump(),
                **({} if scale is None else scale.model_dump(include=ENGINE)),
            )
            record = train_run(plan.experiment, out, options)
    except KeyboardInterrupt as interrupt:
        begun = (out / CONFIG).is_file()
        again = f"Go on with: {join(['aspect', 'train', '--out', str(out), '--resume'])}"
        then = again if begun else "Nothing was written."
        raise KeyboardInterrupt(f"Interrupted. {then}") from interrupt
    screen.warn(*record.get("warnings", ()))
    return record


def _show(session: Session, record: dict[str, Any]) -> None:
    graph, gate, run = record["graph"], record["gate"], record["run"]
    say = session.screen.say
    # Of the graph that was trained on, perturbed and pruned.
    edges = record.get("perturbation", graph)["edges"] - record.get("prune", {}).get("pruned", 0)
    say(
        f"Trained {record['method']} on {graph['name']} ({graph['nodes']} nodes, "
        f"{edges} edges, {graph['features']} features): "
        f"{counted(record['epochs'], 'epoch')} in {record['seconds']:.1f} s on {record['device']}."
    )
    if gate is not None:
        say(
            f"The gate gives the low band a weight of {gate['mean']:.2f} on average "
            f"(std {gate['std']:.2f})."
        )
    if "health" in record:  # a complete run of version 0.1 has none
        say(health_text(record["health"]))
    if "perturbation" in record:
        poison = record["perturbation"]
        attack = attack_title(poison["kind"], poison["solver"])
        masked = f", {100 * poison['budget']:.4g}% of the feature entries masked"
        say(
            f"The graph was perturbed first by {attack}: {poison['flips']} flips leave "
            f"{poison['edges']} edges{masked if poison['features'] else ''}. It is evaluated on "
            f"{poison['splits']} split {poison['split']} alone."
        )
    if "prune" in record:
        prune = record["prune"]
        what, edges = "Weighed less" if prune["soft"] else "Pruned", prune["edges"]
        reached = reached_text(round(prune["reached"] * edges), edges, prune["ratio"])
        score = edge_score_text(prune["score"], prune["used_score"])
        say(f"{what} before the training: {reached}. {score}")
    say(f"Embeddings, model and record are in {run}.")
    has_labels = graph["classes"] > 1 and "seconds_by_step" not in record  # those of a store
    words = ["evaluate", run] if has_labels else ["embed", run, "--out", "nodes.parquet"]
    say(f"Next: {join(['aspect', *words])}")
