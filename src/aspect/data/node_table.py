"""The node table: one row per node with its id, numeric features and perhaps a label."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int
from torch import Tensor

from aspect.data.columns import TableFile, check_header, delimiter_guess
from aspect.data.delimited import as_parsed
from aspect.data.graph import Features
from aspect.data.labelling import encode_labels
from aspect.data.numeric import MISSING, feature_matrix
from aspect.errors import FileError, GraphError, shown

__all__ = ["NodeTable", "folded", "folding_notices", "parse_nodes"]

ID_NAMES = ("id", "node", "node_id")
LABEL_NAMES = ("label", "y")


@dataclass(frozen=True, eq=False)
class NodeTable:
    """What a node table holds, in the order of its rows."""

    ids: tuple[str, ...]
    features: Features | None  # none if it has no further columns
    labels: Int[Tensor, " nodes"] | None
    class_names: tuple[str, ...]
    notices: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None  # none if there are no features
    integer_ids: bool = False  # the column of ids was of an integer type


def parse_nodes(
    source: TableFile, *, label: str | None, impute: str | None, with_features: bool = True
) -> NodeTable:
    """Take a table apart: the id column, the label column, and features for all others.

    The id column is called `id`, `node` or `node_id`, else it is the first; the label column is
    called `label` or `y`, or as `label` says.
    """
    check_header(source)
    _check_delimiter(source)
    id_name = next((name for name in source.names if name in ID_NAMES), source.names[0])
    label_name = _label_name(source, label, id_name)
    ids = source.ids(id_name).to_pylist()
    _check_unique(ids, source)
    notices = folding_notices(ids)
    rest = source.table.drop_columns([name for name in (id_name, label_name) if name is not None])
    features, feature_names = None, None
    if rest.num_columns and with_features:
        features, imputed = feature_matrix(rest, ids, is_text=source.is_text, impute=impute)
        notices += imputed
        feature_names = tuple(rest.column_names)
    labels, class_names = None, tuple[str, ...]()
    if label_name is not None:
        cells = _label_cells(source.table.column(label_name), label_name)
        labels, class_names = encode_labels(cells)
        notices += _label_notices(cells, class_names, label_name)
    return NodeTable(
        tuple(ids),
        features,
        labels,
        class_names,
        tuple(notices),
        feature_names=feature_names,
        integer_ids=source.has_integers(id_name),
    )


def folding_notices(ids: Sequence[str]) -> list[str]:
    """Say which ids a looser reader would merge: by case, spaces, Unicode form, leading zeros."""
    groups: dict[str, list[str]] = {}
    for node in ids:
        groups.setdefault(folded(node), []).append(node)
    merged = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not merged:
        return []
    return [
        "Some ids differ only in case, spaces, Unicode form or leading zeros, and are kept apart: "
        f"{shown(merged)}."
    ]


def folded(node: str) -> str:
    """An id as a looser reader would see it."""
    folded = unicodedata.normalize("NFC", node).strip().casefold()
    return folded.lstrip("0") or "0" if folded.isdecimal() else folded


def _check_delimiter(source: TableFile) -> None:
    guess = delimiter_guess(source.names[0]) if len(source.names) == 1 else None
    if source.is_text and guess is not None:
        raise FileError(
            f"{str(source.path)!r} has one column, read as {as_parsed(source.names)}. "
            f"If the delimiter is another, pass --delimiter {guess}."
        )


def _label_name(source: TableFile, label: str | None, id_name: str) -> str | None:
    others = [name for name in source.names if name != id_name]
    if label is not None:
        if label not in others:
            raise GraphError(
                f"The label column must be one of {as_parsed(others)}. "
                f"Got {label!r}, which {str(source.path)!r} does not have."
            )
        return label
    found = [name for name in LABEL_NAMES if name in others]
    if len(found) > 1:
        raise GraphError(
            f"{str(source.path)!r} has the columns {' and '.join(map(repr, found))}. "
            "Pass --label with the one that holds the classes."
        )
    return found[0] if found else None


def _check_unique(ids: list[str], source: TableFile) -> None:
    if len(set(ids)) == len(ids):
        return
    repeated = [f"{node!r} ({count} rows)" for node, count in Counter(ids).items() if count > 1]
    raise GraphError(
        f"Node ids must be unique. Repeated in {str(source.path)!r}: {shown(repeated)}."
    )


def _label_cells(column: pa.ChunkedArray, name: str) -> list[str | None]:
    """Labels as strings, None where missing; a column with gaps may keep integers as floats."""
    if pa.types.is_floating(column.type):
        values = column.to_numpy().astype(np.float64)
        known = ~np.isnan(values)
        if not bool((values[known] == np.round(values[known])).all()):
            raise GraphError(
                f"Labels must be classes, not measurements. Column {name!r} has fractions."
            )
        return [str(int(v)) if k else None for v, k in zip(values, known, strict=True)]
    try:
        cells = pc.cast(column, pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise GraphError(
            f"Labels must be strings or integers. Column {name!r} is of type {column.type}."
        ) from error
    return [None if cell is None or cell in MISSING else cell for cell in cells]


def _label_notices(cells: Sequence[str | None], class_names: Sequence[str], name: str) -> list[str]:
    missing = sum(cell is None for cell in cells)
    notices = [f"{missing} of {len(cells)} nodes have no label."] if missing else []
    if len(class_names) == len(cells):
        notices.append(f"Every node has a class of its own: is {name!r} the label column?")
    return notices
