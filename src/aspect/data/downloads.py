"""Data sets from their sources: fetched by pooch, and read without running any code of theirs.

Addresses name a commit. Raw files whose checksum is in the catalogue are compared with it before
they are parsed. `.npz` files are read as all archives are; Planetoid's pickles by an unpickler that
makes inert records of the few names they need, and refuses all others. The graph as a whole is then
compared with the catalogue by `load_named`.
"""

from __future__ import annotations

import io
import logging
import pickle
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from typing_extensions import override

from aspect.data.archives import compressed_rows, read_arrays
from aspect.data.convert import labelled_of
from aspect.data.files import file_bytes
from aspect.data.foreign import Parts
from aspect.data.graph import PARTS, LabelledGraph
from aspect.data.source import Download
from aspect.errors import FileError

Array = NDArray[Any]

GITHUB = "https://raw.githubusercontent.com"
HETEROPHILOUS = (
    f"{GITHUB}/yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data"
)
GNN_BENCHMARK = f"{GITHUB}/shchur/gnn-benchmark/1e72912a0810cdf27ae54fd589a3b43358a2b161/data/npz"
PLANETOID = f"{GITHUB}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
GEOM_GCN = f"{GITHUB}/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f"

PICKLES = ("allx", "tx", "ally", "ty", "graph")  # of Planetoid
SPLITS = 10
SECONDS = 60  # without an answer

Get = Callable[[str], tuple[bytes, Path]]  # the raw bytes at an address, and the file's name


def fetch(download: Download) -> LabelledGraph:
    """The graph as its source offers it, with its labels and splits."""
    readers: dict[str, Callable[[str, Get], LabelledGraph]] = {
        "heterophilous": _heterophilous,
        "gnn-benchmark": _gnn_benchmark,
        "planetoid": _planetoid,
        "geom-gcn": _geom_gcn,
    }
    return readers[download.format](download.name, lambda url: raw_bytes(url, download.sha256))


def raw_bytes(url: str, checksums: Mapping[str, str]) -> tuple[bytes, Path]:
    """What lies at the address, compared with its checksum if there is one; and its file name."""
    import pooch

    logging.getLogger("pooch").setLevel(logging.WARNING)
    name = url.rpartition("/")[2]
    with tempfile.TemporaryDirectory() as folder:
        path = pooch.retrieve(
            url,
            known_hash=checksums.get(name),
            fname=name,
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=SECONDS),
        )
        return file_bytes(Path(path)), Path(name)


def _graph(x: object, pairs: Array, y: Array, masks: Sequence[Array]) -> LabelledGraph:
    """A graph with its labels; masks are those of the parts of a split in their order, or none."""
    splits = dict(zip(PARTS, (mask.astype(bool).T for mask in masks), strict=False))
    edges = torch.from_numpy(pairs.astype(np.int64))
    return labelled_of(Parts(edges, len(y), x, y=y.astype(np.int64), masks=splits))


def _arrays(get: Get, url: str, keys: Iterable[str]) -> list[Array]:
    """Some arrays of numbers from an archive, in this order."""
    kinds = dict.fromkeys(keys, "iufb")
    arrays = read_arrays(*get(url), kinds, ignore_others=True)
    return [arrays[key] for key in kinds]


def _heterophilous(name: str, get: Get) -> LabelledGraph:
    """One `.npz` of Platonov et al. (ICLR 2023)."""
    keys = ("node_features", "edges", "node_labels", "train_masks", "val_masks", "test_masks")
    x, edges, y, *masks = _arrays(get, f"{HETEROPHILOUS}/{name}.npz", keys)
    return _graph(x, edges.T, y, masks)


def _gnn_benchmark(name: str, get: Get) -> LabelledGraph:
    """One `.npz` of Shchur et al. (2018), with adjacency and features as compressed rows."""
    parts = ("data", "indices", "indptr", "shape")
    keys = (*(f"{of}_{part}" for of in ("adj", "attr") for part in parts), "labels")
    *rows, y = _arrays(get, f"{GNN_BENCHMARK}/{name}.npz", keys)
    adjacency, x = compressed_rows(*rows[:4]), compressed_rows(*rows[4:])
    return _graph(x, np.stack(adjacency.tocoo().coords), y, [])


