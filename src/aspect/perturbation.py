"""A perturbation file at a budget: what it does to its graph, and on which split that counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aspect.attacks.file import AttackFacts, PerturbationFile
from aspect.attacks.perturbation import Mode
from aspect.attacks.registry import attack_title
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, make_splits, published_sha256
from aspect.errors import CheckpointError, GraphError, RunError, SettingsError
from aspect.settings import PerturbedBy

__all__ = ["FilePerturbation", "attack_of", "check_trace"]

WORD = re.compile(r"[a-z0-9]*(-[a-z0-9]+)*")  # what may become part of a folder's name


@dataclass(frozen=True, eq=False)
class FilePerturbation:
    """A perturbation file up to a budget; `read` and `of` refuse a budget that it cannot serve."""

    path: Path  # absolute
    trace: PerturbationFile
    budget: float  # flips as a share of the edges, and the rate of the feature mask
    features: bool  # masked as well; else edges alone
    sha256: str  # of all that the budget does, see `PerturbationFile.digest`

    @classmethod
    def read(cls, wanted: PerturbedBy) -> FilePerturbation:
        """Read the file that an experiment names; one that changed since is refused."""
        path = Path(wanted.file)
        own = cls.of(path, PerturbationFile.read(path), wanted.budget, features=wanted.features)
        if wanted.sha256 not in (None, own.sha256):
            raise RunError(
                f"{own.path} is not the file that these settings were made with: the sha256 of its "
                f"first {own.num_flips} flips must be {str(wanted.sha256)[:16]}... "
                f"Got {own.sha256[:16]}... Bring that file back, or train anew on this one "
                "with --perturbation."
            )
        return own

    @classmethod
    def of(
        cls, path: Path, trace: PerturbationFile, budget: float | None, *, features: bool = True
    ) -> FilePerturbation:
        """A file that was read, up to a budget; None: all of its flips."""
        path = path.absolute()
        if WORD.fullmatch(trace.facts.solver) is None:
            raise CheckpointError(f"{path} names an impossible solver, {trace.facts.solver!r}.")
        with _naming(path):
            share = _all_of(trace) if budget is None else budget
            return cls(path, trace, share, features, trace.digest(share))

    @property
    def facts(self) -> AttackFacts:
        """Where the flips come from."""
        return self.trace.facts

    @property
    def num_flips(self) -> int:
        """Flips within the budget."""
        return len(self.trace.flips(self.budget))

    @property
    def name(self) -> str:
        """A word for folders: `metattack-implicit-class-balanced-3-0.1`."""
        facts = self.facts
        words = [facts.kind, facts.solver, facts.splits, str(facts.split), f"{self.budget:g}"]
        return "-".join(word for word in (*words, "" if self.features else "edges") if word)

    @property
    def title(self) -> str:
        """Words for people: `metattack (implicit), class-balanced split 3, 10% (528 flips)`."""
        facts = self.facts
        alone = "" if self.features else ", edges alone"
        share = f"{100 * self.budget:.4g}% ({self.num_flips} flips)"
        return f"{attack_of(facts)}, {facts.splits} split {facts.split}, {share}{alone}"

    @property
    def described(self) -> PerturbedBy:
        """The same for a run's settings, in full."""
        return PerturbedBy(
            file=str(self.path), budget=self.budget, features=self.features, sha256=self.sha256
        )

    def check(self, labelled: LabelledGraph) -> None:
        """Refuse a graph, or published splits, that the file was not made for."""
        check_trace(self.path, self.trace, labelled)

    def apply(self, labelled: LabelledGraph) -> Graph:
        """The graph after it."""
        self.check(labelled)
        return self.trace.apply(labelled, self.budget, features=self.features)

    def split_of(self, labelled: LabelledGraph) -> Split:
        """The only split that a model of this perturbed graph may be judged on."""
        facts = self.facts
        with _naming(self.path):
            splits = make_splits(
                facts.splits,
                labelled.labels,
                labelled.num_classes,
                count=facts.split + 1,
                masks=labelled.masks,
            )
        return splits[facts.split]

    def to_dict(self, mode: Mode) -> dict[str, Any]:
        """Plain values for a record."""
        facts = self.facts
        return {
            "file": str(self.path),
            "sha256": self.sha256,
            "mode": mode,
            "kind": facts.kind,
            "solver": facts.solver,
            "splits": facts.splits,
            "split": facts.split,
            "seed": facts.seed,
            "budget": self.budget,
            "flips": self.num_flips,
            "features": self.features,
        }


def check_trace(path: Path, trace: PerturbationFile, labelled: LabelledGraph) -> None:
    """Refuse a file that was not made for this graph, or for its published splits."""
    facts = trace.facts
    with _naming(path):
        trace.check_graph(labelled)
        if published_sha256(facts.splits, labelled.masks) != facts.splits_sha256:
            raise GraphError(
                "The published splits of this graph are not those that were attacked. "
                "Attack it again."
            )


def _all_of(trace: PerturbationFile) -> float:
    """The budget of all flips; what is still to come would change its meaning."""
    facts = trace.facts
    if not facts.complete:
        raise SettingsError(
            f"The attack is not complete ({len(trace.keys)} of {facts.wanted} flips). Go on with "
            f"it by aspect attack --resume, or pass --budget, up to {trace.reached:g}."
        )
    if trace.reached > 1:
        raise SettingsError(
            f"It holds {len(trace.keys)} flips, more than the {facts.graph.edges} edges. "
            "Pass --budget, up to 1."
        )
    return trace.reached


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Tell which of several files an error is about."""
    try:
        yield
    except (GraphError, SettingsError) as error:
        raise type(error)(f"{path}: {error}") from error


def attack_of(facts: AttackFacts) -> str:
    """How the flips were chosen, in words."""
    return attack_title(facts.kind, facts.solver)
