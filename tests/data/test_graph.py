from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import (
    Graph,
    count_pairs,
    edge_index_of,
    edge_keys,
    encode_labels,
    flip_pairs,
    label_graph,
)
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError
from reference.graphs import random_graph

CHAIN = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]


def build(pairs, num_nodes=4, **options):
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return Graph.build(torch.eye(num_nodes, 3) + 1, edges, **options)


def pairs_of(graph):
    return [tuple(pair) for pair in graph.edge_index.t().tolist()]


def test_every_edge_stands_once_in_each_direction_sorted():
    graph = build([(2, 1), (0, 1), (1, 0), (3, 0)])
    assert pairs_of(graph) == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (3, 0)]
    assert graph.num_edges == 3
    assert graph.degrees().tolist() == [2, 2, 1, 1]
    again = build(CHAIN)
    assert (pairs_of(again), again.notices) == (CHAIN, ())


@pytest.mark.parametrize(
    ("pairs", "num_edges", "notice"),
    [
        ([(0, 0), (2, 2), *CHAIN], 3, "2 self-loops removed; methods that need them add them."),
        ([(0, 1), (0, 1), *CHAIN], 3, "2 duplicate edges removed."),
        ([(0, 1), *CHAIN[2:5]], 3, "2 edges had no reverse and were made undirected."),
        ([(0, 1), (1, 0)], 1, "2 of 4 nodes have no edge; they keep their own features."),
        ([], 0, "The graph has no edges: the embedding rests on the features alone."),
        (
            [(0, 1), (1, 0), (2, 3), (3, 2)],
            2,
            "The graph falls into 2 parts without an edge between them; "
            "the largest has 2 of 4 nodes.",
        ),
    ],
)
def test_what_is_cleaned_or_odd_is_noticed(pairs, num_edges, notice):
    graph = build(pairs)
    assert (graph.num_edges, graph.num_nodes) == (num_edges, 4)
    assert graph.notices == (notice,)


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [
        (torch.tensor([[0], [4]]), r"Edges must join nodes 0 to 3\. Got \(0, 4\)"),
        (torch.tensor([[0], [5]]), r"They need 6 nodes, and there are features of 4\."),
        (torch.tensor([[-1], [2]]), r"Edges must join nodes 0 to 3\. Got \(-1, 2\)"),
        (torch.zeros(5, 2, dtype=torch.long), r"Got \[5, 2\]\. It looks transposed"),
        (torch.zeros(3, 5, dtype=torch.long), r"edge_index must have shape \[2, pairs\]"),
        (torch.zeros(2, 1), "edge_index must hold integers"),
    ],
)
def test_edges_that_are_refused(edges, sentence):
    with pytest.raises(GraphError, match=sentence):
        Graph.build(torch.ones(4, 2), edges)


def test_directed_input_can_be_refused():
    with pytest.raises(GraphError, match="directed: 2 edges lack their reverse"):
        build([(0, 1), (1, 2), (2, 1), (3, 2)], directed_is_error=True)


@pytest.mark.parametrize("kind", [torch.uint8, torch.uint64])
def test_unsigned_labels_and_edges_are_served(kind):
    edges = torch.tensor([[0, 199], [199, 198]]).to(kind)  # 199 * 200 would overflow
    graph = Graph.build(torch.ones(200, 2), edges)
    assert pairs_of(graph) == [(0, 199), (198, 199), (199, 0), (199, 198)]
    labelled = label_graph(build([(0, 1)], num_nodes=3), torch.tensor([0, 2, 1]).to(kind))
    assert labelled.labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_features_that_are_not_finite_are_named(bad):
    features = torch.zeros(5, 4)
    features[0, 0] = 1
    features[3, 2] = bad
    edges = torch.tensor([[0], [1]])
    for given in (SparseMatrix.from_dense(features), features):
        with pytest.raises(GraphError, match=r"NaN or infinite at row 3 column 2.*in Python"):
            Graph.build(given, edges)
    with pytest.raises(GraphError, match="at row 'd' column 'r'"):
        Graph.build(features, edges, list("abcde"), feature_names=list("pqrs"))


@pytest.mark.parametrize(
    ("features", "options", "sentence"),
    [
        (torch.ones(1, 2), {}, r"at least 2 nodes\. Got 1"),
        (torch.ones(3, 0), {}, r"no features.*--features degree"),
        (torch.ones(3, 3), {"ids": ["a", "b"]}, r"one id per node\. Got 2 for 3 nodes"),
        (torch.ones(3, 3), {"ids": ["a", "b", "a"]}, r"unique\. Repeated: 'a' \(1 in all\)"),
        (torch.ones(3, 3), {"feature_names": ["a", "b"]}, r"name per feature\. Got 2 for 3"),
        (torch.ones(3, 3), {"feature_names": ["a", "b", "a"]}, "of features must be unique"),
    ],
)
def test_nodes_that_are_refused(features, options, sentence):
    with pytest.raises(GraphError, match=sentence):
        Graph.build(features, torch.empty(2, 0, dtype=torch.long), **options)


