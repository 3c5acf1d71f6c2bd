"""What was found on perturbed graphs: a row for every method and budget, with the drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aspect.attacks.perturbation import Mode
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.protocol import Evaluation
from aspect.evaluation.result import ProbeResult
from aspect.experiment.comparison import plain_spread
from aspect.perturbation import FilePerturbation, attack_of

__all__ = ["PerturbedRow", "Robustness"]


@dataclass(frozen=True)
class PerturbedRow:
    """One line of the table: a method at a budget, on the clean and on the perturbed graph."""

    name: str
    budget: float
    splits: tuple[int, ...]  # their numbers, in the order of the scores
    clean: Mapping[int, ProbeResult]  # by seed; empty where no clean run was given
    perturbed: Mapping[int, ProbeResult]  # by seed

    @property
    def drop(self) -> float | None:
        """What the perturbation takes: (clean - perturbed) / clean of the means, in percent."""
        before, after = _evaluation(self.clean), _evaluation(self.perturbed)
        if before is None or after is None or before.strict.mean == 0:
            return None
        return PERCENT * (before.strict.mean - after.strict.mean) / before.strict.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values in percent, those of every seed and split among them."""
        clean, perturbed = _evaluation(self.clean), _evaluation(self.perturbed)
        assert perturbed is not None  # a row is made of scores
        return {
            "name": self.name,
            "budget": self.budget,
            "splits": list(self.splits),
            "clean": plain_spread(clean.strict if clean else None),
            "perturbed": plain_spread(perturbed.strict),
            "drop": self.drop,
            "macro_f1": plain_spread(perturbed.macro_f1),
            "clean_macro_f1": plain_spread(clean.macro_f1 if clean else None),
            "optimistic": plain_spread(perturbed.optimistic),
            "validation": plain_spread(perturbed.validation),
            "scores": self._scores(self.perturbed),
            "clean_scores": self._scores(self.clean),
        }

    def _scores(self, results: Mapping[int, ProbeResult]) -> list[dict[str, Any]]:
        return [
            {"seed": seed, "split": number, **asdict(score)}
            for seed, result in results.items()
            for number, score in zip(self.splits, result.splits, strict=True)
        ]


def _evaluation(results: Mapping[int, ProbeResult]) -> Evaluation | None:
    return Evaluation(tuple(results.values())) if results else None


@dataclass(frozen=True)
class Robustness:
    """Runs of one method on one graph under one attack, beside the controls under the same."""

    graph: str
    method: str
    mode: Mode
    probe: str  # neutral, paper or published
    runs: tuple[str, ...]  # folders, those on the clean graph among them
    perturbations: tuple[FilePerturbation, ...]  # by budget and split
    rows: tuple[PerturbedRow, ...]  # the runs' method first; budgets ascending
    notices: tuple[str, ...]  # what a reader must know beside the numbers
    warnings: tuple[str, ...]  # what the runs themselves warn of

    @property
    def attack(self) -> str:
        """How the flips were chosen, in words."""
        return attack_of(self.perturbations[0].facts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first = self.perturbations[0]
        return {
            "graph": self.graph,
            "method": self.method,
            "mode": self.mode,
            "kind": first.facts.kind,
            "solver": first.facts.solver,
            "splits": first.facts.splits,
            "features": first.features,
            "probe": self.probe,
            "runs": list(self.runs),
            "perturbations": [each.to_dict(self.mode) for each in self.perturbations],
            "rows": [row.to_dict() for row in self.rows],
            "notices": list(self.notices),
            "warnings": list(self.warnings),
        }
