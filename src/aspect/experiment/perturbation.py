"""What is done to a graph in a cell of the grid, and how a plan asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from aspect.attacks.perturbation import Budget, Mode, Perturbation
from aspect.attacks.registry import AttackName, check_solver
from aspect.config import Config, Count

__all__ = [
    "AnyPerturbation",
    "Budget",
    "Perturbation",
    "PlannedPerturbation",
]

CLEAN_WORD = "none"  # the perturbation of a clean graph, in a plan


class PlannedPerturbation(Config):
    """One kind of perturbation at one or several budgets."""

    kind: AttackName
    solver: str = ""
    """Where the attack has several. There is no default: the tables of record use `unrolled`,
    the original's, and `aspect attack` begins with `implicit`, so that either would surprise."""
    mode: Mode = "poison"
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1)] = (0.1,)
    features: bool = True
    seeds: Count = 1
    """At most so many pre-training seeds; a perturbation of its own for every split is one run."""

    @model_validator(mode="after")
    def _solver_is_the_attacks(self) -> PlannedPerturbation:
        check_solver(self.kind, self.solver)
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
