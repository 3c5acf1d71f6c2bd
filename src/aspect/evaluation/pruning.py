"""Edge pruning: a model is probed on its graph without some of the edges that fit their ends least.

A model that can embed graphs it was not trained on can embed its graph without the edges of the
lowest scores (`aspect.attacks.purification`). Whether that helps depends on whether edges were
added, which validation nodes of the graph at hand show and a clean graph does not: split by split,
validation chooses the ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aspect.attacks.pruning import DEFAULT, edge_score_text
from aspect.attacks.purification import check_ratio, edge_scores, prune_edges, used_score
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split
from aspect.errors import SettingsError, counted
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import NEUTRAL, Probe, linear_probe
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.result import ProbeResult
from aspect.methods.registry import find_method


def best_by_validation(results: Sequence[ProbeResult]) -> tuple[ProbeResult, tuple[int, ...]]:
    """Of each split the result with the highest validation score, the first of equals.

    Returns:
        Those splits together, and the index in `results` that each one comes from.
    """
    chosen = tuple(
        max(range(len(results)), key=lambda index: results[index].splits[split].validation)
        for split in range(len(results[0].splits))
    )
    joined = replace(
        results[0],
        splits=tuple(results[index].splits[split] for split, index in enumerate(chosen)),
        predictions=tuple(results[index].predictions[split] for split, index in enumerate(chosen)),
    )
    return joined, chosen


@dataclass(frozen=True)
class SplitPruning:
    """What validation chose for a split, and what came of it."""

    asked: float  # ratio of edges to prune
    reached: float  # ratio that went: nodes with few edges keep one


@dataclass(frozen=True)
class PrunedProbe:
    """The probe of a pruned graph, whose ratio validation chose split by split."""

    result: ProbeResult
    splits: tuple[SplitPruning, ...]
    score: str  # that edges went by


def probe_pruned(
    model: Embedder,
    graph: Graph,
    labelled: LabelledGraph,
    splits: Sequence[Split],
    ratios: Sequence[float],
    *,
    probe: Probe = NEUTRAL,
) -> PrunedProbe:
    """Probe a model on its pruned graph; validation chooses the ratio of each split.

    Args:
        model: Trained on the graph, all its edges included; inductive.
        graph: As it is at hand, perturbed or not.
        labelled: The labels of its nodes.
        splits: Scored one by one.
        ratios: Of edges to prune; the first of equally good ones is taken.
        probe: As of `linear_probe`.
    """
    placed, labels, classes = graph.to(model.device), labelled.labels, labelled.num_classes
    scores = edge_scores(placed) if any(ratios) else None
    results, prunings = [], []
    for ratio in ratios:
        pruned = prune_edges(placed, ratio, scores)
        rows = model.embed(pruned, normalise="none").to(model.device)
        results.append(linear_probe(rows, labels, splits, num_classes=classes, probe=probe))
        gone = graph.num_edges - pruned.num_edges
        prunings.append(SplitPruning(ratio, gone / max(1, graph.num_edges)))
    result, chosen = best_by_validation(results)
    return PrunedProbe(result, tuple(prunings[index] for index in chosen), used_score(placed))


def check_pruning(method: str, ratios: Sequence[float], *, evades: bool = False) -> None:
    """Refuse ratios outside [0, 1), mode evade, and a method that embeds no graph but its own."""
    if ratios and evades:
        raise SettingsError(
            "prune does not go with mode evade: validation would choose on the clean graph. "
            "Leave prune out, or take mode poison."
        )
    for ratio in ratios:
        check_ratio(ratio)
    if ratios and not find_method(method).method.inductive:
        raise SettingsError(
            f"{method} embeds no graph but the one that it was trained on, so that its edges "
            "cannot be pruned. Leave prune out."
        )


def pruned_name(name: str) -> str:
    """The row of a method whose edges were pruned."""
    return f"{name}, pruned"


def describe_pruning(where: str, splits: Iterable[SplitPruning], score: str) -> str:
    """How many splits chose each ratio, what it reached, and by which score, as sentences."""
    reached: dict[float, list[float]] = {}
    for split in splits:
        reached.setdefault(split.asked, []).append(split.reached)
    parts = []
    for asked in sorted(reached):
        in_splits = f"in {counted(len(reached[asked]), 'split')}"
        some = f"{_percents(reached[asked])} of the edges {in_splits} ({PERCENT * asked:g}% asked)"
        parts.append(some if asked else f"no edge {in_splits}")
    return f"Pruned {where}: {', '.join(parts)}. {edge_score_text(DEFAULT, score)}"


def _percents(ratios: Sequence[float]) -> str:
    """One number, or the range where splits have graphs of their own."""
    lowest, highest = (f"{PERCENT * ratio:.1f}%" for ratio in (min(ratios), max(ratios)))
    return lowest if lowest == highest else f"{lowest} to {highest}"


def with_all_edges(ratios: Sequence[float]) -> list[float]:
    """The ratios to choose from, smallest first: to prune nothing is always one of them."""
    return sorted({0.0, *ratios})
