"""How far a run's model moves when the graph that it was trained on is perturbed a little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
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
from aspect.evaluation.stability import study_stability
from aspect.evaluation.stability_request import (
    DEFAULT_BUDGETS,
    StabilityRequest,
    check_untargeted,
)
from aspect.experiment.trained import open_run
from aspect.training.progress import Advance


def study_run(
    path: str | Path,
    request: StabilityRequest | None = None,
    *,
    perturbations: Sequence[str | Path] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_step: Advance | None = None,
) -> dict[str, Any]:
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

    Returns:
        Plain values for JSON: the rows, and what a reader must know beside them.
    """
    stored, request = open_run(path), request or StabilityRequest()
    model, labelled = stored.load_model(device), stored.read_graph(data_dir)
    files: dict[str, list[PerturbationFile]] = {}  # by attack
    numbers: tuple[int, ...] | None = None  # of splits; None: for the request to choose
    notices: list[str] = []
    if stored.poison is not None:
        poison = stored.poison
        if perturbations or request.num_splits is not None:
            option = "--perturbation" if perturbations else "--num-splits"
            raise RunError(
                f"{stored.path} was trained on a perturbed graph, {poison.title}. Perturbations "
                "start from that one, and are evaluated on its split alone: "
                f"{option} does not go with it."
            )
        check_kind_of_splits([poison.file], request.splits)
        # The split that the graph was poisoned for is the only one that counts.
        request, numbers = replace(request, splits=poison.file.facts.splits), (poison.split,)
        labelled = replace(labelled, graph=poison.apply(labelled))
        notices.append(
            f"The run was trained on a perturbed graph ({poison.title}), which counts as the clean "
            "one here; it is evaluated on the split of that perturbation alone."
        )
    elif perturbations:
        files, kind, numbers = _attacked(labelled, request, perturbations)
        request = replace(request, splits=kind)
    result = study_stability(
        model, labelled, request, files=files, split_numbers=numbers, on_step=on_step
    )
    used = dict.fromkeys(str(file.path) for some in files.values() for file in some)
    return {
        "run": str(stored.path),
        "graph": stored.record["graph"]["name"],
        **asdict(result),
        "perturbations": list(used),
        "notices": [*notices, *result.notices],
        "warnings": list(stored.record["warnings"]),
    }


def _attacked(
    labelled: LabelledGraph, request: StabilityRequest, paths: Sequence[str | Path]
) -> tuple[dict[str, list[PerturbationFile]], SplitKind, tuple[int, ...]]:
    """Attacks from files by name, with the kind and numbers of the splits they were made for."""
    paths_of: dict[str, list[str | Path]] = {}
    for path in paths:
        paths_of.setdefault(read_files([path], labelled)[0].facts.attack, []).append(path)
    files = {attack: read_files(some, labelled) for attack, some in paths_of.items()}
    every = [file for of_attack in files.values() for file in of_attack]
    for file in every:
        check_untargeted(file.facts.kind)
    kind = request.splits or every[0].facts.splits
    largest = (request.budgets or DEFAULT_BUDGETS)[-1:]  # its flips hold those of the others
    for of_attack in files.values():
        common_budgets(of_attack, largest)
        check_kind_of_splits(of_attack, kind)
    numbers = sorted({file.facts.split for file in every})
    count = request.num_splits or len(numbers)
    if count > len(numbers):
        raise SettingsError(
            f"The perturbation files are for {len(numbers)} splits. Got --num-splits {count}."
        )
    chosen = tuple(numbers[:count])
    used = {
        attack: [file for file in of_attack if file.facts.split in chosen]
        for attack, of_attack in files.items()
    }
    return {attack: some for attack, some in used.items() if some}, kind, chosen
