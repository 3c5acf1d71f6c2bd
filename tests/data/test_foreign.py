"""Graphs as other libraries hold them: every form gives the same graph, or says what is wrong."""

import sys
import tempfile
import types

import networkx
import numpy as np
import pandas as pd
import pyarrow
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData

from aspect.data.convert import as_graph, as_labelled, changes_of, node_numbers
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.errors import AspectError, GraphError, UnknownNameError

# A path of four nodes with a tail: 0 - 1 - 2 - 3, 1 - 3.
EDGES = [(0, 1), (1, 2), (2, 3), (1, 3)]
INDEX = torch.tensor(EDGES).t()
X = torch.arange(8.0).reshape(4, 2) + 1
GRAPH = Graph.build(X, INDEX)


def adjacency():
    matrix = np.zeros((4, 4))
    matrix[tuple(INDEX)] = matrix[tuple(INDEX.flip(0))] = 1
    return matrix


def drawn(**attributes):
    graph = networkx.Graph(EDGES)
    for name, values in attributes.items():
        networkx.set_node_attributes(graph, dict(enumerate(values)), name)
    return graph


def edge_frame():
    return pd.DataFrame(EDGES, columns=["source", "target"])


def node_frame():
    return pd.DataFrame(X.numpy(), columns=["a", "b"], index=range(4))


class FakeVertices:
    """igraph's sequence of nodes or edges: columns by name."""

    def __init__(self, **columns):
        self.columns = columns

    def attributes(self):
        return list(self.columns)

    def __getitem__(self, name):
        return self.columns[name]


class FakeIgraph:
    def __init__(self, edges, directed=False, edge_columns=None, **columns):
        self.vs, self.es = FakeVertices(**columns), FakeVertices(**(edge_columns or {}))
        self.edges, self.directed = edges, directed

    def get_edgelist(self):
        return self.edges

    def vcount(self):
        return 4

    def is_directed(self):
        return self.directed


def fake_dgl(counts, edges, data):
    """As much of a DGLGraph as is looked at, in a module of its name."""
    kind = type("DGLGraph", (), {"__module__": "dgl.heterograph"})
    graph = kind()
    graph.ntypes, graph.canonical_etypes = list(counts), list(edges)
    graph.num_nodes = counts.__getitem__
    graph.edges = lambda etype: tuple(edges[etype])
    graph.nodes = {name: types.SimpleNamespace(data=data.get(name, {})) for name in counts}
    graph.edata = {}
    return graph


def hetero_data(**features):
    data = HeteroData()
    for kind, count in (("author", 3), ("paper", 2)):
        data[kind].num_nodes = count
        if kind in features:
            data[kind].x = features[kind]
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    data["author", "knows", "author"].edge_index = torch.tensor([[0], [1]])
    return data


WITH_FEATURES = {
    "Data": lambda: Data(x=X, edge_index=INDEX),
    "Data of lists": lambda: Data(x=X.tolist(), edge_index=INDEX.tolist()),
    "Data with adj_t": lambda: Data(x=X, adj_t=torch.tensor(adjacency()).to_sparse_csr()),
    "edge_index": lambda: (INDEX, X),
    "NumPy edge_index": lambda: (INDEX.numpy(), X.numpy()),
    "SciPy": lambda: (scipy.sparse.csr_array(adjacency()), X),
    "NumPy": lambda: (adjacency(), X.numpy()),
    "torch": lambda: (torch.tensor(adjacency()), X),
    "torch, sparse": lambda: (torch.tensor(adjacency()).to_sparse_coo(), X),
    "bool": lambda: (adjacency() > 0, X),
    "frame of features": lambda: (INDEX, node_frame()),
    "NetworkX": lambda: drawn(x=X.numpy()),
    "NetworkX and features": lambda: (drawn(), X),
    "igraph": lambda: FakeIgraph(EDGES, x=X.tolist(), name=list("0123")),
    "DGL": lambda: fake_dgl({"_N": 4}, {("_N", "_E", "_N"): INDEX}, {"_N": {"feat": X}}),
    "frames": lambda: (edge_frame(), node_frame()),
    "list of pairs": lambda: (EDGES, X),
}


@pytest.mark.parametrize("form", WITH_FEATURES)
def test_every_form_with_features_is_the_same_graph(form):
    graph = as_graph(WITH_FEATURES[form]())
    assert torch.equal(graph.edge_index, GRAPH.edge_index)
    if form != "frames":  # whose columns may be scaled
        assert torch.equal(dense(graph.features), X)
    assert graph.ids in (None, ("0", "1", "2", "3"))


