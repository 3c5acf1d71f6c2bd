"""Archives: round trips, and every way in which one can be wrong."""

import io
import pickle
import stat
import struct
import zipfile

import numpy as np
import pytest
import torch

from aspect.data import files
from aspect.data.archives import content_sha256, read_npz, write_npz
from aspect.data.graph import Graph, LabelledGraph, label_graph
from aspect.errors import AspectError, DataError, FileError, GraphError


def small_graph(seed: int = 0, num_nodes: int = 6, density: float = 0.5) -> LabelledGraph:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, 5, generator=generator)
    x = x * (torch.rand(num_nodes, 5, generator=generator) < density)
    pairs = torch.randint(num_nodes, (2, 9), generator=generator)
    nodes = torch.arange(num_nodes)
    masks = {
        "train": torch.stack([nodes < 2, nodes >= 4]),
        "validation": torch.stack([nodes == 2, nodes == 0]),
        "test": torch.stack([nodes > 2, nodes == 1]),
    }
    return label_graph(Graph.build(x, pairs), nodes % 3, masks=masks)


def arrays() -> dict[str, np.ndarray]:
    """A right archive of three nodes, to be spoilt one key at a time."""
    return {
        "edge_index": np.array([[0, 1], [1, 2]], dtype=np.int32),
        "x_indptr": np.array([0, 1, 2, 3]),
        "x_indices": np.array([0, 1, 3], dtype=np.int32),
        "x_data": np.ones(3, dtype=np.float32),
        "x_shape": np.array([3, 4]),
        "y": np.array([0, 1, 0]),
    }


def spoilt(tmp_path, **changed):
    path = tmp_path / "graph.npz"
    content = {key: value for key, value in (arrays() | changed).items() if value is not None}
    np.savez(path, **content)
    return path


def raw_member(tmp_path, name: str, content: bytes):
    """A right archive in which the bytes of one member are replaced."""
    path = tmp_path / "graph.npz"
    with zipfile.ZipFile(path, "w") as out:
        for key, value in arrays().items():
            buffer = io.BytesIO()
            np.save(buffer, value)
            out.writestr(f"{key}.npy", content if key == name else buffer.getvalue())
    return path


def test_round_trip_keeps_the_graph(tmp_path):
    for seed, density in enumerate((0.0, 0.05, 0.5, 0.9)):  # kept sparse, kept dense
        before = small_graph(seed, 6 + seed, density)
        write_npz(tmp_path / "g.npz", before, overwrite=True)
        after = read_npz(tmp_path / "g.npz")
        assert content_sha256(after) == content_sha256(before)
        assert after.class_names == before.class_names
        for part, mask in before.masks.items():
            torch.testing.assert_close(after.masks[part], mask)


def test_classes_without_a_node_are_kept(tmp_path):
    graph = Graph.build(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))
    for names in (("0", "1", "2"), ("a", "b", "c")):
        write_npz(
            tmp_path / "g.npz", label_graph(graph, torch.tensor([0, 1, 0]), names), overwrite=True
        )
        assert read_npz(tmp_path / "g.npz").class_names == names


def test_content_checksum_does_not_depend_on_the_form():
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, -0.0]])
    one = label_graph(Graph.build(x, torch.tensor([[0, 1], [1, 2]])), torch.tensor([0, 1, 1]))
    pairs = torch.tensor([[2, 1, 1, 0, 0], [1, 2, 0, 1, 0]])
    other = label_graph(Graph.build(x, pairs), torch.tensor([0, 1, 1]))
    assert content_sha256(one) == content_sha256(other)
    changed = label_graph(Graph.build(x, pairs), torch.tensor([0, 1, 0]))
    assert content_sha256(one) != content_sha256(changed)


def test_plain_archives_of_any_byte_order_are_read(tmp_path):
    graph = read_npz(spoilt(tmp_path))
    assert (graph.graph.num_nodes, graph.graph.num_edges, graph.num_classes) == (3, 2, 2)
    edges = np.asfortranarray(np.array([[0, 1], [1, 2]], dtype=">i4"))
    graph = read_npz(spoilt(tmp_path, edge_index=edges, y=np.array([0, 1, 0], dtype=">i2")))
    assert graph.graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"edge_index": np.array([[0], [3]])}, r"must join nodes 0 to 2. Got \(0, 3\)"),
        ({"x_indptr": np.array([0, 2, 1, 3])}, "3 x 4 matrix .* non-decreasing"),
        ({"x_indptr": np.array([0, 1, 3])}, r"3 x 4 matrix must be compressed .*should be 4"),
        ({"x_indptr": np.array([0, 1, 2, 9])}, "Last value of index pointer"),
        ({"x_indptr": np.array([0, 1, 2, 2])}, "to the last one"),
        ({"x_indices": np.array([0, 1, 4])}, "3 x 4 matrix .* must be < 4"),
        ({"x_indices": np.array([0, -1, 3])}, "3 x 4 matrix .* must be >= 0"),
        ({"x_indices": np.array([0, 1])}, "indices and data should have the same size"),
        ({"x_indptr": np.array([0, 3, 3, 3]), "x_indices": np.array([1, 1, 2])}, "without repeats"),
        ({"x_shape": np.array([3, 2**40])}, "two counts"),
        ({"x_data": np.array([1, 1e300, 1])}, "row 1 column 1"),
        ({"y": np.array([0, -2, 0])}, "class numbers from 0, or -1"),
        ({"names": np.frombuffer(b'{"ids": [1]}', np.uint8)}, "JSON text of lists of strings"),
        ({"names": np.frombuffer(b"[" * 10**5, np.uint8)}, "JSON text of lists of strings"),
    ],
)
def test_inconsistent_arrays_are_refused(tmp_path, changed, sentence):
    with pytest.raises(GraphError, match=sentence):
        read_npz(spoilt(tmp_path, **changed))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"y": None}, "lacks y"),
        ({"train_masks": np.ones((1, 3), dtype=bool)}, "lacks test_masks, val_masks"),
        ({"extra": np.ones(2)}, "nothing else. Got 'extra.npy'"),
        ({"y": np.array([0.0, 1.0, 0.0])}, "must hold integers. Got float64"),
        ({"x_data": np.array([1j, 1, 1])}, "floating-point numbers. Got complex128"),
    ],
)
def test_wrong_keys_and_types_are_refused(tmp_path, changed, sentence):
    with pytest.raises(FileError, match=sentence):
        read_npz(spoilt(tmp_path, **changed))


