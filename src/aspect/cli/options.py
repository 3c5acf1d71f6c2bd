"""Groups of options that several commands share, and where an answer may be written.

`command` spreads a group out into its options. Wrong places are refused here, before anything heavy
is imported and before all the work.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from aspect.attacks.perturbation import SUFFIX, Budget, Mode, files_at
from aspect.attacks.pruning import DEFAULT, SCORES, Pruning
from aspect.config import Config, Count, Share, parse_overrides
from aspect.data.files import is_file, is_folder, target_of
from aspect.data.source import Metric
from aspect.errors import FileError, SettingsError, reason
from aspect.settings import PerturbedBy, RowSettings, Scale, load_experiment
from aspect.training.files import CONFIG, is_run

Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(
        help="local: processes of this machine; ray: the cluster of $RAY_ADDRESS, or one that is "
        "started here (aspect cluster)."
    ),
]
SplitsName = Literal["random", "published", "class-balanced"]
OutFolder = Annotated[Path, typer.Option("--out", help="Folder to write to.", metavar="DIR")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def is_of_store(run: Path) -> bool:
    """Whether a run was trained on a graph that stays on the disk."""
    from aspect.scale.store import is_store

    graph = load_experiment(run / CONFIG).graph if is_run(run) else None
    if graph is None:
        return False
    # A store that was moved leaves its path; a file of a graph in memory has an ending.
    return is_store(Path(graph)) or (Path(graph).is_absolute() and not Path(graph).suffix)


def check_target(path: Path, *, overwrite: bool, inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse a file that could not be written later, or that would spoil a run or an input."""
    for given in inputs:
        if given is not None and is_file(path) and is_file(Path(given)) and path.samefile(given):
            raise FileError(f"{str(path)!r} is one of the inputs. Choose another --out.")
    if is_folder(path):
        raise FileError(f"Cannot write {str(path)!r}: it is a folder.")
    folder = target_of(path, overwrite).parent
    try:
        if not is_folder(folder):
            folder.stat()
            raise NotADirectoryError(errno.ENOTDIR, str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, str(folder))
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot write {str(path)!r}: {reason(error)}.") from error
    if is_run(folder):
        raise FileError(f"{path} would lie in a run's folder, {folder}. Choose another --out.")


class SettingsOptions(Config):
    """Which method is trained with which settings."""

    method: Annotated[str | None, typer.Option(metavar="NAME")] = None
    """A method of `aspect methods`.  [default: that of the settings file, or aspect]"""
    config: Annotated[str | None, typer.Option(metavar="FILE|NAME")] = None
    """A settings file, `defaults`, `published` or `paper`.  [default: what is shipped for the
    graph]"""
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None
    """Change a setting."""


class FolderOptions(Config):
    """What a run does with its folder."""

    resume: bool = False
    """Go on with a run that was interrupted."""
    overwrite: Overwrite = False
    checkpoint_every: Count = 20
    """Epochs between checkpoints."""
    tensorboard: bool = False
    """Write curves for TensorBoard."""


class ScaleOptions(RowSettings):
    """Whether a step takes the whole graph, and how it is trained on as rows."""

    scale: Scale = "auto"
    """full: the whole graph at every step; rows: batches of nodes whose propagated features lie on
    the disk; auto: rows where the whole does not fit the memory."""

    engine: Engine = "local"
    workers: Count | None = None
    """Processes that share every batch, with --engine ray.  [default: the CPUs or GPUs of the
    cluster]"""
    storage: Annotated[str | None, typer.Option(metavar="URI")] = None
    """Where checkpoints of --engine ray go: a path or URI that all machines see.  [default: the
    run's folder]"""

    def changes(self) -> dict[str, object]:
        """What they change of an experiment; nothing where nothing is said."""
        rows = RowSettings(**self.model_dump(include=set(RowSettings.model_fields)))
        if rows != RowSettings() and self.scale != "rows":
            raise SettingsError(
                "--batch, --queue, --run, --pool, --precision and --projection belong to "
                f"--scale rows. Got --scale {self.scale}."
            )
        if self.scale == "auto":
            return {}
        return {"scale": self.scale, "rows": rows if self.scale == "rows" else None}