WITHOUT_FEATURES = {
    "Data": lambda: Data(edge_index=INDEX, num_nodes=4),
    "edge_index": lambda: INDEX,
    "SciPy": lambda: scipy.sparse.coo_array(adjacency()),
    "NumPy": adjacency,
    "torch": lambda: torch.tensor(adjacency()).to_sparse_csr(),
    "NetworkX": drawn,
    "igraph": lambda: FakeIgraph(EDGES),
    "DGL": lambda: fake_dgl({"_N": 4}, {("_N", "_E", "_N"): INDEX}, {}),
    "frame": edge_frame,
    "list of pairs": lambda: EDGES,
}


@pytest.mark.parametrize("form", WITHOUT_FEATURES)
def test_without_features_there_are_structural_ones_with_a_word(form):
    graph = as_graph(WITHOUT_FEATURES[form]())
    assert torch.equal(graph.edge_index, GRAPH.edge_index)
    assert graph.num_features == 3
    assert sum("no features, so laplacian ones are made" in told for told in graph.notices) == 1


def test_nodes_without_any_edge_get_degrees():
    graph = as_graph(scipy.sparse.csr_array((3, 3)))
    assert graph.num_features == 1
    assert "no features, so degree ones are made" in graph.notices[-1]


# What each library adds


def test_ids_and_classes_of_networkx_and_igraph():
    source = networkx.relabel_nodes(drawn(y=["u", "v", None, "u"]), dict(enumerate("abcd")))
    for form in (source, FakeIgraph(EDGES, name=list("abcd"), label=["u", "v", None, "u"])):
        labelled = as_labelled(form)
        assert labelled.graph.ids == ("a", "b", "c", "d")
        assert labelled.labels.tolist() == [0, 1, -1, 0]
        assert labelled.class_names == ("u", "v")


def test_integer_ids_stay_integers():
    assert as_graph(drawn()).integer_ids
    assert as_graph(EDGES).integer_ids
    assert not as_graph([("a", 0), (0, "b")]).integer_ids
    assert as_graph([("a", 0), (0, "b")]).ids == ("a", "0", "b")


def test_classes_and_masks_of_dgl():
    masks = {
        f"{part}_mask": torch.arange(4) == k for k, part in enumerate(("train", "val", "test"))
    }
    data = {"feat": X, "label": torch.tensor([0, 1, 1, 0]), **masks}
    labelled = as_labelled(fake_dgl({"_N": 4}, {("_N", "_E", "_N"): INDEX}, {"_N": data}))
    assert labelled.labels.tolist() == [0, 1, 1, 0]
    assert labelled.masks["validation"].tolist() == [[False, True, False, False]]


def test_classes_of_a_node_frame():
    nodes = node_frame().assign(label=["u", "v", "u", "v"])
    labelled = as_labelled((edge_frame(), nodes))
    assert labelled.labels.tolist() == [0, 1, 0, 1]
    assert labelled.graph.ids == ("0", "1", "2", "3")
    assert labelled.graph.integer_ids


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([2**24, 2**24 + 1, 1, 2], r"stay different as float32.*Got 16777216, 16777217 \(2"),
        ([2**53, 2**53 + 1, 1, 2], "stay different as float32"),
        (pd.date_range("2024-01-01", periods=4), r"array of numbers\. Got datetime64"),
        (["a", "b", "c", "d"], "array of numbers"),
    ],
)
def test_columns_beside_a_matrix_are_checked_one_by_one(column, sentence):
    frame = node_frame().assign(number=column)
    with pytest.raises(GraphError, match=sentence):
        as_graph((adjacency(), frame))


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "lil", "dok"])
def test_entries_of_a_matrix_given_twice_are_added_in_every_format(form):
    ends = [0, 0, 1, 1, 1, 2, 2, 3], [1, 1, 0, 0, 2, 1, 3, 2]
    matrix = scipy.sparse.coo_array((np.ones(8), ends), shape=(4, 4))
    assert as_graph((matrix, X)).weights.tolist() == [2, 2, 1, 1, 1, 1]
    assert len(matrix.data) == 8  # as it was given
    assert as_graph((matrix.asformat(form), X)).weights.tolist() == [2, 2, 1, 1, 1, 1]


