"""What an attacker knows of the classes: those of the training nodes, and no others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.graph import Graph
from aspect.errors import GraphError, shown

__all__ = ["Known", "read_known"]


@dataclass(frozen=True, eq=False)
class Known:
    """The training nodes with their classes."""

    nodes: Int[Tensor, " train"]  # ascending
    targets: Float[Tensor, "train classes"]  # one in the column of the node's class

    @property
    def classes(self) -> Int[Tensor, " train"]:
        """The class of every training node."""
        return self.targets.argmax(dim=1)


def read_known(
    labels: Int[Tensor, " nodes"],
    train: Int[Tensor, " train"],
    graph: Graph,
    num_classes: int | None = None,
) -> Known:
    """Read the training nodes' labels: the only place where an attack reads any.

    Args:
        labels: Of all nodes; those outside of `train` may be anything.
        train: Different nodes, in any order.
        graph: Gives device and type.
        num_classes: Classes are 0 to num_classes - 1; none: as many as the training nodes show.
    """
    nodes = _checked_nodes(train.to(graph.device).long(), graph.num_nodes)
    if len(labels) != graph.num_nodes:
        raise GraphError(
            f"An attack needs a label for each of the {graph.num_nodes} nodes. Got {len(labels)}."
        )
    classes = labels.to(graph.device)[nodes].long()
    count = int(classes.max()) + 1 if num_classes is None else num_classes
    wrong = (classes < 0) | (classes >= count)
    if bool(wrong.any()):
        raise GraphError(
            f"Labels of training nodes must be classes 0 to {count - 1}. "
            f"Got {shown(torch.unique(classes[wrong]).tolist())}."
        )
    if len(torch.unique(classes)) < 2:  # noqa: PLR2004 - one class leaves nothing to confuse
        raise GraphError(
            f"An attack needs training nodes of at least 2 classes. "
            f"Got class {int(classes[0])} alone."
        )
    return Known(nodes, torch.nn.functional.one_hot(classes, count).to(graph.dtype))


def _checked_nodes(train: Int[Tensor, " train"], num_nodes: int) -> Int[Tensor, " train"]:
    """The training nodes in ascending order."""
    if len(train) == 0:
        raise GraphError("An attack needs training nodes with labels. Got none.")
    outside = train[(train < 0) | (train >= num_nodes)]
    if len(outside):
        raise GraphError(
            f"Training nodes must be from 0 to {num_nodes - 1}. Got {shown(outside.tolist())}."
        )
    nodes: Tensor
    nodes, times = torch.unique(train, return_counts=True)
    if len(nodes) < len(train):
        twice = shown(nodes[times > 1].tolist())
        raise GraphError(f"Training nodes must be different from each other. Got twice: {twice}.")
    return nodes
