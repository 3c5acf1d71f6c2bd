"""Which attacks a plan needs of a graph: one for each kind, solver and split, for all budgets."""

from __future__ import annotations

import torch

from aspect.attacks.base import flips_within
from aspect.attacks.file import AttackFacts
from aspect.attacks.registry import AttackName
from aspect.attacks.run import AttackRequest, PlannedAttack, plan_attacks
from aspect.data.graph import LabelledGraph
from aspect.errors import AspectError, GraphError
from aspect.experiment.plan import Plan

__all__ = ["budgets_by_attack", "plan_attack_again", "wanted_attacks"]


def budgets_by_attack(plan: Plan) -> dict[tuple[AttackName, str], tuple[float, ...]]:
    """Rising budgets by kind and solver, whatever the mode: one file serves them all."""
    found: dict[tuple[AttackName, str], set[float]] = {}
    for perturbation, _ in plan.planned():
        if perturbation is not None and perturbation.has_file:
            key = (perturbation.kind, perturbation.solver)
            found.setdefault(key, set()).add(perturbation.budget)
    return {key: tuple(sorted(budgets)) for key, budgets in found.items()}


def wanted_attacks(
    plan: Plan, graph: str, name: str, labelled: LabelledGraph, num_splits: int
) -> tuple[AttackFacts, ...]:
    """Each attack as its file will describe it, to the largest budget and with default settings.

    What speaks against an attack beforehand is said here.

    Args:
        plan: What is asked for.
        graph: As the plan names it.
        name: Of the graph, for the files.
        labelled: The graph itself.
        num_splits: The first so many splits.
    """
    attacks: list[AttackFacts] = []
    for (kind, solver), budgets in budgets_by_attack(plan).items():
        request = AttackRequest(
            kind=kind, settings=_settings(solver), budget=budgets[-1], splits=plan.splits
        )
        try:
            for budget in budgets:
                flips_within(budget, labelled.graph)
            planned = plan_attacks(labelled, name, request, range(num_splits), torch.device("cpu"))
        except AspectError as error:
            raise GraphError(f"The graph {graph!r} cannot be attacked. {error}") from error
        attacks += [each.facts for each in planned]
    return tuple(attacks)


def plan_attack_again(
    facts: AttackFacts, labelled: LabelledGraph, device: torch.device
) -> PlannedAttack:
    """The attack that the facts describe, ready to run on a device."""
    request = AttackRequest(
        kind=facts.kind,
        settings=_settings(facts.solver),
        flips=facts.wanted,
        splits=facts.splits,
        seed=facts.seed,
    )
    (planned,) = plan_attacks(labelled, facts.graph.name, request, [facts.split], device)
    return planned


def _settings(solver: str) -> dict[str, str]:
    """All others keep their defaults: a table of record compares methods, not attackers."""
    return {"solver": solver} if solver else {}
