"""`aspect evaluate` on perturbed graphs: sweeps, evasion, and runs on poisoned graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aspect.cli.options import ProbeOptions
from aspect.cli.perturbation_options import SweepOptions
from aspect.cli.plan import Plan
from aspect.cli.scores import explain, score_text
from aspect.cli.session import Session
from aspect.cli.train import run_all

if TYPE_CHECKING:
    from aspect.data.graph import LabelledGraph
    from aspect.experiment.robustness.result import Robustness
    from aspect.perturbation import FilePerturbation

__all__ = ["PerturbedEvaluation"]


@dataclass(frozen=True)
class PerturbedEvaluation:
    """How perturbed graphs are evaluated, as the command line says."""

    session: Session
    sweep: SweepOptions
    how: ProbeOptions

    def of_graph(self, plans: Sequence[Plan], *, retrain: bool) -> Robustness:
        """Train on the clean graph, and where it is to be poisoned on every perturbed one."""
        evades = self.sweep.mode == "evade"
        with self.session.screen.activity("Starting"):
            perturbations = self._prepare(plans[0], evades=evades)
        poisoned = [
            plan.on_perturbed_graph(each)
            for each in ([] if evades else perturbations)
            for plan in plans
        ]
        self._foretell(len(plans), len(poisoned))
        paths = run_all(self.session, [*plans, *poisoned], retrain=retrain)
        return self._evade(paths, perturbations) if evades else self._poison(paths)

    def of_runs(self, paths: Sequence[Path]) -> Robustness:
        """Test runs on the clean graph by what they make of perturbed ones."""
        with self.session.screen.activity("Starting"):
            from aspect.experiment.runs import open_run

            labelled = open_run(paths[0]).read_graph(self.session.data_dir)
            perturbations = self._read(labelled)
        return self._evade(paths, perturbations)

    def of_poisoned_runs(self, paths: Sequence[Path], poisoned: Path) -> Robustness:
        """Probe each on the split of its file; those on the clean graph tell what was lost."""
        with self.session.screen.activity("Starting"):
            from aspect.experiment.robustness.files import check_kind_of_splits
            from aspect.experiment.runs import open_run

            perturbation = open_run(poisoned).read_perturbation()
            assert perturbation is not None  # its settings say so
            check_kind_of_splits([perturbation], self.how.splits)
        return self._poison(paths)

    def _prepare(self, plan: Plan, *, evades: bool) -> list[FilePerturbation]:
        """Read graph and files, and refuse before the first training what the end would refuse."""
        from aspect.experiment.comparison import chosen_probe
        from aspect.experiment.robustness.evaluation import check_inductive

        if evades:
            check_inductive(plan.experiment.method)
        chosen_probe(plan.experiment, self.how.probe)
        labelled = plan.source.read(self.session.data_dir)
        perturbations = self._read(labelled)
        for each in perturbations:
            each.split_of(labelled)
        return perturbations

    def _read(self, labelled: LabelledGraph) -> list[FilePerturbation]:
        from aspect.experiment.robustness.files import check_kind_of_splits, read_perturbations

        found = read_perturbations(
            self.sweep.perturbation or (),
            labelled,
            budgets=self.sweep.budget or (),
            features=not self.sweep.edges_only,
        )
        check_kind_of_splits(found, self.how.splits)
        return found

    def _foretell(self, clean: int, poisoned: int) -> None:
        if poisoned:
            self.session.screen.note(
                f"{clean + poisoned} trainings: {clean} on the clean graph and {poisoned} on "
                "perturbed ones. What is complete under runs/ is taken from there."
            )

    def _poison(self, paths: Sequence[Path]) -> Robustness:
        from aspect.experiment.robustness.evaluation import evaluate_poisoned

        return self._judge(partial(evaluate_poisoned, paths, doubt=self.how.doubt or ()))

    def _evade(
        self, paths: Sequence[Path], perturbations: Sequence[FilePerturbation]
    ) -> Robustness:
        from aspect.experiment.robustness.evaluation import evaluate_evaded

        return self._judge(partial(evaluate_evaded, paths, perturbations))

    def _judge(self, evaluate: Callable[..., Robustness]) -> Robustness:
        """Evaluate with progress on the screen, and say what the runs warn of."""
        with self.session.screen.progress("Evaluating") as advance:
            found = evaluate(
                probe=self.how.probe,
                device=self.session.device,
                data_dir=self.session.data_dir,
                on_step=advance,
            )
        for warning in found.warnings:
            self.session.screen.warn(warning)
        return found

    def answer(self, found: Robustness) -> tuple[Mapping[str, Any], Callable[[], None]]:
        """What was found, for a program and for people."""
        return found.to_dict(), lambda: self._show(found)

    def _show(self, found: Robustness) -> None:
        """The table, and what its columns mean."""
        screen, first = self.session.screen, found.perturbations[0]
        seeds, counts = len(found.rows[0].perturbed), {len(row.splits) for row in found.rows}
        splits = f"{min(counts)} " if len(counts) == 1 else ""
        title = (
            f"{found.graph} under {found.attack}, mode {found.mode}: strict accuracy in percent "
            f"over {seeds} seed{'s' if seeds > 1 else ''} and {splits}{first.facts.splits} "
            f"split{'' if counts == {1} else 's'}; probe: {found.probe}"
        )
        uneven = ["splits"] if len(counts) > 1 else []
        names = ["method", "budget", *uneven, "clean", "perturbed", "drop", "macro-F1"]
        cells = [_cells(row.to_dict(), has_splits=bool(uneven)) for row in found.rows]
        screen.table(names, cells, title=title)
        masked = " and of feature entries masked" if first.features else ", with all features kept"
        screen.say(f"budget: share of edges flipped{masked}. macro-F1: perturbed.")
        screen.say("drop: (clean - perturbed) / clean of the two means, in percent.")
        explain(screen, [row.name for row in found.rows if row.name != found.method])
        for notice in found.notices:
            screen.say(notice)


def _cells(row: Mapping[str, Any], *, has_splits: bool) -> list[object]:
    drop = "-" if row["drop"] is None else f"{row['drop']:.2f}"
    return [
        row["name"],
        f"{100 * row['budget']:.4g}%",
        *([len(row["splits"])] if has_splits else []),
        score_text(row["clean"]),
        score_text(row["perturbed"]),
        drop,
        score_text(row["macro_f1"]),
    ]