def test_columns_of_several_levels_have_names():
    nodes = node_frame().set_axis(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]), axis=1)
    assert as_graph((edge_frame(), nodes)).feature_names == ("('a', 1)", "('b', 2)")


def test_dictionaries_of_another_kind_of_text():
    values = pyarrow.array(["u", "v"], pyarrow.string_view())
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, 0, None]), values)
    nodes = pyarrow.table({"id": range(4), "kind": column})  # as polars has its categories
    graph = as_graph((pyarrow.Table.from_pandas(edge_frame()), nodes))
    assert graph.feature_names == ("kind=u", "kind=v", "kind missing")


def test_a_frame_that_is_no_pandas_frame():
    frames = [pyarrow.Table.from_pandas(frame) for frame in (edge_frame(), node_frame())]
    frames[1] = frames[1].append_column("id", pyarrow.array(range(4)))
    assert torch.equal(as_graph(tuple(frames)).edge_index, GRAPH.edge_index)


def test_weights_are_looked_at_in_every_form():
    for form in (
        networkx.Graph([(0, 1, {"weight": -2.0})]),
        FakeIgraph(EDGES, edge_columns={"weight": [1.0, -2.0, 1.0, 1.0]}),
        -2 * torch.eye(3).roll(1, 0),
        Data(x=X, edge_index=INDEX, edge_weight=torch.tensor([1.0, -2.0, 1.0, 1.0])),
    ):
        with pytest.raises(GraphError, match=r"Got -2"):
            as_graph(form)


def test_one_type_of_node_for_all():
    graph = as_graph(hetero_data(author=torch.rand(3, 2), paper=torch.rand(2, 2)))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (5, 4, 2)
    assert graph.ids == ("author/0", "author/1", "author/2", "paper/0", "paper/1")
    assert graph.edge_index[:, 0].tolist() == [0, 1]
    assert "2 types of nodes (author, paper) and 2 of edges. It is made homog" in graph.notices[0]


def test_types_with_other_features_have_columns_of_their_own():
    first = torch.rand(3, 2)
    for second, block in (
        (torch.full((2, 3), 7.0), torch.full((2, 3), 7.0)),
        (None, torch.ones(2, 1)),
    ):
        given = {"author": first} | ({} if second is None else {"paper": second})
        graph = as_graph(hetero_data(**given))
        features = dense(graph.features)
        assert torch.equal(features[:3, :2], first)
        assert torch.equal(features[3:, 2:], block)
        assert not features[3:, :2].any()
        assert not features[:3, 2:].any()
        assert "columns of features of its own" in graph.notices[0]
    assert "no features, so" in as_graph(hetero_data()).notices[-1]


def test_weights_of_some_types_of_edges_are_left_aside():
    data = hetero_data()
    data["author", "knows", "author"].edge_weight = torch.tensor([2.0])
    assert any("only some types of edges have them" in told for told in as_graph(data).notices)


def test_dgl_with_several_types():
    edges = {
        ("a", "to", "b"): torch.tensor([[0, 1], [0, 0]]),
        ("b", "to", "b"): torch.tensor([[0], [1]]),
    }
    graph = as_graph(fake_dgl({"a": 2, "b": 2}, edges, {"a": {"feat": torch.rand(2, 3)}}))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 3, 4)


def test_ends_of_edges_stay_within_their_types():
    for ends, sentence in (
        ([[0, 3], [0, 1]], r"'author' has 3 nodes\. Got 3 \(1 in all\)"),
        ([[0, 1], [0, -1]], r"'paper' has 2 nodes\. Got -1"),
        ([[0.5, 1], [0, 1]], r"edge_index must hold integers\. Got 0\.5"),
        ([[0, 1], [0, 1], [0, 1]], r"must have shape \[2, pairs\]\. Got \[3, 2\]"),
    ):
        data = hetero_data()
        data["author", "writes", "paper"].edge_index = torch.tensor(ends)
        with pytest.raises(GraphError, match=sentence):
            as_graph(data)
    data["author", "writes", "journal"].edge_index = torch.tensor([[0], [0]])
    del data["author", "writes", "paper"]
    with pytest.raises(GraphError, match="'journal' has 0 nodes"):
        as_graph(data)
    del data["author", "writes", "journal"]["edge_index"]
    with pytest.raises(GraphError, match=r"must have its edge_index\. Got none of \('author'"):
        as_graph(data)


