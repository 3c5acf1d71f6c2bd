"""Node ids of any kind, mapped to 0 ... n-1 out of core: sorted runs merged on disk, then searched.

Ids are int64, or texts as bytes. Without a node table the numbers follow the order of the ids;
with one they are the numbers of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aspect.errors import GraphError, shown
from aspect.scale.blocks import BlockFolder

SAMPLES = 1024  # of every run, by which the ranges are chosen that are merged at a time
COPIES = 4  # of an id in memory while a range is merged

Ids = NDArray[Any]


def write_id_run(
    folder: BlockFolder, name: str, ids: Ids, numbers: NDArray[np.int64] | None
) -> None:
    """Sort some ids and write them under that name, with their numbers if they have any."""
    if numbers is None:
        folder.write(f"{name}.ids.npy", np.unique(ids))
        return
    order = np.argsort(ids, kind="stable")
    folder.write(f"{name}.numbers.npy", numbers[order])
    folder.write(f"{name}.ids.npy", ids[order])


def merge_id_runs(
    folder: BlockFolder, runs: Sequence[str], known: str, *, has_numbers: bool, memory_bytes: int
) -> IdTable:
    """All ids in order, each once, in parts of which one fits the memory bound.

    Args:
        folder: Where the runs are, and the parts will be.
        runs: Names of the runs.
        known: What the names of the parts begin with.
        has_numbers: Whether the ids have numbers of their own; a repeated id is refused then.
        memory_bytes: The bound.
    """
    ids = [folder.read(f"{run}.ids.npy") for run in runs]
    borders = _borders(ids, memory_bytes)
    cuts = [[0, *np.searchsorted(run, borders).tolist(), len(run)] for run in ids]
    names = [f"{known}-{part:05d}" for part in range(len(borders) + 1)]
    for part, name in enumerate(names):
        if folder.has(f"{name}.ids.npy"):
            continue
        slices = [slice(cut[part], cut[part + 1]) for cut in cuts]
        merged = np.concatenate([run[rows] for run, rows in zip(ids, slices, strict=True)])
        if has_numbers:
            numbers = [folder.read(f"{run}.numbers.npy") for run in runs]
            given = [run[rows] for run, rows in zip(numbers, slices, strict=True)]
            order = np.argsort(merged, kind="stable")
            merged = merged[order]
            _refuse_repeated(merged)
            folder.write(f"{name}.numbers.npy", np.concatenate(given)[order])
        else:
            merged = np.unique(merged)
        folder.write(f"{name}.ids.npy", merged)
    return IdTable(
        [folder.read(f"{name}.ids.npy") for name in names],
        [folder.read(f"{name}.numbers.npy") for name in names] if has_numbers else None,
    )


class IdTable:
    """The number of every known id; in parts, each sorted and behind the one before."""

    def __init__(self, ids: Sequence[Ids], numbers: Sequence[NDArray[np.int64]] | None) -> None:
        self._ids, self._numbers = ids, numbers
        self._starts = np.cumsum([0, *map(len, ids)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def between(self, start: int, end: int) -> Ids:
        """The ids from one place in their order to before another."""
        parts = [
            part[max(0, start - first) : max(0, end - first)]
            for part, first in zip(self._ids, self._starts, strict=False)
        ]
        return np.concatenate(parts)

    def numbers(self, ids: Ids) -> NDArray[np.int64]:
        """The numbers of these ids; -1 for one that is not known."""
        if self._ids[0].dtype.kind == "S":
            ids = ids.astype("S")  # those of an array are integers
        order = np.argsort(ids, kind="stable")
        needles = ids[order]
        found = np.full(len(ids), -1, np.int64)
        for part, known in enumerate(self._ids):
            if not len(known):
                continue
            low = np.searchsorted(needles, known[0])
            high = np.searchsorted(needles, known[-1], side="right")
            places = np.searchsorted(known, needles[low:high])
            is_known = known[places] == needles[low:high]
            numbers = self._starts[part] + places
            if self._numbers is not None:
                numbers = self._numbers[part][places]
            found[order[low:high][is_known]] = numbers[is_known]
        return found


def shown_ids(ids: Ids) -> str:
    """The first of many ids, as the user wrote them."""
    texts = (
        each.decode(errors="replace") if isinstance(each, bytes) else each for each in ids.tolist()
    )
    return shown(texts, repr)


def _borders(runs: Sequence[Ids], memory_bytes: int) -> Ids:
    """Ids between which about equally many lie, so that one range of all runs fits the memory."""
    total = sum(run.nbytes for run in runs)
    parts = max(1, -(-COPIES * total // memory_bytes))
    samples = np.concatenate([run[:: max(1, len(run) // SAMPLES)] for run in runs])
    samples.sort()
    chosen = [len(samples) * part // parts for part in range(1, parts)]
    return np.unique(samples[chosen])


def _refuse_repeated(ordered: Ids) -> None:
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(repeated):
        raise GraphError(f"The ids of nodes must be unique. Repeated: {shown_ids(repeated)}.")
