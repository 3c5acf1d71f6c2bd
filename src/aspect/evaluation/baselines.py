"""Baselines of a probe: k-NN on embeddings, neighbour sets without features, the majority class.

On graphs such as Chameleon and Squirrel many nodes have a twin, another node with nearly the same
neighbours and mostly the same class. What the nearest neighbour
by neighbour sets reaches there is no merit of an embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from aspect.data.graph import Graph
from aspect.data.splits import Split, SplitKind
from aspect.errors import GraphError, SettingsError
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.result import Answers, ProbeInput, ProbeResult, read_labels, unit_rows

NEIGHBOURS = (1, 3, 5, 10, 20, 50)

# Entries of a block of similarities or votes: 64 MiB of float32.
BLOCK_ENTRIES = 2**24
# Common neighbours of a block of nodes with all others: 48 MiB at most.
TWIN_BLOCK_ENTRIES = 2**22

MOST_TWIN_NODES = 50_000  # beyond, common neighbours take too long

Votes = NDArray[np.float64]  # [nodes, classes]


def knn_probe(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    splits: SplitKind | str | Sequence[Split] = "random",
    *,
    num_classes: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
    neighbours: Sequence[int] | None = None,
) -> ProbeResult:
    """Let the nearest training nodes by cosine vote; validation chooses how many, the fewest first.

    Equal votes go to the class whose voters are more similar. Without `neighbours`, those of
    1, 3, 5, 10, 20 and 50 that every training set can provide are tried. Nothing is trained, so
    there is no optimistic score. A node with an embedding of zeros is equally far from all.
    """
    given = ProbeInput.read(embeddings, labels, splits, num_classes, masks)
    tried = _counts(neighbours, min(len(split.train) for split in given.splits))
    rows = unit_rows(given.embeddings)
    answers = (_by_vote(rows, given, split, tried) for split in given.splits)
    return given.scored("neighbours", "neighbours", answers)


def majority_probe(
    labels: Tensor | ArrayLike,
    splits: SplitKind | str | Sequence[Split] = "random",
    *,
    num_classes: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
) -> ProbeResult:
    """Always answer one class: the one that is right most often on the validation nodes.

    The training nodes cannot choose it, since class-balanced training sets hold equally many of
    every class. Equals go to the lower class. Any embedding should do better than this.
    """
    classes = read_labels(labels)
    given = ProbeInput.read(torch.zeros(len(classes), 1), classes, splits, num_classes, masks)
    answers = []
    for split in given.splits:
        truth = given.labels[split.validation]
        chosen = int(torch.bincount(truth, minlength=given.num_classes).argmax())
        scores = one_hot(torch.tensor(chosen), given.num_classes).float()
        answers.append(
            Answers(
                choice=chosen,
                step=None,
                validation=accuracy(truth, torch.full_like(truth, chosen)),
                predictions=torch.full_like(split.test, chosen),
                scores=scores.unsqueeze(1).expand(-1, len(split.test)),
            )
        )
    return given.scored("majority", "class", answers)


def _counts(neighbours: Sequence[int] | None, available: int) -> tuple[int, ...]:
    """The numbers of neighbours to try, ascending; refuse what no training set can provide."""
    if neighbours is None:
        return tuple(count for count in NEIGHBOURS if count <= available)
    wrong = [count for count in neighbours if not 1 <= count <= available]
    if wrong or not neighbours:
        given = ", ".join(map(str, neighbours)) or "none"
        raise SettingsError(
            "Numbers of neighbours must lie between 1 and the size of the smallest training set, "
            f"{available}. Got {given}."
        )
    return tuple(sorted(set(neighbours)))


def _by_vote(
    rows: Float[Tensor, "nodes dim"], given: ProbeInput, split: Split, tried: Sequence[int]
) -> Answers:
    """Choose the number of neighbours on the validation nodes, then answer the test nodes."""
    truth = given.labels[split.validation]
    predictions = _nearest_votes(rows, given, split, tried, split.validation).argmax(dim=1)
    hits = [accuracy(truth, predicted) for predicted in predictions]
    best = max(range(len(tried)), key=hits.__getitem__)
    votes = _nearest_votes(rows, given, split, tried[best : best + 1], split.test)[0]
    return Answers(
        choice=tried[best],
        step=None,
        validation=hits[best],
        predictions=votes.argmax(dim=0),
        scores=votes,
    )


def _nearest_votes(
    rows: Float[Tensor, "nodes dim"],
    given: ProbeInput,
    split: Split,
    tried: Sequence[int],
    nodes: Int[Tensor, " asked"],
) -> Float[Tensor, "tried classes asked"]:
    """Votes for every class by the nearest training nodes, for each number of them, on the CPU.

    To the votes of the first k neighbours comes a part below one half that only decides ties: sums
    of k cosines differ by 2k at most; divided by 2k + 1, never by a whole vote.
    """
    known = rows[split.train.to(rows.device)]
    classes = one_hot(given.labels[split.train], given.num_classes).to(rows)
    widest = max(len(known), tried[-1] * given.num_classes)
    blocks = []
    for block in torch.split(nodes.to(rows.device), max(1, BLOCK_ENTRIES // widest)):
        similar, nearest = (rows[block] @ known.t()).topk(tried[-1], dim=1)
        votes = classes[nearest].cumsum(dim=1)
        similarity = (classes[nearest] * similar.unsqueeze(2)).cumsum(dim=1)
        counted = [votes[:, k - 1] + similarity[:, k - 1] / (2 * k + 1) for k in tried]
        blocks.append(torch.stack(counted).transpose(1, 2).cpu())
    return torch.cat(blocks, dim=2)


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
        graph: Of at most `MOST_TWIN_NODES` nodes; its features are not looked at.
        labels: Classes from 0 on, -1 for none.
        splits: A kind of split to draw, or the splits themselves.
        num_classes: Classes of the data set, if the last ones have no node here.
        masks: The published splits, for `splits="published"`.
    """
    if graph.num_nodes > MOST_TWIN_NODES:
        raise GraphError(
            "The nearest neighbour by neighbour sets needs a graph of at most "
            f"{MOST_TWIN_NODES:,} nodes. Got {graph.num_nodes:,}."
        )
    given = ProbeInput.read(torch.zeros(graph.num_nodes, 1), labels, splits, num_classes, masks)
    classes = given.labels.numpy()
    trains = [np.isin(np.arange(len(classes)), split.train.numpy()) for split in given.splits]
    blocks: list[list[Votes]] = [[] for _ in trains]
    for similarity in _similarities(graph):
        for train, votes in zip(trains, blocks, strict=True):
            votes.append(_block_votes(similarity, train, classes, given.num_classes))
    answers = []
    for split, parts in zip(given.splits, blocks, strict=True):
        table = torch.from_numpy(np.concatenate(parts))
        predictions = table.argmax(dim=1)
        answers.append(
            Answers(
                choice=1,
                step=None,
                validation=accuracy(given.labels[split.validation], predictions[split.validation]),
                predictions=predictions[split.test],
                scores=(table / table.sum(dim=1, keepdim=True)).t()[:, split.test].float(),
            )
        )
    return given.scored("twins", "neighbours", answers)


def _similarities(graph: Graph) -> Iterator[scipy.sparse.csr_array]:
    """Blocks of rows, in order: how similar each node's neighbour set is to that of all others.

    The entry is c^2 / d for c common neighbours with a node of degree d. In a row it orders as the
    cosine does, and as a quotient of small whole numbers it is level exactly where cosines are.
    """
    rows, columns = graph.edge_index.cpu().numpy()
    size = (graph.num_nodes, graph.num_nodes)
    neighbours = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=size)
    degrees = neighbours.sum(axis=1)
    step = max(1, TWIN_BLOCK_ENTRIES // graph.num_nodes)
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
