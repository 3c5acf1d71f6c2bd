"""Files of any size as a store: the same graph as in memory, whatever the memory bound."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from aspect.data.source import Reading
from aspect.data.tables import read_tables
from aspect.errors import FileError, GraphError, RunError, SettingsError
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


KILLED = """
from aspect.data.source import Reading
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
    with pytest.raises(FileError, match=r"Cannot read '.*parts': it is a folder\."):
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