def test_layout_follows_the_share_of_zeros():
    edges = torch.tensor([[0], [1]])
    mostly_zeros = torch.eye(20)
    assert isinstance(Graph.build(mostly_zeros, edges).features, SparseMatrix)
    filled = SparseMatrix.from_dense(mostly_zeros + 1)
    assert isinstance(Graph.build(filled, edges).features, torch.Tensor)
    assert_close(dense(Graph.build(mostly_zeros, edges).features), mostly_zeros, rtol=0, atol=0)


def test_building_changes_no_input_and_a_graph_is_frozen():
    features, edges = torch.rand(5, 3), torch.tensor([[3, 0, 0, 2], [1, 0, 1, 4]])
    before = features.clone(), edges.clone()
    graph = Graph.build(features, edges)
    assert torch.equal(features, before[0])
    assert torch.equal(edges, before[1])
    with pytest.raises(AttributeError):
        graph.features = features


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_copies_of_another_type_keep_all_else(density):
    graph = random_graph(density=density)
    names = tuple(f"f{k}" for k in range(graph.num_features))
    graph = Graph.build(graph.features, graph.edge_index, feature_names=names)
    single = graph.to(torch.float32).to("cpu")
    assert (single.dtype, graph.dtype) == (torch.float32, torch.float64)
    assert single.edge_index is graph.edge_index
    assert single.feature_names == names
    assert_close(dense(single.features).double(), dense(graph.features), rtol=1e-6, atol=0)


def test_a_graph_that_need_not_move_is_the_same_graph(monkeypatch):
    graph = random_graph()
    assert graph.to(graph.dtype) is graph
    assert graph.to(torch.device("cpu", 0)) is graph
    # Without a GPU: devices are only compared.
    monkeypatch.setattr(Graph, "device", torch.device("cuda", 1))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert graph.to("cuda") is graph
    assert graph.to("cuda:1") is graph


def test_numbers_beyond_63_bits_are_refused_as_they_are():
    huge = torch.tensor([0, 2**64 - 1, 1], dtype=torch.uint64)  # -1 to a signed reader
    with pytest.raises(GraphError, match=r"be below 2\*\*63\. Got 18446744073709551615"):
        label_graph(build([(0, 1)], num_nodes=3), huge)


def test_labels_of_any_length_are_names():
    long = "9" * 5000
    labels, names = encode_labels([long, "2", "10", None])
    assert names == ("10", "2", long)  # as texts: one of them is no number
    assert labels.tolist() == [2, 1, 0, -1]


# Pairs as numbers


@pytest.mark.parametrize("num_edges", [0, 60])
def test_every_edge_has_one_number_and_the_numbers_give_the_edges_back(num_edges):
    graph = random_graph(30, num_edges) if num_edges else build([], num_nodes=30)
    keys = edge_keys(graph)
    assert len(keys) == graph.num_edges
    assert torch.equal(keys, keys.unique())  # ascending, each once
    assert bool((keys // 30 < keys % 30).all())
    assert torch.equal(edge_index_of(keys, 30), graph.edge_index)


def test_flips_are_the_symmetric_difference_and_all_else_stays():
    graph = replace(random_graph(30, 60), ids=tuple(f"n{node}" for node in range(30)))
    edges = edge_keys(graph)
    low, high = torch.triu_indices(30, 30, 1)
    every = low * 30 + high
    keys = torch.cat([edges[[0, 5]], every[~torch.isin(every, edges)][[1, 9]]])  # 2 edges, 2 none
    pairs, counts = count_pairs(graph, keys)
    assert torch.equal(pairs, torch.cat([edges, keys]).unique())
    assert pairs[counts == 2].tolist() == keys[:2].tolist()
    flipped = flip_pairs(graph, keys)
    assert set(edge_keys(flipped).tolist()) == set(edges.tolist()) ^ set(keys.tolist())
    assert flipped.ids == graph.ids
    assert flipped.features is graph.features
    assert torch.equal(flip_pairs(flipped, keys).edge_index, graph.edge_index)
    assert torch.equal(flip_pairs(graph, keys[:0]).edge_index, graph.edge_index)
