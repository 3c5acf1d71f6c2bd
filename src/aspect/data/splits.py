"""Which nodes a probe learns from, which choose its settings, and which are looked at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from aspect.data.graph import PARTS, UNLABELLED, check_masks
from aspect.errors import GraphError, SettingsError, UnknownNameError, shown

SplitKind = Literal["random", "published", "class-balanced", "search", "class-balanced-search"]

# The ten seeds of PolyGCL's public code, for numpy's legacy RandomState: the newer generators would
# draw other nodes, and the published figures stand on these.
SPLIT_SEEDS = (
    1941488137,
    4198936517,
    983997847,
    4023022221,
    4019585660,
    2108550661,
    1648766618,
    629014539,
    3212139042,
    2424918363,
)

# Seeds of the splits that settings are searched on, and that no table reports.
SEARCH_SEEDS = (
    3141592653,
    2718281828,
    1618033988,
    1414213562,
    1732050807,
    2236067977,
    2645751311,
    3316624790,
    3605551275,
    577215664,
)

TRAIN_SHARE = 0.6  # of class-balanced splits
HELD_OUT_SHARE = 0.2  # for validation, and in stratified splits for test as well


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of nodes, none of them empty; each is kept in ascending order."""

    train: Tensor  # int64 on the CPU: the probe learns from these
    validation: Tensor  # these choose its settings
    test: Tensor  # looked at once, after every choice

    def __post_init__(self) -> None:
        for part in fields(self):
            nodes = _checked_nodes(part.name, getattr(self, part.name))
            object.__setattr__(self, part.name, nodes)
        members = torch.cat(self.parts)
        nodes, times = torch.unique(members, return_counts=True)
        if len(nodes) < len(members):
            twice = shown(nodes[times > 1].tolist())
            raise GraphError(f"The parts of a split must not overlap. Got twice: nodes {twice}.")

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Training, validation and test nodes, in this order."""
        return self.train, self.validation, self.test

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of training, validation and test nodes."""
        return len(self.train), len(self.validation), len(self.test)


def make_splits(
    kind: SplitKind | str,
    labels: Int[Tensor, " nodes"],
    num_classes: int,
    count: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
) -> list[Split]:
    """The first `count` splits of a kind, the same on every machine; unlabelled nodes are in none.

    - `random`: stratified 60/20/20. Of a class with m nodes, round(0.2 m) are for validation and as
      many for test, at least one each, the rest for training. A class of two nodes has none for
      validation, a class of one node is in training alone.
    - `search`: drawn likewise with seeds of their own, for the search of settings.
    - `class-balanced` (Chien et al., as in PolyGCL's code): of n labelled nodes in C classes,
      round(0.6 n / C) training nodes of every class, a smaller class whole; round(0.2 n) of the
      rest for validation; what is left for test. Small classes are then missing from the test set.
    - `class-balanced-search`: drawn likewise with the seeds of `search`.
    - `published`: the `masks` of the data set's file, keys `train`, `validation` and `test`.

    Those that are drawn have ten fixed seeds, hence at most ten splits. Without `count` there are
    ten, or as many as are published.
    """
    if kind not in get_args(SplitKind):
        raise UnknownNameError("kind of split", str(kind), get_args(SplitKind))
    labels = labels.detach().cpu()
    _check_labels(labels, num_classes)
    published = _published(masks, labels) if kind == "published" else []
    available = len(published or SPLIT_SEEDS)
    number = available if count is None else count
    if not 1 <= number <= available:
        raise SettingsError(f"Number of {kind} splits must be from 1 to {available}. Got {count}.")
    if kind == "published":
        return published[:number]
    draw = _class_balanced if kind.startswith("class-balanced") else _stratified
    seeds = SEARCH_SEEDS if kind.endswith("search") else SPLIT_SEEDS
    return [draw(labels.numpy(), num_classes, seed) for seed in seeds[:number]]


def only_targets(split: Split, targets: Sequence[int]) -> Split:
    """The split with the targets among its test nodes alone to test on; none: all test nodes."""
    if not targets:
        return split
    tested = split.test[torch.isin(split.test, torch.tensor(targets))]
    if len(tested) == 0:
        raise GraphError(
            "A targeted attack is scored at its targets, and none of its targets is a test node of "
            f"the split. Got the targets {shown(targets)}: attack test nodes, for this split."
        )
    return replace(split, test=tested)


def published_sha256(
    kind: SplitKind | str, masks: Mapping[str, Bool[Tensor, "splits nodes"]]
) -> str | None:
    """Checksum of the published splits, which the graph's leaves out; None for drawn ones."""
    if kind != "published":
        return None
    digest = hashlib.sha256()
    for name, mask in sorted(masks.items()):
        digest.update(f"{name} {list(mask.shape)}\n".encode())
        digest.update(mask.cpu().numpy().astype(np.uint8).tobytes())
    return digest.hexdigest()


