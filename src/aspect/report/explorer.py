"""Nodes of trained models as JSON for the page's script: map, search, one node at a time.

The page must open on a phone, so large graphs are thinned: some nodes, and some neighbours of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aspect.evaluation.details import Details

__all__ = ["MOST_NODES", "explorer_json", "thinned"]

MOST_NODES = 60_000  # of all graphs together
MANY_NODES = 20_000  # beyond them nodes show fewer neighbours
NEIGHBOURS, FEW_NEIGHBOURS = 30, 10
LONGEST = 200  # letters of a name
BY_NODE = ("nodes", "ids", "labels", "degrees", "homophily", "gate", "cost_gap", "map_x", "map_y")


def explorer_json(details: Sequence[Details], most_nodes: int = MOST_NODES) -> str:
    """One object per model; safe inside a script element, whatever the names hold."""
    kept = _share(details, most_nodes)
    many = sum(len(each.nodes) for each in kept) > MANY_NODES
    most = FEW_NEIGHBOURS if many else NEIGHBOURS
    text = json.dumps(
        [_plain(each, most) for each in kept],
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    # No name can close the element or open a comment in it; surrogates could not be written.
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text.encode("utf-8", "replace").decode()


def _share(details: Sequence[Details], most_nodes: int) -> list[Details]:
    """Thin the largest graphs alone: as many nodes to each as all can have together."""
    left, bounds = most_nodes, {}
    by_size = sorted(range(len(details)), key=lambda index: len(details[index].nodes))
    for rank, index in enumerate(by_size):
        bounds[index] = min(len(details[index].nodes), left // (len(details) - rank))
        left -= bounds[index]
    return [thinned(each, bounds[index]) for index, each in enumerate(details)]


def thinned(details: Details, most: int) -> Details:
    """The same with at most so many nodes, spread evenly over the kept ones."""
    count = len(details.nodes)
    if count <= most:
        return details
    kept = [index * count // most for index in range(most)]
    new = {old: index for index, old in enumerate(kept)}
    changes: dict[str, Any] = {
        name: _at(values, kept) for name in BY_NODE if (values := getattr(details, name))
    }
    changes["losses"] = {band: _at(values, kept) for band, values in details.losses.items()}
    if details.sensitivity is not None:
        moved = details.sensitivity.distances
        distances = {band: _at(values, kept) for band, values in moved.items()}
        changes["sensitivity"] = details.sensitivity.model_copy(update={"distances": distances})
    changes["neighbours"] = tuple(
        tuple(new[other] for other in details.neighbours[index] if other in new) for index in kept
    )
    return details.model_copy(update=changes)


def _at(values: Sequence[Any], kept: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[index] for index in kept)


def _plain(details: Details, most_neighbours: int) -> dict[str, Any]:
    numbers = range(details.num_nodes)
    moved = details.sensitivity.distances if details.sensitivity else {}
    return {
        "graph": _cut(details.graph),
        "title": _cut(details.title),
        "seed": details.seed,
        "count": details.num_nodes,
        # The numbers themselves are left out where they say nothing.
        "nodes": None if list(details.nodes) == list(numbers) else details.nodes,
        "ids": None if details.ids is None else [_cut(node) for node in details.ids],
        "classes": [_cut(name) for name in details.class_names],
        "labels": details.labels,
        "degrees": details.degrees,
        "neighbours": [others[:most_neighbours] for others in details.neighbours],
        "homophily": details.homophily
        if any(ratio is not None for ratio in details.homophily)
        else None,
        "gate": details.gate,
        "gap": details.cost_gap,
        "losses": [[band, values] for band, values in details.losses.items()],
        "moved": [[band, values] for band, values in moved.items()],
        "x": details.map_x,
        "y": details.map_y,
        "map": details.map_name,
    }


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
