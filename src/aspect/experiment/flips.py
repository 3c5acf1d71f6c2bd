"""The perturbation files that a bench needs: which are there, and what they do at each budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aspect.attacks.file import AttackFacts, PerturbationFile, find_difference
from aspect.data.files import is_file
from aspect.errors import CheckpointError, GraphError, SettingsError
from aspect.experiment.attack_plan import budgets_by_attack
from aspect.experiment.facts import ReadFacts
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.plan import Plan
from aspect.experiment.record import Cell

__all__ = [
    "Flips",
    "FlipsFile",
    "Slot",
    "WantedFile",
    "find_files",
    "slots_of",
    "wanted_files",
]


class Slot(NamedTuple):
    """What one file serves: a graph, an attack and a split, at all budgets and in both modes."""

    graph: str  # as the plan names it
    kind: str
    solver: str
    split: int


@dataclass(frozen=True)
class WantedFile:
    """A file that cells need, whether it is there or not."""

    graph: str  # as the plan names it
    facts: AttackFacts  # of the attack that makes it, to the largest budget
    budgets: tuple[float, ...]  # rising

    @property
    def slot(self) -> Slot:
        """What it serves."""
        return Slot(self.graph, self.facts.kind, self.facts.solver, self.facts.split)


@dataclass(frozen=True)
class FlipsFile:
    """A file that is there."""

    path: Path
    sha256: Mapping[float, str]  # of all that a budget does, see `PerturbationFile.digest`

    @classmethod
    def of(cls, path: Path, trace: PerturbationFile, budgets: Iterable[float]) -> FlipsFile:
        """What was read from the path, at these budgets."""
        return cls(path, {budget: trace.digest(budget) for budget in budgets})


@dataclass
class Flips:
    """All files of a bench, as far as they are known, and why there is none where it failed."""

    files: dict[Slot, FlipsFile] = field(default_factory=dict)
    errors: dict[Slot, str] = field(default_factory=dict)  # a sentence

    def sha256(
        self, graph: str, perturbation: Perturbation | None, splits: Sequence[int]
    ) -> tuple[str, ...] | None:
        """What is done to the graph, split by split; None where no file tells, or not yet."""
        if perturbation is None:
            return None
        found = [self.files.get(each) for each in _slots(graph, perturbation, splits)]
        known = tuple(each.sha256[perturbation.budget] for each in found if each is not None)
        return known if known and len(known) == len(found) else None

    def paths(self, cell: Cell) -> tuple[Path, ...]:
        """The files of a cell's splits; none where it needs none."""
        return tuple(self.files[slot].path for slot in slots_of(cell) if slot in self.files)

    def error(self, cell: Cell) -> str | None:
        """Why a cell cannot be carried out, in sentences."""
        for slot in slots_of(cell):
            if slot in self.errors:
                return f"The attack for split {slot.split} failed. {self.errors[slot]}"
        return None


def slots_of(cell: Cell) -> list[Slot]:
    """The files that a cell needs."""
    work = cell.work
    return _slots(cell.graph, work.perturbation, work.split_numbers)


def _slots(graph: str, perturbation: Perturbation | None, splits: Sequence[int]) -> list[Slot]:
    if perturbation is None or not perturbation.has_file:
        return []
    return [Slot(graph, perturbation.kind, perturbation.solver, split) for split in splits]


def wanted_files(plan: Plan, facts: Mapping[str, ReadFacts]) -> list[WantedFile]:
    """All that the plan's cells on these graphs need."""
    budgets = budgets_by_attack(plan)
    return [
        WantedFile(graph, attack, budgets[attack.kind, attack.solver])
        for graph, read in facts.items()
        for attack in read.attacks
    ]


def find_files(
    wanted: Iterable[WantedFile], given: Path | None, own: Path
) -> tuple[Flips, list[WantedFile]]:
    """The files that are there, and those that are left to be made.

    A file goes by the name that `aspect attack` gives it. One that is too short counts for none;
    one of another graph, or of another attack than the plan's, is refused.

    Args:
        wanted: What is needed.
        given: Folder to look into first, which is only read.
        own: Folder of the bench itself.
    """
    flips, missing = Flips(), []
    for each in wanted:
        found = None
        if given is not None:
            mend = "Name another folder with --perturbations, or move the file away."
            found = _find(each, given / each.facts.file_name, mend)
        if found is None:
            mend = "Remove it, or choose another --out."
            found = _find(each, own / each.facts.file_name, mend)
        if found is None:
            missing.append(each)
        else:
            flips.files[each.slot] = found
    return flips, missing


def _find(wanted: WantedFile, path: Path, mend: str) -> FlipsFile | None:
    """The file, if it is there and long enough."""
    if not is_file(path):
        return None
    with _mending(mend):
        trace = PerturbationFile.read(path)
        _check(wanted, trace.facts, path)
    if len(trace.keys) < wanted.facts.wanted:
        return None
    return FlipsFile.of(path, trace, wanted.budgets)


@contextmanager
def _mending(mend: str) -> Iterator[None]:
    """Tell after what is wrong what would be right."""
    try:
        yield
    except (CheckpointError, GraphError, SettingsError) as error:
        raise type(error)(f"{error} {mend}") from error


def _check(wanted: WantedFile, found: AttackFacts, path: Path) -> None:
    """Refuse flips of another graph or attack: their scores would not belong into the table."""
    own, other = wanted.facts.graph, found.graph
    if other.sha256 != own.sha256:
        raise GraphError(
            f"{str(path)!r} belongs to another graph than {wanted.graph!r}: its sha256 must be "
            f"{own.sha256[:16]}... Got {other.name!r} with {other.nodes} nodes, {other.edges} "
            f"edges and sha256 {other.sha256[:16]}..."
        )
    # Where and by which version the flips were found changes nothing about what they are.
    difference = find_difference(found, wanted.facts, of_machine=False)
    if difference is not None:
        raise SettingsError(
            f"{str(path)!r} holds another attack than the plan's: its {difference.name} must be "
            f"{difference.now!r}. Got {difference.before!r}."
        )
