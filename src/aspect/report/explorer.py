"""Nodes of trained models as JSON for the page's script: map, search, one node at a time.

The page must open on a phone, so large graphs are thinned: some nodes, and some neighbours of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aspect.evaluation.details import Details

MOST_NODES = 60_000  # of all graphs together
MANY_NODES = 20_000  # beyond them nodes show fewer neighbours
NEIGHBOURS, FEW_NEIGHBOURS = 30, 10
LONGEST = 200  # letters of a name


def explorer_json(details: Sequence[Details], most_nodes: int = MOST_NODES) -> str:
    """One object per model; safe inside a script element, whatever the names hold.

    The largest graphs alone are thinned: as many nodes to each as all can have together.
    """
    sizes, left = [len(model.nodes) for model in details], most_nodes
    for rank, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        sizes[index] = min(sizes[index], left // (len(sizes) - rank))
        left -= sizes[index]
    neighbours = FEW_NEIGHBOURS if sum(sizes) > MANY_NODES else NEIGHBOURS
    text = json.dumps(
        [_plain(model, size, neighbours) for model, size in zip(details, sizes, strict=True)],
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    # No name can close the element or open a comment in it; surrogates could not be written.
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text.encode("utf-8", "replace").decode()


def _plain(details: Details, size: int, most_neighbours: int) -> dict[str, Any]:
    """One model with so many of its nodes, spread evenly."""
    kept = [index * len(details.nodes) // size for index in range(size)]
    places = {old: new for new, old in enumerate(kept)}

    def at(values: Sequence[Any] | None) -> list[Any] | None:
        return [values[index] for index in kept] if values else None

    def by_band(values: Mapping[str, Sequence[float]]) -> list[Any]:
        return [[band, at(numbers)] for band, numbers in values.items()]

    nodes, has_homophily = at(details.nodes), any(one is not None for one in details.homophily)
    return {
        "graph": _cut(details.graph),
        "title": _cut(details.title),
        "count": details.num_nodes,
        # The numbers themselves are left out where they say nothing.
        "nodes": None if nodes == list(range(details.num_nodes)) else nodes,
        "ids": at(details.ids and [_cut(node) for node in details.ids]),
        "classes": [_cut(name) for name in details.class_names],
        "labels": at(details.labels) or [],
        "degrees": at(details.degrees),
        "neighbours": [
            [places[other] for other in details.neighbours[index] if other in places][
                :most_neighbours
            ]
            for index in kept
        ],
        "homophily": at(details.homophily) if has_homophily else None,
        "gate": at(details.gate),
        "gap": at(details.cost_gap),
        "losses": by_band(details.losses),
        "moved": by_band(details.sensitivity.distances if details.sensitivity else {}),
        "x": at(details.map_x),
        "y": at(details.map_y),
        "map": details.map_name,
    }


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
