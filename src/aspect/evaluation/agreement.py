"""How far neighbours are of one class, node by node: local homophily."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from aspect.data.graph import UNLABELLED, Graph

__all__ = ["neighbour_agreement"]


def neighbour_agreement(graph: Graph, labels: Int[Tensor, " nodes"]) -> list[float | None]:
    """Share of each node's neighbours that are of its class.

    Neighbours without a known class are not counted; None where none is left, or where the node's
    own class is unknown.
    """
    classes = labels.cpu()
    source, target = graph.edge_index.cpu()
    both = (classes[source] != UNLABELLED) & (classes[target] != UNLABELLED)
    source, target = source[both], target[both]
    alike = torch.bincount(source[classes[source] == classes[target]], minlength=graph.num_nodes)
    known = torch.bincount(source, minlength=graph.num_nodes)
    pairs = zip(alike.tolist(), known.tolist(), strict=True)
    return [count / all_known if all_known else None for count, all_known in pairs]
