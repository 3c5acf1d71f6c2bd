"""The perturbation file: the flips of an attack in their order, and where they come from.

One safetensors file with a manifest and a digest, as checkpoints are. A flip is one integer,
smaller end * nodes + larger end. Since the order is that of the attack, the first flips are the
attack of a smaller budget; the features are masked by a seed, nested across rates. An attack that
was interrupted keeps what it needs to go on in the same file, until it is complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Int
from pydantic import Field, ValidationError
from torch import Tensor

from aspect.attacks.budget import flips_of
from aspect.attacks.feature_mask import mask_features
from aspect.attacks.flips import apply_flips
from aspect.attacks.names import SUFFIX, AttackKind
from aspect.config import Config, Count
from aspect.data.archives import content_sha256
from aspect.data.files import is_file
from aspect.data.graph import MOST_NODES, Features, Graph, LabelledGraph
from aspect.data.sparse import LARGEST_INT32
from aspect.data.splits import SplitKind
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import CheckpointError, FileError, GraphError, SettingsError

__all__ = [
    "TRACE_FORMAT",
    "AttackFacts",
    "AttackKind",
    "AttackedGraph",
    "Trace",
    "is_perturbation",
]

TRACE_FORMAT = 1  # raised when an older library could misread what this one writes
FILE_KIND, FLIPS, STATE = "perturbation", "flips", "state/"


class AttackedGraph(Config):
    """The graph that the flips belong to; they mean nothing for another one."""

    name: str
    """As the user called it."""
    sha256: str
    """Checksum of its edges, features and labels."""
    nodes: Annotated[int, Field(ge=2, le=MOST_NODES)]
    """How many there are."""
    edges: Count
    """Undirected ones, before the attack: a budget is a share of them."""


class AttackFacts(Config):
    """Where a list of flips comes from: all that is needed to find the same ones again."""

    graph: AttackedGraph
    """What was attacked."""
    kind: AttackKind
    """How the flips are chosen."""
    solver: str = ""
    """Which variant of the kind, where there are several."""
    surrogate: str = ""
    """The model that the attacker trains in place of the real one, where there is one."""
    settings: dict[str, Any]
    """Of the attack, in full."""
    num_classes: int
    """Classes of the graph, those without a node included."""
    splits: SplitKind
    """Kind of the split whose training labels the attacker knows."""
    splits_sha256: str | None = None
    """Checksum of published splits; drawn ones follow from the labels."""
    split: Annotated[int, Field(ge=0)]
    """Number of that split."""
    seed: int
    """As given; the split's number is added, so that every split is drawn for itself."""
    mask_seed: Annotated[int, Field(ge=0, lt=2**63)]
    """Seed of the feature mask."""
    wanted: Count
    """Flips asked for."""
    complete: bool = False
    """Whether they are all there."""
    seconds: float = 0.0
    """Time that the attack took, in all its processes."""
    device: str
    """Kind of the device; another one rounds otherwise."""
    versions: dict[str, str]
    """Of this package, of Python and of the packages that numbers depend on."""

    @property
    def file_name(self) -> str:
        """What the file is called among those of other graphs, attacks and splits."""
        words = [self.graph.name, self.kind, self.solver, self.splits, str(self.split)]
        return "-".join(word for word in words if word) + SUFFIX


