import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph
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


def test_self_loops_are_removed_and_counted():
    graph = build([(0, 0), (0, 1), (1, 0), (2, 2), (1, 2), (2, 1), (3, 2), (2, 3)])
    assert graph.num_edges == 3
    assert graph.notices == ("2 self-loops removed (the method adds its own where it wants them).",)


def test_duplicates_are_removed_and_counted():
    graph = build([(0, 1), (0, 1), (0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)])
    assert graph.num_edges == 3
    assert graph.notices == ("2 duplicate edges removed.",)


def test_directed_input_is_symmetrised_and_counted():
    graph = build([(0, 1), (1, 2), (2, 1), (3, 2)])
    assert graph.num_edges == 3
    assert graph.notices == ("2 edges had no reverse and were made undirected.",)


def test_directed_input_can_be_refused():
    with pytest.raises(GraphError, match="directed: 2 edges lack their reverse"):
        build([(0, 1), (1, 2), (2, 1), (3, 2)], directed_is_error=True)


def test_isolated_nodes_are_served_and_counted():
    graph = build([(0, 1), (1, 0)])
    assert graph.num_nodes == 4
    assert graph.degrees().tolist() == [1, 1, 0, 0]
    assert graph.notices == ("2 of 4 nodes have no edge; they keep their own features.",)


def test_no_edges_at_all_is_said_and_served():
    graph = build([])
    assert graph.num_edges == 0
    assert graph.notices == ("The graph has no edges: the embedding rests on the features alone.",)


def test_separate_parts_are_said():
    graph = build([(0, 1), (1, 0), (2, 3), (3, 2)])
    assert len(graph.notices) == 1
    assert "2 parts" in graph.notices[0]


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
