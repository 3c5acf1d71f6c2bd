"""What the page's own script needs to show nodes: their map, a search, one node at a time.

The page must open on a phone, so large graphs are thinned: some nodes, and some neighbours of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aspect.evaluation.details import Details, Numbers, SomeNumbers

__all__ = ["MOST_NODES", "explorer_json", "thinned"]

MOST_NODES = 60_000  # of all graphs together
MANY_NODES = 20_000  # beyond them nodes show fewer neighbours
NEIGHBOURS, FEW_NEIGHBOURS = 30, 10
LONGEST = 200  # letters of a name


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
    ordered = sorted(range(len(details)), key=lambda place: len(details[place].nodes))
    for rank, place in enumerate(ordered):
        bounds[place] = min(len(details[place].nodes), left // (len(details) - rank))
        left -= bounds[place]
    return [thinned(each, bounds[place]) for place, each in enumerate(details)]


def thinned(details: Details, most: int) -> Details:
    """The same with at most so many nodes, spread evenly over the kept ones."""
    count = len(details.nodes)
    if count <= most:
        return details
    places = [place * count // most for place in range(most)]
    new = {old: place for place, old in enumerate(places)}
    changes: dict[str, Any] = {
        name: tuple(values[place] for place in places)
        for name in ("nodes", "ids", "labels", "degrees", "homophily", "gate", "cost_gap")
        if (values := getattr(details, name))
    }
    changes |= {
        name: tuple(getattr(details, name)[place] for place in places)
        for name in ("map_x", "map_y")
    }
    changes["losses"] = _at(details.losses, places)
    if details.sensitivity is not None:
        distances = _at(details.sensitivity.distances, places)
        changes["sensitivity"] = details.sensitivity.model_copy(update={"distances": distances})
    changes["neighbours"] = tuple(
        tuple(new[other] for other in details.neighbours[place] if other in new) for place in places
    )
    return details.model_copy(update=changes)


def _at(by_band: Mapping[str, Numbers], places: Sequence[int]) -> dict[str, Numbers]:
    return {band: tuple(values[place] for place in places) for band, values in by_band.items()}


def _plain(details: Details, most_neighbours: int) -> dict[str, Any]:
    numbers = range(details.num_nodes)
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
        "neighbours": [places[:most_neighbours] for places in details.neighbours],
        "homophily": _known(details.homophily),
        "gate": details.gate,
        "gap": details.cost_gap,
        "losses": [[band, values] for band, values in details.losses.items()],
        "moved": [[band, values] for band, values in _distances(details).items()],
        "x": details.map_x,
        "y": details.map_y,
        "map": details.map_name,
    }


def _distances(details: Details) -> Mapping[str, Numbers]:
    return {} if details.sensitivity is None else details.sensitivity.distances


def _known(values: SomeNumbers) -> SomeNumbers | None:
    return values if any(value is not None for value in values) else None


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
