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


def test_a_simple_undirected_graph_is_taken_as_it_is():
    graph = build([(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)])
    assert graph.notices == ()
    assert pairs_of(build(pairs_of(graph))) == pairs_of(graph)


CHAIN = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]


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
    assert graph.num_edges == num_edges
    assert graph.num_nodes == 4
    assert graph.notices == (notice,)


def test_directed_input_can_be_refused():
    with pytest.raises(GraphError, match="directed: 2 edges lack their reverse"):
        build([(0, 1), (1, 2), (2, 1), (3, 2)], directed_is_error=True)


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([(0, 4)], r"Edges must join nodes 0 to 3\. Got \(0, 4\)"),
        ([(-1, 2)], r"Edges must join nodes 0 to 3\. Got \(-1, 2\)"),
        ([(2**62, 1)], r"Edges must join nodes 0 to 3\. Got"),
    ],
)
def test_edges_to_unknown_nodes_are_refused(pairs, sentence):
    with pytest.raises(GraphError, match=sentence):
        build(pairs)


def test_a_transposed_edge_list_is_recognised():
    with pytest.raises(
        GraphError, match=r"shape \[2, pairs\]\. Got \[5, 2\]\. It looks transposed"
    ):
        Graph.build(torch.ones(4, 2), torch.zeros(5, 2, dtype=torch.long))


@pytest.mark.parametrize("shape", [(3, 5), (4,), (2, 2, 2)])
def test_other_shapes_of_edges_are_refused(shape):
    with pytest.raises(GraphError, match=r"edge_index must have shape \[2, pairs\]"):
        Graph.build(torch.ones(4, 2), torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.complex64])
def test_edges_that_are_not_integers_are_refused(kind):
    with pytest.raises(GraphError, match="edge_index must hold integers"):
        Graph.build(torch.ones(4, 2), torch.zeros(2, 1, dtype=kind))


def test_small_integer_types_of_edges_do_not_overflow():
    edges = torch.tensor([[0, 199], [199, 198]], dtype=torch.int32).to(torch.uint8)
    graph = Graph.build(torch.ones(200, 2), edges)
    assert pairs_of(graph) == [(0, 199), (198, 199), (199, 0), (199, 198)]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_that_are_not_finite_are_named(bad, sparse):
    features = torch.zeros(5, 4)
    features[0, 0] = 1
    features[3, 2] = bad
    given = SparseMatrix.from_dense(features) if sparse else features
    with pytest.raises(GraphError, match=r"finite numbers\. Got NaN or infinity at row 3 column 2"):
        Graph.build(given, torch.tensor([[0], [1]]))


def test_one_node_is_refused():
    with pytest.raises(GraphError, match=r"at least 2 nodes\. Got 1"):
        Graph.build(torch.ones(1, 2), torch.empty(2, 0, dtype=torch.long))


def test_no_features_are_refused_with_an_offer():
    with pytest.raises(GraphError, match=r"no features.*--features degree"):
        Graph.build(torch.ones(3, 0), torch.empty(2, 0, dtype=torch.long))


def test_ids_are_kept_and_must_be_one_per_node():
    assert build([(0, 1)], ids=["a", "b", "c", "d"]).ids == ("a", "b", "c", "d")
    with pytest.raises(GraphError, match=r"Got 2 .*4 nodes"):
        build([(0, 1)], ids=["a", "b"])


def test_layout_follows_the_share_of_zeros():
    edges = torch.tensor([[0], [1]])
    mostly_zeros = torch.eye(20)
    assert isinstance(Graph.build(mostly_zeros, edges).features, SparseMatrix)
    assert isinstance(Graph.build(mostly_zeros + 1, edges).features, torch.Tensor)
    filled = SparseMatrix.from_dense(mostly_zeros + 1)
    assert isinstance(Graph.build(filled, edges).features, torch.Tensor)
    assert_close(dense(Graph.build(mostly_zeros, edges).features), mostly_zeros, rtol=0, atol=0)


def test_building_changes_no_input():
    features, edges = torch.rand(5, 3), torch.tensor([[3, 0, 0, 2], [1, 0, 1, 4]])
    before = features.clone(), edges.clone()
    Graph.build(features, edges)
    assert torch.equal(features, before[0])
    assert torch.equal(edges, before[1])


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_other_types_are_copies(density):
    graph = random_graph(density=density)
    single = graph.to(torch.float32)
    assert (single.dtype, graph.dtype) == (torch.float32, torch.float64)
    assert single.edge_index is graph.edge_index
    assert_close(dense(single.features).double(), dense(graph.features), rtol=1e-6, atol=0)


