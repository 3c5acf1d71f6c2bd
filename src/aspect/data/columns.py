"""Columns of a node table: what each of them holds, and its values.

A column of a text table is of the first kind that fits all of its cells: numbers, truth values,
dates as ISO 8601 writes them, else text. One that is a number or a date but for a few cells is
refused, for those are mistakes more often than categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.encoder import Kind, ParsedColumn
from aspect.data.features import merged_integers
from aspect.data.graph import check_weights
from aspect.data.table_files import TableFile
from aspect.errors import GraphError, shown

# Cells of a text table that mean "no value" among features and labels; among ids they are names.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|infinity|Inf|Infinity)$"
ISO_DATE = r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([T ][0-9:.]+ ?(Z|[+-][0-9:]+)?)?$"
COMMA_NUMBER = r"^[+-]?[0-9.]*[0-9],[0-9]+$|^[+-]?[0-9]{1,3}(,[0-9]{3})+([.][0-9]+)?$"
OTHER_DATE = r"^[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{2}|[0-9]{4})$"
# Columns that look like something else than text, with what is wrong and how it should be written.
UNCLEAR = {
    OTHER_DATE: "dates, but not which part is the day. Write them as 2024-12-31",
    COMMA_NUMBER: "numbers with commas. Write 1.5 for 1,5 and 1500 for 1,500",
}
TRUE, FALSE = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
EMPTY_TYPES = {
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.timestamp("us"),
    "text": pa.string(),
}
EXACT_FLOAT64 = 2**53  # from there on neighbouring integers may be one
MICROSECONDS_PER_DAY = 86_400_000_000


def parse_column(source: TableFile, name: str, kind: Kind | None = None) -> ParsedColumn:
    """The values of a column; with a kind, refused where they are of another one."""
    cells = _cells(source, name)
    is_empty = kind is not None and not source.is_text and cells.null_count == len(cells)
    if is_empty or pa.types.is_null(cells.type):  # no cell has a value, which fits every kind
        cells = pa.chunked_array([pa.nulls(len(cells), EMPTY_TYPES[kind or "number"])])
    found = kind or _kind_of(source, name, cells)
    if found == "text":
        return ParsedColumn(name, "text", _texts(source, name, cells))
    parse = {"number": _numbers, "boolean": _booleans, "date": _dates}[found]
    return ParsedColumn(name, found, parse(source, name, cells))


def _cells(source: TableFile, name: str, missing: Sequence[str] = MISSING) -> pa.ChunkedArray:
    """The column; of a text table trimmed, and null where the cell means no value."""
    column = source.table.column(name)
    if not source.is_text:
        return column
    cells = pc.ascii_trim_whitespace(column)
    is_missing = pc.is_in(cells, value_set=pa.array(missing))
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), cells)


def label_cells(source: TableFile, name: str) -> list[str | None]:
    """Labels as strings, None where missing; integers that gaps have made floats are integers."""
    cells = _cells(source, name)
    try:
        if source.is_text:
            cells = pc.replace_substring_regex(cells, r"^([+-]?[0-9]+)[.]0*$", r"\1")
        elif pa.types.is_floating(cells.type):
            wide = cells.cast(pa.float64())
            cells = pc.if_else(pc.is_nan(wide), None, wide).cast(pa.int64())
        texts = pc.cast(cells, pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise GraphError(
            f"Labels must be classes: strings or integers. Column {name!r} is of type "
            f"{cells.type}, or has fractions or infinities."
        ) from error
    return [None if cell is None or cell in MISSING else cell for cell in texts]


def edge_weights(
    source: TableFile, name: str, unweighted: bool = False, notices: list[str] | None = None
) -> Float[Tensor, " pairs"]:
    """The weights, checked, or ones; zero is no edge, and an empty cell counts as one: a notice."""
    cells = _cells(source, name, missing=("",))
    try:
        numbers = pc.cast(cells, pa.float64(), safe=False).fill_null(1).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        wrong = f"the type {cells.type}"
        if source.is_text:
            is_number = pc.match_substring_regex(cells, f"{NUMBER}|^(?i)nan$").fill_null(True)
            wrong = _listed(source, name, ~is_number.to_numpy())
        raise GraphError(
            f"Edge weights must be positive numbers. Column {name!r} of {source.called} has "
            f"{wrong}. Fix or empty these cells."
        ) from error
    weights = torch.tensor(numbers)
    if notices is not None and cells.null_count:
        notices.append(f"{cells.null_count} edges without a weight weigh one.")
    if unweighted:
        return (weights != 0).double()
    check_weights(weights, source.place)
    return weights


def _kind_of(source: TableFile, name: str, cells: pa.ChunkedArray) -> Kind:
    if not source.is_text:
        return _kind_of_type(source, name, cells.type)
    present = len(cells) - cells.null_count
    for kind, pattern in (("number", NUMBER), ("date", ISO_DATE)):
        fits = pc.match_substring_regex(cells, pattern)
        count = pc.sum(fits).as_py() or 0
        if count == present:
            return kind  # type: ignore[return-value]  # of a tuple of literals
        if count > present / 2:
            raise GraphError(
                f"Column {name!r} of {source.called} holds {kind}s but for "
                f"{_listed(source, name, ~fits.fill_null(True).to_numpy())}. Fix or empty these "
                f"cells, or pass --categorical {name} or --drop {name}."
            )
    if pc.all(pc.is_in(pc.utf8_lower(cells), value_set=pa.array([*TRUE, *FALSE, None]))).as_py():
        return "boolean"
    for pattern, told in UNCLEAR.items():
        if (pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0) > present / 2:
            raise GraphError(
                f"Column {name!r} of {source.called} looks like {told}, or pass "
                f"--categorical {name} or --drop {name}."
            )
    return "text"


def _kind_of_type(source: TableFile, name: str, kind: pa.DataType) -> Kind:
    """By the type of a Parquet column: strings are text even where they spell numbers."""
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    raise GraphError(
        f"Feature columns must be numbers, truth values, dates or text. Got {name!r} of type "
        f"{kind} in {source.called}. Train without it: --drop {name}."
    )


def _listed(source: TableFile, name: str, rows: NDArray[Any]) -> str:
    """The first cells of these rows and where they stand."""
    column = source.table.column(name)
    return shown(
        np.flatnonzero(rows).tolist(),
        lambda row: f"{column[row].as_py()!r} in {source.place(row)}",
    )


def refused_gaps(source: TableFile, name: str, rows: NDArray[np.bool_]) -> GraphError:
    """An error for gaps, or infinite numbers, that nothing fills."""
    return GraphError(
        f"Features must be there and finite. Missing, NaN or infinite in column {name!r} of "
        f"{source.called}: {source.places(np.flatnonzero(rows).tolist())}. Fix them, pass "
        f"--impute mean (or zero, or indicator), or train without it: --drop {name}."
    )


def _other_kind(source: TableFile, name: str, kind: str, got: str) -> GraphError:
    return GraphError(f"Column {name!r} of {source.called} must hold {kind}. Got {got}.")


def _numbers(source: TableFile, name: str, cells: pa.ChunkedArray) -> NDArray[np.float64]:
    """Refused where the column holds more than float32 can."""
    if source.is_text:
        wrong = ~pc.match_substring_regex(cells, NUMBER).fill_null(True).to_numpy()
        if wrong.any():
            raise _other_kind(source, name, "numbers", _listed(source, name, wrong))
        integers = pc.match_substring_regex(cells, INTEGER).fill_null(False).to_numpy()
    elif _kind_of_type(source, name, cells.type) not in ("number", "boolean"):
        raise _other_kind(source, name, "numbers", f"the type {cells.type}")
    else:
        integers = np.full(len(cells), pa.types.is_integer(cells.type))
    values: NDArray[np.float64] = pc.cast(cells, pa.float64(), safe=False).to_numpy().copy()
    lost = integers & ((np.abs(values) >= EXACT_FLOAT64) | merged_integers(values, integers))
    if lost.any():
        raise GraphError(
            "Integers in feature columns must stay different as float32, and lie below 2**53. "
            f"Column {name!r} has {_listed(source, name, lost)}. If they are identifiers, "
            f"train without them (--drop {name}) or with --categorical {name}."
        )
    with np.errstate(over="ignore"):
        large = np.isinf(values.astype(np.float32)) & np.isfinite(values)
    if large.any():
        raise GraphError(
            f"Features must fit float32, up to 3.4e38. Column {name!r} has "
            f"{_listed(source, name, large)}. Rescale it."
        )
    return values


def _booleans(source: TableFile, name: str, cells: pa.ChunkedArray) -> NDArray[np.float64]:
    if source.is_text:
        words = pc.utf8_lower(cells)
        known = pc.is_in(words, value_set=pa.array([*TRUE, "1", *FALSE, "0", None])).to_numpy()
        if not known.all():
            raise _other_kind(source, name, "truth values", _listed(source, name, ~known))
        truth = pc.is_in(words, value_set=pa.array([*TRUE, "1"]))
        cells = pc.if_else(pc.is_null(cells), pa.scalar(None, pa.bool_()), truth)
    elif not pa.types.is_boolean(cells.type):
        raise _other_kind(source, name, "truth values", f"the type {cells.type}")
    values: NDArray[np.float64] = pc.cast(cells, pa.float64()).to_numpy().copy()
    return values


def _dates(source: TableFile, name: str, cells: pa.ChunkedArray) -> NDArray[np.float64]:
    """Days since 1970."""
    if source.is_text:
        import pandas as pd

        texts = cells.to_pandas()
        days = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        wrong = days.isna().to_numpy() & ~texts.isna().to_numpy()
        if wrong.any():
            raise _other_kind(source, name, "dates as 2024-12-31", _listed(source, name, wrong))
        cells = pa.chunked_array([pa.array(days)])
    elif _kind_of_type(source, name, cells.type) != "date":
        raise _other_kind(source, name, "dates", f"the type {cells.type}")
    zone = cells.type.tz if pa.types.is_timestamp(cells.type) else None
    stamps = pc.cast(pc.cast(cells, pa.timestamp("us", zone), safe=False), pa.int64())
    values: NDArray[np.float64] = pc.cast(stamps, pa.float64(), safe=False).to_numpy().copy()
    return values / MICROSECONDS_PER_DAY


def _texts(source: TableFile, name: str, cells: pa.ChunkedArray) -> NDArray[Any]:
    try:
        texts = pc.cast(cells, pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _other_kind(source, name, "categories", f"the type {cells.type}") from error
    return np.array([*texts, None], dtype=object)[:-1]  # one None, so that no text becomes a row
