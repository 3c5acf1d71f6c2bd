"""Groups of options that several commands share, and where an answer may be written.

`command` spreads a group out into its options. Wrong places are refused here, before anything heavy
is imported and before all the work.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import typer

from aspect.attacks.perturbation import SUFFIX, Mode, files_at
from aspect.cli.console import Screen
from aspect.data.files import is_file, is_folder, is_present, reason, target_of
from aspect.data.source import Reading
from aspect.errors import FileError, SettingsError, UnknownNameError
from aspect.settings import PerturbedBy

__all__ = [
    "CONFIG",
    "CommonOptions",
    "FolderOptions",
    "OutFolder",
    "Overwrite",
    "PoisonOptions",
    "ProbeOptions",
    "ReadingOptions",
    "ScoreOptions",
    "SeedOptions",
    "SettingsOptions",
    "SweepOptions",
    "check_budget",
    "check_ratio",
    "check_target",
    "is_run",
    "with_old_name",
]

# Of a run's folder; `aspect.training.folder`, which writes them, is too heavy for a wrong name.
CONFIG = "config.yaml"
SIGNS_OF_A_RUN = ("start.json", "metrics.jsonl", "checkpoint.safetensors", "record.json")
PROBES = ("neutral", "paper", "published")

OutFolder = Annotated[Path, typer.Option("--out", help="Folder to write to.", metavar="DIR")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def is_run(folder: Path) -> bool:
    """Whether a run lives there, complete or not."""
    return is_file(folder / CONFIG) and any(is_present(folder / name) for name in SIGNS_OF_A_RUN)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that could not be written later, or that would spoil a run."""
    target = target_of(path, overwrite)
    folder = target.parent
    if is_folder(target):
        raise FileError(f"Cannot write {str(path)!r}: it is a folder.")
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


class CommonOptions(NamedTuple):
    """The options of every command."""

    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object on standard output, and nothing else."),
    ] = False
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or cuda:N.  [default: the GPU if there is one]", metavar="NAME"
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of first weights and of every draw in training.", min=0),
    ] = None
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with the files of named data sets.  [default: $ASPECT_DATA]"),
    ] = None
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of an error.")
    ] = False


class SettingsOptions(NamedTuple):
    """Which method is trained with which settings."""

    method: Annotated[
        str | None,
        typer.Option(
            help="A method of `aspect methods`.  [default: that of the settings file, or aspect]",
            metavar="NAME",
        ),
    ] = None
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="A settings file, `defaults`, `published` or `paper`.  "
            "[default: what is shipped for the graph]",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting; may be repeated.", metavar="KEY=VALUE"),
    ] = None


class FolderOptions(NamedTuple):
    """What a run does with its folder."""

    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False
    overwrite: Overwrite = False
    checkpoint_every: Annotated[
        int, typer.Option(help="Epochs between checkpoints.", metavar="N", min=1)
    ] = 20
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves for TensorBoard.")
    ] = False


class ProbeOptions(NamedTuple):
    """On which nodes the probe is trained and judged, and how."""

    splits: Annotated[
        Literal["random", "published", "class-balanced"] | None,
        typer.Option(help="Kind of splits.  [default: random, or that of the perturbation files]"),
    ] = None
    probe: Annotated[
        str,
        typer.Option(
            help="neutral; paper: the probe of published tables; published: the same as the "
            "published settings of a run have it.",
            metavar="NAME",
        ),
    ] = "neutral"
    prune: Annotated[
        list[float] | None,
        typer.Option(
            help="A further row, embedded without this ratio of the edges, those with the least "
            "support; may be repeated, and validation chooses.",
            metavar="RATIO",
        ),
    ] = None
    doubt: Annotated[list[float] | None, typer.Option(hidden=True)] = None

    def checked(self, screen: Screen) -> ProbeOptions:
        """Refuse ratios that are none, and unknown probes; old names become new ones."""
        prune = with_old_name(screen, self.prune, self.doubt)
        for ratio in prune or ():
            check_ratio(ratio)
        if self.probe == "ours":
            raise SettingsError(
                "The probe of version 0.1, --probe ours, is called paper now. Pass --probe paper, "
                "or leave it out for the neutral probe."
            )
        if self.probe not in PROBES:
            raise UnknownNameError("probe", self.probe, PROBES)
        return self._replace(prune=prune, doubt=None)


