"""From a perturbation's description to the perturbed graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from aspect.attacks.base import apply_flips, flips_within
from aspect.attacks.feature_mask import mask_features
from aspect.attacks.file import PerturbationFile
from aspect.attacks.random_flips import random_flips
from aspect.data.graph import Graph, LabelledGraph
from aspect.errors import RunError
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.record import AttackNote
from aspect.randomness import generator_for

__all__ = ["Change", "attack_note", "perturb"]


@dataclass(frozen=True)
class Change:
    """A perturbation of one graph for one split, with the file of its flips if there is one."""

    perturbation: Perturbation
    split: int
    path: Path | None = None  # None: the flips are drawn
    sha256: str | None = None  # of all that the file does at the budget

    def apply(self, labelled: LabelledGraph) -> Graph:
        """The graph after it."""
        perturbation = self.perturbation
        if self.path is None:
            return perturb(labelled.graph, perturbation, self.split)
        features = perturbation.features
        return self._trace().apply(labelled, perturbation.budget, features=features)

    def note(self) -> AttackNote | None:
        """How its flips were found; None where they are drawn."""
        if self.path is None:
            return None
        return attack_note(self._trace(), self.perturbation.budget)

    def _trace(self) -> PerturbationFile:
        """The file, if it still does what it did when the cells were laid out."""
        assert self.path is not None  # asked of a file alone
        trace = PerturbationFile.read(self.path)
        found = trace.digest(self.perturbation.budget)
        if found != self.sha256:
            raise RunError(
                f"{str(self.path)!r} changed since the bench began: the sha256 of its flips up to "
                f"a budget of {self.perturbation.budget:g} must be {self.sha256}. Got {found}. "
                "Run the bench again."
            )
        return trace


def attack_note(trace: PerturbationFile, budget: float) -> AttackNote:
    """What a record tells of the flips of a file, up to a budget."""
    facts = trace.facts
    return AttackNote(
        flips=len(trace.flips(budget)),
        settings=facts.settings,
        seed=facts.seed,
        device=facts.device,
        version=facts.versions.get("aspect", "unknown"),
    )


def perturb(graph: Graph, perturbation: Perturbation, split: int) -> Graph:
    """The graph with flips that are drawn for a split.

    Split and kind alone decide what is drawn: all methods and seeds meet the same graph, and a
    smaller budget's changes are among those of a larger one.
    """
    flips = random_flips(
        graph,
        flips_within(perturbation.budget, graph),
        generator_for(split, "perturbation", perturbation.kind, "edges"),
    )
    flipped = apply_flips(graph, flips)
    if not perturbation.features:
        return flipped
    generator = generator_for(split, "perturbation", perturbation.kind, "features")
    return replace(flipped, features=mask_features(graph.features, perturbation.budget, generator))
