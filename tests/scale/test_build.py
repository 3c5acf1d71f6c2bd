"""Files of any size as a store: the same graph as in memory, whatever the memory bound."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from aspect.data.source import Reading
from aspect.data.tables import read_tables
from aspect.errors import FileError, GraphError, RunError, SettingsError
from aspect.scale import chunks
from aspect.scale.build import build_store
from aspect.scale.chunks import TablePieces
from aspect.scale.store import GraphStore
from faults import contents, run_and_kill

NODES, EDGES = 300, 2000
SMALL = 64 * 256  # bytes: 64 edges at a time


def entries(store):
    """The adjacency as a dense matrix."""
    blocks = []
    for block, (start, end) in enumerate(store.blocks):
        pointers, neighbours, weights = store.adjacency(block)
        values = np.ones(len(neighbours)) if weights is None else weights
        shape = (end - start, store.num_nodes)
        blocks.append(scipy.sparse.csr_array((values, neighbours, pointers), shape=shape))
    return scipy.sparse.vstack(blocks).toarray()


def in_memory(graph):
    values = torch.ones(graph.edge_index.shape[1]) if graph.weights is None else graph.weights
    rows, columns = graph.edge_index.numpy()
    size = (graph.num_nodes, graph.num_nodes)
    return scipy.sparse.coo_array((values.numpy(), (rows, columns)), size).toarray()


@pytest.fixture(scope="module")
def tables():
    """Edges and nodes with ids that are no row numbers, in an order of no meaning."""
    drawn = np.random.default_rng(0)
    ids = drawn.permutation(10**6)[:NODES] + 10**12
    edges = pd.DataFrame(ids[drawn.integers(0, NODES, (EDGES, 2))], columns=["source", "target"])
    nodes = pd.DataFrame(
        {
            "id": ids,
            "label": drawn.choice(["cat", "dog", "eel"], NODES),
            "age": drawn.normal(40, 9, NODES),
            "member": drawn.integers(0, 2, NODES),
            "since": drawn.normal(0, 1e-3, NODES),
        }
    )
    return edges, nodes


def written(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=100)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize("memory_bytes", [2**30, SMALL])
def test_tables_are_the_graph_in_memory(tables, tmp_path, suffix, memory_bytes):
    edges, nodes = (
        written(frame, tmp_path / f"{name}{suffix}")
        for name, frame in zip(("edges", "nodes"), tables, strict=True)
    )
    reading = Reading(nodes=str(nodes))
    store = build_store(
        edges, tmp_path / "store", reading, rows_per_block=70, memory_bytes=memory_bytes
    )
    plain = [written(frame, tmp_path / f"{k}.csv") for k, frame in enumerate(tables)]
    expected = read_tables(plain[0], Reading(nodes=str(plain[1])))
    graph = expected.graph
    np.testing.assert_array_equal(entries(store), in_memory(graph))
    np.testing.assert_allclose(store.features[:], graph.features.numpy(), atol=1e-5)
    np.testing.assert_array_equal(store.labels[:], expected.labels.numpy())
    assert store.facts.class_names == expected.class_names == ("cat", "dog", "eel")
    assert store.facts.feature_names == graph.feature_names
    assert set(store.facts.notices) <= set(graph.notices)
    assert len(store.facts.notices) == 3
    assert [str(each.decode() if suffix != ".parquet" else each) for each in store.ids[:]] == [
        *graph.ids
    ]
    assert not list(store.path.glob("scratch*"))
    store.verify()


def test_edges_alone_name_the_nodes(tables, tmp_path):
    """By the order of their ids."""
    edges = tables[0].astype(str)
    file = written(edges, tmp_path / "edges.parquet")
    stores = [
        build_store(file, tmp_path / str(memory), Reading(features="degree"), memory_bytes=memory)
        for memory in (2**30, SMALL)
    ]
    expected = read_tables(written(edges, tmp_path / "edges.csv"), Reading(features="degree")).graph
    for store in stores:
        np.testing.assert_array_equal(entries(store), in_memory(expected))
        assert tuple(each.decode() for each in store.ids[:]) == expected.ids
        features = store.features[:][:, : expected.num_features]
        np.testing.assert_array_equal(features, expected.features.numpy())
    random = build_store(file, tmp_path / "random", Reading(features="random"))
    assert abs(np.square(random.features[:]).sum(axis=1).mean() - 1) < 0.1
    with pytest.raises(SettingsError, match="A store needs features"):
        build_store(file, tmp_path / "none")


@pytest.mark.parametrize("is_tall", [True, False])
def test_arrays(tmp_path, is_tall):
    drawn = np.random.default_rng(1)
    ends = drawn.integers(0, NODES, (EDGES, 2) if is_tall else (2, EDGES)).astype(np.int32)
    features = drawn.normal(size=(NODES, 5))
    labels = np.where(np.arange(NODES) < 9, np.nan, np.arange(NODES) % 4)
    for name, array in {"edges": ends, "features": features, "labels": labels}.items():
        np.save(tmp_path / f"{name}.npy", array)
    store = build_store(
        tmp_path / "edges.npy",
        tmp_path / "store",
        Reading(nodes=str(tmp_path / "features.npy")),
        labels=tmp_path / "labels.npy",
        rows_per_block=64,
        dtype="float16",
        memory_bytes=SMALL,
    )
    source, target = ends.T if is_tall else ends
    matrix = np.zeros((NODES, NODES))
    matrix[source, target] = matrix[target, source] = 1
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(entries(store), matrix)
    np.testing.assert_array_equal(store.features[:], features.astype(np.float16))
    assert store.labels[:].tolist() == [-1] * 9 + [k % 4 for k in range(9, NODES)]
    assert (store.ids, store.facts.class_names) == (None, ("0", "1", "2", "3"))


def test_weights_are_those_in_memory(tables, tmp_path):
    edges = tables[0].assign(weight=np.random.default_rng(2).integers(0, 4, EDGES) / 2)
    files = [written(edges, tmp_path / "e.parquet"), written(tables[1], tmp_path / "n.parquet")]
    reading = Reading(nodes=str(files[1]))
    store = build_store(files[0], tmp_path / "store", reading, memory_bytes=SMALL)
    expected = read_tables(files[0], reading).graph
    np.testing.assert_allclose(entries(store), in_memory(expected), rtol=1e-6)
    unweighted = reading.model_copy(update={"unweighted": True})
    plain = build_store(files[0], tmp_path / "plain", unweighted, memory_bytes=SMALL)
    assert plain.facts.weight_scale is None
    assert not list(plain.path.glob("weights-*"))
    expected = read_tables(files[0], unweighted).graph
    np.testing.assert_array_equal(entries(plain), in_memory(expected))


def test_texts_as_ids_keep_all_letters_in_every_block(tmp_path):
    """A block is as wide as its longest id, and later ids are longer."""
    ids = [f"{'x' * (k // 8)}{k}" for k in range(40)]
    edges = written(pd.DataFrame({"source": ids, "target": ids[::-1]}), tmp_path / "e.csv")
    nodes = written(pd.DataFrame({"id": ids, "f": np.arange(40) / 7}), tmp_path / "n.csv")
    store = build_store(edges, tmp_path / "store", Reading(nodes=str(nodes)), rows_per_block=8)
    assert [each.decode() for each in store.ids[:]] == ids
    assert [each.decode() for each in store.ids[np.array([3, 39])]] == ["3", "xxxx39"]


def test_an_array_may_name_integers_of_a_text(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[7, 8], [8, 100]]))
    nodes = written(pd.DataFrame({"id": [100, 7, 8], "f": [0.5, 2, 4]}), tmp_path / "n.csv")
    store = build_store(tmp_path / "e.npy", tmp_path / "store", Reading(nodes=str(nodes)))
    assert entries(store).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]


def test_a_constant_column_is_zero_as_in_memory(tables, tmp_path):
    nodes = tables[1][["id"]].assign(same=0.1, large=1234567.1, age=tables[1].age)
    files = [written(tables[0], tmp_path / "e.csv"), written(nodes, tmp_path / "n.csv")]
    reading = Reading(nodes=str(files[1]))
    features = build_store(files[0], tmp_path / "store", reading).features[:]
    expected = read_tables(files[0], reading).graph.features.numpy()
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert np.abs(features[:, :2]).max() < 1e-5


def test_a_folder_of_parquet_files_is_one_table(tables, tmp_path):
    """As Spark writes it."""
    whole, folders = [], []
    for name, frame in zip(("e", "n"), tables, strict=True):
        whole.append(written(frame, tmp_path / f"{name}.parquet"))
        folders.append(tmp_path / f"{name}-parts.parquet")
        folders[-1].mkdir()
        (folders[-1] / "_SUCCESS").touch()
        for k, rows in enumerate(np.array_split(np.arange(len(frame)), 4)):
            written(frame.iloc[rows], folders[-1] / f"part-{k:05d}.snappy.parquet")
    one, other = (
        build_store(edges, tmp_path / f"store{k}", Reading(nodes=str(nodes)), memory_bytes=SMALL)
        for k, (edges, nodes) in enumerate((whole, folders))
    )
    same = [contents(store.path) for store in (one, other)]
    for names in same:
        del names["job.json"], names["manifest.json"]
    assert same[0] == same[1]
    written(tables[0].rename(columns={"target": "to"}), folders[0] / "part-9.parquet")
    with pytest.raises(FileError, match=r"'part-9\.parquet' differs from 'part-00000"):
        build_store(folders[0], tmp_path / "again", Reading(nodes=str(folders[1])))
    (folders[1] / "_temporary").mkdir()
    with pytest.raises(FileError, match=r"and no folders\. Got '_temporary'"):
        build_store(whole[0], tmp_path / "again", Reading(nodes=str(folders[1])))


KILLED = """
from aspect.data.source import Reading
from aspect.scale import chunks
from aspect.scale.build import build_store

