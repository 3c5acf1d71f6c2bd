"""Several readings of one model: split by split, validation chooses which of them is judged.

A model that can embed graphs it was not trained on can be read on its graph without the edges that
have the least support. Whether that helps depends on whether somebody put edges there, which
validation nodes of the graph at hand tell and a clean graph does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from aspect.attacks.pruning import check_prune_ratio, edge_support, prune_edges
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.probe import NEUTRAL, Probe, linear_probe
from aspect.evaluation.result import ProbeResult
from aspect.methods.registry import find_method

__all__ = [
    "best_readings",
    "check_doubt",
    "doubting",
    "probe_doubting",
    "probe_readings",
    "read_doubting",
    "told_choice",
    "with_all_edges",
]


def best_readings(found: Sequence[ProbeResult]) -> tuple[ProbeResult, tuple[int, ...]]:
    """Of each split the result with the highest validation accuracy, the first of equals.

    Returns:
        Those results together, and the place in `found` that each split's comes from.
    """
    chosen = tuple(
        max(range(len(found)), key=lambda place: found[place].splits[split].validation)
        for split in range(len(found[0].splits))
    )
    joined = replace(
        found[0],
        splits=tuple(found[place].splits[split] for split, place in enumerate(chosen)),
        predictions=tuple(found[place].predictions[split] for split, place in enumerate(chosen)),
    )
    return joined, chosen


def probe_readings(
    readings: Iterable[Float[Tensor, "nodes dim"]],
    labelled: LabelledGraph,
    splits: Sequence[Split],
    probe: Probe = NEUTRAL,
) -> tuple[ProbeResult, tuple[int, ...]]:
    """Probe all of them, and take the best as `best_readings` does."""
    labels, classes = labelled.labels, labelled.num_classes
    return best_readings(
        [linear_probe(rows, labels, splits, num_classes=classes, probe=probe) for rows in readings]
    )


def read_doubting(
    model: Embedder, graph: Graph, shares: Iterable[float]
) -> Iterator[Float[Tensor, "nodes dim"]]:
    """What an inductive model makes of its graph without some shares of the doubtful edges."""
    wanted, here = tuple(shares), graph.to(model.device)
    support = edge_support(here) if any(wanted) else None
    for share in wanted:
        yield model.embed(prune_edges(here, share, support), normalise="none").to(model.device)


def probe_doubting(
    model: Embedder,
    graph: Graph,
    labelled: LabelledGraph,
    splits: Sequence[Split],
    shares: Sequence[float],
    *,
    probe: Probe = NEUTRAL,
) -> tuple[ProbeResult, tuple[float, ...]]:
    """Read a model without some shares of the doubtful edges, and let validation choose.

    Args:
        model: Trained on the graph, all its edges included; inductive.
        graph: As it is at hand, perturbed or not.
        labelled: The labels of its nodes.
        splits: Judged one by one.
        shares: To be left out; the first of equally good ones is taken.
        probe: As of `linear_probe`.

    Returns:
        The scores, and the share behind each split's.
    """
    readings = read_doubting(model, graph, shares)
    found, chosen = probe_readings(readings, labelled, splits, probe)
    return found, tuple(shares[place] for place in chosen)


def check_doubt(method: str, shares: Sequence[float]) -> None:
    """Refuse shares that are none, and a method that reads no graph but its own."""
    for share in shares:
        check_prune_ratio(share)
    if shares and not find_method(method).method.inductive:
        raise SettingsError(
            f"{method} embeds no graph but the one that it was trained on, so that no edge of it "
            "can be doubted."
        )


def doubting(name: str) -> str:
    """What a method's row is called where it was read without its doubtful edges."""
    return f"{name}, doubting"


def told_choice(where: str, shares: Iterable[float]) -> str:
    """What validation chose, counted: so much of the edges in so many splits."""
    counts = Counter(shares)
    share, *others = sorted(counts)
    splits = "1 split" if counts[share] == 1 else f"{counts[share]} splits"
    first = f"{PERCENT * share:g}% of the edges in {splits}"
    rest = [f"{PERCENT * each:g}% in {counts[each]}" for each in others]
    return f"Doubtful edges left out {where}: {', '.join([first, *rest])}."


def with_all_edges(doubt: Sequence[float]) -> list[float]:
    """The shares to choose from, smallest first: to leave nothing out is always one of them."""
    return sorted({0.0, *doubt})
