"""What is done to a graph in a cell of the grid, and how a plan asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from aspect.config import Config

__all__ = [
    "NONE",
    "AnyPerturbation",
    "Budget",
    "Kind",
    "Mode",
    "Perturbation",
    "PlannedPerturbation",
    "Solver",
]

# Random flips are drawn on the spot; the others are attacks, and come from perturbation files.
Kind = Literal["random", "metattack", "dice"]

Solver = Literal["", "implicit", "unrolled"]

# Poisoned graphs are trained and probed on; evasion perturbs what a trained model then embeds.
Mode = Literal["poison", "evade"]

Budget = Annotated[float, Field(gt=0, le=1)]  # a share of the edges

NONE: Literal["none"] = "none"  # the perturbation of a clean graph, in a plan


class Perturbation(Config):
    """One change of edges and features, made for one split; all methods and seeds meet the same."""

    kind: Kind
    """How the edges to flip are chosen."""
    solver: str = ""
    """Which variant of the kind, where there are several."""
    mode: Mode = "poison"
    """Whether the model is trained on the perturbed graph, or only embeds it."""
    budget: Budget = 0.1
    """Flips as a share of the edges, and masked entries as a share of the features."""
    features: bool = True
    """Mask features as well; off: edges alone."""

    @property
    def has_file(self) -> bool:
        """Whether its flips come from a perturbation file."""
        return self.kind != "random"

    @property
    def label(self) -> str:
        """A word for titles: `random 10%`, `metattack (unrolled) 10%`."""
        solver = f" ({self.solver})" if self.solver else ""
        return f"{self.kind}{solver} {100 * self.budget:g}%"


class PlannedPerturbation(Config):
    """One kind of perturbation at one or several budgets."""

    kind: Kind
    solver: Solver = ""
    """Of metattack, and of nothing else. There is no default: the tables of record use `unrolled`,
    the original's, and `aspect attack` begins with `implicit`, so that either would surprise."""
    mode: Mode = "poison"
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1)] = (0.1,)
    features: bool = True
    seeds: Annotated[int, Field(ge=1)] = 1
    """At most so many pre-training seeds; a perturbation of its own for every split is one run."""

    @model_validator(mode="after")
    def _solver_is_metattacks(self) -> PlannedPerturbation:
        if self.kind == "metattack" and not self.solver:
            raise ValueError(
                "metattack must name its solver: unrolled (the original's) or implicit (stronger)"
            )
        if self.kind != "metattack" and self.solver:
            raise ValueError(f"{self.kind} has no solver: leave it out")
        return self

    def each(self) -> Iterator[Perturbation]:
        """One for every budget."""
        shared = self.model_dump(exclude={"budgets", "seeds"})
        for budget in self.budgets:
            yield Perturbation(**shared, budget=budget)


def _form(given: object) -> str:
    """Which of the two is meant, so that only its own rules are told where it breaks them."""
    return "word" if isinstance(given, str) else "described"


AnyPerturbation = Annotated[
    Annotated[Literal["none"], Tag("word")] | Annotated[PlannedPerturbation, Tag("described")],
    Discriminator(_form),
]
