"""Delimited text (CSV, TSV) into a table of strings; every fault is named with its line."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from aspect.data.files import file_bytes
from aspect.errors import FileError, SettingsError, shown

__all__ = ["TextFormat", "as_parsed", "read_delimited"]

BLOCK_BYTES = 64 * 2**20  # one row must fit: rows of wide feature tables are long
END = "\x03end of table\x03"  # no cell ends so
SPELLED = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}
MARK = "\ufeff"  # the byte order mark, once decoded
WIDE_BOMS = {  # longest first: the mark of UTF-32 starts with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class TextFormat:
    """How a text table is to be read."""

    encoding: str = "utf-8"
    delimiter: str | None = None  # a comma, or a tab in .tsv, if not given

    def separator(self, path: Path) -> str:
        """The one character between cells."""
        if self.delimiter is None:
            return "\t" if path.suffix.lower() == ".tsv" else ","
        found = SPELLED.get(self.delimiter, self.delimiter)
        if len(found) != 1 or not found.isascii() or found in '"\r\n\0':
            raise SettingsError(
                "The delimiter must be one ASCII character, or the word tab, space, comma or "
                f"semicolon. Got {self.delimiter!r}."
            )
        return found


def read_delimited(path: Path, text_format: TextFormat) -> pa.Table:
    """All cells as strings, exactly as written: `007` stays `007`, `NA` stays `NA`.

    The first line is the header; lines without any character are no rows.
    """
    separator = text_format.separator(path)
    text = _as_utf8(file_bytes(path), path, text_format.encoding)
    _check_text(text, path)
    names = _header(text, separator, path)
    if text.count(b'"') % 2:  # an open quote would swallow the rest of the file as one cell
        _refuse_rows(text, separator, path)
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
        _refuse_rows(text, separator, path)
        raise FileError(f"{str(path)!r} cannot be read as a table: {error}.") from error
    if table.column_names != names:  # Arrow and Python disagree on where a quote ends
        raise FileError(_bad_quote(path, 1))
    _check_line_breaks(table, text, separator, path)
    if table.num_rows == 0:
        raise FileError(f"{str(path)!r} holds a header and no rows: {as_parsed(names)}.")
    return table


def as_parsed(cells: list[str]) -> str:
    """A line as it was understood, for the user to compare: `'a' | 'b'`."""
    dots = " | ..." if len(cells) > 5 else ""  # noqa: PLR2004 - as many as `shown` shows
    return " | ".join(repr(cell) for cell in cells[:5]) + dots


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
        raise FileError(_not_decoded(data, path, encoding, error)) from error
    except (LookupError, ValueError) as error:  # unknown, or a codec that is not for text
        raise SettingsError(
            "The encoding must be one that Python knows, such as utf-8 or latin-1. "
            f"Got {encoding!r}."
        ) from error


def _not_decoded(data: bytes, path: Path, encoding: str, error: UnicodeError) -> str:
    where = ""
    if isinstance(error, UnicodeDecodeError):
        line = data[: error.start].count(b"\n") + 1
        where = f" (byte 0x{data[error.start]:02x} in line {line})"
    return (
        f"{str(path)!r} is not {encoding} text{where}. "
        "Pass --encoding with the right name, for example latin-1 or cp1252."
    )


def _check_text(text: bytes, path: Path) -> None:
    if not text.strip():
        raise FileError(f"{str(path)!r} is empty. A table needs a header line and rows.")
    if b"\0" in text:
        line = text[: text.index(b"\0")].count(b"\n") + 1
        raise FileError(
            f"{str(path)!r} has a NUL byte in line {line}: it is no text, or in another encoding. "
            "Pass --encoding utf-16 if it is that."
        )


def _header(text: bytes, separator: str, path: Path) -> list[str]:
    names = next((cells for _, cells in _records(text, separator, path) if cells), [])
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise FileError(
            f"Columns of {str(path)!r} must have different names. Got {as_parsed(names)}, "
            f"with repeated {shown(map(repr, repeated))}. Is the header line missing?"
        )
    return names


def _records(
    text: bytes, separator: str, path: Path, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Every record with the number of its first line; slower than Arrow, but it knows the lines."""
    lines = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", newline="")
    # A last line of our own: an open quote swallows it, and is found out by that.
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


def _refuse_rows(text: bytes, separator: str, path: Path) -> None:
    """Name the rows that do not fit the header; return if all do."""
    records = ((line, cells) for line, cells in _records(text, separator, path) if cells)
    _, names = next(records)
    ragged = [(line, cells) for line, cells in records if len(cells) != len(names)]
    if not ragged:
        return
    listed = shown(f"line {line} has {len(cells)}" for line, cells in ragged)
    raise FileError(
        f"Rows of {str(path)!r} must have {len(names)} cells as its header has: {listed}. "
        f"The first is read as {as_parsed(ragged[0][1])}."
    )


def _check_line_breaks(table: pa.Table, text: bytes, separator: str, path: Path) -> None:
    """A cell over several lines is rare; make sure that it is meant and no stray quote made it."""
    if b'"' not in text:
        return
    if any(pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns):
        for _ in _records(text, separator, path, strict=True):
            pass
