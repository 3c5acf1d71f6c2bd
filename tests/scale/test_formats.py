"""Small files in the layouts of OGB and IGB become stores of the same graph."""

import errno
import gzip
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from aspect.errors import FileError, GraphError
from aspect.scale import formats
from aspect.scale.formats import import_igb, import_ogb, layout_of

NODES, EDGES = 40, 150


@pytest.fixture
def drawn():
    generator = np.random.default_rng(0)
    ends = generator.integers(0, NODES, (2, EDGES))
    features = generator.normal(size=(NODES, 6)).astype(np.float32)
    labels = generator.integers(0, 3, NODES).astype(np.float32)
    return ends, features, labels


def packed(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, array, fmt="%.9g", delimiter=",")


def split_into(folder, name="time"):
    numbers = np.arange(NODES)
    for part, chosen in {"train": numbers[::4], "valid": numbers[1::4], "test": [2, 3]}.items():
        packed(folder / "split" / name / f"{part}.csv.gz", np.array(chosen))


def saved_as_arrays(folder, drawn, save):
    ends, features, labels = drawn
    split_into(folder)
    (folder / "raw").mkdir(exist_ok=True)
    sizes = {"num_nodes_list": np.array([NODES]), "num_edges_list": np.array([EDGES])}
    save(folder / "raw" / "data.npz", edge_index=ends, node_feat=features, **sizes)
    save(folder / "raw" / "node-label.npz", node_label=labels[:, None])


@pytest.fixture
def ogb(tmp_path, drawn):
    ends, features, labels = drawn
    raw = tmp_path / "ogbn_small" / "raw"
    packed(raw / "edge.csv.gz", ends.T)
    packed(raw / "node-feat.csv.gz", features)
    packed(raw / "node-label.csv.gz", labels)
    packed(raw / "num-node-list.csv.gz", np.array([NODES]))
    packed(raw / "num-edge-list.csv.gz", np.array([EDGES]))
    split_into(raw.parent)
    return raw.parent


def check(store, drawn):
    ends, features, labels = drawn
    matrix = np.zeros((NODES, NODES), bool)
    matrix[ends[0], ends[1]] = matrix[ends[1], ends[0]] = True
    np.fill_diagonal(matrix, False)
    for block, (start, end) in enumerate(store.blocks):
        pointers, neighbours, _ = store.adjacency(block)
        rows = np.repeat(np.arange(start, end), np.diff(pointers))
        np.testing.assert_array_equal(
            np.stack([rows, neighbours]),
            np.stack(matrix.nonzero())[:, np.isin(matrix.nonzero()[0], rows)],
        )
    assert store.num_edges == matrix.sum() // 2
    np.testing.assert_array_equal(store.features[:], features)
    np.testing.assert_array_equal(store.labels[:], np.where(np.isnan(labels), -1, labels))
    store.verify()


def check_split(store):
    split = store.split[:]
    assert (np.flatnonzero(split == 1) == np.arange(0, NODES, 4)).all()
    assert (np.flatnonzero(split == 2) == np.arange(1, NODES, 4)).all()
    assert np.flatnonzero(split == 3).tolist() == [2, 3]


def test_ogb_as_text(ogb, drawn, tmp_path):
    assert layout_of(ogb) == "ogb"
    store = import_ogb(ogb, tmp_path / "store", rows_per_block=16, memory_bytes=256 * 50)
    check(store, drawn)
    check_split(store)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_ogb_as_arrays(drawn, tmp_path, save):
    """The layout of papers100M, whose labels are missing but for a few."""
    drawn[2][5:] = np.nan
    folder = tmp_path / "papers100M-bin"
    saved_as_arrays(folder, drawn, save)
    store = import_ogb(folder, tmp_path / "store", rows_per_block=16)
    check(store, drawn)
    check_split(store)
    assert {file.name for file in tmp_path.iterdir()} == {"papers100M-bin", "store"}


