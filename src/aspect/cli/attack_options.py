"""The options of `aspect attack`, and what can be refused before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from aspect.attacks.names import SUFFIX, AttackKind, Solver
from aspect.cli.options import Overwrite
from aspect.cli.paths import check_target, is_run
from aspect.config import parse_overrides
from aspect.data.files import is_file, is_folder, is_present
from aspect.data.source import GraphSource
from aspect.errors import FileError, SettingsError

__all__ = ["AttackOptions", "BudgetOptions", "FileOptions", "SplitOptions"]

DRAWN_SPLITS = 10  # of every kind but the published ones


class AttackOptions(NamedTuple):
    """How the flips are chosen."""

    kind: Annotated[AttackKind, typer.Option(help="How flips are chosen.")] = "metattack"
    solver: Annotated[
        Solver | None,
        typer.Option(
            help="Inner training of metattack: convex, or the original's.  [default: implicit]"
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting; may be repeated.", metavar="KEY=VALUE"),
    ] = None

    def values(self) -> dict[str, Any]:
        """All settings that are given, the solver among them."""
        values = parse_overrides(self.settings or [])
        if self.solver is not None:
            if self.kind != "metattack":
                raise SettingsError(f"--solver belongs to metattack. Got it with {self.kind!r}.")
            if values.get("solver", self.solver) != self.solver:
                raise SettingsError(
                    f"The solver is given twice: {self.solver!r} and {values['solver']!r}."
                )
            values["solver"] = self.solver
        return values


class BudgetOptions(NamedTuple):
    """How many pairs are flipped."""

    budget: Annotated[
        float | None, typer.Option(help="Flips as a share of the edges.", metavar="SHARE")
    ] = None
    flips: Annotated[
        int | None, typer.Option(help="Flips as a number, in place of --budget.", metavar="N")
    ] = None

    def check(self) -> None:
        """Refuse what is wrong for every graph."""
        if (self.budget is None) == (self.flips is None):
            given = "neither" if self.budget is None else "both"
            raise SettingsError(f"Pass --budget SHARE or --flips N, one of them. Got {given}.")
        if self.budget is not None and not 0 < self.budget <= 1:
            raise SettingsError(f"Attack budget must be a share in (0, 1]. Got {self.budget}.")
        if self.flips is not None and self.flips < 1:
            raise SettingsError(f"Number of flips must be 1 or more. Got {self.flips}.")


class SplitOptions(NamedTuple):
    """Whose training labels the attacker knows."""

    split: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of the split whose training labels are known; may be repeated.",
            metavar="K",
            min=0,
        ),
    ] = None
    all_splits: Annotated[
        bool, typer.Option("--all-splits", help="One attack for every split.")
    ] = False
    splits: Annotated[
        Literal["class-balanced", "random", "published"], typer.Option(help="Kind of splits.")
    ] = "class-balanced"

    def numbers(self) -> list[int] | None:
        """The splits that are meant; None: all of them."""
        if self.all_splits == bool(self.split):
            given = "both" if self.split else "neither"
            raise SettingsError(f"Pass --split K or --all-splits, one of them. Got {given}.")
        if self.all_splits:
            return None
        numbers = list(dict.fromkeys(self.split or []))
        if self.splits != "published" and max(numbers) >= DRAWN_SPLITS:
            raise SettingsError(
                f"Split must be from 0 to {DRAWN_SPLITS - 1}, the {self.splits} splits. "
                f"Got {max(numbers)}."
            )
        return numbers


class FileOptions(NamedTuple):
    """What becomes of a file that is there."""

    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an attack that was interrupted.")
    ] = False
    overwrite: Overwrite = False

    def check(self, out: Path, numbers: Sequence[int] | None, source: GraphSource) -> None:
        """Refuse before all the work what could not be written after it, or would be regretted."""
        if self.resume and self.overwrite:
            raise SettingsError("Pass --resume or --overwrite, one of them. Got both.")
        if numbers is None or len(numbers) > 1:
            _check_folder(out)
            return
        if is_present(out) and not (is_folder(out) or self.resume or self.overwrite):
            raise FileError(
                f"{str(out)!r} exists. Pass --resume to go on with it, --overwrite to replace it, "
                "or choose another --out."
            )
        _check_inputs(out, source)
        check_target(out, overwrite=True)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that could not be made or written later, or that is a run's."""
    if is_present(folder) and not is_folder(folder):
        raise FileError(f"--out must be a folder for several splits. Got the file {str(folder)!r}.")
    if is_folder(folder) and is_run(folder):
        raise FileError(f"{folder} is a run's folder. Choose another --out.")
    nearest = next(each for each in (folder, *folder.parents) if is_present(each))
    check_target(nearest / f"perturbation{SUFFIX}", overwrite=True)


def _check_inputs(out: Path, source: GraphSource) -> None:
    """Refuse to replace the graph by what is made of it."""
    for given in (source.graph, source.reading.nodes):
        if given is not None and is_file(out) and is_file(Path(given)) and out.samefile(given):
            raise FileError(f"{str(out)!r} is one of the inputs. Choose another --out.")
