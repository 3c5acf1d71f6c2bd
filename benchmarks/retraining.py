"""A graph convolution that is trained anew on a perturbed graph: by how much does it suffer?

Kipf & Welling's GCN (ICLR 2017) with 2 layers, 32 hidden units, dropout between them and
row-normalised features, by PyG's own layer: nothing here is shared with the attacks.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GCNConv
from typing_extensions import override

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from aspect.data.features import row_normalise  # noqa: E402
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph  # noqa: E402 - the path comes first
from aspect.data.sparse import SparseMatrix  # noqa: E402
from aspect.data.splits import Split  # noqa: E402
from aspect.randomness import isolated_seed, seed_for  # noqa: E402

__all__ = ["GCN", "accuracy", "retrained"]

HIDDEN, DROPOUT = 32, 0.5
EPOCHS, RATE, DECAY = 100, 0.01, 5e-4  # of Adam

# torch says so once where PyG adds self-loops to a compressed matrix.
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")


class GCN(torch.nn.Module):
    """Two layers; logits of every node."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.first = GCNConv(num_features, HIDDEN, cached=True)
        self.second = GCNConv(HIDDEN, num_classes, cached=True)

    @override
    def forward(self, features: Tensor, adjacency: Tensor) -> Tensor:
        hidden = self.first(features, adjacency).relu()
        hidden = functional.dropout(hidden, DROPOUT, self.training)
        logits: Tensor = self.second(hidden, adjacency)
        return logits


def retrained(
    graph: Graph, labels: Int[Tensor, " nodes"], num_classes: int, split: Split, seed: int
) -> Int[Tensor, " nodes"]:
    """Classes of all nodes at the first epoch with the best validation accuracy.

    Of the labels, those of training and validation nodes are read.
    """
    features, adjacency = _inputs(graph)
    best, found = -1.0, labels
    with isolated_seed(seed_for(seed, "retraining")):
        model = GCN(graph.num_features, num_classes)
        optimiser = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
        for _ in range(EPOCHS):
            model.train()
            optimiser.zero_grad()
            logits = model(features, adjacency)[split.train]
            functional.cross_entropy(logits, labels[split.train]).backward()  # type: ignore[no-untyped-call]  # torch
            optimiser.step()
            model.eval()
            with torch.no_grad():
                guess = model(features, adjacency).argmax(dim=1)
            score = _share(guess[split.validation] == labels[split.validation])
            if score > best:
                best, found = score, guess
    return found


def _inputs(graph: Graph) -> tuple[Tensor, Tensor]:
    """Features and adjacency in compressed rows, with which PyG's layer is several times faster."""
    features, (source, target) = row_normalise(graph.features), graph.edge_index
    ones = torch.ones(len(source), dtype=graph.dtype)
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = SparseMatrix.from_entries(source, target, ones, shape).as_csr()
    return features.as_csr() if isinstance(features, SparseMatrix) else features, adjacency


def _share(right: Bool[Tensor, " nodes"]) -> float:
    return float(right.double().mean())


def accuracy(graph: Graph, labelled: LabelledGraph, split: Split, starts: int) -> float:
    """Test accuracy in percent, the mean over some starts."""
    unseen = labelled.labels.clone()
    unseen[split.test] = UNLABELLED
    found = [
        retrained(graph, unseen, labelled.num_classes, split, start) for start in range(starts)
    ]
    truth = labelled.labels[split.test]
    return 100 * statistics.mean(_share(guess[split.test] == truth) for guess in found)