def test_a_graph_is_frozen():
    with pytest.raises(AttributeError):
        build([(0, 1)]).features = torch.ones(4, 3)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_names_of_features_survive_every_copy(density):
    graph = random_graph(density=density)
    names = tuple(f"f{k}" for k in range(graph.num_features))
    named = Graph.build(graph.features, graph.edge_index, feature_names=names)
    assert named.feature_names == names
    assert named.to(torch.float32).to("cpu").feature_names == names
    assert graph.feature_names is None


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a", "b"], r"one name per feature\. Got 2 for 3 features"),
        (["a", "b", "a"], r"features must be unique\. Repeated: 'a' \(1 in all\)"),
    ],
)
def test_names_that_do_not_fit_the_features_are_refused(names, sentence):
    with pytest.raises(GraphError, match=sentence):
        build([(0, 1)], feature_names=names)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_a_graph_that_need_not_move_is_the_same_graph(density):
    graph = random_graph(density=density)
    assert graph.to(graph.dtype) is graph
    assert graph.to("cpu") is graph
    assert graph.to(torch.device("cpu", 0)) is graph


def test_cuda_is_the_current_device(monkeypatch):
    """Without a GPU: devices are only compared."""
    graph = random_graph()
    monkeypatch.setattr(Graph, "device", torch.device("cuda", 1))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert graph.to("cuda") is graph
    assert graph.to("cuda:1") is graph


# Labels


@pytest.mark.parametrize("kind", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_labels_and_edges_are_served(kind):
    edges = torch.tensor([[0, 1], [1, 2]]).to(kind)
    labelled = label_graph(Graph.build(torch.ones(3, 2), edges), torch.tensor([0, 2, 1]).to(kind))
    assert labelled.labels.tolist() == [0, 2, 1]
    assert labelled.graph.num_edges == 2


def test_numbers_beyond_63_bits_are_refused_as_they_are():
    huge = torch.tensor([0, 2**64 - 1, 1], dtype=torch.uint64)  # -1 to a signed reader
    with pytest.raises(
        GraphError, match=r"Labels must be below 2\*\*63\. Got 18446744073709551615"
    ):
        label_graph(build([(0, 1)], num_nodes=3), huge)


def test_labels_of_any_length_are_names():
    long = "9" * 5000
    labels, names = encode_labels([long, "2", "10", None])
    assert names == ("10", "2", long)  # as texts: one of them is no number
    assert labels.tolist() == [2, 1, 0, -1]


# Pairs as numbers


def test_every_edge_has_one_number_and_the_numbers_give_the_edges_back():
    graph = random_graph(30, 60, isolated=2)
    keys = edge_keys(graph)
    assert len(keys) == graph.num_edges
    assert torch.equal(keys, keys.unique())  # ascending, each once
    assert bool((keys // 30 < keys % 30).all())
    assert torch.equal(edge_index_of(keys, 30), graph.edge_index)


def test_no_edges_are_no_numbers():
    graph = Graph.build(torch.rand(4, 2), torch.empty(2, 0, dtype=torch.long))
    assert torch.equal(edge_index_of(edge_keys(graph), 4), graph.edge_index)
    assert edge_keys(graph).dtype == torch.long


def some_pairs(graph):
    """Two edges and two pairs that are none."""
    edges = edge_keys(graph)
    low, high = torch.triu_indices(graph.num_nodes, graph.num_nodes, 1)
    every = low * graph.num_nodes + high
    return torch.cat([edges[[0, 5]], every[~torch.isin(every, edges)][[1, 9]]])


def test_pairs_are_counted_as_edges_and_as_keys():
    graph = random_graph(30, 60)
    keys = some_pairs(graph)
    every, counts = count_pairs(graph, keys)
    assert torch.equal(every, torch.cat([edge_keys(graph), keys]).unique())
    assert every[counts == 2].tolist() == keys[:2].tolist()
    assert int(counts.sum()) == graph.num_edges + len(keys)


def test_flips_are_the_symmetric_difference_and_all_else_stays():
    graph = replace(random_graph(30, 60), ids=tuple("n" + str(node) for node in range(30)))
    keys = some_pairs(graph)
    flipped = flip_pairs(graph, keys)
    assert set(edge_keys(flipped).tolist()) == set(edge_keys(graph).tolist()) ^ set(keys.tolist())
    assert flipped.ids == graph.ids
    assert flipped.features is graph.features


def test_flipping_twice_is_nothing():
    graph = random_graph(30, 60)
    keys = some_pairs(graph)
    assert torch.equal(flip_pairs(flip_pairs(graph, keys), keys).edge_index, graph.edge_index)
    assert torch.equal(flip_pairs(graph, keys[:0]).edge_index, graph.edge_index)
