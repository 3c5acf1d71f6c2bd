"""What is done to a graph in a cell of the grid, and how a plan asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from aspect.attacks.names import AttackKind, Mode, Solver, attack_title
from aspect.config import Config, Count

__all__ = [
    "AnyPerturbation",
    "Budget",
    "Perturbation",
    "PlannedPerturbation",
]

Budget = Annotated[float, Field(gt=0, le=1)]  # a share of the edges

CLEAN_WORD = "none"  # the perturbation of a clean graph, in a plan


class Perturbation(Config):
    """One change of edges and features, made for one split; all methods and seeds meet the same."""

    kind: AttackKind
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
        """Whether its flips come from a perturbation file; random ones are drawn on the spot."""
        return self.kind != "random"

    @property
    def label(self) -> str:
        """A word for titles: `random 10%`, `metattack (unrolled) 10%`."""
        return f"{attack_title(self.kind, self.solver)} {100 * self.budget:g}%"


class PlannedPerturbation(Config):
    """One kind of perturbation at one or several budgets."""

    kind: AttackKind
    solver: Literal[Solver, ""] = ""
    """Of metattack, and of nothing else. There is no default: the tables of record use `unrolled`,
    the original's, and `aspect attack` begins with `implicit`, so that either would surprise."""
    mode: Mode = "poison"
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1)] = (0.1,)
    features: bool = True
    seeds: Count = 1
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


def _from_word(given: object) -> object:
    """None for the word of a clean graph; no other word is one."""
    if isinstance(given, str) and given != CLEAN_WORD:
        raise ValueError(f"must be {CLEAN_WORD!r}, or tell kind and budgets")
    return None if given == CLEAN_WORD else given


def _to_word(planned: PlannedPerturbation | None, write: SerializerFunctionWrapHandler) -> object:
    return CLEAN_WORD if planned is None else write(planned)


# None: the graph as it is; `none` in a file.
AnyPerturbation = Annotated[
    PlannedPerturbation | None, BeforeValidator(_from_word), WrapSerializer(_to_word)
]
