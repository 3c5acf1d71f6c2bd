"""One way in: names, archives, tables and saved PyG objects, and what each wrong source answers."""

import os
import pickle
import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from aspect.data import files
from aspect.data.archives import content_sha256, write_npz
from aspect.data.features import dense
from aspect.data.graph import Graph, label_graph
from aspect.data.source import read_graph
from aspect.errors import AspectError, FileError, GraphError, SettingsError, UnknownNameError

DATA = os.environ.get("ASPECT_DATA", "")
PAIRS = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,x,colour,label\na,1,red,u\nb,,blue,v\nc,3,red,u\n")
    return tmp_path / "edges.csv", tmp_path / "nodes.csv"


@pytest.fixture
def saved(tmp_path):
    data = Data(x=torch.rand(3, 2), edge_index=PAIRS, y=torch.tensor([0, 1, 0]))
    torch.save(data, tmp_path / "graph.pt")
    return tmp_path / "graph.pt"


def test_tables_with_structural_features_need_no_others(tables):
    edges, nodes = tables
    with pytest.raises(GraphError, match="'colour' with 'red'"):
        read_graph(edges, nodes=nodes)
    labelled = read_graph(edges, nodes=nodes, features="identity")
    assert labelled.graph.num_features == 3
    assert labelled.class_names == ("u", "v")
    assert read_graph(edges, features="degree").graph.ids == ("a", "b", "c")


def test_options_reach_the_tables(tmp_path):
    (tmp_path / "e.txt").write_bytes("a;b\né;n\n".encode("latin-1"))
    (tmp_path / "n.txt").write_bytes("id;x;kind\né;1;p\nn;;q\n".encode("latin-1"))
    labelled = read_graph(
        tmp_path / "e.txt", nodes=tmp_path / "n.txt", encoding="latin-1", delimiter=";",
        label="kind", impute="mean",
    )  # fmt: skip
    assert labelled.graph.ids == ("é", "n")
    assert labelled.class_names == ("p", "q")
    assert labelled.graph.features.tolist() == [[1], [1]]


def test_archive(tmp_path):
    graph = label_graph(Graph.build(torch.rand(3, 2), PAIRS), torch.tensor([0, 1, 0]))
    write_npz(tmp_path / "my graph.npz", graph)
    assert content_sha256(read_graph(tmp_path / "my graph.npz")) == content_sha256(graph)
    assert read_graph(str(tmp_path / "my graph.npz"), features="random").graph.num_features == 32


def test_saved_data(saved):
    labelled = read_graph(saved)
    assert labelled.graph.num_edges == 2
    assert labelled.class_names == ("0", "1")


def test_saved_data_without_features(tmp_path):
    torch.save(Data(edge_index=PAIRS, num_nodes=4), tmp_path / "g.pt")
    with pytest.raises(GraphError, match=r"4 nodes have no features: set data\.x"):
        read_graph(tmp_path / "g.pt")
    assert read_graph(tmp_path / "g.pt", features="degree").graph.num_nodes == 4


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo])
def test_missing_features_are_imputed_whatever_the_file(tmp_path, layout):
    x = torch.zeros(4, 6)
    x[:, 0] = torch.tensor([1.0, torch.nan, 4.0, 1.0])
    x[0, 5] = torch.inf
    torch.save(Data(x=x.to_sparse(layout=layout), edge_index=PAIRS), tmp_path / "g.pt")
    with pytest.raises(GraphError, match="row 0 column 5, row 1 column 0"):
        read_graph(tmp_path / "g.pt")
    with pytest.raises(SettingsError, match=r"must be 'zero' or 'mean'\. Got 'median'"):
        read_graph(tmp_path / "g.pt", impute="median")
    for how, value in (("zero", 0.0), ("mean", 2.0)):
        graph = read_graph(tmp_path / "g.pt", impute=how).graph
        assert dense(graph.features)[:, 0].tolist() == [1, value, 4, 1]
        assert dense(graph.features)[0, 5] == 0
        assert f"2 missing or infinite features in 2 columns set to {how}." in graph.notices