def check_ratio(ratio: float) -> None:
    """Refuse what is no ratio of edges to prune."""
    if not 0 <= ratio < 1:
        raise SettingsError(
            f"--prune must be a ratio of the edges, at least 0 and below 1. Got {ratio}."
        )


Given = TypeVar("Given")


def with_old_name(screen: Screen, prune: Given, doubt: Given) -> Given:
    """What `--prune` says; what `--doubt` says, its name until version 0.2, with a warning."""
    if not doubt:
        return prune
    screen.warn("--doubt is called --prune now, and will be refused by the next version.")
    return prune or doubt


class SeedOptions(NamedTuple):
    """Which runs of a graph are made for an evaluation."""

    seeds: Annotated[
        int | None, typer.Option(help="Pre-trainings of a graph, one seed each.", min=1)
    ] = None
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Replace the graph's runs under runs/.")
    ] = False


class ScoreOptions(NamedTuple):
    """The file that an evaluation leaves."""

    out: Annotated[
        Path | None, typer.Option(help="File for the scores as JSON.", metavar="FILE")
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of scores.")] = (
        False
    )

    def check(self) -> None:
        """Refuse before all the work what could not be written after it."""
        if self.out is not None:
            check_target(self.out, overwrite=self.overwrite)
        elif self.overwrite:
            raise SettingsError(
                "--overwrite replaces the file of --out, and none is named. "
                "Pass --retrain to replace runs."
            )


class ReadingOptions(Reading):
    """How the files of a graph are read; the options are the fields of `Reading`."""

    def reading(self) -> Reading:
        """The same as the library takes it."""
        return Reading(**self.model_dump())


EdgesOnly = Annotated[
    bool, typer.Option("--edges-only", help="Flip edges, and leave the features unmasked.")
]


def check_budget(budget: float) -> None:
    """Refuse what is no budget."""
    if not 0 < budget <= 1:
        raise SettingsError(f"Attack budget must be a ratio in (0, 1]. Got {budget}.")


def _refuse_run(place: Path) -> None:
    if is_run(place):
        raise FileError(
            f"{place} is a run's folder, and no place of perturbation files. A run on a perturbed "
            f"graph is judged by: aspect evaluate {place}."
        )


class PoisonOptions(NamedTuple):
    """How the graph is perturbed before it is trained on."""

    perturbation: Annotated[
        Path | None,
        typer.Option(help="File of `aspect attack`: train on the graph after it.", metavar="FILE"),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            help="Flips of the file, and masked features, as a ratio.  [default: all flips]",
            metavar="RATIO",
        ),
    ] = None
    edges_only: EdgesOnly = False

    def described(self) -> PerturbedBy | None:
        """The same for an experiment; what is wrong for every graph is refused."""
        if self.perturbation is None:
            if self.budget is not None or self.edges_only:
                given = "--edges-only" if self.budget is None else "--budget"
                raise SettingsError(f"{given} belongs to --perturbation FILE. No file is named.")
            return None
        if self.budget is not None:
            check_budget(self.budget)
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


class SweepOptions(NamedTuple):
    """On which perturbed graphs runs are judged, and whether they were trained on them."""

    perturbation: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of `aspect attack`, folder of such files, or pattern in quotes; may be "
            "repeated.",
            metavar="FILE|FOLDER",
        ),
    ] = None
    budget: Annotated[
        list[float] | None,
        typer.Option(
            help="Flips of each file, and masked features, as a ratio; may be repeated.  "
            "[default: all flips]",
            metavar="RATIO",
        ),
    ] = None
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="poison: train and probe on perturbed graphs; evade: do both on the clean one, "
            "and test on perturbed ones.  [default: poison]"
        ),
    ] = None
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
        for budget in self.budget or ():
            check_budget(budget)
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
                f"{runs[0]} was trained on the clean graph, so it cannot be judged as poisoned. "
                "Pass --mode evade to test it on perturbed graphs, or train on these with: "
                "aspect evaluate GRAPH --perturbation FILE."
            )

    def check_poisoned(self, run: Path) -> None:
        """Refuse what a run on a poisoned graph has settled already."""
        if self._replace(mode=None).is_given or self.mode == "evade":
            raise SettingsError(
                f"{run} was trained on a perturbed graph, and is judged on that one alone: "
                "--perturbation, --budget, --edges-only and --mode evade do not go with it."
            )
