"""Weights of a graph: how they are cleaned, what keeps them, and what files make of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_undirected

from aspect.attacks.purification import prune_edges
from aspect.data.archives import content_sha256, graph_sha256, read_npz, write_npz
from aspect.data.convert import to_data
from aspect.data.graph import (
    Graph,
    check_weights,
    edge_keys,
    flip_pairs,
    label_graph,
    unlabelled,
    with_pairs,
)
from aspect.data.source import Reading, read_graph
from aspect.data.tables import read_all
from aspect.errors import GraphError
from aspect.nn.augmentations import induced_subgraph, rewire_edges

X = torch.eye(5)
TRIANGLE = torch.tensor([[0, 1, 2], [1, 2, 0]])


def build(pairs, weights, **options):
    edge_index = torch.tensor(pairs).t() if len(pairs) else torch.empty(2, 0, dtype=torch.long)
    return Graph.build(X, edge_index, weights=torch.tensor(weights), **options)


def dense(graph):
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    weights = np.ones(graph.edge_index.shape[1]) if graph.weights is None else graph.weights.numpy()
    matrix[tuple(graph.edge_index.numpy())] = weights
    return matrix


@pytest.fixture
def weighted():
    """Random weights on a random graph of 12 nodes, two of them without an edge."""
    draw = torch.Generator().manual_seed(0)
    pairs = torch.randint(10, (2, 30), generator=draw)
    features = torch.randn(12, 3, generator=draw)
    weights = torch.rand(30, generator=draw) + 0.1
    return Graph.build(features, pairs, weights=weights)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["directed", "symmetric", "once", "repeated"])
def test_weights_are_those_of_a_dense_matrix(kind, seed):
    random = np.random.default_rng(seed)
    pairs = random.integers(0, 5, size=(2, 12))
    weights = random.uniform(0.5, 2, size=12)
    weights[0] = 0
    if kind in ("once", "symmetric"):
        pairs = np.stack(np.triu_indices(5, 1))[:, random.permutation(10)[:7]]
        weights = weights[:7]
    if kind == "symmetric":
        pairs, weights = np.hstack([pairs, pairs[::-1]]), np.tile(weights, 2)
    if kind == "repeated":
        pairs, weights = np.tile(pairs, 2), np.tile(weights, 2)
    matrix = np.zeros((5, 5))
    np.add.at(matrix, tuple(pairs), weights)
    np.fill_diagonal(matrix, 0)
    expected = matrix if np.allclose(matrix, matrix.T) else matrix + matrix.T
    graph = Graph.build(X, torch.from_numpy(pairs.copy()), weights=torch.from_numpy(weights))
    np.testing.assert_allclose(dense(graph), expected, rtol=1e-6)
    keys = graph.edge_index[0] * 5 + graph.edge_index[1]
    assert torch.equal(keys, keys.sort().values)
    assert graph.weights.dtype == X.dtype


def test_directions_are_added_as_pyg_does_it():
    pairs = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 4]])
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    graph = Graph.build(X, pairs, weights=weights)
    edge_index, added = to_undirected(pairs, weights, num_nodes=5)
    assert torch.equal(graph.edge_index, edge_index)
    assert torch.equal(graph.weights, added)
    assert "2 edges had no reverse and were made undirected." in graph.notices
    assert "1 edges are given in both directions; the two weights were added." in graph.notices


def test_weights_that_differ_by_rounding_are_the_same():
    graph = build([(0, 1), (1, 0)], [0.1, 0.1 + 1e-9])
    assert graph.weights.tolist() == pytest.approx([0.1, 0.1])
    assert graph.notices[:1] == ("Edge weights are used. Pass --unweighted to leave them aside.",)


def test_zero_weights_are_no_edges():
    graph = build([(0, 1), (1, 2), (3, 3)], [0.0, 2.0, 5.0])
    assert graph.edge_index.tolist() == [[1, 2], [2, 1]]
    assert "1 edges of weight zero left out." in graph.notices
    assert "1 self-loops removed; methods that need them add them." in graph.notices
    assert build([(0, 1)], [0.0]).num_edges == 0
    assert build([(0, 0)], [2.0]).weights is None


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1, 1, 1], [True, True, True]])
def test_weights_that_are_all_one_are_none(weights):
    pairs = [(0, 1), (1, 0), (0, 1)]
    graph, plain = build(pairs, weights), Graph.build(X, torch.tensor(pairs).t())
    assert graph.weights is None
    assert torch.equal(graph.edge_index, plain.edge_index)
    assert graph.notices == plain.notices
    assert graph_sha256(graph) == graph_sha256(plain)


def test_weights_that_add_up_to_ones_are_none(tmp_path):
    pairs = [(0, 1), (1, 0), (0, 1), (1, 0), (1, 2), (2, 1)]
    graph = build(pairs, [0.5, 0.5, 0.5, 0.5, 1.0, 1.0])
    assert graph.weights is None
    assert build([(0, 1), (1, 0), (2, 1)], [0.25, 0.75, 1.0]).weights is None
    write_npz(tmp_path / "g.npz", unlabelled(graph))
    assert graph_sha256(read_npz(tmp_path / "g.npz").graph) == graph_sha256(graph)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), -float("inf"), 1e31, 1e-31])
def test_wrong_weights_are_refused_with_their_place(wrong):
    with pytest.raises(GraphError, match=r"or zero for no edge\. Got .* at edge 2 \(1 in all\)"):
        build([(0, 1), (1, 2)], [1.0, wrong])
    numbers = torch.tensor([wrong, 0.0, 2.0], dtype=torch.float64)
    told = r"at line 2 \(1 in all\).* --unweighted; in Python, give none"
    with pytest.raises(GraphError, match=told):
        check_weights(numbers, lambda row: f"line {row + 2}")


def test_wrong_weights_of_a_table_are_one_error(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target,weight\na,b,1\nb,c,-1\nc,a,2\n")
    (error,) = read_all(tmp_path / "edges.csv", Reading()).errors
    assert "Got -1 at line 3" in str(error)


def test_weights_of_another_shape_or_kind():
    with pytest.raises(GraphError, match=r"of shape \[2\]\. Got \[3\]"):
        build([(0, 1), (1, 2)], [1.0, 2.0, 3.0])
    with pytest.raises(GraphError, match="real numbers"):
        build([(0, 1)], [1j])


def test_a_directed_graph_may_be_an_error():
    with pytest.raises(GraphError, match="1 edges lack their reverse"):
        build([(0, 1)], [2.0], directed_is_error=True)
    with pytest.raises(GraphError, match="weights differ by it"):
        build([(0, 1), (1, 0)], [2.0, 3.0], directed_is_error=True)
    assert build([(0, 1), (1, 0)], [2.0, 2.0], directed_is_error=True).weights.tolist() == [2, 2]


def test_weights_far_from_the_loops_are_said():
    assert "Edge weights are 2500 on average" in " ".join(build([(0, 1)], [2500.0]).notices)
    assert "on average" not in " ".join(build([(0, 1)], [25.0]).notices)


def test_a_graph_takes_its_weights_along(weighted):
    assert weighted.to(torch.float64).weights.dtype == torch.float64
    assert weighted.to(torch.float32) is weighted
    plain = weighted.unweighted()
    assert plain.weights is None
    assert torch.equal(plain.edge_index, weighted.edge_index)
    assert plain.unweighted() is plain


# What changes edges


def test_edges_that_stay_keep_their_weights_and_new_ones_have_the_mean(weighted):
    keys = edge_keys(weighted)
    absent = [key for key in (0 * 12 + 11, 10 * 12 + 11) if key not in keys]
    flipped = flip_pairs(weighted, torch.tensor(sorted([*absent, int(keys[3])])))
    before, after = dense(weighted), dense(flipped)
    mean = before[before > 0].mean()
    a, b = divmod(int(keys[3]), 12)
    assert after[a, b] == after[b, a] == 0
    for key in absent:
        row, column = divmod(key, 12)
        assert after[row, column] == after[column, row] == pytest.approx(mean)
        after[row, column] = after[column, row] = 0
    before[a, b] = before[b, a] = 0
    np.testing.assert_array_equal(after, before)
    empty = with_pairs(with_pairs(weighted, keys[:0]), keys[:2])
    assert empty.weights.tolist() == [1, 1, 1, 1]


def test_parts_of_a_graph_keep_their_weights(weighted):
    nodes = torch.tensor([1, 2, 3, 5, 8])
    part = induced_subgraph(weighted, nodes).graph
    np.testing.assert_array_equal(dense(part), dense(weighted)[np.ix_(nodes, nodes)])
    pruned = dense(prune_edges(weighted, 0.3))
    kept = pruned > 0
    assert 0 < kept.sum() < (dense(weighted) > 0).sum()
    np.testing.assert_array_equal(pruned[kept], dense(weighted)[kept])
    rewired = dense(rewire_edges(weighted, 1.0, torch.Generator().manual_seed(1)))
    both = (rewired > 0) & (dense(weighted) > 0)
    np.testing.assert_array_equal(rewired[both], dense(weighted)[both])
    np.testing.assert_array_equal(rewired, rewired.T)


# Checksums and files


def test_the_checksum_knows_weights(weighted):
    other = replace(weighted, weights=weighted.weights * 2)
    sums = [graph_sha256(graph) for graph in (weighted, other, weighted.unweighted())]
    assert len(set(sums)) == 3
    labelled = [unlabelled(graph) for graph in (weighted, other, weighted.unweighted())]
    assert len({content_sha256(one) for one in labelled}) == 3
    plain = Graph.build(X, TRIANGLE)
    assert graph_sha256(plain) == PLAIN  # as version 0.2 has it


PLAIN = "6e7e4370d85cacfc82145d5fc4863bd0e827f90bc387ccc56474b1bce9888d92"


def test_archives_keep_weights(tmp_path, weighted):
    labelled = label_graph(weighted, torch.arange(12) % 2)
    write_npz(tmp_path / "g.npz", labelled)
    back = read_npz(tmp_path / "g.npz")
    assert content_sha256(back) == content_sha256(labelled)
    torch.testing.assert_close(back.graph.weights, weighted.weights)
    aside = read_graph(tmp_path / "g.npz", unweighted=True).graph
    assert graph_sha256(aside) == graph_sha256(weighted.unweighted())


def test_saved_data_keep_weights(tmp_path, weighted):
    labelled = label_graph(weighted, torch.arange(12) % 2)
    torch.save(to_data(labelled), tmp_path / "g.pt")
    assert content_sha256(read_graph(tmp_path / "g.pt")) == content_sha256(labelled)
    assert read_graph(tmp_path / "g.pt", unweighted=True).graph.weights is None


EDGES = "source,target,weight,cost\na,b,0.5,-1\nb,c,,7\nc,a,0,7\nc,d,3,7\n"


def test_tables_have_a_column_of_weights(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text(EDGES)
    graph = read_graph(edges, features="degree").graph
    assert graph.ids == ("a", "b", "c", "d")
    assert graph.edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert graph.weights.tolist() == [0.5, 0.5, 1, 1, 3, 3]
    aside = read_graph(edges, features="degree", unweighted=True).graph
    assert aside.weights is None
    assert aside.num_edges == 3  # zero is no edge, with or without weights
    assert "The weights in column 'weight' are left aside." in aside.notices
    with pytest.raises(GraphError, match=r"Got -1 at line 2 \(1 in all\)"):
        read_graph(edges, features="degree", weight="cost")
    edges.write_text(EDGES.replace("-1", "2"))
    other = read_graph(edges, features="degree", weight="cost").graph
    assert other.weights.tolist() == [2, 7, 2, 7, 7, 7, 7, 7]
    assert "Columns of the edge table left aside: 'weight' (1 in all)." in other.notices
    with pytest.raises(GraphError, match=r"--weight must be one of .* Got 'mass'"):
        read_graph(edges, features="degree", weight="mass")