def test_what_another_archive_left_unpacked_is_not_read(drawn, tmp_path, monkeypatch):
    """An import that was killed leaves unpacked arrays; a folder of the user is never removed."""
    folder, path = tmp_path / "papers100M-bin", tmp_path / "store"
    (tmp_path / "store.members").mkdir()
    ends, features, labels = drawn
    saved_as_arrays(folder, (ends, features + 1, labels), np.savez_compressed)
    with monkeypatch.context() as patched:
        patched.setattr(formats, "write_store", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            import_ogb(folder, path)
    (members,) = tmp_path.glob("store.*.members")
    (members / ".0123456789abcdef.part").write_text("half")
    next(members.glob("*.npy")).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(formats, "write_store", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            import_ogb(folder, path)
    assert not list(members.glob(".*"))  # what a killed call left half unpacked
    saved_as_arrays(folder, drawn, np.savez_compressed)
    check(import_ogb(folder, path), drawn)
    assert (tmp_path / "store.members").is_dir()


@pytest.mark.parametrize("is_bare", [False, True])
def test_igb(drawn, tmp_path, is_bare):
    """Bare: as in its sizes large and full."""
    ends, _, labels = drawn
    features = np.random.default_rng(1).normal(size=(NODES, 1024)).astype(np.float32)
    papers, cites = (
        tmp_path / "small" / "processed" / name for name in ("paper", "paper__cites__paper")
    )
    papers.mkdir(parents=True)
    cites.mkdir()
    np.save(cites / "edge_index.npy", ends.T)
    for name, array in {"node_feat": features, "node_label_19": labels}.items():
        if is_bare:
            array.tofile(papers / f"{name}.npy")
        else:
            np.save(papers / f"{name}.npy", array)
    assert layout_of(tmp_path / "small") == "igb"
    store = import_igb(tmp_path / "small", tmp_path / "store", rows_per_block=16)
    check(store, (ends, features, labels))
    assert np.bincount(store.split[:]).tolist() == [0, 24, 8, 8]
    with pytest.raises(FileError, match="node_label_2K"):
        import_igb(tmp_path / "small", tmp_path / "other", labels="2K")


def test_what_is_missing_is_named(ogb, tmp_path):
    assert layout_of(tmp_path) is None
    split_into(ogb, "random")
    with pytest.raises(GraphError, match=r"must hold one split\. Got 2: random, time"):
        import_ogb(ogb, tmp_path / "store")
    (ogb / "raw" / "node-feat.csv.gz").unlink()
    with pytest.raises(GraphError, match=r"must have raw/node-feat\.csv\.gz"):
        import_ogb(ogb, tmp_path / "store")
    packed(ogb / "raw" / "num-node-list.csv.gz", np.array([20, 20]))
    for name in ("data.npz", "node-label.npz"):
        (ogb / "raw" / name).write_bytes(b"no archive")
    with pytest.raises(FileError, match=r"must be a \.npz archive with 'num_nodes_list'"):
        import_ogb(ogb, tmp_path / "store")


@pytest.mark.parametrize("count", [10, 30, NODES - 8, NODES + 1, NODES + 8])
def test_ogb_features_are_one_row_for_each_node(ogb, drawn, tmp_path, count):
    features = np.resize(drawn[1], (count, 6))
    packed(ogb / "raw" / "node-feat.csv.gz", features)
    with pytest.raises(GraphError, match=r"node-feat.csv.gz' must have a row for each of 40 nodes"):
        import_ogb(ogb, tmp_path / "store", rows_per_block=8)


def test_damaged_texts_of_ogb_are_named(ogb, tmp_path):
    def refused(name, sentence):
        with pytest.raises((FileError, GraphError), match=sentence):
            import_ogb(ogb, tmp_path / "store")
        (ogb / name).write_bytes(kept)
        shutil.rmtree(tmp_path / "store", ignore_errors=True)  # begun with the damaged file

    kept = (ogb / "raw" / "edge.csv.gz").read_bytes()
    (ogb / "raw" / "edge.csv.gz").write_bytes(kept[: len(kept) // 2])
    refused("raw/edge.csv.gz", r"edge\.csv\.gz' must hold rows of numbers: Compressed file ended")
    packed(ogb / "raw" / "edge.csv.gz", np.arange(EDGES))
    refused("raw/edge.csv.gz", r"edge\.csv\.gz' must hold two numbers in each row\. Got 1\.")
    kept = (ogb / "split" / "time" / "test.csv.gz").read_bytes()
    for wrong in (-1, NODES):
        packed(ogb / "split" / "time" / "test.csv.gz", np.array([wrong]))
        refused("split/time/test.csv.gz", rf"must hold nodes 0 to 39\. Got {wrong} \(1 in all\)\.")
    (ogb / "raw" / "node-label.csv.gz").unlink()
    with pytest.raises(FileError, match=r"Cannot read .*label.csv.gz': there is no such file\."):
        import_ogb(ogb, tmp_path / "store")


@pytest.mark.parametrize("num_bytes", [0, 7, 4 * 1025])
@pytest.mark.parametrize("name", ["node_feat", "node_label_19"])
def test_igb_features_have_their_columns(drawn, tmp_path, num_bytes, name):
    papers, cites = (tmp_path / "processed" / folder for folder in ("paper", "paper__cites__paper"))
    papers.mkdir(parents=True)
    cites.mkdir()
    np.save(cites / "edge_index.npy", drawn[0].T)
    np.save(papers / "node_label_19.npy", drawn[2].astype(np.int8))
    np.save(papers / "node_feat.npy", np.zeros((NODES, 1024), np.float16))
    (papers / f"{name}.npy").write_bytes(bytes(num_bytes))
    told = rf"{name}\.npy' must hold numbers in rows of|Labels must be one per node"
    with pytest.raises((FileError, GraphError), match=told):
        import_igb(tmp_path, tmp_path / "store")


def test_igb_in_small_types(drawn, tmp_path):
    ends, _, labels = drawn
    features = np.random.default_rng(1).normal(size=(NODES, 1024)).astype(np.float16)
    papers, cites = (tmp_path / "processed" / folder for folder in ("paper", "paper__cites__paper"))
    papers.mkdir(parents=True)
    cites.mkdir()
    np.save(cites / "edge_index.npy", ends.T)
    np.save(papers / "node_label_19.npy", labels[:-1].astype(np.int8))
    np.save(papers / "node_feat.npy", features)
    with pytest.raises(GraphError, match=r"Labels must be one per node, 40 in all\. Got 39"):
        import_igb(tmp_path, tmp_path / "store")


def test_a_file_that_may_not_be_read_is_named(drawn, tmp_path, monkeypatch):
    saved_as_arrays(tmp_path, drawn, np.savez)
    data, opened = tmp_path / "raw" / "data.npz", Path.open

    def denied(path, *arguments, **options):
        if path == data:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(FileError, match=r"Cannot read '.*data\.npz': permission is denied\."):
        import_ogb(tmp_path, tmp_path / "store")
