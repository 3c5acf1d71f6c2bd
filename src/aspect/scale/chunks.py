"""Tables and arrays in pieces of so many rows, of which one is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from typing_extensions import override

from aspect.data.files import is_file
from aspect.data.source import Reading
from aspect.data.table_files import TableFile, separator_of
from aspect.errors import FileError, GraphError, reason

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TEXT_BLOCK = 2**24  # bytes that are parsed at a time; a row must fit


def _check_file(path: Path) -> None:
    if not is_file(path):
        raise FileError(f"Cannot read {str(path)!r}: there is no such file.")


def file_identity(path: Path) -> list[str | int]:
    """What tells that a file is the same as before: its place, size and time of change."""
    _check_file(path)
    status = path.stat()
    return [str(path.absolute()), status.st_size, status.st_mtime_ns]


def mapped_array(path: Path, dimensions: int) -> NDArray[Any]:
    """A NumPy file of numbers with so many dimensions, memory-mapped."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{str(path)!r} is no NumPy file of numbers ({error}).") from error
    if array.ndim != dimensions or array.dtype.kind not in "iufb":
        raise FileError(
            f"{str(path)!r} must hold numbers in {dimensions} dimensions. "
            f"Got {array.dtype} of shape {list(array.shape)}."
        )
    return array


@dataclass(frozen=True)
class TablePiece(TableFile):
    """Some rows of a table."""

    first: int = 0  # row

    @override
    def place(self, row: int) -> str:
        return f"row {self.first + row + 1}"


class TablePieces:
    """A table as Parquet or delimited text, read in pieces."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self.reading = path, reading
        _check_file(path)
        self.is_text = path.name.lower().endswith(TEXT_SUFFIXES)
        if not self.is_text and path.suffix.lower() != ".parquet":
            raise FileError(
                f"Tables of this size are read from .parquet, {', '.join(TEXT_SUFFIXES)}. "
                f"Got {path.name!r}."
            )

    @cached_property
    def header(self) -> TableFile:
        """The table without its rows, which knows the columns."""
        first = next(self._batches(None))
        return TablePiece(self.path, pa.Table.from_batches([first[:0]]), self.is_text)

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[TablePiece]:
        """These columns, so many rows at a time; the last piece may have fewer."""
        held, first = list[pa.RecordBatch](), 0
        for batch in self._batches(list(columns)):
            held.append(batch)
            while sum(part.num_rows for part in held) >= rows:
                table = pa.Table.from_batches(held)
                yield TablePiece(
                    self.path, table[:rows].combine_chunks(), self.is_text, first=first
                )
                held, first = table[rows:].to_batches(), first + rows
        if sum(part.num_rows for part in held):
            table = pa.Table.from_batches(held).combine_chunks()
            yield TablePiece(self.path, table, self.is_text, first=first)

    def _batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._text(columns) if self.is_text else self._parquet(columns)
        except (pa.ArrowException, OSError) as error:
            first = reason(error) if isinstance(error, OSError) else str(error).splitlines()[0]
            raise FileError(f"Cannot read {str(self.path)!r}: {first.rstrip('.')}.") from error

    def _parquet(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        with pyarrow.parquet.ParquetFile(self.path, pre_buffer=False) as file:
            if file.metadata.num_rows == 0:
                raise FileError(f"{str(self.path)!r} holds no rows.")
            yield from file.iter_batches(columns=columns, use_threads=False)

    def _text(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        names = self._reader(None, {}).schema.names
        # Every cell as it is written, as in smaller tables: `007` stays `007`.
        yield from self._reader(columns, dict.fromkeys(names, pa.string()))

    def _reader(
        self, columns: list[str] | None, types: dict[str, pa.DataType]
    ) -> pyarrow.csv.CSVStreamingReader:
        uncompressed = self.path.with_suffix("") if self.path.suffix == ".gz" else self.path
        return pyarrow.csv.open_csv(
            self.path,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=TEXT_BLOCK, encoding=self.reading.encoding
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=separator_of(uncompressed, self.reading.delimiter)
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, include_columns=columns, strings_can_be_null=False
            ),
        )


def as_ids(piece: TablePiece, name: str, *, as_integers: bool) -> NDArray[Any]:
    """A column of node ids: int64, or texts as bytes of one length, filled up with zeros."""
    column = piece.table.column(name)
    if as_integers and column.null_count == 0 and piece.has_integers(name):
        try:
            numbers: NDArray[Any] = column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise GraphError(
                f"Node ids must be below 2**63. Column {name!r} of {str(piece.path)!r} has others."
            ) from error
        return numbers
    texts = piece.ids(name).combine_chunks()  # which refuses gaps and fractions
    width = max(1, pc.max(pc.binary_length(texts)).as_py())
    filled = pc.ascii_rpad(texts, width, padding="\0").cast(pa.binary()).cast(pa.binary(width))
    return np.frombuffer(filled.buffers()[1], f"S{width}", len(filled), filled.offset * width)
