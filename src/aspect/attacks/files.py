"""Several perturbation files of one graph: found in folders, checked to make up one evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aspect.attacks.perturbation import SUFFIX
from aspect.data.files import is_file, is_folder
from aspect.errors import FileError, GraphError, SettingsError, shown

if TYPE_CHECKING:  # a wrong place can be refused without torch
    from aspect.attacks.file import PerturbationFile
    from aspect.data.graph import LabelledGraph
    from aspect.data.splits import SplitKind

__all__ = [
    "check_kind_of_splits",
    "check_one_attack",
    "common_budgets",
    "files_at",
    "read_files",
]

OF_A_SPLIT = ("split", "seed", "mask_seed")  # what may differ between the files of one attack


def files_at(place: Path) -> list[Path]:
    """The files of a file's path, a folder or a pattern in the last part of a path, sorted."""
    if is_file(place):
        return [place]
    if is_folder(place):
        paths = sorted(path for path in place.glob(f"*{SUFFIX}") if is_file(path))
        if not paths:
            raise FileError(f"The folder {str(place)!r} holds no perturbation files (*{SUFFIX}).")
        return paths
    if not is_folder(place.parent) or not set("*?[") & set(place.name):
        raise FileError(f"There is no perturbation file or folder at {str(place)!r}.")
    paths = sorted(path for path in place.parent.glob(place.name) if is_file(path))
    if not paths:
        raise FileError(f"No file fits the pattern {str(place)!r}.")
    return paths


def read_files(places: Sequence[str | Path], labelled: LabelledGraph) -> list[PerturbationFile]:
    """The perturbation files of one attack on one graph, a file per split, by split.

    Files that are named must belong to the graph; of folders and patterns such as `flips/cora-*`
    those files count that do.
    """
    by_path = {file.path: file for place in places for file in _files(Path(place), labelled)}
    files = list(by_path.values())
    for file in files:
        file.check(labelled)
    check_one_attack(files)
    by_split: dict[int, PerturbationFile] = {}
    for file in files:
        other = by_split.setdefault(file.facts.split, file)
        if other is not file:
            raise SettingsError(
                f"There must be one perturbation file for a split. Split {file.facts.split} has "
                f"{other.path} and {file.path}."
            )
    return [by_split[split] for split in sorted(by_split)]


def _files(place: Path, labelled: LabelledGraph) -> Iterator[PerturbationFile]:
    """The files at a place, with absolute paths."""
    from aspect.attacks.file import PerturbationFile, is_perturbation
    from aspect.data.archives import content_sha256

    if is_file(place):
        yield PerturbationFile.read(place.absolute())
        return
    paths = [path.absolute() for path in files_at(place) if is_perturbation(path)]
    files, checksum = [PerturbationFile.read(path) for path in paths], content_sha256(labelled)
    fitting = [file for file in files if file.facts.graph.sha256 == checksum]
    if not fitting:
        others = sorted({repr(file.facts.graph.name) for file in files})
        told = f" Those there belong to {shown(others)}." if others else ""
        raise GraphError(
            f"{str(place)!r} holds no perturbation file of this graph, whose sha256 is "
            f"{checksum[:16]}...{told} Make some with: "
            "aspect attack GRAPH --budget RATIO --all-splits --out FOLDER."
        )
    yield from fitting


def common_budgets(
    files: Sequence[PerturbationFile], budgets: Sequence[float] = ()
) -> tuple[float, ...]:
    """Rising budgets that all files can serve; none given: all flips, which must be as many."""
    if budgets:
        for budget in sorted(set(budgets)):
            for file in files:
                file.perturbation(budget)
        return tuple(sorted(set(budgets)))
    rising = sorted(files, key=lambda file: file.perturbation().budget)
    least, most = (file.perturbation().budget for file in (rising[0], rising[-1]))
    if least < most:
        raise SettingsError(
            f"The files go to different budgets: {rising[0].path} to {least:g}, "
            f"{rising[-1].path} to {most:g}. Pass --budget, up to the smaller one."
        )
    return (least,)


def check_kind_of_splits(files: Sequence[PerturbationFile], kind: SplitKind | None) -> None:
    """Refuse to evaluate on other splits than those whose training labels were attacked."""
    attacked = files[0].facts.splits
    if kind not in (None, attacked):
        raise SettingsError(
            f"These perturbations were made for {attacked} splits, and can be judged on those "
            f"alone. Got --splits {kind}."
        )


def check_one_attack(files: Sequence[PerturbationFile]) -> None:
    """Refuse files whose scores would not belong into one mean."""
    from aspect.attacks.file import find_difference

    first = files[0]
    for other in files[1:]:
        facts = other.facts
        if (facts.kind, facts.solver) != (first.facts.kind, first.facts.solver):
            parent = Path() if other.path is None else other.path.parent
            pattern = f"*-{'-'.join(filter(None, (facts.kind, facts.solver)))}-*"
            raise SettingsError(
                f"Perturbations that are evaluated together must be of one attack. {first.path} is "
                f"of {first.facts.attack}, {other.path} of {facts.attack}. Name the files of one, "
                f"or a pattern in quotes such as {str(parent / pattern)!r}."
            )
        difference = find_difference(first.facts, facts, of_machine=False, ignored=OF_A_SPLIT)
        if difference is not None:
            raise SettingsError(
                f"Perturbations that are evaluated together must have the same {difference.name}. "
                f"{first.path} has {difference.before!r}, {other.path} has {difference.now!r}."
            )
