"""Tables as columns, from CSV or Parquet: nothing is guessed, every fault is named with its line.

Cells of a text table are strings exactly as written. Lines are counted as an editor counts them:
the header is line 1, and a cell over several lines counts as many.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from aspect.data.files import check_memory, file_bytes
from aspect.data.source import ID_NAMES, NO_READING, Reading
from aspect.errors import MOST_SHOWN, FileError, GraphError, SettingsError, shown

MOST_COLUMNS = 50_000
BLOCK_BYTES = 64 * 2**20  # one row must fit: rows of wide feature tables are long
COMMENTS = ("#", "%")
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
PARQUET_INDEX = "__index_level_0__"


@dataclass(frozen=True)
class TableFile:
    """A table as it was read, with what its errors need to say where it came from."""

    called: str  # in a sentence: its path in quotes, or `the node frame`
    table: pa.Table
    is_text: bool  # all cells are strings, as written; otherwise the columns have types
    text: bytes = b""  # of a text table read as a whole, to find the line of a row in
    separator: str = ","
    first: int = 0  # row, of a table read in pieces

    @property
    def subject(self) -> str:
        """What it is called where a sentence begins."""
        return self.called[0].upper() + self.called[1:]

    @property
    def names(self) -> list[str]:
        """The columns, in the order of the file."""
        return list(self.table.column_names)

    @property
    def index(self) -> str | None:
        """The column in which pandas keeps an index without a name; None if there is none."""
        names = {self.names[0]} & {"", "Unnamed: 0"} if self.is_text else {PARQUET_INDEX}
        return next(iter(names & set(self.names)), None)

    @cached_property
    def _lines(self) -> list[int]:
        """The line on which every row begins."""
        records = _records(self.text, self.separator, self.called)
        return [line for line, cells in records if cells][1:]

    def place(self, row: int) -> str:
        """Where a row stands: its line in a text, as an editor counts, else its number from 1."""
        return f"line {self._lines[row]}" if self.text else f"row {self.first + row + 1}"

    def places(self, rows: Iterable[int]) -> str:
        """The first of many rows, with their count: `line 2, line 7 (2 in all)`."""
        return shown(rows, self.place)

    def ids(self, name: str) -> pa.ChunkedArray:
        """A column of node ids as strings; floating-point ones may have lost digits: refused."""
        column = self.table.column(name)
        kind = column.type
        is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (is_string or pa.types.is_string_view(kind) or pa.types.is_integer(kind)):
            raise GraphError(
                f"Node ids must be strings or integers. Column {name!r} of {self.called} "
                f"is of type {column.type}."
            )
        if column.null_count:
            rows = pc.indices_nonzero(pc.is_null(column)).to_pylist()
            raise GraphError(
                f"Every row must have its node ids. Column {name!r} of {self.called} "
                f"has none in {self.places(rows)}."
            )
        return pc.cast(column, pa.string())

    def has_integers(self, name: str) -> bool:
        """Whether a column is of an integer type; the cells of text tables are strings."""
        return bool(pa.types.is_integer(self.table.column(name).type))

    def column_given(self, option: str, name: str) -> str:
        """The column that an option names; the case need not fit where only one column is meant."""
        near = [known for known in self.names if known.strip().lower() == name.strip().lower()]
        if name in self.names or len(near) == 1:
            return name if name in self.names else near[0]
        raise GraphError(
            f"{option} must be one of the columns {as_parsed(self.names)} of {self.called}. "
            f"Got {name!r}."
        )

    def column_called(self, names: Sequence[str], remedy: str) -> str | None:
        """The column that has one of these names, in any case; several of them are refused."""
        fitting = [name for name in self.names if name.strip().lower() in names]
        if len(fitting) > 1:
            raise GraphError(
                f"{self.subject} has the columns {' and '.join(map(repr, fitting))}. {remedy}"
            )
        return fitting[0] if fitting else None

    def column_for(
        self, option: str, given: str | None, names: Sequence[str], remedy: str
    ) -> str | None:
        """The column that the option names, else the one that has one of these names."""
        if given is None:
            return self.column_called(names, remedy)
        return self.column_given(option, given)


def read_table(path: Path, reading: Reading = NO_READING) -> TableFile:
    """Read Parquet or delimited text, by the name of the file."""
    if path.suffix.lower() == ".parquet":
        return _with_rows(TableFile(repr(str(path)), _read_parquet(path), is_text=False))
    return _with_rows(_read_text(path, reading.encoding, reading.delimiter))


def _with_rows(source: TableFile) -> TableFile:
    if source.table.num_rows == 0 or not source.names:
        columns = as_parsed(source.names)
        raise FileError(f"{source.subject} holds no rows. Its columns are {columns}.")
    return source


def table_of(frame: Any, called: str, index: str | None = None) -> TableFile:  # noqa: ANN401
    """A frame of pandas, polars or another library that speaks Arrow.

    Args:
        frame: The frame.
        called: What it is called in a sentence.
        index: Name for the index of a pandas frame, which is a column unless one has ids already;
            the numbers 0, 1, 2, ... that pandas makes itself stay an index, see `index` above.
    """
    if hasattr(frame, "reset_index"):  # pandas
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        if index is not None and not any(name.strip().lower() in ID_NAMES for name in frame):
            if frame.index.nlevels > 1:
                raise GraphError(
                    f"The index of {called} has {frame.index.nlevels} levels. Give it a column "
                    f"{index!r} with the ids."
                )
            is_default = type(frame.index).__name__ == "RangeIndex" and frame.index.name is None
            if not (is_default and PARQUET_INDEX in frame):
                frame = frame.rename_axis(PARQUET_INDEX if is_default else index).reset_index()
        check_names(list(frame.columns), called)
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        except (pa.ArrowException, ValueError, TypeError) as error:
            first = str(error).splitlines()[0].rstrip(".")
            raise GraphError(
                "A column of the frame mixes types of values, or is of a type that Arrow does not "
                f"know: {first}."
            ) from error
    else:
        table = frame if isinstance(frame, pa.Table) else pa.table(frame)
        check_names(table.column_names, called)
    return _with_rows(TableFile(called, decoded(table), is_text=False))


def as_parsed(cells: Sequence[str]) -> str:
    """A line as it was understood, for the user to compare: `'a' | 'b'`."""
    dots = " | ..." if len(cells) > MOST_SHOWN else ""
    return " | ".join(repr(cell) for cell in cells[:MOST_SHOWN]) + dots


def decoded(table: pa.Table) -> pa.Table:
    """The same with each dictionary's values in place of their numbers."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
            # Arrow decodes no dictionary of these, which polars writes.
            parts = [(part.indices, part.dictionary.cast(pa.string())) for part in column.chunks]
            column = pa.chunked_array([pa.DictionaryArray.from_arrays(*part) for part in parts])
        is_dictionary = pa.types.is_dictionary(column.type)
        columns[name] = column.cast(column.type.value_type) if is_dictionary else column
    return pa.table(columns)


