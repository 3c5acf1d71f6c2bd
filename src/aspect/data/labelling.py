"""Labels and published splits, checked against the graph they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.errors import GraphError, shown

__all__ = ["encode_labels", "label_graph", "unlabelled"]

PARTS = ("train", "validation", "test")


def label_graph(
    graph: Graph,
    labels: Tensor,
    class_names: Sequence[str] | None = None,
    masks: Mapping[str, Tensor] | None = None,
) -> LabelledGraph:
    """Join a graph with its labels [nodes] and splits [splits, nodes], checked here by hand."""
    _check_labels(labels, graph)
    num_classes = int(labels.max()) + 1
    names = tuple(class_names or ())
    if not names:
        names = tuple(str(k) for k in range(num_classes))
    if len(names) < num_classes:
        raise GraphError(
            f"Class names must be one per class. Got {len(names)} for {num_classes} classes."
        )
    checked = dict(masks or {})
    if checked:
        _check_masks(checked, graph.num_nodes)
    return LabelledGraph(graph, labels.long(), names, MappingProxyType(checked))


def unlabelled(graph: Graph) -> LabelledGraph:
    """A graph of which no class is known."""
    return LabelledGraph(graph, torch.full((graph.num_nodes,), UNLABELLED), ())


def encode_labels(cells: Sequence[str | None]) -> tuple[Int[Tensor, " nodes"], tuple[str, ...]]:
    """Class numbers and names; integers are ordered as numbers, and -1 among them is unknown."""
    known = {cell for cell in cells if cell is not None}
    if all(_is_integer(cell) for cell in known):
        known -= {cell for cell in known if int(cell) == UNLABELLED}
        names = sorted(known, key=int)
    else:
        names = sorted(known)
    number: dict[str | None, int] = {name: k for k, name in enumerate(names)}
    return torch.tensor([number.get(cell, UNLABELLED) for cell in cells]), tuple(names)


def _is_integer(cell: str) -> bool:
    return cell.isascii() and cell.removeprefix("-").isdigit()


def _check_labels(labels: Tensor, graph: Graph) -> None:
    if labels.ndim != 1 or len(labels) != graph.num_nodes:
        raise GraphError(
            f"Labels must be one per node, of shape [{graph.num_nodes}]. Got {list(labels.shape)}."
        )
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise GraphError(
            f"Labels must be integers from 0, or {UNLABELLED} where unknown. Got {labels.dtype}."
        )
    # A class number beyond the number of nodes is a value that was taken for a class.
    wrong = (labels < UNLABELLED) | (labels >= graph.num_nodes)
    if bool(wrong.any()):
        raise GraphError(
            f"Labels must be class numbers 0 to {graph.num_nodes - 1}, or {UNLABELLED} where "
            f"unknown. Got {shown(labels[wrong].tolist())}."
        )


def _check_masks(masks: Mapping[str, Tensor], num_nodes: int) -> None:
    if set(masks) != set(PARTS):
        raise GraphError(
            f"Splits must name the parts {', '.join(PARTS)}. Got {', '.join(sorted(masks))}."
        )
    train, validation, test = (masks[part] for part in PARTS)
    shapes = [list(masks[part].shape) for part in PARTS]
    if train.ndim != 2 or shapes.count(shapes[0]) != len(PARTS) or train.shape[1] != num_nodes:  # noqa: PLR2004
        raise GraphError(
            f"Split masks must have one shape [splits, {num_nodes}]. "
            f"Got {', '.join(map(str, shapes))}."
        )
    overlap = (train & validation) | (train & test) | (validation & test)
    if bool(overlap.any()):
        places = shown(f"node {n} in split {s}" for s, n in overlap.nonzero().tolist())
        raise GraphError(f"The parts of a split must not share nodes. Got {places}.")
    for part in PARTS:
        empty = (~masks[part].any(dim=1)).nonzero().flatten().tolist()
        if empty:
            raise GraphError(f"Every split needs {part} nodes. None in splits {shown(empty)}.")
