"""How far a run moves when the graph that it was trained on is perturbed a little."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aspect.attacks.trace import Trace
from aspect.data.graph import LabelledGraph
from aspect.errors import RunError, SettingsError
from aspect.evaluation.stability import study_stability
from aspect.evaluation.stability_request import DEFAULT_BUDGETS, StabilityRequest
from aspect.evaluation.stability_result import Stability
from aspect.evaluation.stability_terms import JudgedSplits
from aspect.experiment.robustness.files import check_kind_of_splits, read_perturbations
from aspect.experiment.runs import StoredRun, open_run
from aspect.perturbation import FilePerturbation, attack_of

__all__ = ["RunStability", "study_run"]

OnStep = Callable[[int, int, str], object]  # steps done, of how many, and what comes now


def _ignore(done: int, total: int, word: str) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True)
class RunStability:
    """A run and what was found."""

    run: str  # folder
    graph: str
    found: Stability
    files: tuple[str, ...]  # perturbation files that were used
    notices: tuple[str, ...]  # what a reader must know beside the numbers
    warnings: tuple[str, ...]  # what the run itself warns of

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "run": self.run,
            "graph": self.graph,
            **self.found.to_dict(),
            "perturbations": list(self.files),
            "notices": list(self.notices),
            "warnings": list(self.warnings),
        }


def study_run(
    path: str | Path,
    request: StabilityRequest | None = None,
    *,
    perturbations: Sequence[str | Path] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep = _ignore,
) -> RunStability:
    """Load a complete run, and study its model on perturbations of the graph it was trained on.

    A run on a poisoned graph is compared with itself on that graph, and judged on the split that
    it was poisoned for alone.

    Args:
        path: The run's folder.
        request: What is asked; all kinds at the usual budgets if nothing is.
        perturbations: Files, folders or patterns of files of `aspect attack`.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Told how far it is.
    """
    stored, request = open_run(path), request or StabilityRequest()
    model = stored.load_model(device)
    given = _Given.of(stored, request, perturbations, data_dir)
    found = study_stability(
        model,
        given.labelled,
        given.request,
        traces=given.traces,
        judged=given.judged,
        name=stored.record["graph"]["name"],
        on_step=on_step,
    )
    return RunStability(
        run=str(stored.path),
        graph=stored.record["graph"]["name"],
        found=found,
        files=given.files,
        notices=(*given.notices, *found.notices),
        warnings=tuple(stored.record["warnings"]),
    )


@dataclass(frozen=True, eq=False)
class _Given:
    """What a run and perturbation files fix beforehand."""

    labelled: LabelledGraph  # as it was trained on
    request: StabilityRequest
    traces: Mapping[str, Mapping[int, Trace]]  # by title and split
    judged: JudgedSplits | None = None  # None: for the request to choose
    files: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        stored: StoredRun,
        request: StabilityRequest,
        places: Sequence[str | Path],
        data_dir: str | None,
    ) -> _Given:
        labelled, poison = stored.read_graph(data_dir), stored.read_perturbation()
        if poison is not None:
            return cls._poisoned(stored, labelled, poison, request, places)
        if not places:
            return cls(labelled, request, {})
        return cls._attacked(labelled, request, places)

    @classmethod
    def _poisoned(
        cls,
        stored: StoredRun,
        labelled: LabelledGraph,
        poison: FilePerturbation,
        request: StabilityRequest,
        places: Sequence[str | Path],
    ) -> _Given:
        """The poisoned graph is the reference, and its split the only one that counts."""
        if places or request.num_splits is not None:
            option = "--perturbation" if places else "--num-splits"
            raise RunError(
                f"{stored.path} was trained on a perturbed graph, {poison.title}. Changes start "
                f"from that one, and are judged on its split alone: {option} does not go with it."
            )
        check_kind_of_splits([poison], request.splits)
        notice = (
            f"The run was trained on a perturbed graph ({poison.title}), which counts as the clean "
            "one here; it is judged on the split of that perturbation alone."
        )
        return cls(
            replace(labelled, graph=poison.apply(labelled)),
            request,
            {},
            JudgedSplits(poison.facts.splits, (poison.facts.split,)),
            notices=(notice,),
        )

    @classmethod
    def _attacked(
        cls, labelled: LabelledGraph, request: StabilityRequest, places: Sequence[str | Path]
    ) -> _Given:
        """Attacks from files, on the splits that they were made for."""
        largest = (request.budgets or DEFAULT_BUDGETS)[-1:]  # its flips hold those of the others
        attacks: dict[str, list[str | Path]] = {}
        for place in places:
            first = read_perturbations([place], labelled, budgets=largest, features=False)[0]
            attacks.setdefault(attack_of(first.facts), []).append(place)
        found = {
            title: read_perturbations(own, labelled, budgets=largest, features=False)
            for title, own in attacks.items()
        }
        every = [each for own in found.values() for each in own]
        kind = request.splits or every[0].facts.splits
        for own in found.values():
            check_kind_of_splits(own, kind)
        numbers = _numbers(every, request)
        traces = {
            title: {each.facts.split: each.trace for each in own if each.facts.split in numbers}
            for title, own in found.items()
        }
        return cls(
            labelled,
            request,
            {title: own for title, own in traces.items() if own},
            JudgedSplits(kind, numbers),
            files=tuple(
                dict.fromkeys(str(each.path) for each in every if each.facts.split in numbers)
            ),
        )


def _numbers(every: Sequence[FilePerturbation], request: StabilityRequest) -> tuple[int, ...]:
    """The splits of the files, or the first of them."""
    numbers = sorted({each.facts.split for each in every})
    wanted = request.num_splits or len(numbers)
    if wanted > len(numbers):
        raise SettingsError(
            f"The perturbation files are for {len(numbers)} splits. Got --num-splits {wanted}."
        )
    return tuple(numbers[:wanted])
