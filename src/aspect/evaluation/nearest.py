"""The nodes whose embeddings are most similar to that of a node, by cosine."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from aspect.errors import GraphError, SettingsError
from aspect.evaluation.result import read_embeddings, unit_rows

MOST_COMPARED = 10_000  # ids that a wrong one is compared with


@dataclass(frozen=True, eq=False)
class Nearest:
    """Rows of embeddings, the most similar first."""

    rows: Int[Tensor, " found"]
    cosines: Float[Tensor, " found"]


def nearest_nodes(embeddings: Tensor | ArrayLike, row: int, k: int = 10) -> Nearest:
    """The k rows with the largest cosine to a row, or all others where there are fewer.

    Exact: one row is compared with every other one. Equal ones come in the order of their rows.
    """
    rows = read_embeddings(embeddings)
    if not 0 <= row < len(rows):
        raise SettingsError(f"The row must lie between 0 and {len(rows) - 1}. Got {row}.")
    if k < 1:
        raise SettingsError(f"k must be at least 1. Got {k}.")
    units = unit_rows(rows.double())
    if not bool(units[row].any()):
        raise GraphError(
            f"The embedding of row {row} is all zeros: it has no direction, and a cosine with it "
            "no meaning."
        )
    cosines = (units @ units[row]).clamp(-1, 1)
    cosines[row] = -2  # below every other, so that the row itself is last
    order = cosines.argsort(descending=True, stable=True)[: min(k, len(rows) - 1)]
    return Nearest(order, cosines[order])


def row_of(node: str, ids: Sequence[str] | None, num_nodes: int) -> int:
    """The row of a node by its id; without ids, by its number."""
    names = [str(row) for row in range(num_nodes)] if ids is None else list(ids)
    if node in names:
        return names.index(node)
    near = difflib.get_close_matches(node, names[:MOST_COMPARED], n=1, cutoff=0.5)
    offer = f" Did you mean {near[0]!r}?" if near else ""
    kind = f"a row number from 0 to {num_nodes - 1}" if ids is None else "an id of the graph"
    raise SettingsError(f"The node must be {kind}. Got {node!r}.{offer}")
