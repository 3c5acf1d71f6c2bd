"""The on-disk formats of OGB's node data sets and of IGB's, read into a store.

OGB (Hu et al., NeurIPS 2020) keeps `raw/edge.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz` and
`num-node-list.csv.gz`, all without a header, or for papers100M `raw/data.npz` and
`raw/node-label.npz`; node numbers of each part in `split/NAME/train.csv.gz`. IGB (Khatua et al.,
KDD 2023) keeps NumPy files under `processed/paper` and `processed/paper__cites__paper`; those of
its two largest sizes are bare float32 numbers without a header.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aspect.data.archives import HEADERS
from aspect.data.files import is_file, is_folder, replacing
from aspect.errors import FileError, GraphError, shown
from aspect.scale.build import write_store
from aspect.scale.chunks import file_identity
from aspect.scale.options import StoreLayout
from aspect.scale.sources import (
    ENDS,
    Edges,
    EdgeSource,
    NodeArrays,
    NodeSource,
    Numbers,
    array_rows,
    edges_of_array,
    edges_of_file,
)
from aspect.scale.store import GraphStore

OGB_PARTS = {"train": 1, "valid": 2, "test": 3}
NPY_MAGIC = b"\x93NUMPY"
IGB_COLUMNS = 1024  # of the features, in every size
# Nodes with a label, of the largest size; the parts of its split are cut from them alone.
IGB_LABELLED = {(269_346_174, "19"): 227_130_858, (269_346_174, "2K"): 157_675_969}
LOCAL_HEADER = 30  # bytes before the name of a member of an archive


def layout_of(folder: Path) -> Literal["ogb", "igb"] | None:
    """Whose layout a folder has."""
    if is_folder(folder / "processed" / "paper__cites__paper"):
        return "igb"
    raw = folder / "raw"
    is_ogb = is_file(raw / "edge.csv.gz") or is_file(raw / "data.npz")
    return "ogb" if is_ogb else None


def import_ogb(folder: Path, path: Path, **layout: Unpack[StoreLayout]) -> GraphStore:
    """A store of a data set of OGB for node classification, with its labels and split."""
    data, labels = folder / "raw" / "data.npz", folder / "raw" / "node-label.npz"
    if not is_file(data):
        return write_store(*_ogb_text(folder), path, **layout)
    identity = [file_identity(data), file_identity(labels)]
    # Named for these archives: an import of others that was killed leaves its own.
    name = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    members = path.with_name(f"{path.name}.{name}.members")
    _check_single(len(_member(data, "num_nodes_list", members)), folder)
    features = _member(data, "node_feat", members)
    nodes = NodeArrays(
        array_rows(features),
        features.shape,
        identity,
        labels=_member(labels, "node_label", members),
        split=_ogb_split(folder, len(features)),
    )
    edges = edges_of_array(_member(data, "edge_index", members), identity[0])
    store = write_store(edges, nodes, path, **layout)
    shutil.rmtree(members, ignore_errors=True)  # there only if an archive had to be unpacked
    return store


def import_igb(
    folder: Path,
    path: Path,
    *,
    labels: Literal["19", "2K"] = "19",
    **layout: Unpack[StoreLayout],
) -> GraphStore:
    """A store of a homogeneous data set of IGB: papers and their citations.

    Args:
        folder: The one that holds `processed`.
        path: The store's folder.
        labels: Which classes: 19 of them, or the 2983 that IGB calls 2K.
        layout: Fields of `StoreLayout`.
    """
    papers = folder / "processed" / "paper"
    files = [papers / "node_feat.npy", papers / f"node_label_{labels}.npy"]
    features = _bare_or_mapped(files[0], IGB_COLUMNS)
    labelled = IGB_LABELLED.get((len(features), labels), len(features))
    split = np.zeros(len(features), np.int8)
    cuts = [0, int(labelled * 0.6), int(labelled * 0.6) + int(labelled * 0.2), labelled]
    for part, (start, end) in enumerate(pairwise(cuts), start=1):
        split[start:end] = part
    nodes = NodeArrays(
        array_rows(features),
        features.shape,
        [file_identity(file) for file in files],
        labels=_bare_or_mapped(files[1], 1),
        split=split,
    )
    edges = edges_of_file(folder / "processed" / "paper__cites__paper" / "edge_index.npy")
    return write_store(edges, nodes, path, **layout)


def _bare_or_mapped(file: Path, columns: int) -> Numbers:
    """A matrix as a NumPy file, or the float32 numbers of a file without NumPy's header."""
    file_identity(file)
    try:
        with file.open("rb") as opened:
            is_npy = opened.read(len(NPY_MAGIC)) == NPY_MAGIC
        numbers: Numbers = (
            np.load(file, mmap_mode="r", allow_pickle=False)
            if is_npy
            else np.memmap(file, np.float32, "r")
        )
        return numbers.reshape(-1, columns)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            f"{str(file)!r} must hold numbers in rows of {columns} ({error})."
        ) from error