def test_missing_features_of_an_archive(tmp_path):
    write_npz(tmp_path / "g.npz", label_graph(Graph.build(torch.eye(3), PAIRS), torch.arange(3)))
    arrays = dict(np.load(tmp_path / "g.npz"))
    arrays["x_data"][1] = np.nan
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(GraphError, match="row 1 column 1"):
        read_graph(tmp_path / "g.npz")
    graph = read_graph(tmp_path / "g.npz", impute="zero").graph
    assert dense(graph.features).diagonal().tolist() == [1, 0, 1]


class Trap:
    """Leaves a folder behind if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["torch", "legacy", "pickle", "inside"])
def test_code_in_a_saved_file_is_never_run(tmp_path, how):
    path, trap = tmp_path / "graph.pt", Trap(tmp_path / "sprung")
    if how == "pickle":
        path.write_bytes(pickle.dumps(trap))
    elif how == "inside":
        torch.save(Data(x=torch.rand(3, 2), edge_index=PAIRS, extra=trap), path)
    else:
        torch.save(trap, path, _use_new_zipfile_serialization=how == "torch")
    with pytest.raises(FileError, match=r"never loaded\. Save a plain torch_geometric\.data\.Data"):
        read_graph(path)
    assert not (tmp_path / "sprung").exists()


def test_other_saved_things(tmp_path):
    torch.save({"weight": torch.ones(2)}, tmp_path / "g.pt")
    with pytest.raises(GraphError, match=r"must hold a PyG Data with an edge_index\. Got dict"):
        read_graph(tmp_path / "g.pt")
    torch.save(HeteroData(), tmp_path / "g.pt")
    with pytest.raises(AspectError):
        read_graph(tmp_path / "g.pt")


def test_truncated_saved_data(saved):
    whole = saved.read_bytes()
    for cut in range(0, len(whole) - 1, len(whole) // 16):
        saved.write_bytes(whole[:cut])
        with pytest.raises(FileError, match=r"damaged|not a whole file"):
            read_graph(saved)


def test_changed_bits_of_saved_data_are_noticed(saved):
    whole, before = saved.read_bytes(), content_sha256(read_graph(saved))
    draw = random.Random(0)  # noqa: S311 - no secret
    for _ in range(150):
        changed = bytearray(whole)
        changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        saved.write_bytes(changed)
        with suppress(AspectError):
            assert content_sha256(read_graph(saved)) == before


def test_a_file_without_checksums_says_so(tmp_path):
    data = Data(x=torch.rand(3, 2), edge_index=PAIRS)
    torch.save(data, tmp_path / "g.pt", _use_new_zipfile_serialization=False)
    assert "has no checksums" in read_graph(tmp_path / "g.pt").graph.notices[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"x": torch.zeros(1, 1).expand(10**8, 10**4)},  # one number, of strides zero
        {"edge_index": torch.zeros(2, 1, dtype=torch.long).expand(2, 10**12)},
        {"x": None, "num_nodes": 2 * 10**12},
    ],
)
def test_saved_data_that_says_it_is_huge_is_refused(tmp_path, changed):
    torch.save(Data(**({"x": torch.rand(3, 2), "edge_index": PAIRS} | changed)), tmp_path / "g.pt")
    with pytest.raises(FileError, match="fit the memory"):
        read_graph(tmp_path / "g.pt", features="degree")


def test_saved_data_beyond_the_memory(saved, monkeypatch):
    monkeypatch.setattr(files, "available_bytes", lambda: 4 * saved.stat().st_size - 1)
    with pytest.raises(FileError, match="fit the memory"):
        read_graph(saved)


@pytest.mark.parametrize(
    ("source", "kind", "sentence"),
    [
        (
            "corra",
            UnknownNameError,
            r"data set or file 'corra'\. Did you mean 'cora'\? Known: actor",
        ),
        ("Cora", UnknownNameError, r"Did you mean 'cora'\?"),
        ("", UnknownNameError, "Known: actor"),
        ("graph.xlsx", FileError, r"must end in \.npz, \.csv, \.tsv, .*Got 'graph\.xlsx'"),
        ("folder/graph", FileError, "must end in"),
        ("missing.csv", FileError, r"Cannot read 'missing\.csv': there is no such file"),
        ("missing.npz", FileError, "there is no such file"),
        ("missing.pt", FileError, "there is no such file"),
        ("n" * 300 + ".npz", FileError, "the path is too long"),
        ("nul\0.csv", FileError, "Cannot read"),
    ],
)
def test_sources_that_are_none(source, kind, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=sentence):
        read_graph(source)
    assert list(tmp_path.iterdir()) == []


def test_missing_node_table(tables):
    with pytest.raises(FileError, match=r"Cannot read 'nowhere\.csv': there is no such file"):
        read_graph(tables[0], nodes="nowhere.csv")


def test_node_table_where_none_belongs(saved):
    with pytest.raises(SettingsError, match="--nodes belongs to an edge table"):
        read_graph(saved, nodes="nodes.csv")


def test_unknown_choices(tables):
    with pytest.raises(
        SettingsError, match=r"'features' of the graph must be .*'laplacian'\. Got 'eigen'"
    ):
        read_graph(tables[0], features="eigen")
    with pytest.raises(SettingsError, match=r"must be 'symmetrise' or 'error'\. Got 'yes'"):
        read_graph(tables[0], directed="yes")
    with pytest.raises(GraphError, match="2 edges lack their reverse"):
        read_graph(tables[0], features="degree", directed="error")


def damage(content, draw):
    """The same bytes with a few changed, inserted or taken out."""
    damaged = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(damaged) + 1)
        stray = draw.choice([b"\0", b"\xff", b'"', b",", b"\n", b"\r", b"-", b"\xe9", b""])
        damaged[place : place + draw.randint(0, 3)] = stray
    return bytes(damaged)


@pytest.mark.parametrize("edges", ["edges.csv", "edges.parquet", "graph.pt"])
def test_damaged_files_never_give_a_raw_error(edges, tmp_path, saved):
    """A few hundred damaged files: each is read, or answered by one of our sentences."""
    (tmp_path / "edges.csv").write_text('source,target\na,b\nb,"c\nd"\n')
    (tmp_path / "nodes.csv").write_text('id,x,label\na,1,u\nb,2e3,v\n"c\nd",3,u\n')
    columns = {"source": ["a", "b"], "target": ["b", "c"]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "edges.parquet")
    rows = {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0], "y": [1, 2, 1]}
    pa.parquet.write_table(pa.table(rows), tmp_path / "nodes.parquet")
    nodes = None if edges == saved.name else tmp_path / edges.replace("edges", "nodes")
    draw = random.Random(0)  # noqa: S311 - no secret
    for victim in filter(None, (tmp_path / edges, nodes)):
        whole = victim.read_bytes()
        for _ in range(150):
            victim.write_bytes(damage(whole, draw))
            with suppress(AspectError):
                read_graph(tmp_path / edges, nodes=nodes)
        victim.write_bytes(whole)


def test_data_of_another_age(tmp_path):
    data = Data(x=torch.rand(3, 2), edge_index=PAIRS)
    del data.__dict__["_store"]
    torch.save(data, tmp_path / "g.pt")
    with pytest.raises(FileError, match=r"no whole PyG Data|not a whole file"):
        read_graph(tmp_path / "g.pt")


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="ASPECT_DATA names no folder of data sets")
def test_name_of_a_data_set():
    assert read_graph("texas").graph.num_nodes == 183
    assert read_graph("texas", data_dir=DATA, features="degree").graph.num_features < 10
