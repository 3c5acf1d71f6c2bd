"""How far a run's model moves when the graph that it was trained on is perturbed a little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aspect.attacks.file import (
    PerturbationFile,
    check_kind_of_splits,
    common_budgets,
    read_files,
)
from aspect.data.graph import LabelledGraph
from aspect.data.splits import SplitKind
from aspect.errors import RunError, SettingsError
from aspect.evaluation.stability import OnStep, StabilityResult, study_stability
from aspect.evaluation.stability_request import DEFAULT_BUDGETS, StabilityRequest
from aspect.experiment.trained import StoredRun, open_run

__all__ = ["RunStability", "study_run"]


@dataclass(frozen=True)
class RunStability:
    """A run and the stability of its model."""

    run: str  # folder
    graph: str
    result: StabilityResult
    files: tuple[str, ...]  # perturbation files that were used
    notices: tuple[str, ...]  # what a reader must know beside the numbers
    warnings: tuple[str, ...]  # what the run itself warns of

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "run": self.run,
            "graph": self.graph,
            **asdict(self.result),
            "perturbations": list(self.files),
            "notices": list(self.notices),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, eq=False)
class _Given:
    """What a run and perturbation files fix beforehand."""

    labelled: LabelledGraph  # as it was trained on
    files: dict[str, list[PerturbationFile]] = field(default_factory=dict)  # by attack
    splits: SplitKind | None = None  # of the files; None: for the request to choose
    numbers: tuple[int, ...] | None = None  # of their splits
    notices: tuple[str, ...] = ()


def study_run(
    path: str | Path,
    request: StabilityRequest | None = None,
    *,
    perturbations: Sequence[str | Path] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: OnStep | None = None,
) -> RunStability:
    """Load a complete run, and study its model on perturbations of the graph it was trained on.

    A run on a poisoned graph is compared with itself on that graph, and evaluated on the split that
    it was poisoned for alone.

    Args:
        path: The run's folder.
        request: What is requested; the default kinds at the usual budgets if nothing is.
        perturbations: Files, folders or patterns of files of `aspect attack`.
        device: Where embeddings are computed and probed.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_step: Called with how far it is.
    """
    stored, request = open_run(path), request or StabilityRequest()
    model, labelled = stored.load_model(device), stored.read_graph(data_dir)
    given = _poisoned(stored, labelled, request, perturbations)
    if given is None:
        given = _attacked(labelled, request, perturbations)
    graph = stored.record["graph"]["name"]
    result = study_stability(
        model,
        given.labelled,
        replace(request, splits=given.splits or request.splits),
        files=given.files,
        split_numbers=given.numbers,
        on_step=on_step,
    )
    used = [str(file.path) for files in given.files.values() for file in files]
    return RunStability(
        run=str(stored.path),
        graph=graph,
        result=result,
        files=tuple(dict.fromkeys(used)),
        notices=(*given.notices, *result.notices),
        warnings=tuple(stored.record["warnings"]),
    )


def _poisoned(
    stored: StoredRun,
    labelled: LabelledGraph,
    request: StabilityRequest,
    places: Sequence[str | Path],
) -> _Given | None:
    """The poisoned graph is the reference, and its split the only one that counts."""
    poison = stored.poison
    if poison is None:
        return None
    if places or request.num_splits is not None:
        option = "--perturbation" if places else "--num-splits"
        raise RunError(
            f"{stored.path} was trained on a perturbed graph, {poison.title}. Perturbations start "
            f"from that one, and are judged on its split alone: {option} does not go with it."
        )
    check_kind_of_splits([poison.file], request.splits)
    notice = (
        f"The run was trained on a perturbed graph ({poison.title}), which counts as the clean "
        "one here; it is judged on the split of that perturbation alone."
    )
    perturbed = replace(labelled, graph=poison.apply(labelled))
    kind = poison.file.facts.splits
    return _Given(perturbed, splits=kind, numbers=(poison.split,), notices=(notice,))


def _attacked(
    labelled: LabelledGraph, request: StabilityRequest, places: Sequence[str | Path]
) -> _Given:
    """Attacks from files, on the splits that they were made for."""
    if not places:
        return _Given(labelled)
    places_of: dict[str, list[str | Path]] = {}
    for place in places:
        places_of.setdefault(read_files([place], labelled)[0].facts.attack, []).append(place)
    files = {attack: read_files(own, labelled) for attack, own in places_of.items()}
    every = [file for own in files.values() for file in own]
    kind = request.splits or every[0].facts.splits
    largest = (request.budgets or DEFAULT_BUDGETS)[-1:]  # its flips hold those of the others
    for own in files.values():
        common_budgets(own, largest)
        check_kind_of_splits(own, kind)
    numbers = sorted({file.facts.split for file in every})
    count = request.num_splits or len(numbers)
    if count > len(numbers):
        raise SettingsError(
            f"The perturbation files are for {len(numbers)} splits. Got --num-splits {count}."
        )
    chosen = tuple(numbers[:count])
    used = {
        attack: [file for file in own if file.facts.split in chosen]
        for attack, own in files.items()
    }
    return _Given(labelled, {attack: own for attack, own in used.items() if own}, kind, chosen)
