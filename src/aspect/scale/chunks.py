"""Tables and arrays in pieces of so many rows, of which one is in memory at a time.

The columns of a node table are fitted in one pass and encoded in another. Numbers, truth values and
dates become what `FeatureEncoder` makes of them in memory. Texts would need all of their values at
once, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from aspect.data.columns import parse_column, refused_gaps
from aspect.data.encoder import (
    BAG_COLUMNS,
    BAG_ZEROS,
    Column,
    FeatureEncoder,
    Kind,
    ParsedColumn,
    encoding_of,
)
from aspect.data.files import is_file, is_folder
from aspect.data.source import FeatureScaling, Impute, Reading
from aspect.data.table_files import TableFile, separator_of
from aspect.errors import FileError, GraphError, reason

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TEXT_BLOCK = 2**24  # bytes that are parsed at a time; a row must fit


def file_identity(path: Path) -> list[str | int]:
    """What tells that a file is the same as before: its place, size and time of change."""
    if not is_file(path) and not is_folder(path):
        raise FileError(f"Cannot read {str(path)!r}: there is no such file.")
    try:
        with path.open("rb"):  # refused at once where permission is denied
            status = path.stat()
    except OSError as error:
        raise FileError(f"Cannot read {str(path)!r}: {reason(error)}.") from error
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


class TablePieces:
    """A table as Parquet or delimited text, read in pieces."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self.reading, self._called = path, reading, repr(str(path))
        self.identity = [*file_identity(path), reading.model_dump()]
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
        return TableFile(self._called, pa.Table.from_batches([first[:0]]), self.is_text)

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[TableFile]:
        """These columns, so many rows at a time; the last piece may have fewer."""
        held, first = list[pa.RecordBatch](), 0
        for batch in self._batches(list(columns)):
            held.append(batch)
            while sum(part.num_rows for part in held) >= rows:
                table = pa.Table.from_batches(held)
                yield TableFile(
                    self._called, table[:rows].combine_chunks(), self.is_text, first=first
                )
                held, first = table[rows:].to_batches(), first + rows
        if sum(part.num_rows for part in held):
            table = pa.Table.from_batches(held).combine_chunks()
            yield TableFile(self._called, table, self.is_text, first=first)

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


def as_ids(piece: TableFile, name: str, *, as_integers: bool) -> NDArray[Any]:
    """A column of node ids: int64, or texts as bytes of one length, filled up with zeros."""
    column = piece.table.column(name)
    if as_integers and column.null_count == 0 and piece.has_integers(name):
        try:
            numbers: NDArray[Any] = column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise GraphError(
                f"Node ids must be below 2**63. Column {name!r} of {piece.called} has others."
            ) from error
        return numbers
    texts = piece.ids(name).combine_chunks()  # which refuses gaps and fractions
    width = max(1, pc.max(pc.binary_length(texts)).as_py())
    filled = pc.ascii_rpad(texts, width, padding="\0").cast(pa.binary()).cast(pa.binary(width))
    return np.frombuffer(filled.buffers()[1], f"S{width}", len(filled), filled.offset * width)


# Columns of features


class _Moments:
    """What a column's encoding depends on, gathered piece by piece."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.count, self.mean, self.squares = 0, 0.0, 0.0  # of deviations from the mean
        self.missing, self.zeros, self.ones, self.lowest = 0, 0, 0, np.inf

    def add(self, column: ParsedColumn) -> None:
        """Take in the values of another piece (Chan's update of mean and variance)."""
        known = column.values[~column.missing]
        self.missing += len(column.values) - len(known)
        if not len(known):
            return
        mean, count = float(known.mean()), self.count + len(known)
        step = mean - self.mean
        self.squares += float(np.square(known - mean).sum())
        self.squares += step**2 * self.count * len(known) / count
        self.mean += step * len(known) / count
        self.count = count
        self.zeros += int((known == 0).sum())
        self.ones += int((known == 1).sum())
        self.lowest = min(self.lowest, float(known.min()))

    @property
    def is_word(self) -> bool:
        """Whether it may be one of a bag of words."""
        return self.kind == "number" and self.lowest >= 0 and self.zeros >= BAG_ZEROS * self.count

    def column(
        self, name: str, scaling: FeatureScaling | None, *, is_word: bool, indicator: bool
    ) -> Column:
        """As `FeatureEncoder.fit` makes it."""
        is_binary = self.zeros + self.ones == self.count
        encoding = encoding_of(self.kind, scaling, is_word=is_word, is_binary=is_binary)
        column = Column(
            name=name, kind=self.kind, encoding=encoding, fill=self.mean, indicator=indicator
        )
        if encoding != "standard":
            return column
        std = float(np.sqrt(self.squares / max(1, self.count)))
        return column.model_copy(update={"mean": self.mean, "scale": std or 1.0})


def fit_pieces(
    pieces: Iterable[TableFile],
    names: Sequence[str],
    *,
    scaling: FeatureScaling | None,
    impute: Impute | None,
) -> FeatureEncoder:
    """Decide what becomes of every column, by one pass through the table."""
    moments: dict[str, _Moments] = {}
    for piece in pieces:
        for name in names:
            kind = moments[name].kind if name in moments else None
            column = parse_column(piece, name, kind)
            if column.kind == "text":
                raise GraphError(
                    f"Column {name!r} of {piece.called} holds texts, and a store takes "
                    f"numbers, truth values and dates. Encode it, or pass --drop {name}."
                )
            if column.missing.any() and impute is None:
                raise refused_gaps(piece, name, column.missing)
            moments.setdefault(name, _Moments(column.kind)).add(column)
    words = {name for name, each in moments.items() if each.is_word}
    if scaling is not None or len(words) < BAG_COLUMNS:
        words = set()
    if words and len(words) < len(names):
        raise GraphError(
            f"{len(words)} columns look like a bag of words and {len(names) - len(words)} do not. "
            "Say how they are scaled with --feature-scaling standard, rows or none."
        )
    columns = [
        each.column(
            name,
            scaling,
            is_word=name in words,
            indicator=impute == "indicator" and each.missing > 0,
        )
        for name, each in moments.items()
    ]
    return FeatureEncoder(columns=tuple(columns), scaling=scaling, impute=impute)


def encode_piece(piece: TableFile, encoder: FeatureEncoder) -> NDArray[np.float32]:
    """The features of some rows."""
    parsed = {
        column.name: parse_column(piece, column.name, column.kind) for column in encoder.columns
    }
    return encoder.encode(parsed)[0]