def test_classes_of_one_type_of_node():
    data = hetero_data()
    data["paper"].y = torch.tensor([1, 0])
    data["paper"].train_mask = torch.tensor([True, False])
    labelled = as_labelled(data)
    assert labelled.labels.tolist() == [-1, -1, -1, 1, 0]
    assert any("only train_mask" in told for told in labelled.graph.notices)
    data["author"].y = torch.tensor([0, 1, 2])
    labelled = as_labelled(data)
    assert labelled.num_classes == 0
    assert any("more than one type of nodes has them" in told for told in labelled.graph.notices)


def test_attributes_of_edges_are_left_aside_with_a_word():
    graph = as_graph(Data(x=X, edge_index=INDEX, edge_attr=torch.rand(4, 3)))
    assert graph.weights is None
    assert "edge_attr is left aside" in graph.notices[0]
    data = HeteroData()
    data["a"].x, data["b"].x = X, X
    edges = data["a", "to", "b"]
    edges.edge_index, edges.edge_attr = INDEX, torch.rand(4, 2)
    assert any("edge_attr is left aside" in notice for notice in as_graph(data).notices)
    edges.edge_weight = torch.full((4, 1), 2.0)  # a column, as a Data may have it
    assert as_graph(data).weights.tolist() == [2] * 8


def test_edges_without_a_weight_are_said():
    told = "1 edges without a weight weigh one."
    for gap in (None, float("nan")):
        frame = edge_frame().assign(weight=[2.0, gap, 3.0, 1.0])
        assert told in as_graph(frame).notices
    graph = networkx.Graph(EDGES)
    networkx.set_edge_attributes(graph, {(0, 1): 2.0, (1, 2): 0.5, (2, 3): 1.0}, "weight")
    assert told in as_graph(graph).notices
    assert as_graph(graph).weights.tolist() == [2, 2, 0.5, 1, 0.5, 1, 1, 1]


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, np.float32("nan"), ""])
def test_a_class_that_is_missing_is_none(missing):
    labelled = as_labelled(drawn(y=["u", missing, "v", "u"]))
    assert labelled.class_names == ("u", "v")
    assert labelled.labels.tolist() == [0, -1, 1, 0]


def test_classes_may_be_single_numbers_of_any_library():
    for y in (torch.tensor([0, 1, 1, 0]), np.array([0, 1, 1, 0]), [[0], [1], [1], [0]]):
        labelled = as_labelled(drawn(y=list(y)))
        assert labelled.labels.tolist() == [0, 1, 1, 0]
    several = drawn(y=np.eye(4))
    assert as_graph(several).num_nodes == 4
    with pytest.raises(GraphError, match=r"one class or none\. Got array"):
        as_labelled(several)


# Node frames beside edges


def test_rows_beside_a_matrix_are_in_the_order_of_the_nodes():
    frame = node_frame()
    for graph in (adjacency(), Data(edge_index=INDEX, num_nodes=4)):
        with pytest.raises(GraphError, match=r"in another order\. Call nodes\.sort_index"):
            as_graph((graph, frame.iloc[[2, 0, 3, 1]]))
        sorted_again = as_graph((graph, frame.iloc[[2, 0, 3, 1]].sort_index()))
        assert torch.equal(dense(sorted_again.features), X)
        named = frame.set_axis([7, 3, 5, 1])  # by which no node is named
        assert torch.equal(dense(as_graph((graph, named)).features), X)


def test_a_second_label_column_does_not_become_a_feature():
    frame = node_frame().assign(label=["u", "v", "v", "u"], Y=[0, 1, 1, 0])
    with pytest.raises(GraphError, match=r"the columns 'label' and 'Y'\. Rename or remove all but"):
        as_graph((adjacency(), frame))


@pytest.mark.parametrize("kind", [np.float16, np.uint8, np.uint16, np.uint32, np.uint64, bool])
def test_a_dense_adjacency_may_have_any_type_of_numbers(kind):
    plain, typed = (as_graph((adjacency().astype(k), X)) for k in (np.int64, kind))
    assert torch.equal(typed.edge_index, plain.edge_index)


def test_masked_numbers_are_missing():
    masked = np.ma.masked_equal(X.numpy(), 3.0)
    with pytest.raises(GraphError, match="Missing, NaN or infinite at row 1 column 0"):
        as_graph((adjacency(), masked))
    assert as_graph((adjacency(), np.ma.masked_equal(X.numpy(), -1.0))).num_nodes == 4


