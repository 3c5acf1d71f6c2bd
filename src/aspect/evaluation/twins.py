"""The nearest neighbour by neighbour sets: a rule without features or training, for every table.

On graphs such as Chameleon and Squirrel many nodes have a twin, another node with nearly the same
neighbours and mostly the same class. What this rule reaches there is no merit of an embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aspect.data.graph import Graph
from aspect.data.splits import Split, SplitKind
from aspect.errors import GraphError
from aspect.evaluation.inputs import ProbeInput
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.result import Answers, ProbeResult

__all__ = ["MOST_NODES", "twin_probe"]

MOST_NODES = 50_000

Votes = NDArray[np.float64]  # [nodes, classes]

# Common neighbours of a block of nodes with all others: 48 MiB at most.
BLOCK_ENTRIES = 2**22


def twin_probe(
    graph: Graph,
    labels: Tensor | ArrayLike,
    splits: SplitKind | str | Sequence[Split] = "random",
    *,
    num_classes: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
) -> ProbeResult:
    """Answer each node with the class of the training node whose neighbour set is most similar.

    Similarity is the cosine of the 0/1 neighbour sets. Several nearest nodes vote; equal votes go
    to the lower class. A node that shares no neighbour with any training node gets the most
    frequent class of the training nodes. Nothing is chosen, so validation nodes are only scored.

    Args:
        graph: Of at most `MOST_NODES` nodes; its features are not looked at.
        labels: Classes from 0 on, -1 for none.
        splits: A kind of split to draw, or the splits themselves.
        num_classes: Classes of the data set, if the last ones have no node here.
        masks: The published splits, for `splits="published"`.
    """
    if graph.num_nodes > MOST_NODES:
        raise GraphError(
            "The nearest neighbour by neighbour sets needs a graph of at most "
            f"{MOST_NODES:,} nodes. Got {graph.num_nodes:,}."
        )
    given = ProbeInput.read(torch.zeros(graph.num_nodes, 1), labels, splits, num_classes, masks)
    voted = _votes(graph, given)
    answers = (
        _answers(torch.from_numpy(votes), given.labels, split)
        for votes, split in zip(voted, given.splits, strict=True)
    )
    return ProbeResult.of(
        "twins", "neighbours", answers, given.labels, given.splits, given.num_classes
    )


def _answers(votes: Tensor, labels: Int[Tensor, " nodes"], split: Split) -> Answers:
    predictions = votes.argmax(dim=1)
    return Answers(
        choice=1,
        step=None,
        validation=accuracy(labels[split.validation], predictions[split.validation]),
        predictions=predictions[split.test],
        scores=(votes / votes.sum(dim=1, keepdim=True)).t()[:, split.test].float(),
    )


def _votes(graph: Graph, given: ProbeInput) -> list[Votes]:
    """For every split and node, how many of its nearest training nodes have each class."""
    classes = given.labels.numpy()
    trains = [np.isin(np.arange(len(classes)), split.train.numpy()) for split in given.splits]
    blocks: list[list[Votes]] = [[] for _ in trains]
    for similarity in _similarities(graph):
        for train, votes in zip(trains, blocks, strict=True):
            votes.append(_block_votes(similarity, train, classes, given.num_classes))
    return [np.concatenate(votes) for votes in blocks]


def _similarities(graph: Graph) -> Iterator[scipy.sparse.csr_array]:
    """Blocks of rows, in order: how similar each node's neighbour set is to that of all others.

    The entry is c^2 / d for c common neighbours with a node of degree d. In a row it orders as the
    cosine does, and as a quotient of small whole numbers it is level exactly where cosines are.
    """
    rows, columns = graph.edge_index.cpu().numpy()
    size = (graph.num_nodes, graph.num_nodes)
    neighbours = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=size)
    degrees = neighbours.sum(axis=1)
    step = max(1, BLOCK_ENTRIES // graph.num_nodes)
    for start in range(0, graph.num_nodes, step):
        common = scipy.sparse.csr_array(neighbours[start : start + step] @ neighbours)
        common.sort_indices()  # now, or SciPy does it in place where the values are shared
        common.data = common.data**2 / degrees[common.indices]
        yield common


def _block_votes(
    similarity: scipy.sparse.csr_array,
    train: NDArray[np.bool_],
    classes: NDArray[np.int64],
    num_classes: int,
) -> Votes:
    """Votes of the training nodes that are nearest; of all of them where none is near."""
    values = similarity.data * train[similarity.indices]
    seen = scipy.sparse.csr_array((values, similarity.indices, similarity.indptr), similarity.shape)
    nearest = seen.max(axis=1).toarray().ravel()
    rows = np.repeat(np.arange(len(nearest)), np.diff(similarity.indptr))
    votes = (values > 0) & (values == nearest[rows])
    cells = rows[votes] * num_classes + classes[similarity.indices[votes]]
    counts = np.bincount(cells, minlength=len(nearest) * num_classes).reshape(-1, num_classes)
    everyone = np.bincount(classes[train], minlength=num_classes)
    return np.where(nearest[:, None] > 0, counts, everyone).astype(np.float64)
