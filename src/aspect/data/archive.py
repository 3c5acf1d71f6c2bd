"""Arrays out of a zip archive that nobody vouches for: its directory is judged, then it is read."""

from __future__ import annotations

import io
import math
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from aspect.data.files import check_memory
from aspect.errors import FileError, shown

__all__ = ["read_arrays"]

LONGEST_HEADER = 10_000  # bytes; ours take 128
# Real arrays of some size are never compressed further than this; all-zero ones are about 1000.
LARGEST_RATIO = 200
RATIO_FROM_BYTES = 16 * 2**20
ENCRYPTED = 0x1  # bit of a member's flags
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

NPY_MAGIC = b"\x93NUMPY"
# Version of the array format -> layout of the header's length, and numpy's reader of the header.
HEADERS = {(1, 0): ("<H", npy.read_array_header_1_0), (2, 0): ("<I", npy.read_array_header_2_0)}


def read_arrays(
    data: bytes, path: Path, kinds: Mapping[str, str], optional: frozenset[str] = frozenset()
) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz`: exactly the keys of `kinds`, each of a type kind listed there.

    The `optional` keys come all together or not at all.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check_directory(members, path, kinds, optional)
            return {
                _key(member): _read_member(archive, member, path, kinds[_key(member)])
                for member in members
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OverflowError) as error:
        raise FileError(
            f"{str(path)!r} is not a whole .npz archive: it is cut off or damaged ({error}). "
            "Fetch or write it again."
        ) from error
    except (NotImplementedError, RuntimeError, OSError) as error:  # zipfile on odd members
        raise FileError(f"{str(path)!r} is not a plain .npz archive ({error}).") from error


def _key(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _check_directory(
    members: list[zipfile.ZipInfo], path: Path, kinds: Mapping[str, str], optional: frozenset[str]
) -> None:
    """Refuse, from the directory alone, what no graph needs; nothing has been read by then."""
    expected = {f"{key}.npy" for key in kinds}
    names = [member.filename for member in members]
    counts = Counter(names)
    odd = [name for name in names if name not in expected or counts[name] > 1]
    if odd:
        raise FileError(
            f"{str(path)!r} must hold the members {', '.join(sorted(expected))} and nothing else. "
            f"Got {shown(map(repr, odd))}."
        )
    missing = {key for key in kinds if f"{key}.npy" not in names}
    if missing >= optional:
        missing -= optional
    if missing:
        raise FileError(f"{str(path)!r} lacks {shown(sorted(missing))} of the keys of a graph.")
    for member in members:
        _check_member(member, path)
    check_memory(sum(member.file_size for member in members), path)


def _check_member(member: zipfile.ZipInfo, path: Path) -> None:
    where = f"{member.filename!r} in {str(path)!r}"
    if member.flag_bits & ENCRYPTED:
        raise FileError(f"{where} is encrypted. Write the archive without a password.")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise FileError(f"{where} is a symbolic link. An array must be stored itself.")
    if member.compress_type not in METHODS:
        raise FileError(
            f"{where} is compressed by method {member.compress_type}. "
            "Use numpy.savez or numpy.savez_compressed."
        )
    ratio = member.file_size / max(1, member.compress_size)
    if member.file_size > RATIO_FROM_BYTES and ratio > LARGEST_RATIO:
        raise FileError(
            f"{where} would grow {ratio:.0f}-fold to {member.file_size} bytes; at most "
            f"{LARGEST_RATIO}-fold is believed. Store it uncompressed if it is real."
        )


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, kinds: str
) -> NDArray[Any]:
    where = f"{member.filename!r} in {str(path)!r}"
    with archive.open(member) as file:
        shape, fortran, dtype, header_bytes = _read_header(file.read, where)
        if dtype.hasobject:
            raise FileError(
                f"{where} holds Python objects, which are never loaded. Store plain numbers."
            )
        if dtype.kind not in kinds:
            raise FileError(f"{where} must hold {_kind_names(kinds)}. Got {dtype}.")
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes != member.file_size - header_bytes:
            raise FileError(
                f"{where} says it has shape {list(shape)}, which takes {num_bytes} bytes. "
                f"It holds {member.file_size - header_bytes}."
            )
        content = file.read()  # reads on to the end, so that zipfile compares the checksum
    array = np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    # A copy in native order: a buffer of bytes is read-only, and torch must not share it.
    return np.array(array, dtype=dtype.newbyteorder("="), order="C")


def _read_header(
    read: Callable[[int], bytes], where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and the header's own length; one that claims to be huge is not read."""
    start = read(len(NPY_MAGIC) + 2)
    version = tuple(start[len(NPY_MAGIC) :])
    if not start.startswith(NPY_MAGIC) or version not in HEADERS:
        raise FileError(f"{where} is not a plain .npy array. Got {start!r} at its beginning.")
    layout, parse = HEADERS[version]
    prefix = read(struct.calcsize(layout))
    (length,) = struct.unpack(layout, prefix)
    if length > LONGEST_HEADER:
        raise FileError(f"{where} has a header of {length} bytes; {LONGEST_HEADER} is the most.")
    try:
        shape, fortran, dtype = parse(io.BytesIO(prefix + read(length)))
    # numpy tokenises and evaluates the header as a literal, which fails in all these ways.
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise FileError(f"{where} has a damaged array header ({error}).") from error
    if any(size < 0 for size in shape):
        raise FileError(f"{where} says it has shape {list(shape)}. Sizes must be 0 or more.")
    return shape, fortran, dtype, len(start) + len(prefix) + length


def _kind_names(kinds: str) -> str:
    words = {"i": "integers", "u": "", "f": "floating-point numbers", "b": "booleans"}
    return " or ".join(words[kind] for kind in kinds if words[kind])