folder = Path(sys.argv[2])
build_store(
    folder / "e.parquet",
    folder / "killed",
    Reading(nodes=str(folder / "n.parquet")),
    rows_per_block=70,
    memory_bytes=100_000,
)
"""


@pytest.mark.parametrize("at_block", [5, 20], ids=["ids", "rows"])
def test_a_killed_call_goes_on_and_ends_in_the_same_bytes(tables, tmp_path, at_block):
    written(tables[0], tmp_path / "e.parquet")
    written(tables[1], tmp_path / "n.parquet")
    reading = Reading(nodes=str(tmp_path / "n.parquet"))
    whole = build_store(tmp_path / "e.parquet", tmp_path / "whole", reading, rows_per_block=70)
    run_and_kill(KILLED, at_block, tmp_path)
    with pytest.raises(RunError, match="is not complete"):
        GraphStore.open(tmp_path / "killed")
    # With another memory bound: what was merged is kept, the runs are made anew.
    memory_bytes = 100_000 if at_block % 2 else SMALL
    resumed = build_store(
        tmp_path / "e.parquet",
        tmp_path / "killed",
        reading,
        rows_per_block=70,
        memory_bytes=memory_bytes,
    )
    assert contents(resumed.path) == contents(whole.path)


def test_a_killed_call_begins_anew_where_a_file_changed(tables, tmp_path, caplog):
    written(tables[0], tmp_path / "e.parquet")
    written(tables[1], tmp_path / "n.parquet")
    run_and_kill(KILLED, 20, tmp_path)
    written(tables[0][:500], tmp_path / "e.parquet")
    reading, killed = Reading(nodes=str(tmp_path / "n.parquet")), tmp_path / "killed"
    with pytest.raises(RunError, match="begun with other input or settings"):
        build_store(tmp_path / "e.parquet", killed, reading, rows_per_block=71)
    made = build_store(tmp_path / "e.parquet", killed, reading, rows_per_block=70)
    assert f"Input changed since {killed} was begun" in caplog.text
    whole = build_store(tmp_path / "e.parquet", tmp_path / "whole", reading, rows_per_block=70)
    assert contents(made.path) == contents(whole.path)
    written(tables[0], tmp_path / "e.parquet")
    with pytest.raises(RunError, match="begun with other input or settings"):
        build_store(tmp_path / "e.parquet", killed, reading, rows_per_block=70)


# What is wrong with the input


def refused(tables, tmp_path, *, edges=None, nodes=None, **options):
    """The sentence about tables that are changed."""
    files = [
        written(tables[0] if edges is None else edges, tmp_path / "e.parquet"),
        written(tables[1] if nodes is None else nodes, tmp_path / "n.parquet"),
    ]
    with pytest.raises((GraphError, FileError, SettingsError)) as told:
        build_store(files[0], tmp_path / "store", Reading(nodes=str(files[1]), **options))
    assert {file.name for file in (tmp_path / "store").glob("*")} <= {".lock"}
    return str(told.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\nb,c\nc,a\n", "which looks like a row. Add a header line."),
        ('source,target\na,"b\nb,c\nc,a\n', "Is a quote not closed?"),
        ('source,target,note\na,b,"x\nb,c,y\nc,a,z\n', "Is a quote not closed?"),
        ("source,target\na,b\0\nb,c\n", "hold no NUL"),
        ("source,target\n", "holds no rows"),
        ("source,source\na,b\n", "must have different names"),
        ("source,target\na,b\nb,c,d\n", "Expected 2 columns, got 3"),
    ],
)
@pytest.mark.parametrize("has_nodes", [True, False])
def test_texts_that_are_no_table(tmp_path, text, sentence, has_nodes):
    """Nothing of them is left behind, so that another command may take the folder."""
    (tmp_path / "e.csv").write_text(text)
    nodes = written(pd.DataFrame({"id": [*"abc"], "f": [0.5, 2, 4]}), tmp_path / "n.csv")
    reading = Reading(nodes=str(nodes)) if has_nodes else Reading(features="degree")
    with pytest.raises(FileError, match=re.escape(sentence)):
        build_store(tmp_path / "e.csv", tmp_path / "store", reading)
    assert {file.name for file in (tmp_path / "store").glob("*")} <= {".lock"}


def test_ids_that_would_merge(tmp_path):
    frame = pd.DataFrame({"source": ["a", "a\0"], "target": ["b", "c"]})
    with pytest.raises(GraphError, match="must hold no NUL"):
        build_store(
            written(frame, tmp_path / "e.parquet"), tmp_path / "s", Reading(features="degree")
        )
    np.save(tmp_path / "e.npy", np.array([[1, 2], [2, 2**63 + 1]], np.uint64))
    with pytest.raises(GraphError, match=r"below 2\*\*63"):
        build_store(tmp_path / "e.npy", tmp_path / "s", Reading(features="degree"))


def test_ids_too_long_for_the_memory(tmp_path, monkeypatch):
    """All ids of a part are as wide as its longest one."""
    monkeypatch.setattr(chunks, "MOST_ID_BYTES", 10_000)
    ids = [f"n{k}" for k in range(99)] + ["x" * 200]
    edges = written(pd.DataFrame({"source": ids, "target": ids[::-1]}), tmp_path / "e.csv")
    reading = Reading(features="degree")
    with pytest.raises(GraphError, match="up to 200 bytes, too many for 100 rows at a time"):
        build_store(edges, tmp_path / "store", reading)
    store = build_store(edges, tmp_path / "store", reading, memory_bytes=40 * 256)
    assert sorted(each.decode() for each in store.ids[:]) == sorted(ids)


def test_a_text_in_another_encoding(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\na,\xe9\n\xe9,b\n", encoding="latin-1")
    with pytest.raises(FileError, match="Pass --encoding"):
        build_store(tmp_path / "e.csv", tmp_path / "store", Reading(features="degree"))
    reading = Reading(features="degree", encoding="latin-1")
    store = build_store(tmp_path / "e.csv", tmp_path / "store", reading)
    assert [each.decode() for each in store.ids[:]] == ["a", "b", "\xe9"]


@pytest.mark.parametrize(("largest", "dtype"), [(1e5, "float16"), (1e300, "float32")])
def test_features_that_are_too_large(tmp_path, largest, dtype):
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 2]]))
    np.save(tmp_path / "f.npy", np.array([[largest], [1], [2]]))
    with pytest.raises(GraphError, match=f"Numbers must fit {dtype}"):
        build_store(
            tmp_path / "e.npy",
            tmp_path / "store",
            Reading(nodes=str(tmp_path / "f.npy")),
            dtype=dtype,
        )


def test_labels_of_too_many_classes(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 2]]))
    np.save(tmp_path / "f.npy", np.eye(3))
    np.save(tmp_path / "l.npy", np.array([0, 1, 2_000_000_000]))
    with pytest.raises(GraphError, match="class numbers from 0, at most 1048575"):
        build_store(
            tmp_path / "e.npy",
            tmp_path / "store",
            Reading(nodes=str(tmp_path / "f.npy")),
            labels=tmp_path / "l.npy",
        )


def test_ids_that_do_not_fit(tables, tmp_path):
    edges, nodes = tables
    strange = pd.concat([edges, pd.DataFrame({"source": [7], "target": [edges.source[0]]})])
    assert refused(tables, tmp_path, edges=strange).startswith(
        "Edges must join nodes of the node table. Got 7 (1 in all)"
    )
    twice = pd.concat([nodes, nodes[:1]])
    assert "The ids of nodes must be unique. Repeated: " in refused(tables, tmp_path, nodes=twice)
    gaps = nodes.assign(id=nodes.id.astype("Int64").mask(nodes.index == 4))
    assert "has none in row 5 (1 in all)" in refused(tables, tmp_path, nodes=gaps)
    fractions = nodes.assign(id=nodes.id + 0.5)
    assert "Node ids must be strings or integers" in refused(tables, tmp_path, nodes=fractions)


def test_columns_that_do_not_fit(tables, tmp_path):
    nodes = tables[1]
    texts = nodes.assign(job="baker")
    sentence = refused(tables, tmp_path, nodes=texts)
    assert "Column 'job'" in sentence
    assert sentence.endswith("Encode it, or pass --drop job.")
    gaps = nodes.assign(age=nodes.age.mask(nodes.index == 8))
    assert "row 9 (1 in all)" in refused(tables, tmp_path, nodes=gaps)
    assert "--categorical" in refused(tables, tmp_path, categorical=("member",))
    assert "must have columns of features" in refused(tables, tmp_path, nodes=nodes[["id"]])
    assert "The graph is directed" in refused(tables, tmp_path, directed="error")


def test_files_that_do_not_fit(tables, tmp_path):
    np.save(tmp_path / "edges.npy", np.zeros((3, 4)))
    np.save(tmp_path / "features.npy", np.full((4, 2), np.nan))
    np.save(tmp_path / "pairs.npy", np.zeros((2, 2), int))
    nodes = Reading(nodes=str(tmp_path / "features.npy"))
    with pytest.raises(FileError, match=r"must be integers of shape \[2, edges\]"):
        build_store(tmp_path / "edges.npy", tmp_path / "store", nodes)
    with pytest.raises(GraphError, match="Features must be finite numbers"):
        build_store(tmp_path / "pairs.npy", tmp_path / "store", nodes)
    with pytest.raises(FileError, match="no such file"):
        build_store(tmp_path / "gone.parquet", tmp_path / "store", nodes)
    (tmp_path / "parts").mkdir()
    with pytest.raises(FileError, match=r"'.*parts' must hold \.parquet files.* Got no such file"):
        build_store(tmp_path / "parts", tmp_path / "store", nodes)
    (tmp_path / "edges.xlsx").touch()
    with pytest.raises(FileError, match=r"are read from \.parquet"):
        build_store(tmp_path / "edges.xlsx", tmp_path / "store", nodes)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(FileError, match=r"Cannot read '.*broken\.parquet'"):
        build_store(tmp_path / "broken.parquet", tmp_path / "store", nodes)
    table = written(tables[1], tmp_path / "n.parquet")
    with pytest.raises(GraphError, match="Labels as an array need the features as a matrix"):
        build_store(
            tmp_path / "pairs.npy",
            tmp_path / "store",
            Reading(nodes=str(table)),
            labels=tmp_path / "pairs.npy",
        )


@pytest.mark.parametrize("name", ["nosuch", "nosuch.csv", "nosuch.parquet"])
def test_a_table_that_is_not_there_is_named(name, tmp_path):
    with pytest.raises(FileError, match=f"{name}.*there is no such file"):
        TablePieces(tmp_path / name, Reading())
