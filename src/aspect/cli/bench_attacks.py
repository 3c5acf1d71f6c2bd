"""The part of `aspect bench` before its cells: perturbation files, found or made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aspect.cli.console import duration
from aspect.cli.session import Session
from aspect.data.files import is_folder
from aspect.errors import FileError

if TYPE_CHECKING:
    from aspect.experiment.attacking import Attacking, AttackProgress
    from aspect.experiment.placement import Placement

__all__ = ["PerturbationCounts", "attack", "find_folder"]

DEFAULT = Path("results") / "perturbations"


@dataclass(frozen=True)
class PerturbationCounts:
    """What became of the files that a plan needs."""

    found: int
    made: int
    failed: int  # before, unless they are tried again, and now


def find_folder(given: Path | None) -> Path | None:
    """The folder to look for perturbation files in; None where there is none."""
    if given is None:
        return DEFAULT if is_folder(DEFAULT) else None
    if not is_folder(given):
        raise FileError(f"--perturbations must be a folder. There is none at {str(given)!r}.")
    return given


def attack(session: Session, attacking: Attacking, placement: Placement) -> None:
    """Make the files that are missing, with progress on the screen."""
    from aspect.experiment.attacking import make_file

    count = len(attacking.tasks)
    if not count:
        return
    session.screen.note(
        f"{_files(count)} must be made first, into {attacking.folder.perturbations}."
    )
    work = partial(make_file, data_dir=session.data_dir, device=placement.kind)
    try:
        with (
            session.screen.progress("Flips", guesses_time=False) as advance,
            closing(attacking.run(placement.processes(), work)) as news,
        ):
            for now in news:
                advance(now.flips, now.wanted, _word(now))
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(
            f"Interrupted. {attacking.made} of {_files(count)} are made. The same command goes on."
        ) from interrupt
    _say_failed(session, list(attacking.flips.errors.values()))


def _say_failed(session: Session, errors: Sequence[str]) -> None:
    if errors:
        session.screen.warn(
            f"{_files(len(errors))} could not be made, and the cells that need them fail. "
            f"The first: {errors[0]}"
        )


def _files(count: int) -> str:
    return f"{count} perturbation file{'' if count == 1 else 's'}"


def _word(now: AttackProgress) -> str:
    failed = f", {now.failed} failed" if now.failed else ""
    left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)} left"
    return f"{now.made} of {now.files} files, {now.running} running{failed}{left}"
