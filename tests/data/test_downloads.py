"""Downloads: each source's format, written here from the published files, and hostile servers."""

import io
import os
import pickle
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from aspect.data import downloads
from aspect.data.archives import content_sha256, read_npz
from aspect.data.downloads import fetch
from aspect.data.features import dense
from aspect.data.source import DATASETS, load_named
from aspect.errors import DataError, FileError

DATA = os.environ.get("ASPECT_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ASPECT_DATA names no folder of data sets")
MASKS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}


@pytest.fixture
def web(monkeypatch, tmp_path):
    """A web of files by their names; nothing else is there."""
    files = {}

    def retrieve(url, known_hash, fname, **_):
        if fname not in files:
            raise OSError(f"404: {url}")
        assert known_hash is None or known_hash == "right", "pooch compares it"
        target = tmp_path / "fetched" / fname
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(files[fname])
        return str(target)

    pooch = SimpleNamespace(retrieve=retrieve, HTTPDownloader=lambda **_: None)
    monkeypatch.setitem(__import__("sys").modules, "pooch", pooch)
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASPECT_DATA", raising=False)
    return files


def archive(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def splits(name, labelled):
    return {
        f"{name}_split_0.6_0.2_{k}.npz": archive(
            **{MASKS[part]: mask[k].numpy() for part, mask in labelled.masks.items()}
        )
        for k in range(10)
    }


def heterophilous(name, labelled):
    masks = {key.replace("mask", "masks"): labelled.masks[part] for part, key in MASKS.items()}
    content = {
        "node_features": dense(labelled.graph.features).numpy(),
        "node_labels": labelled.labels.numpy(),
        "edges": labelled.graph.edge_index.T.numpy(),
        "node_texts": np.array([None]),  # a pickled member, to be left alone
        **{key: mask.numpy() for key, mask in masks.items()},
    }
    return {f"{name}.npz": archive(**content)}


def gnn_benchmark(name, labelled):
    ends = tuple(labelled.graph.edge_index.numpy())
    size = (labelled.graph.num_nodes, labelled.graph.num_nodes)
    adjacency = scipy.sparse.csr_matrix((np.ones(len(ends[0])), ends), shape=size)
    features = scipy.sparse.csr_matrix(dense(labelled.graph.features).numpy())
    parts = {
        f"{key}_{part}": getattr(matrix, part)
        for key, matrix in (("adj", adjacency), ("attr", features))
        for part in ("data", "indices", "indptr", "shape")
    }
    return {f"{name}.npz": archive(**parts, labels=labelled.labels.numpy())}


def geom_gcn(name, labelled):
    x, y = dense(labelled.graph.features).int().tolist(), labelled.labels.tolist()
    rows = zip(x, y, strict=True)
    nodes = "".join(
        f"{k}\t{','.join(map(str, row))}\t{label}\n" for k, (row, label) in enumerate(rows)
    )
    edges = "".join(f"{a}\t{b}\n" for a, b in labelled.graph.edge_index.T.tolist() if a < b)
    return {
        "out1_node_feature_label.txt": f"header\n{nodes}".encode(),
        "out1_graph_edges.txt": f"header\n{edges}".encode(),
        **splits(name, labelled),
    }


class Python2(pickle._Pickler):
    """Writes bytes as Python 2 did: as its strings."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012 - as in pickle

    def save_bytes(self, obj):
        if self.proto == 0:
            self.write(pickle.STRING + repr(obj)[1:].encode() + b"\n")
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(obj)) + obj)
        self.memoize(obj)

    dispatch[bytes] = save_bytes


def pickled(value, protocol):
    buffer = io.BytesIO()
    Python2(buffer, protocol).dump(value)
    return buffer.getvalue()


def planetoid(name, labelled, protocol=2):
    """The pickles of Planetoid; the test nodes come last and shuffled."""
    graph, num_test = labelled.graph, 1000
    x = scipy.sparse.csr_matrix(dense(graph.features).numpy())
    one_hot = np.eye(labelled.num_classes, dtype=np.int32)[labelled.labels.numpy()]
    nodes = np.arange(graph.num_nodes - num_test, graph.num_nodes)
    if name == "citeseer":  # nodes without features are not listed, and not the last either
        nodes = nodes[(np.diff(x.indptr)[nodes] > 0) | (nodes == nodes[-1])]
    test = np.random.default_rng(0).permutation(nodes)
    first = int(nodes[0])
    lists = {node: [] for node in range(graph.num_nodes)}
    for a, b in graph.edge_index.T.tolist():
        lists[a].append(b)
    content = {
        "allx": x[:first],
        "tx": x[test],
        "ally": one_hot[:first],
        "ty": one_hot[test],
        "graph": lists,
    }
    files = {f"ind.{name}.{part}": pickled(value, protocol) for part, value in content.items()}
    files[f"ind.{name}.test.index"] = "".join(f"{node}\n" for node in test).encode()
    return files | splits(name, labelled)


WRITERS = {
    "heterophilous": heterophilous,
    "gnn-benchmark": gnn_benchmark,
    "geom-gcn": geom_gcn,
    "planetoid": planetoid,
}


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", ["texas", "cornell_old", "citeseer"])
def test_a_download_is_the_published_graph_and_is_kept(name, web, tmp_path):
    published = read_npz(f"{DATA}/{name}.npz")
    source = DATASETS[name].download
    web |= WRITERS[source.format](source.name, published)
    assert content_sha256(load_named(name)) == content_sha256(published)
    web.clear()
    again = load_named(name)  # from the cache
    assert content_sha256(again) == content_sha256(published)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{name}.npz"]


@pytest.mark.data
@needs_data
def test_the_benchmark_of_shchur_gives_the_same_graph(web):
    """Written with the graph of Texas: the published one is large."""
    published = read_npz(f"{DATA}/texas.npz")
    web |= gnn_benchmark("amazon_electronics_photo", published)
    source = DATASETS["amazon_photo"].download
    assert web.keys() == {f"{source.name}.npz"}
    assert content_sha256(fetch(source)) == content_sha256(published)


@pytest.mark.data
@needs_data
def test_pickles_of_every_age_are_read(web):
    web |= planetoid("cora", read_npz(f"{DATA}/cora.npz"), protocol=0)
    assert content_sha256(fetch(DATASETS["cora"].download)) == DATASETS["cora"].content_sha256


@pytest.mark.data
@needs_data
def test_pyg_reads_the_same_graph_from_these_files(tmp_path):
    """The files written here are laid out as the source's: PyG's reader agrees."""
    from torch_geometric.io import read_planetoid_data

    labelled = read_npz(f"{DATA}/cora.npz")
    extra = {"x": "allx", "y": "ally"}  # training nodes once more, which nobody needs
    files = planetoid("cora", labelled)
    for part, same in extra.items():
        files[f"ind.cora.{part}"] = files[f"ind.cora.{same}"]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    data = read_planetoid_data(str(tmp_path), "cora")
    assert (data.x == dense(labelled.graph.features)).all()
    assert (data.y == labelled.labels).all()


@pytest.mark.parametrize("protocol", [0, 4])
def test_a_hostile_server_runs_no_code(web, tmp_path, trap, protocol):
    content = pickle.dumps(trap, protocol)
    web |= {f"ind.cora.{part}": content for part in ("allx", "tx", "ally", "ty", "graph")}
    web["ind.cora.test.index"] = b"1\n2\n"
    with pytest.raises(FileError, match=r"'ind\.cora\.allx' is damaged, or names what no data set"):
        load_named("cora")
    assert not (tmp_path / "cache").exists()


def test_arrays_of_objects_are_refused():
    array = downloads._unpickled(pickle.dumps(np.array([None, 1])), Path("x"))
    with pytest.raises(FileError, match=r"must hold numbers\. Got 'O8'"):
        array.array()


@pytest.mark.parametrize("name", ["texas", "cora"])
def test_what_is_not_there_names_file_checksum_and_folder(name, web, tmp_path):
    assert web == {}
    with pytest.raises(DataError) as info:
        load_named(name, tmp_path)
    assert f"Put {name}.npz (sha256 {DATASETS[name].file_sha256})" in str(info.value)
    assert repr(str(tmp_path)) in str(info.value)
    assert "Downloading it failed" in str(info.value)


def test_a_checksum_of_the_catalogue_reaches_pooch(web):
    web["texas.npz"] = b"not a zip"
    for digest, error in (("right", FileError), ("wrong", AssertionError)):
        download = DATASETS["texas"].download.model_copy(update={"sha256": {"texas.npz": digest}})
        with pytest.raises(error):
            fetch(download)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"<html>404</html>"])
def test_what_is_no_archive_is_refused(web, content):
    web["texas.npz"] = content
    with pytest.raises(FileError, match=r"'texas\.npz' is not a whole \.npz archive"):
        load_named("texas")
