"""Two probes without training: cosine nearest neighbours, and the most frequent class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import one_hot

from aspect.data.splits import Split, SplitKind
from aspect.errors import SettingsError
from aspect.evaluation.inputs import ProbeInput, read_labels, unit_rows
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.result import Answers, ProbeResult, score

__all__ = ["knn_probe", "majority_probe"]

NEIGHBOURS = (1, 3, 5, 10, 20, 50)

# Entries of a block of similarities or votes: 64 MiB of float32.
BLOCK_ENTRIES = 2**24


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
    scores = [
        score(_by_vote(rows, given, split, tried), given.labels, split, given.num_classes)
        for split in given.splits
    ]
    return ProbeResult("neighbours", "neighbours", given.num_classes, tuple(scores))


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
    nothing = torch.zeros(len(classes), 1)
    given = ProbeInput.read(nothing, classes, splits, num_classes, masks)
    scores = [
        score(_by_majority(given, split), given.labels, split, given.num_classes)
        for split in given.splits
    ]
    return ProbeResult("majority", "class", given.num_classes, tuple(scores))


def _by_majority(given: ProbeInput, split: Split) -> Answers:
    truth = given.labels[split.validation]
    chosen = int(torch.bincount(truth, minlength=given.num_classes).argmax())
    scores = one_hot(torch.tensor(chosen), given.num_classes).float()
    return Answers(
        choice=chosen,
        step=None,
        validation=accuracy(truth, torch.full_like(truth, chosen)),
        predictions=torch.full_like(split.test, chosen),
        scores=scores.unsqueeze(1).expand(-1, len(split.test)),
    )


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
    predictions = _votes(rows, given, split, tried, split.validation).argmax(dim=1)
    hits = [accuracy(truth, each) for each in predictions]
    best = max(range(len(tried)), key=hits.__getitem__)
    votes = _votes(rows, given, split, tried[best : best + 1], split.test)[0]
    return Answers(
        choice=tried[best],
        step=None,
        validation=hits[best],
        predictions=votes.argmax(dim=0),
        scores=votes,
    )


def _votes(
    rows: Float[Tensor, "nodes dim"],
    given: ProbeInput,
    split: Split,
    tried: Sequence[int],
    nodes: Int[Tensor, " asked"],
) -> Float[Tensor, "tried classes asked"]:
    """Votes for every class by the nearest training nodes, for each number of them, on the CPU."""
    known = rows[split.train.to(rows.device)]
    classes = one_hot(given.labels[split.train], given.num_classes).to(rows)
    widest = max(len(known), tried[-1] * given.num_classes)
    blocks = []
    for block in torch.split(nodes.to(rows.device), max(1, BLOCK_ENTRIES // widest)):
        similar, nearest = (rows[block] @ known.t()).topk(tried[-1], dim=1)
        blocks.append(_count_votes(similar, classes[nearest], tried).cpu())
    return torch.cat(blocks, dim=2)


def _count_votes(
    similar: Float[Tensor, "asked nearest"],
    classes: Float[Tensor, "asked nearest classes"],
    tried: Sequence[int],
) -> Float[Tensor, "tried classes asked"]:
    """Votes of the first k neighbours, plus a share below one half that only decides ties."""
    votes = classes.cumsum(dim=1)
    similarity = (classes * similar.unsqueeze(2)).cumsum(dim=1)
    # Sums of k cosines differ by 2k at most: divided by 2k + 1, never by a whole vote.
    counted = [votes[:, k - 1] + similarity[:, k - 1] / (2 * k + 1) for k in tried]
    return torch.stack(counted).transpose(1, 2)