def test_an_index_that_pandas_made_is_not_taken_for_ids_in_silence():
    told = "No column of the node frame is called id, so that its index is taken for the ids."
    frame = pd.DataFrame({"user": [3, 1, 2, 0], "x": [1.0, 2.0, 3.0, 4.0]})
    graph = as_graph((edge_frame(), frame))
    assert (graph.ids, graph.feature_names) == (("0", "1", "2", "3"), ("user", "x"))
    assert told in changes_of(graph)
    again = as_graph((edge_frame(), frame), encoder=graph.encoder)
    assert torch.equal(again.features, graph.features)
    for meant in (frame.set_index("user"), frame.rename(columns={"user": "id"})):
        graph = as_graph((edge_frame(), meant))
        assert graph.ids == ("3", "1", "2", "0")
        assert told not in graph.notices
    kept = frame.rename(columns={"user": "__index_level_0__"})  # as Parquet keeps an index
    assert as_graph((edge_frame(), kept)).ids == ("3", "1", "2", "0")


def test_rows_of_a_node_frame_go_to_the_nodes_that_they_name():
    edges = [("c", "a"), ("a", "b")]
    nodes = pd.DataFrame({"x": [0.0, 1.0, 1.0], "label": ["u", "v", "v"]}, index=list("abc"))
    for form in (edges, networkx.Graph(edges), FakeIgraph([(0, 1), (1, 2)], name=list("cab"))):
        labelled = as_labelled((form, nodes))
        assert labelled.graph.ids == ("a", "b", "c")
        assert labelled.graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
        assert labelled.graph.features.tolist() == [[0], [1], [1]]
        assert labelled.class_names == ("u", "v")
        with pytest.raises(GraphError, match="nodes of the node frame"):
            as_graph((form, nodes[:2]))
    lonely = networkx.Graph(edges)
    lonely.add_node("d")
    with pytest.raises(GraphError, match=r"must have a row for every node .* It lacks 'd'"):
        as_graph((lonely, nodes))
    weighted = networkx.Graph([("c", "a", {"weight": 2.0}), ("a", "b", {"weight": 3.0})])
    assert as_graph((weighted, nodes)).weights.tolist() == [3, 2, 3, 2]


def test_a_graph_without_edges_has_the_nodes_of_its_frame():
    nodes = pd.DataFrame({"x": [0.0, 1.0], "id": ["a", "b"]})
    source = networkx.Graph()
    source.add_nodes_from("ab")
    graph = as_graph((source, nodes))
    assert (graph.ids, graph.num_edges) == (("a", "b"), 0)
    assert any("The graph has no edges" in notice for notice in graph.notices)
    assert any(notice.startswith("The node frame has no column") for notice in graph.notices)


def test_labels_of_a_node_frame_are_no_features():
    nodes = node_frame().assign(id=[7, 5, 6, 4], label=["u", "v", None, "u"])
    for edges in (INDEX, adjacency(), Data(edge_index=INDEX, num_nodes=4)):
        labelled = as_labelled((edges, nodes))
        assert torch.equal(labelled.graph.features, X)
        assert labelled.graph.ids == ("7", "5", "6", "4")
        assert labelled.labels.tolist() == [0, 1, -1, 0]


def test_integers_of_a_list_are_numbers_of_rows_beside_a_matrix():
    graph = as_graph(([(2, 0), (0, 1)], X))
    assert torch.equal(dense(graph.features), X)
    assert graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert graph.num_nodes == 4


# Names and files


def test_names_and_paths(tmp_path):
    assert as_graph("mixed").num_nodes == 900
    edge_frame().to_csv(tmp_path / "edges.csv", index=False)
    node_frame().rename_axis("id").to_csv(tmp_path / "nodes.csv")
    paths = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    assert torch.equal(as_graph(paths).edge_index, GRAPH.edge_index)
    assert torch.equal(as_graph(tuple(map(str, paths))).edge_index, GRAPH.edge_index)
    with pytest.raises(UnknownNameError, match="Did you mean 'mixed'"):
        as_graph("mixd")