class ProbeOptions(Config):
    """What is evaluated, on which nodes the probe is trained and judged, and how."""

    task: Literal["classify", "cluster", "link"] = "classify"
    """classify: a probe of the classes; cluster: k-means, NMI, ARI and silhouette; link: edges held
    out from a training of its own, ROC AUC and average precision."""
    clusters: Annotated[int | None, Field(ge=2)] = None
    """Clusters of --task cluster.  [default: as many as there are classes]"""
    repeats: Annotated[int | None, Field(ge=1)] = None
    """k-means of each run, or sets of held-out edges.  [default: 5 for cluster, 3 for link]"""
    splits: SplitsName | None = None
    """Kind of splits.  [default: random, or that of the perturbation files]"""
    probe: Literal["neutral", "paper", "published"] = "neutral"
    """neutral; paper: the probe of published tables; published: the same as the published settings
    of a run have it."""
    metric: Metric | None = None
    """What validation chooses by; roc-auc needs two classes.  [default: what the data set's authors
    report, else accuracy]"""
    prune: Annotated[list[Share] | None, typer.Option(metavar="RATIO")] = None
    """A further row, embedded without this ratio of the edges at most: those that fit
    their ends least. Of several, validation chooses."""

    def check_task(self) -> None:
        """Refuse options of another task."""
        if self.task == "classify" and self.repeats is not None:
            raise SettingsError("--repeats belongs to --task cluster or link. Got no --task.")
        if self.task != "cluster" and self.clusters is not None:
            raise SettingsError(f"--clusters belongs to --task cluster. Got --task {self.task}.")
        is_probed = self.splits or self.prune or self.metric or self.probe != "neutral"
        if self.task != "classify" and is_probed:
            raise SettingsError(
                "--splits, --probe, --metric and --prune belong to --task classify. "
                f"Got --task {self.task}."
            )


class SeedOptions(Config):
    """Which runs of a graph are made for an evaluation, or what stands in their place."""

    seeds: Annotated[int | None, Field(ge=1)] = None
    """Pre-trainings of a graph, one seed each."""
    retrain: bool = False
    """Replace the graph's runs under runs/."""
    embeddings: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None
    """Train nothing, and probe these embeddings of the graph: .npy or .pt with a row per node, or
    .csv, .tsv or .parquet with ids; seeds of one method."""


class NumbersFile(Config):
    """The file that a measurement leaves."""

    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """File for all numbers as JSON."""
    overwrite: Overwrite = False

    def check(self, inputs: Iterable[str | Path | None] = (), hint: str = "") -> None:
        """Refuse before all the work a file that could not be written after it."""
        if self.out is not None:
            check_target(self.out, overwrite=self.overwrite, inputs=inputs)
        elif self.overwrite:
            raise SettingsError(f"--overwrite replaces the file of --out, and none is named.{hint}")


EdgesOnly = Annotated[
    bool, typer.Option("--edges-only", help="Flip edges, and leave the features unmasked.")
]


def _refuse_run(place: Path) -> None:
    if is_run(place):
        raise FileError(
            f"{place} is a run's folder, and no place of perturbation files. A run on a perturbed "
            f"graph is evaluated by: aspect evaluate {place}."
        )


class PoisonOptions(Config):
    """How the graph is perturbed before it is trained on."""

    perturbation: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """File of `aspect attack`: train on the graph after it."""
    budget: Annotated[Budget | None, typer.Option(metavar="RATIO")] = None
    """Flips of the file, and masked features, as a ratio.  [default: all flips]"""
    edges_only: EdgesOnly = False

    def described(self) -> PerturbedBy | None:
        """The same for an experiment; what is wrong for every graph is refused."""
        if self.perturbation is None:
            if self.budget is not None or self.edges_only:
                given = "--edges-only" if self.budget is None else "--budget"
                raise SettingsError(f"{given} belongs to --perturbation FILE. No file is named.")
            return None
        _refuse_run(self.perturbation)
        if is_folder(self.perturbation):
            raise FileError(
                f"{str(self.perturbation)!r} is a folder, and one training takes one perturbation "
                "file. Name a file in it; all of them are trained on by: "
                "aspect evaluate GRAPH --perturbation FOLDER."
            )
        if not is_file(self.perturbation):
            raise FileError(f"There is no perturbation file at {str(self.perturbation)!r}.")
        file = str(self.perturbation.absolute())
        return PerturbedBy(file=file, budget=self.budget, features=not self.edges_only)


