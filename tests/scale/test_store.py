"""A graph as a store is the same graph, block by block; what is damaged is named."""

import numpy as np
import pytest
import scipy.sparse
import torch

from aspect.data.graph import Graph
from aspect.data.synthetic import mixed_graph
from aspect.errors import FileError, GraphError, RunError
from aspect.scale.blocks import BlockedRows
from aspect.scale.store import GraphStore


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(90, num_features=5, seed=3)


@pytest.fixture
def store(labelled, tmp_path):
    return GraphStore.from_graph(labelled, tmp_path / "store", rows_per_block=40)


def whole(store):
    """The adjacency matrix of a store, from its blocks."""
    parts = []
    for block, (start, end) in enumerate(store.blocks):
        pointers, neighbours, weights = store.adjacency(block)
        values = np.ones(len(neighbours), np.float32) if weights is None else weights
        shape = (end - start, store.num_nodes)
        parts.append(scipy.sparse.csr_array((values, neighbours, pointers), shape=shape))
    return scipy.sparse.vstack(parts)


def dense(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes)
    matrix[graph.edge_index[0], graph.edge_index[1]] = 1 if graph.weights is None else graph.weights
    return matrix


def test_a_store_is_the_graph(labelled, store):
    graph = labelled.graph
    assert (store.num_nodes, store.num_edges, store.num_features) == (90, graph.num_edges, 5)
    assert store.blocks == [(0, 40), (40, 80), (80, 90)]
    np.testing.assert_array_equal(whole(store).toarray(), dense(graph).numpy())
    np.testing.assert_array_equal(store.features[:], graph.features.numpy())
    np.testing.assert_array_equal(store.labels[:], labelled.labels.numpy())
    np.testing.assert_array_equal(store.degrees, graph.degrees().numpy())
    assert store.region is None
    assert store.facts.class_names == labelled.class_names
    store.verify()


def test_weights_and_sparse_features(tmp_path):
    generator = torch.Generator().manual_seed(0)
    features = (torch.rand(30, 40, generator=generator) < 0.05).float()
    pairs = torch.randint(0, 30, (2, 100), generator=generator)
    graph = Graph.build(features, pairs, weights=torch.rand(100, generator=generator) + 0.5)
    store = GraphStore.from_graph(graph, tmp_path / "store", 7, dtype="float16")
    np.testing.assert_allclose(whole(store).toarray(), dense(graph).numpy(), rtol=1e-6)
    np.testing.assert_array_equal(store.features[:], features.numpy().astype(np.float16))
    assert store.labels is None


def test_rows_are_read_by_slice_and_by_number(labelled, store):
    features = labelled.graph.features.numpy()
    rows = np.array([85, 3, 3, 41, 0, 89])
    assert isinstance(store.features, BlockedRows)
    np.testing.assert_array_equal(store.features[rows], features[rows])
    np.testing.assert_array_equal(store.features[35:85], features[35:85])
    np.testing.assert_array_equal(store.features[80:80], features[80:80])
    np.testing.assert_array_equal(store.features.block(2), features[80:])
    assert store.features.shape == (90, 5)
    with pytest.raises(IndexError):
        store.features[np.array([90])]


def test_a_cut_off_block_is_named(store):
    file = store.path / "features-00001.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-8])
    with pytest.raises(RunError, match=r"features-00001\.npy is damaged"):
        store.verify()
    with pytest.raises(FileError, match=r"features-00001\.npy' is missing, cut off or damaged"):
        store.features[:]
    file.write_bytes(content[:-8] + bytes(8))  # of the same size
    with pytest.raises(RunError, match=r"features-00001\.npy is damaged"):
        store.verify()
    file.unlink()
    with pytest.raises(RunError, match=r"features-00001\.npy is missing"):
        store.verify()


def test_other_folders_are_refused(store, labelled, tmp_path):
    with pytest.raises(RunError, match="holds no graph store"):
        GraphStore.open(tmp_path)
    facts = (store.path / "store.json").read_bytes()
    (store.path / "store.json").unlink()
    with pytest.raises(RunError, match=r"Cannot read .*store\.json': there is no such file"):
        GraphStore.open(store.path)
    (store.path / "store.json").write_bytes(facts)
    (store.path / "manifest.json").unlink()
    with pytest.raises(RunError, match="is not complete"):
        GraphStore.open(store.path)
    with pytest.raises(RunError, match="was begun with other input or settings"):
        GraphStore.from_graph(labelled, store.path, rows_per_block=41)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(RunError, match="not empty and holds no graph store"):
        GraphStore.from_graph(labelled, tmp_path / "other")
    with pytest.raises(GraphError, match="at least one row"):
        GraphStore.from_graph(labelled, tmp_path / "new", 0)
