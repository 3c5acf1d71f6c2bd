"""The perturbation file: the flips of an attack in their order, and where they come from.

One safetensors file with a manifest and a digest, as checkpoints are. A flip is one integer,
smaller end * nodes + larger end. The first flips are the attack of a smaller budget, unless the
attack is not nested. Until it is complete, the file also holds what the attack needs to go on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Int
from pydantic import Field, ValidationError
from torch import Tensor

from aspect.attacks.base import apply_flips, flips_of, pairs_of
from aspect.attacks.drawn import mask_graph, mask_seed
from aspect.attacks.perturbation import SUFFIX, Mode, Perturbation, files_at
from aspect.attacks.registry import AttackName, attack_info, attack_title, masks_features
from aspect.config import Config, Count
from aspect.data.archives import content_sha256
from aspect.data.files import is_file, is_present
from aspect.data.graph import MOST_NODES, Graph, LabelledGraph
from aspect.data.sparse import LARGEST_INT32
from aspect.data.splits import Split, SplitKind, make_splits, only_targets, published_sha256
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import (
    CheckpointError,
    FileError,
    GraphError,
    RunError,
    SettingsError,
    counted,
    reason,
    shown,
)
from aspect.provenance import versions

FILE_FORMAT = 1  # raised when an older library could misread what this one writes
FILE_KIND, FLIPS, STATE = "perturbation", "flips", "state/"

WORD = re.compile(r"[a-z0-9]*(-[a-z0-9]+)*")  # what may become part of a folder's name

# What may change between the processes of one attack: budgets are nested, time goes by.
FREE = frozenset({"wanted", "complete", "seconds"})

OF_A_SPLIT = ("split", "seed", "mask_seed")  # what may differ between the files of one attack


class AttackedGraph(Config):
    """The graph that the flips belong to; they mean nothing for another one."""

    name: str  # as the user called it
    sha256: str  # checksum of its edges, features and labels
    nodes: Annotated[int, Field(ge=2, le=MOST_NODES)]
    edges: Count  # undirected ones, before the attack: a budget is a ratio to them


class AttackFacts(Config):
    """Where a list of flips comes from: all that is needed to find the same ones again."""

    graph: AttackedGraph
    kind: AttackName
    solver: str = ""  # which variant of the attack, where there are several
    surrogate: str = ""  # the model that the attacker trains in place of the real one, if any
    settings: dict[str, Any]  # of the attack, in full
    num_classes: int  # of the graph, those without a node included
    splits: SplitKind  # kind of the split whose training labels the attacker knows
    splits_sha256: str | None = None  # of published splits; drawn ones follow from the labels
    split: Annotated[int, Field(ge=0)]  # number of that split
    seed: int  # as given; the split's number is added, so that every split is drawn for itself
    mask_seed: Annotated[int, Field(ge=0, lt=2**63)]  # of the feature mask
    wanted: Count  # flips requested
    complete: bool = False  # whether they are all there
    seconds: float = 0.0  # that the attack took, in all its processes
    device: str  # kind of the device; another one rounds otherwise
    versions: dict[str, str]  # of this package, of Python and of those that numbers depend on

    @classmethod
    def by_split(
        cls,
        labelled: LabelledGraph,
        name: str,
        numbers: Iterable[int],
        *,
        kind: str,
        splits: SplitKind,
        seed: int = 0,
        **told: Any,  # noqa: ANN401 - the fields that the graph and the split do not tell
    ) -> list[AttackFacts]:
        """Of the same attack on a graph, so called, for each of its splits of these numbers."""
        graph, known = labelled.graph, versions()
        attacked = AttackedGraph(
            name=name,
            sha256=content_sha256(labelled),
            nodes=graph.num_nodes,
            edges=graph.num_edges,
        )
        return [
            cls(
                graph=attacked,
                kind=kind,
                num_classes=labelled.num_classes,
                splits=splits,
                splits_sha256=published_sha256(splits, labelled.masks),
                split=number,
                seed=seed,
                mask_seed=mask_seed(kind, seed + number),
                versions=known,
                **told,
            )
            for number in numbers
        ]

    @property
    def attack(self) -> str:
        """The attack in words: `metattack (implicit)`."""
        return attack_title(self.kind, self.solver)

    @property
    def targets(self) -> tuple[int, ...]:
        """Rows of the nodes that are attacked; none: the whole graph is."""
        return tuple(self.settings["targets"]) if attack_info(self.kind).targeted else ()

    @property
    def file_name(self) -> str:
        """What the file is called among those of other graphs, attacks and splits."""
        flips = "" if attack_info(self.kind).nested else f"{self.wanted}-flips"
        return "-".join(filter(None, (self.graph.name, *self.words, flips))) + SUFFIX

    @property
    def words(self) -> tuple[str, ...]:
        """Attack and split, as names of files and folders tell them; one may be empty."""
        return attack_info(self.kind).title, self.solver, self.splits, str(self.split)


@dataclass(eq=False)
class PerturbationFile:
    """Flips in order, with their origin, in memory and on disk."""

    facts: AttackFacts
    keys: Int[Tensor, " flips"] = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    state: Mapping[str, Tensor] = field(default_factory=dict)  # of an attack that has to go on
    path: Path | None = None  # None: in memory alone

    def __post_init__(self) -> None:
        self.kept = 0  # flips on disk, which a kill does not lose
        self._stamp = None if self.path is None else _stamp_of(self.path)

    # From and to disk

    @classmethod
    def read(cls, path: str | Path) -> PerturbationFile:
        """Read what `write` wrote; a damaged file or one of another kind is refused."""
        path = Path(path)
        if not is_file(path):
            raise FileError(f"There is no perturbation file at {str(path)!r}.")
        tensors, manifest = read_tensors(path)
        facts = _facts_of(manifest, path)
        if FLIPS not in tensors:
            raise CheckpointError(f"{path} is damaged: it holds no flips.")
        keys = tensors.pop(FLIPS)
        _check_keys(keys, facts.graph.nodes, path)
        state = {name.removeprefix(STATE): tensor for name, tensor in tensors.items()}
        file = cls(facts, keys.long(), state, path)
        file.kept = len(keys)
        return file

    @classmethod
    def open(
        cls, path: Path, facts: AttackFacts, *, resume: bool = False, overwrite: bool = False
    ) -> PerturbationFile:
        """The file that an attack is to write: empty, or the same attack to go on with.

        What is there is read or refused; nothing is written. With `resume` a missing file is begun;
        with `overwrite` it is replaced as soon as there is something to replace it with.
        """
        if overwrite or not is_present(path):
            return cls(facts, path=path)
        if not resume:
            raise FileError(
                f"{str(path)!r} exists. Pass --resume to go on with it, --overwrite to replace it, "
                "or choose another --out."
            )
        try:
            begun = cls.read(path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} Pass --overwrite to begin anew.") from error
        _check_same(path, begun.facts, facts)
        if begun.facts.complete:
            if begun.facts.wanted < facts.wanted:
                raise RunError(
                    f"{str(path)!r} is complete with {len(begun.keys)} flips, and cannot go on to "
                    f"{facts.wanted}. Pass --overwrite to begin anew, or choose another --out."
                )
            return begun
        begun.keys = begun.keys[: facts.wanted]  # perhaps more than are wanted now
        begun.facts = facts.model_copy(update={"seconds": begun.facts.seconds})
        return begun

    def write(self, path: str | Path | None = None) -> None:
        """Write the file whole or not at all, in place of an older one.

        Without a path its own is written, unless another process did so meanwhile; nothing is if
        it is in memory alone.
        """
        if path is not None:
            self._write(Path(path))
            return
        if self.path is None:
            return
        if _stamp_of(self.path) != self._stamp:
            raise RunError(
                f"Another process has written {str(self.path)!r} meanwhile. "
                "Let one of them end, or choose another --out."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"Cannot write {str(self.path)!r}: {reason(error)}.") from error
        self._write(self.path)
        self._stamp, self.kept = _stamp_of(self.path), len(self.keys)

    def _write(self, path: Path) -> None:
        fits = self.facts.graph.nodes**2 <= LARGEST_INT32
        tensors = {FLIPS: self.keys.to(torch.int32 if fits else torch.int64)}
        tensors |= {f"{STATE}{name}": tensor for name, tensor in self.state.items()}
        manifest = {
            "kind": FILE_KIND,
            "trace_format": FILE_FORMAT,
            "flips": len(self.keys),
            "reached": self.reached,
            "facts": self.facts.model_dump(mode="json"),
        }
        write_tensors(path, tensors, manifest)

    # What it does to its graph

    @property
    def reached(self) -> float:
        """Flips per edge: the largest budget that they serve."""
        return len(self.keys) / self.facts.graph.edges

    def first(self, count: int) -> Int[Tensor, "flips 2"]:
        """So many flips from the beginning, as pairs of nodes, smaller one first."""
        if not 1 <= count <= len(self.keys):
            where, remedy = f", a budget of {self.reached:.3g}", "run a longer attack"
            if self.facts.targets:
                where = f" at {counted(len(self.facts.targets), 'target')}"
                remedy = "leave the budget out"
            raise SettingsError(
                f"This perturbation holds {len(self.keys)} flips{where}. "
                f"Got a budget of {count}: {remedy}."
            )
        return pairs_of(self.keys[:count].long(), self.facts.graph.nodes)

    def flips(self, budget: float) -> Int[Tensor, "flips 2"]:
        """The attack of a budget: a ratio to the clean graph's edges, rounded."""
        count = flips_of(budget, self.facts.graph.edges)
        if attack_info(self.facts.kind).nested:
            return self.first(count)
        if count != self.facts.wanted or not self.facts.complete:
            raise SettingsError(
                f"The flips of {self.facts.attack} at one budget are not the first of a larger "
                f"one's: this perturbation serves {self.facts.wanted} flips alone. Got {count}: "
                "run another attack."
            )
        return self.first(len(self.keys))

    def apply(self, labelled: LabelledGraph, budget: float, *, features: bool = True) -> Graph:
        """The graph perturbed to a budget; features are masked at the same rate, or left alone.

        Flips that are imported or targeted never go with a mask.
        """
        self.check_graph(labelled)
        graph = apply_flips(labelled.graph, self.flips(budget))
        is_masked = features and masks_features(self.facts.kind)
        return mask_graph(graph, budget, self.facts.mask_seed) if is_masked else graph

    def digest(self, budget: float) -> str:
        """Checksum of all that a budget does to a graph: it stays when the attack goes on."""
        content = hashlib.sha256()
        content.update(self.facts.graph.sha256.encode())
        content.update(self.flips(budget).numpy().astype("<i8").tobytes())
        content.update(self.facts.mask_seed.to_bytes(8, "little"))
        return content.hexdigest()

    # Which graph and split it is for

    def check_graph(self, labelled: LabelledGraph) -> None:
        """Refuse a graph that is not the one attacked, be it by a single label."""
        attacked, checksum = self.facts.graph, content_sha256(labelled)
        if checksum != attacked.sha256:
            graph = labelled.graph
            is_alike = (graph.num_nodes, graph.num_edges) == (attacked.nodes, attacked.edges)
            remedy = (
                "Read features and labels as they were read for the attack"
                if is_alike
                else "Attack this one, or name the graph that was attacked"
            )
            raise GraphError(
                f"This perturbation belongs to the graph {attacked.name!r} with {attacked.nodes} "
                f"nodes, {attacked.edges} edges and sha256 {attacked.sha256[:16]}... Got one with "
                f"{graph.num_nodes} nodes, {graph.num_edges} edges and sha256 {checksum[:16]}... "
                f"{remedy}."
            )

    def check(self, labelled: LabelledGraph) -> None:
        """Refuse a graph, or published splits, that the file was not made for; name the file."""
        with self.naming():
            self.check_graph(labelled)
            published = published_sha256(self.facts.splits, labelled.masks)
            if published != self.facts.splits_sha256:
                raise GraphError(
                    "The published splits of this graph are not those that were attacked. "
                    "Attack it again."
                )

    def split_of(self, labelled: LabelledGraph) -> Split:
        """The only split that a model of the perturbed graph may be evaluated on.

        Of a targeted attack, its test nodes are the targets among them.
        """
        facts, labels, masks = self.facts, labelled.labels, labelled.masks
        with self.naming():
            splits = make_splits(
                facts.splits, labels, labelled.num_classes, count=facts.split + 1, masks=masks
            )
            return only_targets(splits[facts.split], facts.targets)

    def perturbation(
        self, budget: float | None = None, *, mode: Mode = "poison", features: bool = True
    ) -> Perturbation:
        """The file up to a budget that it can serve; None: all of its flips."""
        facts = self.facts
        if WORD.fullmatch(facts.solver) is None:
            raise CheckpointError(f"{self.path} names an impossible solver, {facts.solver!r}.")
        with self.naming():
            budget = self._whole_budget() if budget is None else budget
            self.flips(budget)
        return Perturbation(
            kind=facts.kind, solver=facts.solver, mode=mode, budget=budget, features=features
        )

    def _whole_budget(self) -> float:
        """The budget of all flips; what is still to come would change its meaning."""
        facts = self.facts
        if not facts.complete:
            raise SettingsError(
                f"The attack is not complete ({len(self.keys)} of {facts.wanted} flips). Go on "
                f"with it by aspect attack --resume, or pass --budget, up to {self.reached:g}."
            )
        if self.reached > 1:
            raise SettingsError(
                f"It holds {len(self.keys)} flips, more than the {facts.graph.edges} edges. "
                "Pass --budget, up to 1."
            )
        return self.reached if attack_info(facts.kind).nested else facts.wanted / facts.graph.edges

    # What it is called

    def name(self, perturbation: Perturbation) -> str:
        """A word for folders: `metattack-implicit-class-balanced-3-0.1`."""
        edges = "" if perturbation.features else "edges"
        return "-".join(filter(None, (*self.facts.words, f"{perturbation.budget:g}", edges)))

    def title(self, perturbation: Perturbation) -> str:
        """Words for people: `metattack (implicit), class-balanced split 3, 10% (528 flips)`."""
        facts, flips = self.facts, len(self.flips(perturbation.budget))
        alone = "" if perturbation.features else ", edges alone"
        budget = f"{100 * perturbation.budget:.4g}% ({flips} flips)"
        return f"{facts.attack}, {facts.splits} split {facts.split}, {budget}{alone}"

    def to_dict(self, perturbation: Perturbation) -> dict[str, Any]:
        """Plain values for the record of a run."""
        facts = self.facts
        return {
            "file": str(self.path),
            "sha256": self.digest(perturbation.budget),
            "mode": perturbation.mode,
            "kind": facts.kind,
            "solver": facts.solver,
            "splits": facts.splits,
            "split": facts.split,
            "seed": facts.seed,
            "budget": perturbation.budget,
            "flips": len(self.flips(perturbation.budget)),
            "features": perturbation.features,
        }

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Begin an error with the file that it is about."""
        try:
            yield
        except (GraphError, SettingsError) as error:
            raise type(error)(f"{self.path}: {error}") from error


def _facts_of(manifest: Mapping[str, Any], path: Path) -> AttackFacts:
    """What the manifest says; a newer one is named before anything is called damaged."""
    if manifest.get("kind") != FILE_KIND:
        kind = manifest.get("kind", "file of another kind")
        raise CheckpointError(f"{path} is not a perturbation but a {kind}.")
    number = manifest.get("trace_format")
    if isinstance(number, int) and number > FILE_FORMAT:
        raise CheckpointError(
            f"{path} has perturbation format {number}, newer than this version reads "
            f"({FILE_FORMAT}). Upgrade aspect-gcl."
        )
    try:
        return AttackFacts.model_validate(manifest.get("facts"))
    except ValidationError as error:
        first = error.errors()[0]
        told = first.get("ctx", {}).get("error")
        if isinstance(told, SettingsError):  # an attack from outside that is not here
            raise CheckpointError(f"{path} cannot be read here. {told}") from error
        where = ".".join(str(part) for part in first["loc"]) or "all"
        raise CheckpointError(
            f"{path} is damaged: its manifest does not tell where the flips come from ({where})."
        ) from error


def _check_keys(keys: Tensor, num_nodes: int, path: Path) -> None:
    """Refuse numbers that are no pairs: the file may come from anywhere."""
    if keys.ndim != 1 or keys.dtype not in (torch.int32, torch.int64):
        raise CheckpointError(
            f"{path} must hold flips as one list of integers. "
            f"Got {keys.dtype} of shape {list(keys.shape)}."
        )
    keys = keys.long()
    low, high = keys // num_nodes, keys % num_nodes
    wrong = int(((low < 0) | (low >= high)).sum())
    if wrong or len(torch.unique(keys)) < len(keys):
        raise CheckpointError(
            f"{path} must hold different pairs of nodes 0 to {num_nodes - 1}, smaller one first. "
            f"Got {wrong} that are none, and {len(keys) - len(torch.unique(keys))} twice."
        )


def _check_same(path: Path, before: AttackFacts, now: AttackFacts) -> None:
    """Refuse to go on with another attack; the first difference is named."""
    if before.graph.sha256 != now.graph.sha256:
        raise GraphError(
            f"{str(path)!r} belongs to another graph, {before.graph.name!r} with sha256 "
            f"{before.graph.sha256[:16]}... Got {now.graph.name!r} with {now.graph.sha256[:16]}... "
            "Choose another --out, or pass --overwrite."
        )
    difference = find_difference(before, now, of_machine=not before.complete)
    if difference is not None:
        device = f"Pass --device {before.device}, c" if difference.name == "device" else "C"
        raise RunError(
            f"{str(path)!r} holds another attack, with {difference.name} {difference.before!r}. "
            f"Got {difference.now!r}. {device}hoose another --out, or pass --overwrite."
        )


class Difference(NamedTuple):
    """What two attacks on one graph differ in."""

    name: str  # as a user knows it: `split`, `setting ridge`
    before: object
    now: object


def find_difference(
    before: AttackFacts, now: AttackFacts, *, of_machine: bool, ignored: Sequence[str] = ()
) -> Difference | None:
    """The first thing that makes the flips of two attacks on one graph differ.

    The budget does not, if nested. Device and versions decide how sums are rounded: they count
    where there is more to find (`of_machine`). Facts that are `ignored` do not count.
    """
    free = {*FREE, "graph", *ignored} - (set() if attack_info(before.kind).nested else {"wanted"})
    first, second = (_decisive(facts, free, of_machine=of_machine) for facts in (before, now))
    for name in dict.fromkeys([*first, *second]):
        if first.get(name) != second.get(name):
            return Difference(name, first.get(name), second.get(name))
    return None


def _decisive(facts: AttackFacts, free: set[str], *, of_machine: bool) -> dict[str, Any]:
    """All that decides the flips, each under a name that a user knows."""
    values = facts.model_dump(mode="json", exclude=free)
    values |= {f"setting {name}": value for name, value in values.pop("settings", {}).items()}
    versions, device = values.pop("versions"), values.pop("device")
    if of_machine:
        values |= {"device": device, **{f"{name} version": versions[name] for name in versions}}
    return values


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is replaced; None without one."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


# Several files of one graph, which make up one evaluation


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
    if is_file(place):
        yield PerturbationFile.read(place.absolute())
        return
    paths = [path.absolute() for path in files_at(place) if _is_perturbation(path)]
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


def _is_perturbation(path: Path) -> bool:
    """Whether a file is one by its manifest; what is damaged is refused, not overlooked."""
    _, manifest = read_tensors(path)
    return manifest.get("kind") == FILE_KIND


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
            f"These perturbations were made for {attacked} splits, and can be evaluated on those "
            f"alone. Got --splits {kind}."
        )


def check_one_attack(files: Sequence[PerturbationFile]) -> None:
    """Refuse files whose scores would not belong into one mean."""
    first = files[0]
    for other in files[1:]:
        facts = other.facts
        if (facts.kind, facts.solver) != (first.facts.kind, first.facts.solver):
            parent = Path() if other.path is None else other.path.parent
            pattern = f"*-{'-'.join(filter(None, facts.words[:2]))}-*"
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