@dataclass(frozen=True, eq=False)
class Trace:
    """Flips in order, with their origin; `Trace.read` and `write` are its way from and to disk."""

    facts: AttackFacts
    keys: Int[Tensor, " flips"]  # smaller end * nodes + larger end
    state: Mapping[str, Tensor] = field(default_factory=dict)  # of an attack that has to go on

    @property
    def reached(self) -> float:
        """The flips as a share of the edges: the largest budget that they serve."""
        return len(self.keys) / self.facts.graph.edges

    def first(self, count: int) -> Int[Tensor, "flips 2"]:
        """So many flips from the beginning, as pairs of nodes, smaller one first."""
        if not 1 <= count <= len(self.keys):
            raise SettingsError(
                f"This perturbation holds {len(self.keys)} flips, a budget of {self.reached:.3g}. "
                f"Got a wish for {count}: run a longer attack."
            )
        keys = self.keys[:count].long()
        return torch.stack([keys // self.facts.graph.nodes, keys % self.facts.graph.nodes], dim=1)

    def flips(self, share: float) -> Int[Tensor, "flips 2"]:
        """The attack of a budget: a share of the clean graph's edges, rounded."""
        return self.first(flips_of(share, self.facts.graph.edges))

    def apply(self, labelled: LabelledGraph, budget: float, *, features: bool = True) -> Graph:
        """The graph perturbed to a budget; features are masked at the same rate, or left alone."""
        self.check_graph(labelled)
        perturbed = apply_flips(labelled.graph, self.flips(budget))
        if not features:
            return perturbed
        return replace(perturbed, features=self.mask(perturbed.features, budget))

    def mask(self, features: Features, rate: float) -> Features:
        """The features without a share `rate` of their entries, about; masks nest over rates."""
        generator = torch.Generator().manual_seed(self.facts.mask_seed)
        return mask_features(features, rate, generator)

    def digest(self, budget: float) -> str:
        """Checksum of all that a budget does to a graph: it stays when the attack goes on."""
        content = hashlib.sha256()
        content.update(self.facts.graph.sha256.encode())
        content.update(self.flips(budget).numpy().astype("<i8").tobytes())
        content.update(self.facts.mask_seed.to_bytes(8, "little"))
        return content.hexdigest()

    def check_graph(self, labelled: LabelledGraph) -> None:
        """Refuse a graph that is not the one attacked, be it by a single label."""
        own, checksum = self.facts.graph, content_sha256(labelled)
        if checksum != own.sha256:
            graph = labelled.graph
            is_alike = (graph.num_nodes, graph.num_edges) == (own.nodes, own.edges)
            mend = (
                "Read features and labels as they were read for the attack"
                if is_alike
                else "Attack this one, or name the graph that was attacked"
            )
            raise GraphError(
                f"This perturbation belongs to the graph {own.name!r} with {own.nodes} nodes, "
                f"{own.edges} edges and sha256 {own.sha256[:16]}... Got one with "
                f"{graph.num_nodes} nodes, {graph.num_edges} edges and sha256 {checksum[:16]}... "
                f"{mend}."
            )

    def write(self, path: str | Path) -> None:
        """Write the file whole or not at all, in place of an older one."""
        fits = self.facts.graph.nodes**2 <= LARGEST_INT32
        tensors = {FLIPS: self.keys.to(torch.int32 if fits else torch.int64)}
        tensors |= {f"{STATE}{name}": tensor for name, tensor in self.state.items()}
        manifest = {
            "kind": FILE_KIND,
            "trace_format": TRACE_FORMAT,
            "flips": len(self.keys),
            "reached": self.reached,
            "facts": self.facts.model_dump(mode="json"),
        }
        write_tensors(Path(path), tensors, manifest)

    @classmethod
    def read(cls, path: str | Path) -> Trace:
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
        return cls(facts, keys.long(), state)


def is_perturbation(path: Path) -> bool:
    """Whether a file is one by its own words; what is damaged is refused, not overlooked."""
    _, manifest = read_tensors(path)
    return manifest.get("kind") == FILE_KIND


def _facts_of(manifest: Mapping[str, Any], path: Path) -> AttackFacts:
    """What the manifest says; a newer one is named before anything is called damaged."""
    if manifest.get("kind") != FILE_KIND:
        kind = manifest.get("kind", "file of another kind")
        raise CheckpointError(f"{path} is not a perturbation but a {kind}.")
    number = manifest.get("trace_format")
    if isinstance(number, int) and number > TRACE_FORMAT:
        raise CheckpointError(
            f"{path} has perturbation format {number}, newer than this version reads "
            f"({TRACE_FORMAT}). Upgrade aspect-gcl."
        )
    try:
        return AttackFacts.model_validate(manifest.get("facts"))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "all"
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
