"""A graph from the user's own tables: an edge table and, mostly, a node table, as CSV or Parquet.

Ids are strings throughout: `007` and `7` are two nodes, and a node may be called `NA` or nothing at
all. Names of columns are compared without case. What is no finite number is listed, never guessed.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.features import imputed, merged_integers
from aspect.data.files import check_memory, file_bytes
from aspect.data.graph import (
    Graph,
    LabelledGraph,
    check_weights,
    encode_labels,
    label_graph,
    unlabelled,
)
from aspect.data.source import NO_READING, Reading
from aspect.errors import FileError, GraphError, SettingsError, shown

__all__ = ["read_tables"]

ID_NAMES = ("id", "node", "node_id")
LABEL_NAMES = ("label", "y")
END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))
WEIGHT = "weight"

# Cells of a text table that mean "no value" among features and labels; among ids they are names.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|infinity|Inf|Infinity)$"
EXACT_FLOAT64 = 2**53  # from there on neighbouring integers may be one

MOST_COLUMNS = 50_000
BLOCK_BYTES = 64 * 2**20  # one row must fit: rows of wide feature tables are long
END = "\x03end of table\x03"  # no cell ends so
SPELLED = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}
DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','", " ": "space"}
MARK = "\ufeff"  # the byte order mark, once decoded
WIDE_BOMS = {  # longest first: the mark of UTF-32 starts with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class TableFile:
    """A table as it was read, with what its errors need to say where it came from."""

    path: Path
    table: pa.Table
    is_text: bool  # all cells are strings, as written; otherwise the columns have types

    @property
    def names(self) -> list[str]:
        """The columns, in the order of the file."""
        return list(self.table.column_names)

    def place(self, row: int) -> str:
        """Where a row stands: its line in a text, as an editor counts, else its number from 1."""
        return f"line {row + 2}" if self.is_text else f"row {row + 1}"

    def ids(self, name: str) -> pa.ChunkedArray:
        """A column of node ids as strings; floating-point ones may have lost digits: refused."""
        column = self.table.column(name)
        kind = column.type
        is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (is_string or pa.types.is_string_view(kind) or pa.types.is_integer(kind)):
            raise GraphError(
                f"Node ids must be strings or integers. Column {name!r} of {str(self.path)!r} "
                f"is of type {column.type}."
            )
        if column.null_count:
            rows = pc.indices_nonzero(pc.is_null(column)).to_pylist()
            raise GraphError(
                f"Every row must have its node ids. Column {name!r} of {str(self.path)!r} "
                f"has none in rows {shown(rows)}."
            )
        return pc.cast(column, pa.string())

    def has_integers(self, name: str) -> bool:
        """Whether a column is of an integer type; the cells of text tables are strings."""
        return bool(pa.types.is_integer(self.table.column(name).type))

    def column_called(self, names: Sequence[str], remedy: str) -> str | None:
        """The column that has one of these names, in any case; several of them are refused."""
        called = [name for name in self.names if name.strip().lower() in names]
        if len(called) > 1:
            raise GraphError(
                f"{str(self.path)!r} has the columns {' and '.join(map(repr, called))}. {remedy}"
            )
        return called[0] if called else None


@dataclass(frozen=True, eq=False)
class NodeTable:
    """What a node table holds, in the order of its rows."""

    ids: tuple[str, ...]
    integer_ids: bool  # the column of ids was of an integer type
    notices: list[str]
    features: Float[Tensor, "nodes features"] | None = None  # none if it has no further columns
    feature_names: tuple[str, ...] | None = None
    label_cells: list[str | None] | None = None  # none without a label column


def read_tables(edges: Path | str, reading: Reading = NO_READING) -> LabelledGraph:
    """Read an edge table with its node table; without one, every node that has an edge."""
    text = (reading.encoding, reading.delimiter)
    table = None
    if reading.nodes is not None:
        table = _parse_nodes(read_table(Path(reading.nodes), *text), reading)
    source = read_table(Path(edges), *text)
    named = _named_ends(source)
    weight = _weight_name(source, reading.weight)
    # Nodes may be called `from` and `to` as well: a header with such names is one.
    _check_header(source, known=table.ids if table and not named else ())
    pair = named or _first_two(source, weight)
    ends = source.ids(pair[0]), source.ids(pair[1])
    notices = []
    weights = None if weight is None else _weights(source, weight)
    if weights is not None and reading.unweighted:
        weights = weights != 0
        notices.append(f"The weights in column {weight!r} are left aside.")
    elif weights is not None:
        check_weights(weights, source.place)
    extra = [name for name in source.names if name not in (*pair, weight)]
    if extra:
        notices.append(f"Columns of the edge table left aside: {shown(map(repr, extra))}.")
    if table is None:
        table = _nodes_of(source, pair, is_named=named is not None)
    features = table.features
    if features is None:
        # A column of zeros stands in for structural features; without them it is refused.
        features = torch.zeros(len(table.ids), 0 if reading.features is None else 1)
    filled, imputations = imputed(features, reading.impute)
    graph = Graph.build(
        filled,
        _numbered(ends, table.ids, source, reading.nodes),
        table.ids,
        weights=weights,
        feature_names=table.feature_names,
        integer_ids=table.integer_ids,
        directed_is_error=reading.directed == "error",
        notices=[*table.notices, *imputations, *notices],
    )
    if table.label_cells is None:
        return unlabelled(graph)
    return label_graph(graph, *encode_labels(table.label_cells))


# The edge table


def _check_header(source: TableFile, known: Sequence[str] = ()) -> None:
    """Refuse a text table whose first line is a row: it would be taken for names, and lost."""
    numbers = [name for name in source.names if re.match(NUMBER, name.strip())]
    all_known = bool(known) and set(source.names) <= set(known)
    fractions = any("." in name for name in numbers)
    if source.is_text and (len(numbers) == len(source.names) or fractions or all_known):
        raise _no_header(source)


def _no_header(source: TableFile) -> FileError:
    return FileError(
        f"The first line of {str(source.path)!r} must name the columns. "
        f"Got {as_parsed(source.names)}, which looks like a row. Add a header line."
    )


def _named_ends(source: TableFile) -> tuple[str, str] | None:
    for names in END_NAMES:
        first, second = (
            source.column_called([name], f"Rename or remove all but one {name!r}.")
            for name in names
        )
        if first is not None and second is not None:
            return first, second
    return None


def _first_two(source: TableFile, weight: str | None) -> tuple[str, str]:
    names = [name for name in source.names if name != weight]
    if len(names) != 2:  # noqa: PLR2004 - an edge has two ends
        raise FileError(
            "An edge table must have two columns of node ids, or name them source and target. "
            f"Got {len(names)} in {str(source.path)!r}, whose first line is read as "
            f"{as_parsed(source.names)}."
        )
    return names[0], names[1]


def _weight_name(source: TableFile, given: str | None) -> str | None:
    if given is None:
        return source.column_called([WEIGHT], f"Rename or remove all but one {WEIGHT!r}.")
    if given not in source.names:
        raise GraphError(
            f"The weight column must be one of {as_parsed(source.names)}. "
            f"Got {given!r}, which {str(source.path)!r} does not have."
        )
    return given


def _weights(source: TableFile, name: str) -> Float[Tensor, " pairs"]:
    """The weights as they are; an empty cell is one, a written NaN is none."""
    column = source.table.column(name)
    if source.is_text:
        column = pc.ascii_trim_whitespace(column)
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    try:
        weights = pc.cast(column, pa.float64(), safe=False).fill_null(1).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise GraphError(
            f"Edge weights must be positive numbers. Column {name!r} of {str(source.path)!r} "
            f"is of type {column.type} or has other cells ({error})."
        ) from error
    return torch.from_numpy(weights.copy())


def _nodes_of(source: TableFile, pair: tuple[str, str], *, is_named: bool) -> NodeTable:
    """The nodes that have an edge; a header that neither names nor a node table confirm is said."""
    ids = {node for name in pair for node in pc.unique(source.ids(name)).to_pylist()}
    notices = _folding_notices(sorted(ids))
    if source.is_text and not is_named:
        if ids & set(pair):
            raise _no_header(source)
        notices.append(
            f"The first line of {str(source.path)!r} is taken for the names of its columns: "
            f"{as_parsed(source.names)}."
        )
    return NodeTable(tuple(sorted(ids)), all(map(source.has_integers, pair)), notices)


def _numbered(
    ends: Sequence[pa.ChunkedArray], ids: tuple[str, ...], source: TableFile, nodes: str | None
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
    notices = []
    id_name = source.column_called(ID_NAMES, "Rename or remove all but the one with the ids.")
    if id_name is None:
        id_name = source.names[0]
        if source.is_text:
            notices.append(
                f"The first column of {str(source.path)!r}, {id_name!r}, is taken for the ids."
            )
    ids = source.ids(id_name).to_pylist()
    notices += _folding_notices(ids)
    label_name = _label_name(source, reading.label, id_name)
    cells = None
    if label_name is not None:
        cells = _label_cells(source.table.column(label_name), label_name)
        notices += _label_notices(cells, label_name)
    columns = [name for name in source.names if name not in (id_name, label_name)]
    features = None
    if columns and reading.features is None:
        features = _feature_matrix(source, columns, ids)
    names = None if features is None else tuple(columns)
    return NodeTable(
        tuple(ids), source.has_integers(id_name), notices, features, names, label_cells=cells
    )


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
    if label is None:
        remedy = "Pass --label with the one that holds the classes."
        return source.column_called(LABEL_NAMES, remedy)
    others = [name for name in source.names if name != id_name]
    if label not in others:
        raise GraphError(
            f"The label column must be one of {as_parsed(others)}. "
            f"Got {label!r}, which {str(source.path)!r} does not have."
        )
    return label


def _label_cells(column: pa.ChunkedArray, name: str) -> list[str | None]:
    """Labels as strings, None where missing; a column with gaps may keep integers as floats."""
    try:
        if pa.types.is_floating(column.type):
            wide = column.cast(pa.float64())
            column = pc.if_else(pc.is_nan(wide), None, wide).cast(pa.int64())
        cells = pc.cast(column, pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise GraphError(
            f"Labels must be classes: strings or integers. Column {name!r} is of type "
            f"{column.type}, or has fractions or infinities."
        ) from error
    return [None if cell is None or cell in MISSING else cell for cell in cells]


def _label_notices(cells: Sequence[str | None], name: str) -> list[str]:
    missing = cells.count(None)
    notices = [f"{missing} of {len(cells)} nodes have no label."] if missing else []
    if not missing and len(set(cells)) == len(cells):
        notices.append(f"Every node has a class of its own: is {name!r} the label column?")
    return notices


def _feature_matrix(
    source: TableFile, names: list[str], ids: list[str]
) -> Float[Tensor, "nodes features"]:
    """These columns as float32, NaN where a cell is missing.

    Text tables are parsed cell by cell; in typed ones a column of strings is text even if it spells
    numbers.
    """
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
    return torch.from_numpy(matrix)


def _cells(source: TableFile, name: str) -> pa.ChunkedArray:
    """A column of features; of a text table trimmed, and null where the cell means no value."""
    column = source.table.column(name)
    if not source.is_text:
        return column
    cells = pc.ascii_trim_whitespace(column)
    missing = pc.is_in(cells, value_set=pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), cells)


def _other_type(source: TableFile, name: str, ids: list[str]) -> str | None:
    """What a column holds in place of numbers, if it does."""
    if not source.is_text:
        kind = source.table.column(name).type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return None if numeric or pa.types.is_boolean(kind) else f"{name!r} of type {kind}"
    fine = pc.match_substring_regex(_cells(source, name), NUMBER)
    row = pc.index(fine, pa.scalar(False)).as_py()
    if row < 0:
        return None
    return f"{name!r} with {source.table.column(name)[row].as_py()!r} at node {ids[row]!r}"


def _float32(source: TableFile, name: str, ids: list[str]) -> NDArray[np.float32]:
    """One column; refused where it holds more than float32 can."""
    cells = _cells(source, name)
    values = pc.cast(cells, pa.float64(), safe=False).to_numpy()
    if source.is_text:
        integers = pc.match_substring_regex(cells, INTEGER).fill_null(False).to_numpy()
    else:
        integers = np.full(len(cells), pa.types.is_integer(cells.type))
    lost = integers & ((np.abs(values) >= EXACT_FLOAT64) | merged_integers(values, integers))

    def listed(rows: NDArray[Any]) -> str:
        return shown(f"{cells[int(k)].as_py()} at node {ids[k]!r}" for k in np.flatnonzero(rows))

    if lost.any():
        raise GraphError(
            "Integers in feature columns must stay different as float32, and lie below 2**53. "
            f"Column {name!r} has {listed(lost)}. If they are identifiers, leave the column out."
        )
    with np.errstate(over="ignore"):
        narrow: NDArray[np.float32] = values.astype(np.float32)
    large = np.isinf(narrow) & np.isfinite(values)
    if large.any():
        raise GraphError(
            f"Features must fit float32, up to 3.4e38. Column {name!r} has {listed(large)}. "
            "Rescale it."
        )
    return narrow


# Files into columns; every fault is named with its line


def read_table(path: Path, encoding: str = "utf-8", delimiter: str | None = None) -> TableFile:
    """Read Parquet or delimited text, by the name of the file."""
    is_text = path.suffix.lower() != ".parquet"
    table = _read_text(path, encoding, delimiter) if is_text else _read_parquet(path)
    names = table.column_names
    if table.num_rows == 0 or not names:
        raise FileError(f"{str(path)!r} holds no rows. Its columns are {as_parsed(names)}.")
    return TableFile(path, table, is_text)


def as_parsed(cells: Sequence[str]) -> str:
    """A line as it was understood, for the user to compare: `'a' | 'b'`."""
    dots = " | ..." if len(cells) > 5 else ""  # noqa: PLR2004 - as many as `shown` shows
    return " | ".join(repr(cell) for cell in cells[:5]) + dots


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_dictionary = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def _check_names(names: Sequence[str], path: Path) -> None:
    if len(names) > MOST_COLUMNS:
        raise FileError(
            f"A table must have at most {MOST_COLUMNS} columns. Got {len(names)} in {str(path)!r}. "
            "Save such a graph as .npz."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise FileError(
            f"Columns of {str(path)!r} must have different names. Got {as_parsed(names)}, "
            f"with repeated {shown(map(repr, repeated))}. Is the header line missing?"
        )


def _read_parquet(path: Path) -> pa.Table:
    data = file_bytes(path)
    if not data.startswith(PARQUET_MAGIC):
        raise FileError(f"{str(path)!r} is not a Parquet file. Got {data[:8]!r} at its beginning.")
    try:
        schema = pyarrow.parquet.read_schema(pa.BufferReader(data))
        _check_names(schema.names, path)
        file = pyarrow.parquet.ParquetFile(
            pa.BufferReader(data),
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=[field.name for field in schema if pa.types.is_string(field.type)],
        )
        metadata = file.metadata
        groups = (metadata.row_group(k) for k in range(metadata.num_row_groups))
        stored = sum(group.total_byte_size for group in groups)
        # Run-length encoding makes a million equal cells out of a few bytes: count cells too.
        check_memory(max(stored, metadata.num_rows * metadata.num_columns * 8), path)
        table = file.read(use_threads=False)  # see `_read_text`
        check_memory(sum(map(_text_bytes, table.columns)), path)
        return pa.table({name: _decoded(table.column(name)) for name in schema.names})
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names not in UTF-8
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(
            f"{str(path)!r} is not a whole Parquet file: it is cut off or damaged ({first})."
        ) from error


def _text_bytes(column: pa.ChunkedArray) -> int:
    """What a column of texts takes, each text as often as its dictionary is referred to."""
    if not pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type.value_type):
        return 0
    lengths = (pc.binary_length(part.dictionary).take(part.indices) for part in column.chunks)
    return sum(pc.sum(part).as_py() or 0 for part in lengths)


def _separator(path: Path, delimiter: str | None) -> str:
    """The one character between cells."""
    if delimiter is None:
        return "\t" if path.suffix.lower() == ".tsv" else ","
    mark = SPELLED.get(delimiter, delimiter)
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0':
        raise SettingsError(
            "The delimiter must be one ASCII character, or the word tab, space, comma or "
            f"semicolon. Got {delimiter!r}."
        )
    return mark


def _read_text(path: Path, encoding: str, delimiter: str | None) -> pa.Table:
    """All cells as strings, exactly as written: `007` stays `007`, `NA` stays `NA`.

    The first line is the header; lines without any character are no rows.
    """
    separator = _separator(path, delimiter)
    text = _as_utf8(file_bytes(path), path, encoding)
    if not text.strip():
        raise FileError(f"{str(path)!r} is empty. A table needs a header line and rows.")
    if b"\0" in text:
        line = text[: text.index(b"\0")].count(b"\n") + 1
        raise FileError(
            f"{str(path)!r} has a NUL byte in line {line}: it is no text, or in another encoding. "
            "Pass --encoding utf-16 if it is that."
        )
    names = _header(text, separator, path)
    if text.count(b'"') % 2:  # an open quote would swallow the rest of the file as one cell
        _refuse_ragged_rows(text, separator, path)
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            # Arrow's threads may outlive a quick refusal, and abort the process at its exit.
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=min(BLOCK_BYTES, len(text) + 1)
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.string() for name in names}, strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        _refuse_ragged_rows(text, separator, path)
        raise FileError(f"{str(path)!r} cannot be read as a table: {error}.") from error
    if table.column_names != names:  # Arrow and Python disagree on where a quote ends
        raise FileError(_bad_quote(path, 1))
    if b'"' in text and any(
        pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns
    ):
        # A cell over several lines is rare: make sure that no stray quote made it.
        for _ in _records(text, separator, path, strict=True):
            pass
    return table


def _header(text: bytes, separator: str, path: Path) -> list[str]:
    """The cells of the first line; a lone one may hide another delimiter."""
    names = next((cells for _, cells in _records(text, separator, path) if cells), [])
    _check_names(names, path)
    hidden = [word for mark, word in DELIMITERS.items() if mark in "".join(names)]
    if len(names) == 1 and hidden:
        raise FileError(
            f"{str(path)!r} has one column, read as {as_parsed(names)}. "
            f"If the delimiter is another, pass --delimiter {hidden[0]}."
        )
    return names


def _as_utf8(data: bytes, path: Path, encoding: str) -> bytes:
    """The same text in UTF-8 without a byte order mark."""
    try:
        is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")
        wide = next((name for mark, name in WIDE_BOMS.items() if data.startswith(mark)), None)
        if is_utf8 and wide:
            raise FileError(
                f"{str(path)!r} is {wide} text, not {encoding}. Pass --encoding {wide}."
            )
        decoded = data.decode(encoding)
        return data.removeprefix(codecs.BOM_UTF8) if is_utf8 else decoded.lstrip(MARK).encode()
    except UnicodeError as error:
        where = ""
        if isinstance(error, UnicodeDecodeError):
            line = data[: error.start].count(b"\n") + 1
            where = f" (byte 0x{data[error.start]:02x} in line {line})"
        raise FileError(
            f"{str(path)!r} is not {encoding} text{where}. "
            "Pass --encoding with the right name, for example latin-1 or cp1252."
        ) from error
    except (LookupError, ValueError) as error:  # unknown, or a codec that is not for text
        raise SettingsError(
            "The encoding must be one that Python knows, such as utf-8 or latin-1. "
            f"Got {encoding!r}."
        ) from error


def _records(
    text: bytes, separator: str, path: Path, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Every record with the number of its first line; slower than Arrow, but it knows the lines."""
    lines = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", newline="")
    # An added last line: only an open quote can swallow it.
    with_end = chain(lines, ("\n", END))
    reader = csv.reader(with_end, delimiter=separator, strict=strict)
    start = 1
    try:
        for cells in reader:
            if cells == [END]:
                return
            if cells and cells[-1].endswith(END):
                raise FileError(_bad_quote(path, start))
            yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:  # a cell without end, or text behind a closing quote
        raise FileError(_bad_quote(path, start)) from error


def _bad_quote(path: Path, line: int) -> str:
    return (
        f"Quotes in {str(path)!r} must enclose whole cells. "
        f"The one in line {line} is not closed, or not at the end of its cell."
    )


def _refuse_ragged_rows(text: bytes, separator: str, path: Path) -> None:
    """Name the rows that do not fit the header; return if all do."""
    records = ((line, cells) for line, cells in _records(text, separator, path) if cells)
    _, names = next(records)
    ragged = [(line, cells) for line, cells in records if len(cells) != len(names)]
    if ragged:
        listed = shown(f"line {line} has {len(cells)}" for line, cells in ragged)
        raise FileError(
            f"Rows of {str(path)!r} must have {len(names)} cells as its header has: {listed}. "
            f"The first is read as {as_parsed(ragged[0][1])}."
        )