def _geom_gcn(name: str, get: Get) -> LabelledGraph:
    """Two text files of Pei et al. (ICLR 2020), and their splits."""
    nodes, edges = (
        get(f"{GEOM_GCN}/new_data/{name}/{file}.txt")[0].decode().splitlines()[1:]
        for file in ("out1_node_feature_label", "out1_graph_edges")
    )
    rows = sorted((line.split("\t") for line in nodes), key=lambda row: int(row[0]))
    x = np.array([np.fromstring(cells, sep=",", dtype=np.float32) for _, cells, _ in rows])
    y = np.array([int(label) for *_, label in rows])
    pairs = np.array([[int(end) for end in line.split("\t")] for line in edges]).T
    return _graph(x, pairs, y, _geom_gcn_splits(name, get))


def _geom_gcn_splits(name: str, get: Get) -> list[Array]:
    keys = ("train_mask", "val_mask", "test_mask")
    urls = (f"{GEOM_GCN}/splits/{name}_split_0.6_0.2_{number}.npz" for number in range(SPLITS))
    splits = [_arrays(get, url, keys) for url in urls]
    return [np.stack(masks) for masks in zip(*splits, strict=True)]


def _planetoid(name: str, get: Get) -> LabelledGraph:
    """Pickles of Yang et al. (ICML 2016): test nodes come apart, in an order of their own.

    Test nodes that are not listed, 15 of Citeseer, get no features and class 0, as usual.
    """
    files = {part: get(f"{PLANETOID}/ind.{name}.{part}") for part in PICKLES}
    test = np.array(get(f"{PLANETOID}/ind.{name}.test.index")[0].split(), dtype=np.int64)
    content = {part: _unpickled(*file) for part, file in files.items()}
    lists: dict[int, list[int]] = content["graph"]
    if sum(map(len, lists.values())) > len(files["graph"][0]):
        raise FileError(f"'ind.{name}.graph' lists more edges than it has bytes.")
    known, tested = (content[part].coo() for part in ("allx", "tx"))
    num_nodes = int(test.max()) + 1
    entries = np.concatenate([known.data, tested.data])
    rows = np.concatenate([known.row, test[tested.row]])
    columns = np.concatenate([known.col, tested.col])
    x = scipy.sparse.coo_array((entries, (rows, columns)), shape=(num_nodes, known.shape[1]))
    first, last = (content[part].array() for part in ("ally", "ty"))
    y = np.zeros(num_nodes, dtype=np.int64)
    y[: len(first)] = first.argmax(1)
    y[test] = last.argmax(1)
    pairs = np.array([(node, other) for node, others in lists.items() for other in others]).T
    return _graph(x, pairs, y, _geom_gcn_splits(name, get))


class _Record:
    """What a pickle says of an object: its arguments and state, with nothing done about them."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the file holds
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401
        self.state = state


class _StoredArray(_Record):
    """A NumPy array: state (version, shape, type, order, bytes)."""

    def array(self) -> Array:
        """The array itself, of plain numbers."""
        _, shape, kind, fortran, content = self.state
        if not re.fullmatch(r"[iuf][1248]|b1", kind.arguments[0]):
            raise FileError(f"A pickled array must hold numbers. Got {kind.arguments[0]!r}.")
        data = content.encode("latin1") if isinstance(content, str) else content
        plain = np.frombuffer(data, np.dtype(kind.arguments[0]).newbyteorder("<"))
        return plain.reshape(shape, order="F" if fortran else "C")


class _StoredMatrix(_Record):
    """A SciPy matrix in compressed rows: state is its attributes."""

    def coo(self) -> scipy.sparse.coo_array:
        """Its entries."""
        state = self.state
        data, indices, pointers = (state[part].array() for part in ("data", "indices", "indptr"))
        return compressed_rows(data, indices, pointers, np.array(state["_shape"])).tocoo()


class _Unpickler(pickle.Unpickler):
    """Knows the names that arrays, matrices and lists are pickled by, and runs none of them."""

    @override
    def find_class(self, module: str, name: str) -> Any:
        known: dict[str, Any] = {
            "_reconstruct": _StoredArray,
            "ndarray": _StoredArray,
            "dtype": _Record,
            "csr_matrix": _StoredMatrix,
            "_reconstructor": lambda kind, *_: kind(),
            "object": object,
            "defaultdict": defaultdict,
            "list": list,
        }
        if name not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return known[name]


def _unpickled(data: bytes, path: Path) -> Any:  # noqa: ANN401 - arrays, matrices or lists
    try:
        return _Unpickler(io.BytesIO(data), encoding="latin1").load()
    # Damaged bytes fail in the unpickler in whatever way they happen to.
    except Exception as error:
        raise FileError(
            f"{str(path)!r} is damaged, or names what no data set needs ({error})."
        ) from error