def check_splits(splits: Sequence[Split], labels: Int[Tensor, " nodes"]) -> None:
    """Refuse splits that name unknown or unlabelled nodes, or that teach one class only."""
    if not splits:
        raise GraphError("A probe needs at least one split. Got none.")
    for number, split in enumerate(splits):
        nodes = torch.cat(split.parts)
        outside = nodes[nodes >= len(labels)]
        if len(outside):
            raise GraphError(
                f"Splits must name nodes 0 to {len(labels) - 1}. "
                f"Split {number} names {shown(outside.tolist())}."
            )
        unlabelled = nodes[labels[nodes] == UNLABELLED]
        if len(unlabelled):
            raise GraphError(
                f"Nodes of a split must have a label. "
                f"Split {number} holds unlabelled nodes {shown(unlabelled.tolist())}."
            )
        classes = torch.unique(labels[split.train])
        if len(classes) < 2:  # noqa: PLR2004 - one class leaves nothing to tell apart
            raise GraphError(
                f"A training set must hold at least 2 classes. Split {number} has 1 class."
            )


def _checked_nodes(name: str, nodes: Tensor) -> Int[Tensor, " part"]:
    """The nodes of one part on the CPU, ascending; refuse what cannot be node numbers."""
    if nodes.ndim != 1 or nodes.is_floating_point() or nodes.dtype == torch.bool:
        raise GraphError(
            f"The {name} nodes of a split must be a list of integers. "
            f"Got {nodes.dtype} of shape {list(nodes.shape)}."
        )
    if len(nodes) == 0:
        raise GraphError(f"The {name} nodes of a split must not be empty. Got 0 nodes.")
    nodes = nodes.detach().cpu().long().sort().values
    if nodes[0] < 0:
        listed = shown(nodes[nodes < 0].tolist())
        raise GraphError(f"The {name} nodes of a split must be 0 or more. Got {listed}.")
    return nodes


def _check_labels(labels: Int[Tensor, " nodes"], num_classes: int) -> None:
    """Refuse labels that no probe could learn from."""
    if len(labels) == 0 or bool((labels == UNLABELLED).all()):
        raise GraphError("Splits need labels, but no node has one. Give a label table or column.")
    wrong = labels[(labels < UNLABELLED) | (labels >= num_classes)]
    if len(wrong):
        raise GraphError(
            f"Labels must be classes 0 to {num_classes - 1}, or {UNLABELLED} for none. "
            f"Got {shown(torch.unique(wrong).tolist())}."
        )
    present = torch.unique(labels[labels != UNLABELLED])
    if len(present) < 2:  # noqa: PLR2004 - one class leaves nothing to tell apart
        raise GraphError("Labels must name at least 2 classes. Got 1 class.")


def _class_balanced(labels: np.ndarray, num_classes: int, seed: int) -> Split:
    """One split with equally many training nodes of every class; the order of draws matters."""
    state = np.random.RandomState(seed)
    labelled = np.flatnonzero(labels != UNLABELLED)
    per_class = round(TRAIN_SHARE * len(labelled) / num_classes)
    num_validation = round(HELD_OUT_SHARE * len(labelled))
    chosen = []
    for label in range(num_classes):
        members = np.flatnonzero(labels == label)
        whole = len(members) < per_class
        chosen.append(members if whole else state.choice(members, per_class, replace=False))
    train = np.concatenate(chosen)
    rest = np.setdiff1d(labelled, train)
    _check_room(len(train), num_validation, len(rest) - num_validation, len(labelled), num_classes)
    validation = state.choice(rest, num_validation, replace=False)
    parts = train, validation, np.setdiff1d(rest, validation)
    return Split(*map(torch.from_numpy, parts))


def _stratified(labels: np.ndarray, num_classes: int, seed: int) -> Split:
    """One split in which every class has its part of training, validation and test nodes."""
    state = np.random.RandomState(seed)
    drawn = []
    for label in range(num_classes):
        members = state.permutation(np.flatnonzero(labels == label))
        # A node for every part where there are three; of two, none is for validation.
        held_out = max(1, round(HELD_OUT_SHARE * len(members)))
        few = len(members) < len(PARTS)
        num_validation, num_test = (0, max(len(members) - 1, 0)) if few else (held_out, held_out)
        drawn.append(np.split(members, [num_validation, num_validation + num_test]))
    validation, test, train = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    sizes = len(train), len(validation), len(test)
    _check_room(*sizes, sum(sizes), num_classes)
    return Split(*map(torch.from_numpy, (train, validation, test)))


def _check_room(train: int, validation: int, test: int, labelled: int, num_classes: int) -> None:
    if min(train, validation, test) < 1:
        raise GraphError(
            f"{labelled} labelled nodes in {num_classes} classes are too few to split: "
            f"they give {train} training, {validation} validation and {max(test, 0)} test nodes."
        )


def _published(masks: Mapping[str, Tensor] | None, labels: Int[Tensor, " nodes"]) -> list[Split]:
    """Splits of the masks; refuse masks that are missing or of another graph."""
    if not masks:
        raise GraphError(
            "No masks were given: the graph's source publishes no splits, or they were not passed "
            "on. Pass masks=..., or use random splits."
        )
    check_masks(masks, len(labels))
    labelled = labels != UNLABELLED
    return [
        Split(*((mask.cpu() & labelled).nonzero().flatten() for mask in parts))
        for parts in zip(*(masks[part] for part in PARTS), strict=True)
    ]