# OGB


def _text_edges(file: Path) -> EdgeSource:
    """Pairs of node numbers, one a line, without a header."""

    def parts(rows: int) -> Iterator[Edges]:
        for pairs in _matrices(file, np.dtype(np.int64), rows):
            if pairs.shape[1] != ENDS:
                raise GraphError(
                    f"{str(file)!r} must hold two numbers in each row. Got {pairs.shape[1]}."
                )
            yield Edges(pairs[:, 0], pairs[:, 1], None)

    return EdgeSource(file_identity(file), parts)


def _matrices(file: Path, dtype: np.dtype[Any], rows: int) -> Iterator[Numbers]:
    """The numbers of a text without a header, so many rows at a time."""
    file_identity(file)  # which names one that is not there
    try:
        for piece in pd.read_csv(file, header=None, dtype=dtype, chunksize=rows):
            yield piece.to_numpy()
    except (OSError, ValueError, EOFError, zlib.error) as error:
        first = str(error).splitlines()[0]
        raise FileError(f"{str(file)!r} must hold rows of numbers: {first}.") from error


def _ogb_text(folder: Path) -> tuple[EdgeSource, NodeSource]:
    raw = folder / "raw"
    if not is_file(raw / "node-feat.csv.gz"):
        raise GraphError(f"{str(folder)!r} must have raw/node-feat.csv.gz: a store needs features.")
    sizes = next(_matrices(raw / "num-node-list.csv.gz", np.dtype(np.int64), 2))
    _check_single(len(sizes), folder)
    labels = np.concatenate([*_matrices(raw / "node-label.csv.gz", np.dtype(np.float64), 10**7)])
    num_nodes, file, dtype = int(sizes[0, 0]), raw / "node-feat.csv.gz", np.dtype(np.float32)
    nodes = NodeArrays(
        partial(_matrices, file, dtype),
        (num_nodes, next(_matrices(file, dtype, 1)).shape[1]),
        file_identity(file),
        labels=labels,
        split=_ogb_split(folder, num_nodes),
    )
    return _text_edges(raw / "edge.csv.gz"), nodes


def _check_single(graphs: int, folder: Path) -> None:
    if graphs != 1:
        raise GraphError(f"{str(folder)!r} must hold one graph. Got {graphs}.")


def _ogb_split(folder: Path, num_nodes: int) -> NDArray[np.int8]:
    """The part of every node, by the only split there is."""
    splits = [each for each in (folder / "split").glob("*") if is_folder(each)]
    if len(splits) != 1:
        raise GraphError(
            f"{str(folder / 'split')!r} must hold one split. Got {len(splits)}: "
            f"{', '.join(sorted(each.name for each in splits))}."
        )
    parts = np.zeros(num_nodes, np.int8)
    for name, part in OGB_PARTS.items():
        file = splits[0] / f"{name}.csv.gz"
        for numbers in _matrices(file, np.dtype(np.int64), 10**7):
            outside = numbers[(numbers < 0) | (numbers >= num_nodes)]
            if len(outside):
                raise GraphError(
                    f"{str(file)!r} must hold nodes 0 to {num_nodes - 1}. Got {shown(outside)}."
                )
            parts[numbers[:, 0]] = part
    return parts


def _member(archive: Path, name: str, members: Path) -> Numbers:
    """An array of a .npz archive, memory-mapped; a compressed one is unpacked first."""
    identity = file_identity(archive)
    try:
        with zipfile.ZipFile(archive) as opened:
            info = opened.getinfo(f"{name}.npy")
            if info.compress_type == zipfile.ZIP_STORED:
                return _stored_member(archive, info)
            file = members / f"{archive.stem}.{name}.npy"
            if not is_file(file):
                members.mkdir(parents=True, exist_ok=True)
                for left in members.glob(".*.part"):  # half of an array, by a killed import
                    left.unlink()
                with replacing(file) as target, opened.open(info) as source:
                    shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise FileError(
            f"{identity[0]!r} must be a .npz archive with {name!r}: {error}."
        ) from error
    unpacked: Numbers = np.load(file, mmap_mode="r", allow_pickle=False)
    return unpacked


def _stored_member(archive: Path, info: zipfile.ZipInfo) -> Numbers:
    """A member that is not compressed, mapped where it lies in the archive."""
    with archive.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(LOCAL_HEADER)
        lengths = np.frombuffer(header, "<u2", 2, LOCAL_HEADER - 4)  # of name and extra field
        file.seek(int(lengths.sum()), 1)
        shape, is_fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        order: Literal["C", "F"] = "F" if is_fortran else "C"
        return np.memmap(archive, dtype, "r", file.tell(), shape, order)
