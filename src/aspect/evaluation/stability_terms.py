"""What a study of stability can do on a graph; the rest is refused or left out, and said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aspect.attacks.budget import least_share
from aspect.data.features import num_entries
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, check_splits, make_splits
from aspect.errors import GraphError, SettingsError
from aspect.evaluation.stability_request import (
    DEFAULT_BUDGETS,
    DEFAULT_SPLIT_KIND,
    DEFAULT_SPLITS,
    KINDS,
    Kind,
    StabilityRequest,
)

__all__ = ["JudgedSplits", "Terms", "settle"]


@dataclass(frozen=True)
class JudgedSplits:
    """Splits that are given by perturbation files, by kind and numbers."""

    kind: SplitKind
    numbers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Terms:
    """A request, made definite for one graph."""

    kinds: tuple[Kind, ...]
    budgets: tuple[float, ...]  # rising
    kind_of_splits: SplitKind
    splits: Mapping[int, Split]  # by their numbers; nothing where no probe can be trained
    draws: tuple[int, ...]  # of what is random, by number: one for every split
    notices: tuple[str, ...]  # what was left out, a sentence each


def settle(
    labelled: LabelledGraph,
    request: StabilityRequest,
    *,
    judged: JudgedSplits | None = None,
    has_files: bool = False,
) -> Terms:
    """Decide what is done; what is asked for by name and cannot be done is refused.

    Args:
        labelled: The graph that the model is used on.
        request: What is asked.
        judged: The splits, where they are not for the request to choose.
        has_files: Perturbation files stand in for the metattack that would be made.
    """
    splits, missing = _splits(labelled, request, judged)
    notices = [] if missing is None else [missing]
    kinds, left_out = _kinds(labelled.graph, request, has_splits=bool(splits), has_files=has_files)
    budgets, too_small = _budgets(labelled.graph, request, kinds, has_files=has_files)
    return Terms(
        kinds=kinds,
        budgets=budgets,
        kind_of_splits=_split_kind(request, judged),
        splits=splits,
        draws=tuple(splits) or tuple(range(request.num_splits or DEFAULT_SPLITS)),
        notices=(*notices, *left_out, *too_small),
    )


def _split_kind(request: StabilityRequest, judged: JudgedSplits | None) -> SplitKind:
    return judged.kind if judged else request.splits or DEFAULT_SPLIT_KIND


def _splits(
    labelled: LabelledGraph, request: StabilityRequest, judged: JudgedSplits | None
) -> tuple[dict[int, Split], str | None]:
    """The splits by their numbers, or a word on why there are none."""
    kind = _split_kind(request, judged)
    count = max(judged.numbers) + 1 if judged else request.num_splits
    try:
        drawn = make_splits(
            kind, labelled.labels, labelled.num_classes, count=count, masks=labelled.masks
        )
        check_splits(drawn, labelled.labels)
    except GraphError as error:
        if judged or request.splits:
            raise
        return {}, f"Only the shifts are measured, since no probe can be trained. {error}"
    numbers: Sequence[int] = range(len(drawn))
    if judged is not None:
        numbers = judged.numbers
    elif request.num_splits is None:
        numbers = numbers[:DEFAULT_SPLITS]
    return {number: drawn[number] for number in numbers}, None


def _kinds(
    graph: Graph, request: StabilityRequest, *, has_splits: bool, has_files: bool
) -> tuple[tuple[Kind, ...], list[str]]:
    """The kinds that are made here, and a word on each that is left out."""
    reasons = _reasons(graph, has_splits=has_splits)
    wanted = request.kinds or KINDS
    if has_files:
        wanted = tuple(kind for kind in wanted if kind != "metattack")
    for kind in request.kinds:
        if kind in wanted and kind in reasons:
            raise GraphError(f"There can be no {kind} perturbation: {reasons[kind]}.")
    kinds = tuple(kind for kind in wanted if kind not in reasons)
    left_out = [f"{kind} is left out: {reasons[kind]}." for kind in wanted if kind in reasons]
    if not kinds and not has_files:
        raise GraphError(f"Nothing of this graph can be perturbed: {'; '.join(reasons.values())}.")
    return kinds, left_out


def _reasons(graph: Graph, *, has_splits: bool) -> dict[Kind, str]:
    """Why a kind of change cannot be made, for those that cannot."""
    reasons: dict[Kind, str] = {}
    if not has_splits:
        reasons["metattack"] = "it needs the classes of training nodes"
    if graph.num_edges == 0:
        edge_kinds: tuple[Kind, ...] = ("random", "gradient", "metattack")
        reasons |= dict.fromkeys(edge_kinds, "the graph has no edges")
    if num_entries(graph.features) == 0:
        reasons["feature"] = "all features are zero"
    return reasons


def _budgets(
    graph: Graph, request: StabilityRequest, kinds: Sequence[Kind], *, has_files: bool
) -> tuple[tuple[float, ...], list[str]]:
    """The budgets that change something, and a word on those that do not."""
    counts = {}
    if has_files or set(kinds) - {"feature"}:
        counts["edges"] = graph.num_edges
    if "feature" in kinds:
        counts["feature entries"] = num_entries(graph.features)
    fewest = min(counts, key=lambda unit: counts[unit])
    budgets = request.budgets or DEFAULT_BUDGETS
    fitting = tuple(share for share in budgets if round(share * counts[fewest]) > 0)
    if len(fitting) < len(request.budgets) or not fitting:
        raise SettingsError(
            f"Budget of {budgets[0]:g} allows no change of {counts[fewest]} {fewest}. "
            f"It must be {least_share(counts[fewest]):g} or more."
        )
    listed = ", ".join(f"{share:g}" for share in budgets if share not in fitting)
    told = f"No budget of {listed} is tried: it allows no change of {counts[fewest]} {fewest}."
    return fitting, [told] if listed else []
