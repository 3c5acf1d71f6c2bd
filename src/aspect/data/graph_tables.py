"""A graph from the user's own tables: an edge table and, mostly, a node table, as CSV or Parquet.

Ids are strings throughout: `007` and `7` are two nodes, and a node may be called `NA` or nothing at
all. Names of columns are compared without case. What is no finite number is listed, never guessed.
Methods are unweighted: a `weight` column is checked, then left aside with a notice.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.features import imputed
from aspect.data.graph import Features, Graph, LabelledGraph, encode_labels, label_graph, unlabelled
from aspect.data.source import NO_READING, Reading
from aspect.data.tables import TableFile, as_parsed, delimiter_guess, read_table
from aspect.errors import FileError, GraphError, shown

__all__ = ["read_tables"]

ID_NAMES = ("id", "node", "node_id")
LABEL_NAMES = ("label", "y")
END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))
WEIGHT = "weight"

# Cells of a text table that mean "no value" among features and labels; among ids they are names.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|infinity|Inf|Infinity)$"
EXACT_FLOAT32, EXACT_FLOAT64 = 2**24, 2**53  # from there on neighbouring integers may be one

Ends = tuple[pa.ChunkedArray, pa.ChunkedArray]  # ids of the sources and of the targets


@dataclass(frozen=True, eq=False)
class NodeTable:
    """What a node table holds, in the order of its rows."""

    ids: tuple[str, ...]
    features: Features | None = None  # none if it has no further columns
    feature_names: tuple[str, ...] | None = None
    labels: Int[Tensor, " nodes"] | None = None
    class_names: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    integer_ids: bool = False  # the column of ids was of an integer type


def read_tables(edges: Path | str, reading: Reading = NO_READING) -> LabelledGraph:
    """Read an edge table with its node table; without one, every node that has an edge."""
    text = (reading.encoding, reading.delimiter)
    table = None
    if reading.nodes is not None:
        table = _parse_nodes(read_table(Path(reading.nodes), *text), reading)
    source = read_table(Path(edges), *text)
    named, weight = _named_ends(source), _one_column(source, WEIGHT)
    # Nodes may be called `from` and `to` as well: a header with such names is one.
    _check_header(source, known=table.ids if table and not named else ())
    pair = named or _first_two(source, weight)
    ends = source.ids(pair[0]), source.ids(pair[1])
    notices = [] if weight is None else _weight_notices(source, weight)
    extra = [name for name in source.names if name not in (*pair, weight)]
    if extra:
        notices.append(f"Columns of the edge table left aside: {shown(map(repr, extra))}.")
    if table is None:
        table = _nodes_of(ends, integer_ids=all(map(source.has_integers, pair)))
        if source.is_text and not named:
            notices.append(_header_notice(source, pair, table.ids))
    features = table.features
    if features is None:
        # A column of zeros stands in for structural features; without them it is refused.
        features = torch.zeros(len(table.ids), 0 if reading.features is None else 1)
    graph = Graph.build(
        features,
        _numbered(ends, table.ids, source, reading.nodes),
        table.ids,
        feature_names=table.feature_names,
        integer_ids=table.integer_ids,
        directed_is_error=reading.directed == "error",
        notices=[*table.notices, *notices],
    )
    if table.labels is None:
        return unlabelled(graph)
    return label_graph(graph, table.labels, table.class_names)


def _check_header(source: TableFile, known: Sequence[str] = ()) -> None:
    """Refuse a text table whose first line is a row: it would be taken for names, and lost."""
    numbers = [name for name in source.names if _is_number(name.strip())]
    all_known = bool(known) and set(source.names) <= set(known)
    fractions = any("." in name for name in numbers)
    if source.is_text and (len(numbers) == len(source.names) or fractions or all_known):
        raise _no_header(source)


def _header_notice(source: TableFile, pair: Sequence[str], ids: Sequence[str]) -> str:
    """Say what was taken for a header where neither its names nor a node table confirm it."""
    if set(pair) & set(ids):
        raise _no_header(source)
    return (
        f"The first line of {str(source.path)!r} is taken for the names of its columns: "
        f"{as_parsed(source.names)}."
    )


def _no_header(source: TableFile) -> FileError:
    return FileError(
        f"The first line of {str(source.path)!r} must name the columns. "
        f"Got {as_parsed(source.names)}, which looks like a row. Add a header line."
    )


def _is_number(cell: str) -> bool:
    return bool(pc.match_substring_regex(pa.scalar(cell), NUMBER).as_py())


# The edge table


def _one_column(source: TableFile, name: str) -> str | None:
    return source.column_called([name], f"Rename or remove all but one {name!r}.")


def _named_ends(source: TableFile) -> tuple[str, str] | None:
    for names in END_NAMES:
        first, second = (_one_column(source, name) for name in names)
        if first is not None and second is not None:
            return first, second
    return None


def _first_two(source: TableFile, weight: str | None) -> tuple[str, str]:
    names = [name for name in source.names if name != weight]
    where = f"{str(source.path)!r}, whose first line is read as {as_parsed(source.names)}"
    if len(names) == 1:
        guess = delimiter_guess(names[0]) or "and the right one"
        raise FileError(
            f"An edge table must have two columns of node ids. Got one in {where}. "
            f"If the delimiter is another, pass --delimiter {guess}."
        )
    if len(names) > 2:  # noqa: PLR2004 - an edge has two ends
        raise FileError(
            "An edge table of more than two columns must name them source and target (and weight). "
            f"Got {len(names)} in {where}."
        )
    return names[0], names[1]


def _weight_notices(source: TableFile, name: str) -> list[str]:
    """Check the weights that are given; an empty cell is none, a written NaN is a wrong one."""
    column = source.table.column(name)
    if source.is_text:
        column = pc.ascii_trim_whitespace(column)
        present = pc.not_equal(column, "")
    else:
        present = pc.is_valid(column)
    try:
        values = pc.cast(column.filter(present), pa.float64(), safe=False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise GraphError(
            f"Edge weights must be positive numbers. Column {name!r} of {str(source.path)!r} "
            f"is of type {column.type} or has other cells ({error})."
        ) from error
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(wrong):
        rows = np.flatnonzero(present.to_numpy())
        listed = shown(f"{values[k]} in row {rows[k] + 1}" for k in wrong)
        raise GraphError(
            f"Edge weights must be positive numbers. Got {listed} of {str(source.path)!r}. "
            "Remove such edges, or the column: the methods are unweighted."
        )
    if bool((values == 1).all()):
        return []
    return ["Edge weights are left aside: the methods see the graph unweighted."]


def _nodes_of(ends: Ends, *, integer_ids: bool) -> NodeTable:
    both = pa.chunked_array([*ends[0].chunks, *ends[1].chunks], type=pa.string())
    ids = tuple(sorted(pc.unique(both).to_pylist()))
    return NodeTable(ids, notices=tuple(_folding_notices(ids)), integer_ids=integer_ids)


def _numbered(
    ends: Ends, ids: tuple[str, ...], source: TableFile, nodes: str | None
) -> Int[Tensor, "2 pairs"]:
    """Row numbers for ids, all known before any tensor of edges is built."""
    known = pa.array(ids, pa.string())
    numbers = [pc.index_in(end, value_set=known) for end in ends]
    unknown = {
        node: None
        for end, rows in zip(ends, numbers, strict=True)
        for node in end.filter(pc.is_null(rows)).to_pylist()
    }
    if unknown:
        raise GraphError(
            f"Edges of {str(source.path)!r} must join nodes of {str(nodes)!r}. "
            f"Not there: {shown(map(repr, unknown))}.{_near_misses(unknown, ids)}"
        )
    pairs = np.stack([rows.to_numpy() for rows in numbers]).astype(np.int64)
    return torch.from_numpy(pairs)


def _near_misses(unknown: Iterable[str], ids: tuple[str, ...]) -> str:
    """Point out ids that are known but for case, spaces, Unicode form or leading zeros."""
    known = {_folded(node): node for node in ids}
    near = [f"{node!r} and {known[_folded(node)]!r}" for node in unknown if _folded(node) in known]
    if not near:
        return ""
    return f" Some differ only in case, spaces, Unicode form or leading zeros: {shown(near)}."


# The node table


def _parse_nodes(source: TableFile, reading: Reading) -> NodeTable:
    """Take a table apart: the id column, the label column, and features for all others.

    The id column is called `id`, `node` or `node_id`, else it is the first; the label column is
    called `label` or `y`, or as the reading says.
    """
    _check_header(source)
    guess = delimiter_guess(source.names[0]) if len(source.names) == 1 else None
    if source.is_text and guess is not None:
        raise FileError(
            f"{str(source.path)!r} has one column, read as {as_parsed(source.names)}. "
            f"If the delimiter is another, pass --delimiter {guess}."
        )
    notices = []
    id_name = source.column_called(ID_NAMES, "Rename or remove all but the one with the ids.")
    if id_name is None:
        id_name = source.names[0]
        if source.is_text:
            notices.append(
                f"The first column of {str(source.path)!r}, {id_name!r}, is taken for the ids."
            )
    label_name = _label_name(source, reading.label, id_name)
    ids = source.ids(id_name).to_pylist()
    if len(set(ids)) < len(ids):
        repeated = [f"{node!r} ({count} rows)" for node, count in Counter(ids).items() if count > 1]
        raise GraphError(
            f"Node ids must be unique. Repeated in {str(source.path)!r}: {shown(repeated)}."
        )
    notices += _folding_notices(ids)
    table = NodeTable(tuple(ids), integer_ids=source.has_integers(id_name))
    rest = source.table.drop_columns([name for name in (id_name, label_name) if name is not None])
    if rest.num_columns and reading.features is None:
        columns = TableFile(source.path, rest, source.is_text)
        features, cleaned = _feature_matrix(columns, ids, reading.impute)
        notices += cleaned
        table = replace(table, features=features, feature_names=tuple(rest.column_names))
    if label_name is not None:
        cells = _label_cells(source.table.column(label_name), label_name)
        labels, class_names = encode_labels(cells)
        notices += _label_notices(cells, class_names, label_name)
        table = replace(table, labels=labels, class_names=class_names)
    return replace(table, notices=tuple(notices))


def _folding_notices(ids: Sequence[str]) -> list[str]:
    """Say which ids a looser reader would merge: by case, spaces, Unicode form, leading zeros."""
    groups: dict[str, list[str]] = {}
    for node in ids:
        groups.setdefault(_folded(node), []).append(node)
    merged = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not merged:
        return []
    return [
        "Some ids differ only in case, spaces, Unicode form or leading zeros, and are kept apart: "
        f"{shown(merged)}."
    ]


def _folded(node: str) -> str:
    """An id as a looser reader would see it."""
    folded = unicodedata.normalize("NFC", node).strip().casefold()
    return folded.lstrip("0") or "0" if folded.isdecimal() else folded


def _label_name(source: TableFile, label: str | None, id_name: str) -> str | None:
    others = [name for name in source.names if name != id_name]
    if label is None:
        return source.column_called(
            LABEL_NAMES, "Pass --label with the one that holds the classes."
        )
    if label not in others:
        raise GraphError(
            f"The label column must be one of {as_parsed(others)}. "
            f"Got {label!r}, which {str(source.path)!r} does not have."
        )
    return label


def _label_cells(column: pa.ChunkedArray, name: str) -> list[str | None]:
    """Labels as strings, None where missing; a column with gaps may keep integers as floats."""
    if pa.types.is_floating(column.type):
        values = column.to_numpy().astype(np.float64)
        known = ~np.isnan(values)
        if not bool((np.isfinite(values) & (values == np.round(values)))[known].all()):
            raise GraphError(
                f"Labels must be classes, not measurements. Column {name!r} has fractions or "
                "infinities."
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


# Features


def _feature_matrix(
    source: TableFile, ids: list[str], impute: Literal["zero", "mean"] | None
) -> tuple[Features, list[str]]:
    """All columns of the table as float32, and what was imputed.

    Text tables are parsed cell by cell; in typed ones a column of strings is text even if it spells
    numbers.
    """
    names = source.names
    odd = [text for name in names if (text := _other_type(source, name, ids)) is not None]
    if odd:
        raise GraphError(
            f"Feature columns must be numbers. Got {shown(odd)}. "
            "Encode them as numbers (one column per value) or leave them out; "
            "a column of classes is named by --label."
        )
    matrix = np.empty((source.table.num_rows, len(names)), dtype=np.float32)
    for k, name in enumerate(names):
        matrix[:, k] = _float32(source, name, ids)
    if impute is not None:
        return imputed(torch.from_numpy(matrix), impute)
    bad = ~np.isfinite(matrix)
    if bad.any():
        cells = shown(f"row {ids[row]!r} column {names[k]!r}" for row, k in np.argwhere(bad))
        raise GraphError(
            f"Features must be finite numbers. Missing, NaN or infinite at {cells}. "
            "Fix them, or pass --impute zero or --impute mean."
        )
    return torch.from_numpy(matrix), []


def _other_type(source: TableFile, name: str, ids: list[str]) -> str | None:
    """What a column holds in place of numbers, if it does."""
    column = source.table.column(name)
    if not source.is_text:
        kind = column.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return None if numeric or pa.types.is_boolean(kind) else f"{name!r} of type {kind}"
    cells = pc.ascii_trim_whitespace(column)
    missing = pc.is_in(cells, value_set=pa.array(MISSING))
    fine = pc.or_(missing, pc.match_substring_regex(cells, NUMBER))
    if pc.all(fine).as_py():
        return None
    row = pc.index(fine, pa.scalar(False)).as_py()
    return f"{name!r} with {column[row].as_py()!r} at node {ids[row]!r}"


def _float32(source: TableFile, name: str, ids: list[str]) -> NDArray[np.float32]:
    """One column; refused where it holds more than float32 can."""
    column = source.table.column(name)
    if source.is_text:
        cells = pc.ascii_trim_whitespace(column)
        missing = pc.is_in(cells, value_set=pa.array(MISSING))
        numbers = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
        integers = pc.match_substring_regex(cells, INTEGER).to_numpy()
    else:
        numbers = column
        integers = np.full(len(column), pa.types.is_integer(column.type))
    values = pc.cast(numbers, pa.float64(), safe=False).to_numpy()
    _refuse_long_integers(column, values, integers, name, ids)
    with np.errstate(over="ignore"):
        narrow: NDArray[np.float32] = values.astype(np.float32)
    lost = np.isinf(narrow) & np.isfinite(values)
    if lost.any():
        listed = shown(f"{values[row]} at node {ids[row]!r}" for row in np.flatnonzero(lost))
        raise GraphError(
            f"Features must fit float32, up to 3.4e38. Column {name!r} has {listed}. Rescale it."
        )
    return narrow


def _refuse_long_integers(
    column: pa.ChunkedArray,
    values: NDArray[Any],
    integers: NDArray[np.bool_],
    name: str,
    ids: list[str],
) -> None:
    """Refuse integers that lose digits: different ones that would merge, and all from 2**53 on."""
    large = integers & (np.abs(values) >= EXACT_FLOAT32)
    numbers = values[large]
    lost = large & (np.abs(values) >= EXACT_FLOAT64)
    if len(np.unique(numbers)) > len(np.unique(numbers.astype(np.float32))):
        lost = large
    if lost.any():
        rows = np.flatnonzero(lost)
        listed = shown(f"{column[int(row)].as_py()} at node {ids[row]!r}" for row in rows)
        raise GraphError(
            "Integers in feature columns must stay different as float32, and lie below 2**53. "
            f"Column {name!r} has {listed}. If they are identifiers, leave the column out."
        )