def check_names(names: Sequence[str], called: str) -> None:
    """Refuse columns of one name, and too many."""
    if len(names) > MOST_COLUMNS:
        raise FileError(
            f"A table must have at most {MOST_COLUMNS} columns. Got {len(names)} in {called}. "
            "Save such a graph as .npz."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise FileError(
            f"Columns of {called} must have different names. Got {as_parsed(names)}, "
            f"with repeated {shown(repeated, repr)}. Is the header line missing?"
        )


def _read_parquet(path: Path) -> pa.Table:
    data = file_bytes(path)
    if not data.startswith(PARQUET_MAGIC):
        raise FileError(f"{str(path)!r} is not a Parquet file. Got {data[:8]!r} at its beginning.")
    try:
        schema = pyarrow.parquet.read_schema(pa.BufferReader(data))
        check_names(schema.names, repr(str(path)))
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
        return decoded(table)
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


def separator_of(path: Path, delimiter: str | None) -> str:
    """The one character between cells of a text table."""
    if delimiter is None:
        return "\t" if path.suffix.lower() == ".tsv" else ","
    mark = SPELLED.get(delimiter, delimiter)
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0':
        raise SettingsError(
            "The delimiter must be one ASCII character, or the word tab, space, comma or "
            f"semicolon. Got {delimiter!r}."
        )
    return mark


def _read_text(path: Path, encoding: str, delimiter: str | None) -> TableFile:
    """All cells as strings, exactly as written: `007` stays `007`, `NA` stays `NA`.

    The first line is the header; lines without any character are no rows.
    """
    separator, called = separator_of(path, delimiter), repr(str(path))
    text = _as_utf8(file_bytes(path), called, encoding)
    if not text.strip():
        raise FileError(f"{called} is empty. A table needs a header line and rows.")
    if b"\0" in text:
        line = _line_of(text, text.index(b"\0"))
        raise FileError(
            f"{called} has a NUL byte in line {line}: it is no text, or in another encoding. "
            "Pass --encoding utf-16 if it is that."
        )
    names = _header(text, separator, called)
    if text.count(b'"') % 2:  # an open quote would swallow the rest of the file as one cell
        _refuse_ragged_rows(text, separator, called)
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
        _refuse_ragged_rows(text, separator, called)
        raise FileError(f"{called} cannot be read as a table: {error}.") from error
    if table.column_names != names:  # Arrow and Python disagree on where a quote ends
        raise FileError(_bad_quote(called, 1))
    if b'"' in text and any(
        pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns
    ):
        # A cell over several lines is rare: make sure that no stray quote made it.
        for _ in _records(text, separator, called, strict=True):
            pass
    return TableFile(called, table, is_text=True, text=text, separator=separator)


def _header(text: bytes, separator: str, called: str) -> list[str]:
    """The cells of the first line; a lone one may hide another delimiter."""
    names = next((cells for _, cells in _records(text, separator, called) if cells), [])
    check_names(names, called)
    first = "".join(names[:1]).strip()
    if first in COMMENTS or (len(names) == 1 and first.startswith(COMMENTS)):
        raise FileError(
            f"The first line of {called} must name the columns. Got {as_parsed(names)}, a comment. "
            "Remove such lines, and add a header line if there is none."
        )
    hidden = [word for mark, word in DELIMITERS.items() if mark in "".join(names)]
    if len(names) == 1 and hidden:
        raise FileError(
            f"{called} has one column, read as {as_parsed(names)}. "
            f"If the delimiter is another, pass --delimiter {hidden[0]}."
        )
    return names


def _line_of(data: bytes, place: int) -> int:
    """The line of a byte, whichever way lines end."""
    return len((data[:place] + b".").splitlines())


def _as_utf8(data: bytes, called: str, encoding: str) -> bytes:
    """The same text in UTF-8 without a byte order mark."""
    try:
        is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")
        wide = next((name for mark, name in WIDE_BOMS.items() if data.startswith(mark)), None)
        if is_utf8 and wide:
            raise FileError(f"{called} is {wide} text, not {encoding}. Pass --encoding {wide}.")
        decoded = data.decode(encoding)
        return data.removeprefix(codecs.BOM_UTF8) if is_utf8 else decoded.lstrip(MARK).encode()
    except UnicodeError as error:
        where = ""
        if isinstance(error, UnicodeDecodeError):
            line = _line_of(data, error.start)
            where = f" (byte 0x{data[error.start]:02x} in line {line})"
        raise FileError(
            f"{called} is not {encoding} text{where}. "
            "Pass --encoding with the right name, for example latin-1 or cp1252. "
            "Unpack a compressed file, and save a spreadsheet as CSV."
        ) from error
    except (LookupError, ValueError) as error:  # unknown, or a codec that is not for text
        raise SettingsError(
            "The encoding must be one that Python knows, such as utf-8 or latin-1. "
            f"Got {encoding!r}."
        ) from error


def _records(
    text: bytes, separator: str, called: str, *, strict: bool = False
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
                raise FileError(_bad_quote(called, start))
            yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:  # a cell without end, or text behind a closing quote
        raise FileError(_bad_quote(called, start)) from error


def _bad_quote(called: str, line: int) -> str:
    return (
        f"Quotes in {called} must enclose whole cells. "
        f"The one in line {line} is not closed, or not at the end of its cell."
    )


def _refuse_ragged_rows(text: bytes, separator: str, called: str) -> None:
    """Name the rows that do not fit the header; return if all do."""
    records = ((line, cells) for line, cells in _records(text, separator, called) if cells)
    _, names = next(records)
    ragged = [(line, cells) for line, cells in records if len(cells) != len(names)]
    if ragged:
        listed = shown(f"line {line} has {len(cells)}" for line, cells in ragged)
        raise FileError(
            f"Rows of {called} must have {len(names)} cells as its header has: {listed}. "
            f"The first is read as {as_parsed(ragged[0][1])}."
        )
