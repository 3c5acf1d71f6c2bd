"""The options about perturbed graphs, and what can be refused before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from aspect.attacks.files import files_at
from aspect.attacks.perturbation import SUFFIX, Mode
from aspect.cli.paths import is_run
from aspect.data.files import is_file, is_folder
from aspect.errors import FileError, SettingsError
from aspect.settings import PerturbedBy

__all__ = ["PoisonOptions", "SweepOptions"]

EdgesOnly = Annotated[
    bool, typer.Option("--edges-only", help="Flip edges, and leave the features unmasked.")
]


def _check_share(budget: float) -> None:
    if not 0 < budget <= 1:
        raise SettingsError(f"Attack budget must be a share in (0, 1]. Got {budget}.")


def _refuse_run(place: Path) -> None:
    if is_run(place):
        raise FileError(
            f"{place} is a run's folder, and no place of perturbation files. A run on a perturbed "
            f"graph is judged by: aspect evaluate {place}."
        )


class PoisonOptions(NamedTuple):
    """What the graph suffers before it is trained on."""

    perturbation: Annotated[
        Path | None,
        typer.Option(help="File of `aspect attack`: train on the graph after it.", metavar="FILE"),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            help="Flips of the file, and masked features, as a share.  [default: all flips]",
            metavar="SHARE",
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
            _check_share(self.budget)
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
            help="Flips of each file, and masked features, as a share; may be repeated.  "
            "[default: all flips]",
            metavar="SHARE",
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
        for share in self.budget or ():
            _check_share(share)
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
