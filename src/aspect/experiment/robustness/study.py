"""The scores of one evaluation as they come in, and the table that they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from aspect.data.graph import Graph, LabelledGraph
from aspect.evaluation.baselines import MOST_TWIN_NODES, majority_probe, twin_probe
from aspect.evaluation.evasion import evasion_probe
from aspect.evaluation.linear_probe import Probe
from aspect.evaluation.pruning import probe_embeddings
from aspect.evaluation.result import ProbeResult, SplitScore
from aspect.experiment.comparison import MAJORITY, TWINS, check_labels, chosen_probe
from aspect.experiment.robustness.result import PerturbedRow
from aspect.experiment.runs import StoredRun
from aspect.perturbation import FilePerturbation

__all__ = ["CLEAN", "Study"]

CLEAN = 0.0  # the budget of the graph as it is


class Study:
    """Rows by name, on the clean graph and at every budget; each perturbation has one split."""

    def __init__(
        self,
        method: str,
        labelled: LabelledGraph,
        perturbations: Sequence[FilePerturbation],
        probe: Probe,
    ) -> None:
        self.method, self.labelled, self.probe = method, labelled, probe
        self.perturbations = sorted(perturbations, key=lambda each: (each.budget, each.facts.split))
        by_split = {each.facts.split: each for each in self.perturbations}
        self.splits = {number: by_split[number].split_of(labelled) for number in sorted(by_split)}
        self._scores: dict[tuple[str, float], dict[int, dict[int, SplitScore]]] = {}

    @classmethod
    def begin(
        cls,
        runs: Sequence[StoredRun],
        perturbations: Sequence[FilePerturbation],
        probe: str,
        data_dir: str | None,
    ) -> Study:
        """Read the runs' graph, and refuse what speaks against judging them on it."""
        labelled = runs[0].read_graph(data_dir)
        check_labels(labelled, runs[0])
        for each in perturbations:
            each.check(labelled)
        chosen = chosen_probe(runs[0].experiment, probe)
        return cls(runs[0].record["method"], labelled, perturbations, chosen)

    def enter_clean(self, name: str, seed: int, *readings: Tensor) -> tuple[int, ...]:
        """Probe embeddings of the clean graph on all splits; of several, validation chooses.

        Returns:
            The place of the chosen one for each split.
        """
        return self._judge(name, CLEAN, seed, readings, list(self.splits))

    def enter_poisoned(
        self, name: str, seed: int, perturbation: FilePerturbation, *readings: Tensor
    ) -> tuple[int, ...]:
        """The same of a perturbed graph, on the split that it was perturbed for alone."""
        return self._judge(name, perturbation.budget, seed, readings, [perturbation.facts.split])

    def enter_evaded(
        self,
        name: str,
        seed: int,
        perturbation: FilePerturbation,
        clean: Tensor,
        perturbed: Tensor,
    ) -> None:
        """Let the probe learn on clean embeddings, and test it on perturbed ones."""
        number = perturbation.facts.split
        found = evasion_probe(
            clean,
            [perturbed],
            self.labelled.labels,
            [self.splits[number]],
            num_classes=self.labelled.num_classes,
            probe=self.probe,
        )
        self._enter(name, perturbation.budget, seed, {number: found.splits[0]})

    def enter_rule(self, graph: Graph, perturbation: FilePerturbation | None = None) -> None:
        """Let neighbour sets predict, on the clean graph or on a perturbed one."""
        if graph.num_nodes > MOST_TWIN_NODES:
            return
        numbers = list(self.splits) if perturbation is None else [perturbation.facts.split]
        splits = [self.splits[number] for number in numbers]
        labels, classes = self.labelled.labels, self.labelled.num_classes
        scored = twin_probe(graph, labels, splits, num_classes=classes)
        budget = CLEAN if perturbation is None else perturbation.budget
        self._enter(TWINS, budget, 0, dict(zip(numbers, scored.splits, strict=True)))

    def _judge(
        self,
        name: str,
        budget: float,
        seed: int,
        readings: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> tuple[int, ...]:
        splits = [self.splits[number] for number in numbers]
        found, chosen = probe_embeddings(readings, self.labelled, splits, self.probe)
        self._enter(name, budget, seed, dict(zip(numbers, found.splits, strict=True)))
        return chosen

    def _enter(self, name: str, budget: float, seed: int, scores: Mapping[int, SplitScore]) -> None:
        self._scores.setdefault((name, budget), {}).setdefault(seed, {}).update(scores)

    def rows(self) -> list[PerturbedRow]:
        """The table: name by name in the order they were entered, the method first."""
        self._enter_majority()
        names = dict.fromkeys([self.method, *(name for name, _ in self._scores)])
        return [
            PerturbedRow(
                name,
                budget,
                tuple(numbers),
                clean=self._results(name, CLEAN, numbers),
                perturbed=self._results(name, budget, numbers),
            )
            for name in names
            for budget, numbers in self._splits_by_budget().items()
        ]

    def _enter_majority(self) -> None:
        """One class for all nodes: no flip and no mask changes that."""
        labels, classes = self.labelled.labels, self.labelled.num_classes
        found = majority_probe(labels, list(self.splits.values()), num_classes=classes)
        scores = dict(zip(self.splits, found.splits, strict=True))
        for budget in (CLEAN, *self._splits_by_budget()):
            self._enter(MAJORITY, budget, 0, scores)

    def _splits_by_budget(self) -> dict[float, list[int]]:
        found: dict[float, list[int]] = {}
        for each in self.perturbations:
            found.setdefault(each.budget, []).append(each.facts.split)
        return found

    def _results(self, name: str, budget: float, numbers: Sequence[int]) -> dict[int, ProbeResult]:
        """The scores of a row by seed, on these splits; nothing where there are none."""
        classes = self.labelled.num_classes
        return {
            seed: ProbeResult(
                self.probe.name,
                self.probe.choice_name,
                classes,
                tuple(scores[number] for number in numbers),
            )
            for seed, scores in sorted(self._scores.get((name, budget), {}).items())
        }
