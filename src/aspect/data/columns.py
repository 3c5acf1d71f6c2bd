"""A table of either format, text or Parquet, and its columns of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from aspect.data.delimited import TextFormat, as_parsed, read_delimited
from aspect.data.files import check_memory, file_bytes
from aspect.data.numeric import is_number
from aspect.errors import FileError, GraphError, shown

__all__ = ["TableFile", "check_header", "delimiter_guess", "read_table"]

DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','", " ": "space"}
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

    def ids(self, name: str) -> pa.ChunkedArray:
        """A column of node ids as strings; floating-point ones may have lost digits: refused."""
        column = self.table.column(name)
        if not (self.has_integers(name) or _is_string(_cell_type(column))):
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
        return bool(pa.types.is_integer(_cell_type(self.table.column(name))))


def read_table(path: Path, text_format: TextFormat) -> TableFile:
    """Read Parquet or delimited text, by the name of the file."""
    if path.suffix.lower() != ".parquet":
        return TableFile(path, read_delimited(path, text_format), is_text=True)
    table = _read_parquet(path)
    if table.num_rows == 0 or table.num_columns == 0:
        raise FileError(
            f"{str(path)!r} holds no rows. Its columns are {as_parsed(table.column_names)}."
        )
    repeated = {name for name in table.column_names if table.column_names.count(name) > 1}
    if repeated:
        raise FileError(
            f"Columns of {str(path)!r} must have different names. "
            f"Repeated: {shown(map(repr, sorted(repeated)))}."
        )
    return TableFile(path, table, is_text=False)


def check_header(source: TableFile, known: Sequence[str] = ()) -> None:
    """Refuse a text table whose first line is a row: it would be taken for names, and lost."""
    if not source.is_text:
        return
    names = source.names
    numbers = [is_number(name.strip()) for name in names]
    fractions = [
        name for name, number in zip(names, numbers, strict=True) if number and "." in name
    ]
    if all(numbers) or fractions or (known and set(names) <= set(known)):
        raise FileError(
            f"The first line of {str(source.path)!r} must name the columns. "
            f"Got {as_parsed(names)}, which looks like a row. Add a header line."
        )


def delimiter_guess(name: str) -> str | None:
    """The delimiter, as the option takes it, that a lone column name may be hiding."""
    return next((word for mark, word in DELIMITERS.items() if mark in name), None)


def _cell_type(column: pa.ChunkedArray) -> pa.DataType:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _is_string(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _read_parquet(path: Path) -> pa.Table:
    data = file_bytes(path)
    if not data.startswith(PARQUET_MAGIC):
        raise FileError(f"{str(path)!r} is not a Parquet file. Got {data[:8]!r} at its beginning.")
    try:
        file = pyarrow.parquet.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        metadata = file.metadata
        groups = (metadata.row_group(k) for k in range(metadata.num_row_groups))
        stored = sum(group.total_byte_size for group in groups)
        # Run-length encoding makes a million equal cells out of a few bytes: count cells too.
        check_memory(max(stored, metadata.num_rows * metadata.num_columns * 8), path)
        return file.read(use_threads=False)  # see `read_delimited`
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names not in UTF-8
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(
            f"{str(path)!r} is not a whole Parquet file: it is cut off or damaged ({first})."
        ) from error
