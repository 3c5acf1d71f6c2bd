"""Several perturbation files of one graph: found in folders, checked to make up one evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aspect.attacks.file import AttackFacts, PerturbationFile, find_difference, is_perturbation
from aspect.attacks.files import files_at
from aspect.data.archives import content_sha256
from aspect.data.files import is_file
from aspect.data.graph import LabelledGraph
from aspect.data.splits import SplitKind
from aspect.errors import GraphError, SettingsError, shown
from aspect.perturbation import FilePerturbation, attack_of, check_trace

__all__ = ["check_kind_of_splits", "check_one_attack", "read_perturbations"]

OF_A_SPLIT = ("split", "seed", "mask_seed")  # what may differ between the files of one attack


def read_perturbations(
    places: Sequence[str | Path],
    labelled: LabelledGraph,
    *,
    budgets: Sequence[float] = (),
    features: bool = True,
) -> list[FilePerturbation]:
    """Every file at every budget, by budget and split; they are of one attack, a file per split.

    Args:
        places: Files, which must belong to the graph; folders and patterns such as `flips/cora-*`,
            of whose files those count that do.
        labelled: The clean graph.
        budgets: Shares of the edges; none: all flips of the files, which must be equally many.
        features: Mask features as well.
    """
    files = {path: trace for place in places for path, trace in _traces(Path(place), labelled)}
    for path, trace in files.items():
        check_trace(path, trace, labelled)
    check_one_attack({path: trace.facts for path, trace in files.items()})
    wanted: list[float | None] = [*dict.fromkeys(budgets)] or [None]
    found = [
        FilePerturbation.of(path, trace, budget, features=features)
        for budget in wanted
        for path, trace in files.items()
    ]
    if not budgets:
        _check_equally_long(found)
    _check_one_per_split(found)
    return sorted(found, key=lambda each: (each.budget, each.facts.split))


def _traces(place: Path, labelled: LabelledGraph) -> Iterator[tuple[Path, PerturbationFile]]:
    """The files that a place stands for, by their absolute paths."""
    if is_file(place):
        yield place.absolute(), PerturbationFile.read(place)
        return
    paths = [path.absolute() for path in files_at(place) if is_perturbation(path)]
    checksum = content_sha256(labelled)
    traces = {path: PerturbationFile.read(path) for path in paths}
    own = {path: each for path, each in traces.items() if each.facts.graph.sha256 == checksum}
    if not own:
        others = sorted({repr(each.facts.graph.name) for each in traces.values()})
        told = f" Those there belong to {shown(others)}." if others else ""
        raise GraphError(
            f"{str(place)!r} holds no perturbation file of this graph, whose sha256 is "
            f"{checksum[:16]}...{told} Make some with: "
            "aspect attack GRAPH --budget SHARE --all-splits --out FOLDER."
        )
    yield from own.items()


def check_kind_of_splits(found: Sequence[FilePerturbation], wanted: SplitKind | None) -> None:
    """Refuse to judge on other splits than those whose training labels were attacked."""
    own = found[0].facts.splits
    if wanted not in (None, own):
        raise SettingsError(
            f"These perturbations were made for {own} splits, and can be judged on those alone. "
            f"Got --splits {wanted}."
        )


def check_one_attack(attacks: Mapping[Path, AttackFacts]) -> None:
    """Refuse files whose scores would not belong into one mean."""
    (path, first), *others = attacks.items()
    for other, facts in others:
        if (facts.kind, facts.solver) != (first.kind, first.solver):
            raise SettingsError(
                f"Perturbations that are evaluated together must be of one attack. {path} is of "
                f"{attack_of(first)}, {other} of {attack_of(facts)}. Name the files of one, or a "
                f"pattern in quotes such as {str(other.parent / _pattern(facts))!r}."
            )
        drawn = {name: getattr(first, name) for name in OF_A_SPLIT}
        found = find_difference(first, facts.model_copy(update=drawn), of_machine=False)
        if found is not None:
            raise SettingsError(
                f"Perturbations that are evaluated together must have the same {found.name}. "
                f"{path} has {found.before!r}, {other} has {found.now!r}."
            )


def _pattern(facts: AttackFacts) -> str:
    words = [word for word in (facts.kind, facts.solver) if word]
    return f"*-{'-'.join(words)}-*"


def _check_equally_long(found: Sequence[FilePerturbation]) -> None:
    shortest, longest = (choose(found, key=lambda each: each.budget) for choose in (min, max))
    if shortest.budget < longest.budget:
        raise SettingsError(
            f"The files go to different budgets: {shortest.path} to {shortest.budget:g}, "
            f"{longest.path} to {longest.budget:g}. Pass --budget, up to the smaller one."
        )


def _check_one_per_split(found: Sequence[FilePerturbation]) -> None:
    seen: dict[tuple[float, int], FilePerturbation] = {}
    for each in found:
        other = seen.setdefault((each.budget, each.facts.split), each)
        if other is not each:
            raise SettingsError(
                f"There must be one perturbation file for a split. Split {each.facts.split} has "
                f"{other.path} and {each.path}."
            )
