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
    encoding_of,
)
from aspect.data.files import is_file, is_folder
from aspect.data.source import FeatureScaling, Impute, Reading
from aspect.data.table_files import TableFile, check_names, decoded, separator_of
from aspect.errors import FileError, GraphError, reason, shown

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
MOST_ID_BYTES = 2**31 - 1  # of texts of one length, as Arrow counts them
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


def _parquet_files(folder: Path) -> list[Path]:
    """The parts of a table, in the order of their names, as Spark and Dask write them."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".parquet")
    deeper = [inner.name for inner in folder.iterdir() if is_folder(inner)]
    if deeper or not files:  # partitions, whose columns are names of folders, or half a write
        raise FileError(
            f"{str(folder)!r} must hold .parquet files and no folders. "
            f"Got {shown(deeper, repr) if deeper else 'no such file'}."
        )
    return files


class TablePieces:
    """A table as Parquet or delimited text, or a folder of Parquet files, read in pieces."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self.reading, self._called = path, reading, repr(str(path))
        self._is_checked = False  # whether a text was read through once
        self._files = _parquet_files(path) if is_folder(path) else [path]
        self.is_text = self._files[0].name.lower().endswith(TEXT_SUFFIXES)
        files = [file_identity(file) for file in self._files]
        self.identity = [*(files[0] if len(files) == 1 else files), reading.model_dump()]
        if not self.is_text and self._files[0].suffix.lower() != ".parquet":
            raise FileError(
                f"Tables of this size are read from .parquet, {', '.join(TEXT_SUFFIXES)}, or a "
                f"folder of .parquet files. Got {path.name!r}."
            )

    @cached_property
    def header(self) -> TableFile:
        """The table without its rows, which knows the columns."""
        first = next(self._batches(None), None)
        if first is None:
            raise FileError(f"{self._called} holds no rows.")
        check_names(first.schema.names, self._called)
        return TableFile(self._called, decoded(pa.Table.from_batches([first[:0]])), self.is_text)

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[TableFile]:
        """These columns, so many rows at a time; the last piece may have fewer."""
        held, first = list[pa.RecordBatch](), 0
        for batch in self._batches(list(columns)):
            held.append(batch)
            while sum(part.num_rows for part in held) >= rows:
                table = pa.Table.from_batches(held)
                yield self._piece(table[:rows], first)
                held, first = table[rows:].to_batches(), first + rows
        if sum(part.num_rows for part in held):
            yield self._piece(pa.Table.from_batches(held), first)

    def _piece(self, table: pa.Table, first: int) -> TableFile:
        whole = decoded(table).combine_chunks()
        return TableFile(self._called, whole, self.is_text, first=first)

    def _batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._text(columns) if self.is_text else self._parquet(columns)
        except (pa.ArrowException, OSError) as error:
            first = reason(error) if isinstance(error, OSError) else str(error).splitlines()[0]
            first = first.replace("UTF8 data", "UTF-8. Pass --encoding with the name that it has")
            raise FileError(f"Cannot read {str(self.path)!r}: {first.rstrip('.')}.") from error

    def _parquet(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        schema = pyarrow.parquet.read_schema(self._files[0])
        for part in self._files:
            with pyarrow.parquet.ParquetFile(
                part, pre_buffer=False, page_checksum_verification=True
            ) as file:
                if not file.schema_arrow.equals(schema):
                    raise FileError(
                        f"Files of {self._called} must have the same columns, of the same types. "
                        f"{part.name!r} differs from {self._files[0].name!r}."
                    )
                yield from file.iter_batches(columns=columns, use_threads=False)

    def _text(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        names = self._reader(None, {}).schema.names
        every = None if columns is None or not self._is_checked else columns
        # Every cell as it is written, as in smaller tables: `007` stays `007`.
        for batch in self._reader(every, dict.fromkeys(names, pa.string())):
            if not self._is_checked:  # in all columns: an open quote hides whole rows
                self._check_cells(batch)
            yield batch if columns is None else batch.select(columns)
        self._is_checked = True

    def _check_cells(self, batch: pa.RecordBatch) -> None:
        for column in batch.columns:
            if pc.any(pc.match_substring_regex(column, "[\\n\\x00]")).as_py():
                raise FileError(
                    f"Cells of {self._called} must end where their line ends, and hold no NUL. "
                    "Is a quote not closed?"
                )

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
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise GraphError(f"Node ids must hold no NUL. Column {name!r} of {piece.called} has some.")
    width = max(1, pc.max(pc.binary_length(texts)).as_py())
    if width * len(texts) > MOST_ID_BYTES:
        raise GraphError(
            f"Node ids of {piece.called} have up to {width} bytes, too many for {len(texts)} rows "
            "at a time. Shorten them, or lower --memory (memory_bytes in Python)."
        )
    filled = pc.ascii_rpad(texts, width, padding="\0").cast(pa.binary()).cast(pa.binary(width))
    return np.frombuffer(filled.buffers()[1], f"S{width}", len(filled), filled.offset * width)


# Columns of features


def fit_pieces(
    pieces: Iterable[TableFile],
    names: Sequence[str],
    *,
    scaling: FeatureScaling | None,
    impute: Impute | None,
) -> FeatureEncoder:
    """Decide what becomes of every column, by one pass through the table: `FeatureEncoder.fit`."""
    from sklearn.preprocessing import StandardScaler

    scaler, kinds = StandardScaler(), dict[str, Kind]()
    counts = np.zeros((5, len(names)), np.int64)
    for piece in pieces:
        rows = _parsed_rows(piece, names, kinds, impute)
        is_gap = np.isnan(rows)
        counts += np.sum([rows < 0, rows == 0, rows == 1, ~is_gap, is_gap], axis=1)
        scaler.partial_fit(rows)
    negative, zeros, ones, known, missing = counts
    are_numbers = np.array([kind == "number" for kind in kinds.values()])
    is_word = are_numbers & (negative == 0) & (zeros >= BAG_ZEROS * known)
    if scaling is not None or is_word.sum() < BAG_COLUMNS:
        is_word[:] = False
    others = len(names) - is_word.sum()
    if is_word.any() and others:
        raise GraphError(
            f"{is_word.sum()} columns look like a bag of words and {others} do not. "
            "Say how they are scaled with --feature-scaling standard, rows or none."
        )
    columns = []
    for k, (name, kind) in enumerate(kinds.items()):
        is_binary = bool(zeros[k] + ones[k] == known[k])
        encoding = encoding_of(kind, scaling, is_word=bool(is_word[k]), is_binary=is_binary)
        mean = float(scaler.mean_[k]) if known[k] else 0.0
        is_scaled = encoding == "standard" and known[k] > 0
        columns.append(
            Column(
                name=name,
                kind=kind,
                encoding=encoding,
                fill=mean,
                indicator=impute == "indicator" and bool(missing[k]),
                mean=mean if is_scaled else 0.0,
                scale=float(scaler.scale_[k]) if is_scaled else 1.0,
            )
        )
    return FeatureEncoder(columns=tuple(columns), scaling=scaling, impute=impute)


def _parsed_rows(
    piece: TableFile, names: Sequence[str], kinds: dict[str, Kind], impute: Impute | None
) -> NDArray[np.float64]:
    """The values of some rows, NaN where missing; notes the kinds of columns not met before."""
    values = []
    for name in names:
        column = parse_column(piece, name, kinds.get(name))
        if column.kind == "text":
            raise GraphError(
                f"Column {name!r} of {piece.called} holds texts, and a store takes "
                f"numbers, truth values and dates. Encode it, or pass --drop {name}."
            )
        if column.missing.any() and impute is None:
            raise refused_gaps(piece, name, column.missing)
        kinds[name] = column.kind
        values.append(np.where(column.missing, np.nan, column.values))
    return np.column_stack(values)


def encode_piece(piece: TableFile, encoder: FeatureEncoder) -> NDArray[np.float32]:
    """The features of some rows."""
    parsed = {
        column.name: parse_column(piece, column.name, column.kind) for column in encoder.columns
    }
    return encoder.encode(parsed)[0]
