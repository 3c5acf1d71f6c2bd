"""Edge pruning: a model is probed on its graph without some of the edges that fit their ends least.

A model that can embed graphs it was not trained on can embed its graph without the edges of the
lowest scores (`aspect.attacks.purification`). Whether that helps depends on whether edges were
added, which validation nodes of the graph at hand show and a clean graph does not: split by split,
validation chooses the ratio.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aspect.attacks.purification import check_ratio, edge_scores, prune_edges
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split
from aspect.errors import SettingsError
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


def probe_pruned(
    model: Embedder,
    graph: Graph,
    labelled: LabelledGraph,
    splits: Sequence[Split],
    ratios: Sequence[float],
    *,
    probe: Probe = NEUTRAL,
) -> tuple[ProbeResult, tuple[float, ...]]:
    """Probe a model on its pruned graph; validation chooses the ratio of each split.

    Args:
        model: Trained on the graph, all its edges included; inductive.
        graph: As it is at hand, perturbed or not.
        labelled: The labels of its nodes.
        splits: Scored one by one.
        ratios: Of edges to prune; the first of equally good ones is taken.
        probe: As of `linear_probe`.

    Returns:
        The scores, and the ratio of each split.
    """
    placed, labels, classes = graph.to(model.device), labelled.labels, labelled.num_classes
    scores = edge_scores(placed) if any(ratios) else None
    results = []
    for ratio in ratios:
        rows = model.embed(prune_edges(placed, ratio, scores), normalise="none").to(model.device)
        results.append(linear_probe(rows, labels, splits, num_classes=classes, probe=probe))
    result, chosen = best_by_validation(results)
    return result, tuple(ratios[index] for index in chosen)


def check_pruning(method: str, ratios: Sequence[float]) -> None:
    """Refuse ratios outside [0, 1), and a method that can embed no graph but its own."""
    for ratio in ratios:
        check_ratio(ratio)
    if ratios and not find_method(method).method.inductive:
        raise SettingsError(
            f"{method} embeds no graph but the one that it was trained on, so that its edges "
            "cannot be pruned."
        )


def pruned_name(name: str) -> str:
    """The row of a method whose edges were pruned."""
    return f"{name}, pruned"


def describe_pruning(where: str, ratios: Iterable[float]) -> str:
    """How many splits chose each ratio, as a sentence."""
    counts = Counter(ratios)
    first, *others = sorted(counts)
    splits = "1 split" if counts[first] == 1 else f"{counts[first]} splits"
    parts = [f"{PERCENT * first:g}% of the edges in {splits}"]
    parts += [f"{PERCENT * ratio:g}% in {counts[ratio]}" for ratio in others]
    return f"Pruned {where}: {', '.join(parts)}."


def with_all_edges(ratios: Sequence[float]) -> list[float]:
    """The ratios to choose from, smallest first: to prune nothing is always one of them."""
    return sorted({0.0, *ratios})