# Refusals


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (np.zeros((2, 2), dtype=int), "2 x 2 may be an edge_index or an adjacency"),
        (INDEX.t(), r"shape \[2, pairs\]\. Got \[4, 2\]\. It looks transposed"),
        (np.zeros((3, 4)), r"must be square with one row per node\. Got 3 x 4"),
        ((INDEX, X[:3]), r"join nodes 0 to 2\. Got \(2, 3\)"),
        ((EDGES, X[:3]), r"one row of features per node\. Got 3 rows for 4 nodes"),
        (INDEX + 0.5, "edge_index must hold integers"),
        (drawn(x=[[1.0], [2.0]]), r"as attribute 'x', or none\. Missing at 2, 3"),
        (drawn(x=[[1.0], [2.0], [3.0, 4.0], [1.0]]), r"one length\. Got the shapes \(1,\), \(2,\)"),
        (edge_frame().assign(source=[0, "a", 1.5, None]), "column of the frame mixes types"),
        (
            edge_frame().set_axis(["a", "b"], axis=1).assign(c=1),
            "must have two columns of node ids",
        ),
        (drawn(x=[[1.0, [2.0]]] * 4), "Features 'x' of a node must be an array of numbers"),
        (np.array([[None] * 3] * 3), "Edges must be an array of numbers. Got object"),
        (np.array(3), r"one row per node\. Got a number"),
        ([(["a"], ["b"])], r"names or numbers\. Got \(\['a'\]"),
        ([("a", None)], r"must have an id\. Got None or NaN"),
        ([(1.0, float("nan"))], r"must have an id\. Got None or NaN"),
        ((edge_frame(), X), r"both files or both frames\. Got \(DataFrame, Tensor\)"),
        (("edges.csv", node_frame()), r"both files or both frames\. Got \(str, DataFrame\)"),
        ((edge_frame(), node_frame().set_axis(["a", "a"], axis=1)), "repeated 'a'"),
        ((edge_frame(), node_frame().set_axis([1, "1"], axis=1)), "repeated '1'"),
        ((edge_frame(), node_frame().set_index(["a", "b"], append=True)), "has 3 levels"),
        (
            (edge_frame(), node_frame().astype(pd.SparseDtype(float))),
            "a type that Arrow does not know: Sparse",
        ),
        ((edge_frame(), node_frame().iloc[:3]), "Edges of the edge frame must join nodes of the"),
        ([], r"Got list"),
    ],
)
def test_what_is_no_graph_is_said(source, sentence):
    with pytest.raises(AspectError, match=sentence) as raised:
        as_graph(source)
    assert tempfile.gettempdir() not in str(raised.value)


def test_no_path_of_ours_is_named_for_a_frame():
    for form in (edge_frame(), (edge_frame().assign(kind="x"), node_frame())):
        assert not any(tempfile.gettempdir() in told for told in as_graph(form).notices)


def test_libraries_are_not_imported_to_look_at_a_graph():
    before = set(sys.modules)
    as_graph(FakeIgraph(EDGES))
    as_graph(fake_dgl({"_N": 4}, {("_N", "_E", "_N"): INDEX}, {}))
    assert not {"igraph", "dgl", "polars"} & (set(sys.modules) - before)


# What was changed


def test_changes_are_told_apart_from_descriptions():
    data = Data(x=torch.rand(5, 2), edge_index=torch.tensor([[0, 0, 1, 2], [1, 1, 1, 3]]))
    graph = as_graph(data)
    assert [told.partition(" ")[2] for told in changes_of(graph)] == [
        "self-loops removed; methods that need them add them.",
        "duplicate edges removed.",
        "edges had no reverse and were made undirected.",
    ]
    assert len(graph.notices) == 5


# Rows of node tables


NAMED = Graph.build(X, INDEX, ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame({"f": [1, 2]}, index=["c", "a"]),
        pd.DataFrame({"id": ["c", "a"], "f": [1, 2]}),
        np.array(["c", "a"]),
        [["c"], ["a"]],
        pd.Series(["c", "a"]),
    ],
)
def test_rows_name_nodes(rows):
    assert node_numbers(rows, NAMED).tolist() == [2, 0]


def test_rows_of_a_graph_without_ids_are_numbers():
    assert node_numbers(node_frame().iloc[[3, 1]], GRAPH).tolist() == [3, 1]
    assert node_numbers(np.array([[3], [1]]), GRAPH).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["a", "x"], r"must name a node of the graph\. Not there: 'x'"),
        (np.zeros((2, 3)), r"Rows must name nodes: .* Got an array of shape \[2, 3\]"),
        (node_frame(), r"Not there: '0'"),
    ],
)
def test_rows_that_name_no_node(rows, sentence):
    with pytest.raises(GraphError, match=sentence):
        node_numbers(rows, NAMED)