class PruneOptions(Config):
    """Edges that are pruned before the training, and from every graph that is embedded."""

    prune: Annotated[str | None, typer.Option(metavar="RATIO|auto")] = None
    """Ratio of the edges to prune, lowest scores first; auto: as many as join their ends no better
    than chance."""
    prune_score: Annotated[
        str,
        typer.Option(
            help=f"Score of --prune: {', '.join(SCORES)}; ranks of several, joined by +, are "
            "added.",
            metavar="NAME",
        ),
    ] = DEFAULT
    prune_rounds: Count = 1
    """Rounds of --prune, each with new scores."""
    prune_soft: bool = False
    """Lower the weights of these edges in place of pruning them."""

    def described(self) -> Pruning | None:
        """The same for an experiment; what is wrong for every graph is refused."""
        if self.prune is None and self != PruneOptions():
            raise SettingsError(
                "--prune-score, --prune-rounds and --prune-soft belong to --prune RATIO|auto."
            )
        if self.prune is None:
            return None
        ratio = parse_overrides([f"ratio={self.prune}"])["ratio"]
        how = {"score": self.prune_score, "rounds": self.prune_rounds, "soft": self.prune_soft}
        return None if ratio == 0 else Pruning.of({"ratio": ratio, **how})


class SweepOptions(Config):
    """On which perturbed graphs runs are judged, and whether they were trained on them."""

    perturbation: Annotated[list[Path] | None, typer.Option(metavar="FILE|FOLDER")] = None
    """File of `aspect attack`, folder of such files, or pattern in quotes."""
    budget: Annotated[list[Budget] | None, typer.Option(metavar="RATIO")] = None
    """Flips of each file, and masked features, as a ratio.  [default: all flips]"""
    mode: Mode | None = None
    """poison: train and probe on perturbed graphs; evade: do both on the clean one, and test on
    perturbed ones.  [default: poison]"""
    edges_only: EdgesOnly = False

    @property
    def is_given(self) -> bool:
        """Whether any of them is."""
        return self != SweepOptions()

    def check(self, targets: Sequence[str]) -> None:
        """Refuse what is wrong for every target."""
        stray = [target for target in targets if self.perturbation and target.endswith(SUFFIX)]
        if stray:
            raise SettingsError(
                f"{stray[0]!r} is no target. For several perturbation files repeat --perturbation, "
                "name their folder, or put a pattern in quotes."
            )
        for place in self.perturbation or ():
            _refuse_run(place)
            files_at(place)

    def check_clean(self, runs: Sequence[Path]) -> None:
        """Refuse what does not go with a graph, or with runs on a clean one."""
        if self.perturbation is None:
            if self.is_given:
                raise SettingsError(
                    "--budget, --mode and --edges-only belong to --perturbation. "
                    "Name a perturbation file, or a folder of them."
                )
        elif runs and self.mode != "evade":
            raise SettingsError(
                f"{runs[0]} was trained on the clean graph, so it cannot be evaluated as poisoned. "
                "Pass --mode evade to test it on perturbed graphs, or train on these with: "
                "aspect evaluate GRAPH --perturbation FILE."
            )

    def check_poisoned(self, run: Path) -> None:
        """Refuse what a run on a poisoned graph has settled already."""
        if self.model_copy(update={"mode": None}).is_given or self.mode == "evade":
            raise SettingsError(
                f"{run} was trained on a perturbed graph, and is evaluated on that one alone: "
                "--perturbation, --budget, --edges-only and --mode evade do not go with it."
            )