def test_overlapping_and_empty_splits_are_refused(tmp_path):
    full, none = np.ones((1, 3), dtype=bool), np.zeros((1, 3), dtype=bool)
    first = np.array([[True, False, False]])
    second = np.array([[False, True, False]])
    with pytest.raises(GraphError, match=r"must not share nodes\. Got node 0 in split 0"):
        read_npz(spoilt(tmp_path, train_masks=full, val_masks=first, test_masks=second))
    with pytest.raises(GraphError, match=r"needs test nodes\. None in splits 0"):
        read_npz(spoilt(tmp_path, train_masks=first, val_masks=second, test_masks=none))
    short = np.array([[True, False]])
    with pytest.raises(GraphError, match=r"one shape \[splits, 3\]"):
        read_npz(spoilt(tmp_path, train_masks=short, val_masks=short, test_masks=short))


def test_pickled_objects_are_never_loaded(tmp_path, trap):
    with pytest.raises(FileError, match="Python objects, which are never loaded"):
        read_npz(spoilt(tmp_path, y=np.array([trap], dtype=object)))
    with pytest.raises(FileError, match="damaged array header"):
        read_npz(raw_member(tmp_path, "y", pickle.dumps(trap)))


def header(text: str, length: int | None = None) -> bytes:
    size = len(text) if length is None else length
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + text.encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (header("{'descr':'<i8','fortran_order':False,'shape':(99,),}\n") + bytes(24), "takes 792"),
        (header("{'descr':'<i8','fortran_order':False,'shape':(-3,),}\n") + bytes(24), "-24 bytes"),
        (header("{'descr':'<i8','fortran_order':False,'shape':(3,)\n"), "damaged array header"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1), "damaged array header"),
        (b"\x93NUMPY\x07\x00" + bytes(90), "not a plain .npy array"),
        (b"", "damaged array header"),
    ],
    ids=["large shape", "negative shape", "bracket", "huge", "version", "empty"],
)
def test_lying_array_headers_are_refused(tmp_path, content, sentence):
    with pytest.raises(FileError, match=sentence):
        read_npz(raw_member(tmp_path, "y", content))


def test_strange_member_names_are_refused(tmp_path):
    for name in ("/etc/passwd", "../../y.npy"):
        path = spoilt(tmp_path)
        with zipfile.ZipFile(path, "a") as out:
            out.writestr(name, b"x")
        with pytest.raises(FileError, match="nothing else"):
            read_npz(path)


def test_members_twice_links_and_encryption_are_refused(tmp_path):
    path = spoilt(tmp_path)
    with zipfile.ZipFile(path) as archive_file:
        members = {info.filename: archive_file.read(info) for info in archive_file.infolist()}
    with zipfile.ZipFile(path, "a") as out, pytest.warns(UserWarning, match="Duplicate name"):
        out.writestr("y.npy", b"x")
    with pytest.raises(FileError, match="nothing else"):
        read_npz(path)

    def rewrite(mode):
        with zipfile.ZipFile(path, "w") as out:
            for name, content in members.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = (mode | 0o644) << 16
                out.writestr(info, content)

    rewrite(stat.S_IFLNK)
    with pytest.raises(FileError, match="symbolic link"):
        read_npz(path)
    rewrite(stat.S_IFREG)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(FileError, match="encrypted"):
        read_npz(path)


def test_archives_that_would_grow_too_much_are_refused_unread(tmp_path, monkeypatch):
    bomb, large = tmp_path / "bomb.npz", tmp_path / "large.npz"
    np.savez_compressed(bomb, **(arrays() | {"x_data": np.zeros(5 * 2**20, dtype=np.float32)}))
    np.savez_compressed(large, **(arrays() | {"x_data": np.zeros(9000, dtype=np.float32)}))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member was read"))
    with pytest.raises(FileError, match="-fold to 20971648 bytes; at most 200-fold"):
        read_npz(bomb)
    monkeypatch.setattr(files, "available_bytes", lambda: large.stat().st_size * 4 + 4)
    with pytest.raises(FileError, match=r"bytes; at most \d+ fit the memory"):
        read_npz(large)


def test_cut_and_changed_bytes_give_a_sentence_or_the_same_graph(tmp_path):
    path = tmp_path / "g.npz"
    before = small_graph()
    write_npz(path, before)
    whole = path.read_bytes()
    for cut in range(0, len(whole), len(whole) // 16):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileError, match="cut off or damaged"):
            read_npz(path)
    for place in range(0, len(whole), 37):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        try:
            after = read_npz(path)
        except AspectError:
            continue
        assert content_sha256(after) == content_sha256(before)


def test_wrong_checksum_names_both(tmp_path):
    path = spoilt(tmp_path)
    with pytest.raises(DataError, match=r"sha256 must be 00ff\. Got [0-9a-f]{64}"):
        read_npz(path, sha256="00ff")
