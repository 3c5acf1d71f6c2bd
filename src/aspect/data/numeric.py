"""Columns of a table into a feature matrix; what is no finite number is listed, never guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from aspect.data.graph import Features
from aspect.data.matrices import imputed
from aspect.errors import GraphError, shown

__all__ = ["MISSING", "feature_matrix", "is_number"]

# Cells of a text table that mean "no value" among features and labels; among ids they are names.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")

LARGEST_EXACT = 2**53  # from there on neighbouring integers are one floating-point number
INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|infinity|Inf|Infinity)$"


def feature_matrix(
    table: pa.Table, ids: list[str], *, is_text: bool, impute: str | None
) -> tuple[Features, list[str]]:
    """All columns of the table as float32, and what was imputed.

    Text tables are parsed cell by cell; in typed ones (`is_text` false) a column of strings is text
    even if it spells numbers. Integers from 2**53 on are refused: they are identifiers, and would
    lose their last digits.
    """
    _refuse_other_types(table, ids, is_text)
    matrix = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for k, name in enumerate(table.column_names):
        column = table.column(name)
        numbers = _parsed(column) if is_text else column
        _refuse_long_integers(column, numbers, name, ids, is_text)
        values = pc.cast(numbers, pa.float64(), safe=False)
        matrix[:, k] = _narrowed(values.to_numpy(), name, ids)
    if impute is None:
        _refuse_missing(matrix, table.column_names, ids)
        return torch.from_numpy(matrix), []
    return imputed(torch.from_numpy(matrix), impute)


def is_number(cell: str) -> bool:
    """Whether a cell of a text table spells a number."""
    return bool(pc.match_substring_regex(pa.scalar(cell), NUMBER).as_py())


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.ascii_trim_whitespace(column)


def _is_missing(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(cells, value_set=pa.array(MISSING))


def _parsed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    cells = _trimmed(column)
    present = pc.if_else(_is_missing(cells), pa.scalar(None, pa.string()), cells)
    return pc.cast(present, pa.float64())


def _refuse_other_types(table: pa.Table, ids: list[str], is_text: bool) -> None:
    odd = [
        found
        for name in table.column_names
        if (found := _other_type(table.column(name), name, ids, is_text)) is not None
    ]
    if odd:
        raise GraphError(
            f"Feature columns must be numbers. Got {shown(odd)}. "
            "Encode them as numbers (one column per value) or leave them out; "
            "a column of classes is named by --label."
        )


def _other_type(column: pa.ChunkedArray, name: str, ids: list[str], is_text: bool) -> str | None:
    if not is_text:
        kind = column.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return None if numeric or pa.types.is_boolean(kind) else f"{name!r} of type {kind}"
    cells = _trimmed(column)
    fine = pc.or_(_is_missing(cells), pc.match_substring_regex(cells, NUMBER))
    if pc.all(fine).as_py():
        return None
    row = pc.index(fine, pa.scalar(False)).as_py()
    return f"{name!r} with {column[row].as_py()!r} at node {ids[row]!r}"


def _refuse_long_integers(
    column: pa.ChunkedArray, numbers: pa.ChunkedArray, name: str, ids: list[str], is_text: bool
) -> None:
    if not is_text and not pa.types.is_integer(numbers.type):
        return
    outside = pc.or_(
        pc.greater_equal(numbers, LARGEST_EXACT), pc.less_equal(numbers, -LARGEST_EXACT)
    )
    if is_text:
        outside = pc.and_(outside, pc.match_substring_regex(_trimmed(column), INTEGER))
    long = pc.fill_null(outside, False)
    if not pc.any(long).as_py():
        return
    rows = np.flatnonzero(long.to_numpy())
    listed = shown(f"{column[int(row)].as_py()} at node {ids[row]!r}" for row in rows)
    raise GraphError(
        "Integers in feature columns must lie below 2**53 to be kept exactly. "
        f"Column {name!r} has {listed}. If they are identifiers, leave the column out."
    )


def _narrowed(values: NDArray[Any], name: str, ids: list[str]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    lost = np.isinf(narrow) & np.isfinite(values)
    if lost.any():
        listed = shown(f"{values[row]} at node {ids[row]!r}" for row in np.flatnonzero(lost))
        raise GraphError(
            f"Features must fit float32, up to 3.4e38. Column {name!r} has {listed}. Rescale it."
        )
    return narrow


def _refuse_missing(matrix: NDArray[np.float32], names: list[str], ids: list[str]) -> None:
    bad = ~np.isfinite(matrix)
    if not bad.any():
        return
    places = shown(f"row {ids[row]!r} column {names[k]!r}" for row, k in np.argwhere(bad))
    raise GraphError(
        f"Features must be finite numbers. Missing, NaN or infinite at {places}. "
        "Mend them, or pass --impute zero or --impute mean."
    )
