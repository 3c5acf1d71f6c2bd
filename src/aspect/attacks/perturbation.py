"""A perturbation: which attack, how much of it, and whether a model is trained on the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from aspect.attacks.registry import (
    AttackInfo,
    AttackName,
    attack_info,
    attack_title,
    masks_features,
)
from aspect.config import Config
from aspect.data.files import is_file, is_folder
from aspect.errors import FileError, SettingsError

if TYPE_CHECKING:  # a plan names perturbations, and needs no torch
    from aspect.attacks.file import PerturbationFile
    from aspect.data.graph import Graph, LabelledGraph

# Poisoned graphs are trained and probed on; evasion perturbs what a trained model then embeds.
Mode = Literal["poison", "evade"]

Budget = Annotated[float, Field(gt=0, le=1)]  # flips per edge of the clean graph

SUFFIX = ".safetensors"  # of perturbation files


class Perturbation(Config):
    """A change of edges and features, made for one split; all methods and seeds meet the same."""

    kind: AttackName
    """The attack that chooses the edges to flip."""
    solver: str = ""
    """Which variant of the attack, where there are several."""
    mode: Mode = "poison"
    """Whether the model is trained on the perturbed graph, or only embeds it."""
    budget: Budget = 0.1
    """Flips per edge of the clean graph, and the rate of the feature mask."""
    features: bool = True
    """Mask features as well; off: edges alone, as always with imported and targeted flips."""

    @model_validator(mode="before")
    @classmethod
    def _some_flips_mask_nothing(cls, given: object) -> object:
        if isinstance(given, dict) and not masks_features(given.get("kind")):
            return {**given, "features": False}
        return given

    @property
    def info(self) -> AttackInfo:
        """What the attack declares."""
        return attack_info(self.kind)

    @property
    def has_file(self) -> bool:
        """Whether its flips come from a perturbation file; others are drawn on the spot."""
        return self.info.stored

    @property
    def attack(self) -> str:
        """The attack in words: `metattack (unrolled)`."""
        return attack_title(self.kind, self.solver)

    @property
    def label(self) -> str:
        """A word for titles: `random 10%`, `metattack (unrolled) 10%`."""
        return f"{self.attack} {100 * self.budget:g}%"

    def apply(
        self, labelled: LabelledGraph, split: int, file: PerturbationFile | None = None
    ) -> Graph:
        """The perturbed graph of one split.

        Without a file the flips are drawn: split and kind alone decide which, so that all methods
        and seeds meet the same graph, and those of a smaller budget are among those of a larger.

        Args:
            labelled: The clean graph.
            split: Number of the split that the perturbation is for.
            file: The flips, where the attack keeps them in a file.
        """
        if file is not None:
            return file.apply(labelled, self.budget, features=self.features)
        if self.has_file:
            raise SettingsError(
                f"The flips of {self.attack} come from a perturbation file, and none is given. "
                "Make one with: aspect attack."
            )
        from aspect.attacks.base import Target, apply_flips, flips_within
        from aspect.attacks.drawn import mask_graph, mask_seed
        from aspect.attacks.registry import find_attack

        graph = labelled.graph
        if self.info.changes == "edges":
            attack = find_attack(self.kind).begin(Target(graph), seed=split)
            graph = apply_flips(graph, attack.find(flips_within(self.budget, graph)))
        seed = mask_seed(self.kind, split)
        return mask_graph(graph, self.budget, seed) if self.features else graph


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
