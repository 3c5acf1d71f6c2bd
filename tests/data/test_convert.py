"""Graphs of other libraries: what is taken over, and what each wrong form answers."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from aspect.data.convert import as_graph, as_labelled, to_data
from aspect.data.features import dense
from aspect.data.graph import Graph, label_graph
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError

X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
PAIRS = torch.tensor([[0, 1], [1, 2]])
BOTH = [[0, 1, 1, 2], [1, 0, 2, 1]]


class TestData:
    def test_plain(self):
        data = Data(x=X, edge_index=PAIRS, y=torch.tensor([0, 1, 0]))
        labelled = as_labelled(data)
        assert labelled.graph.edge_index.tolist() == BOTH
        torch.testing.assert_close(labelled.graph.features, X)
        assert labelled.class_names == ("0", "1")
        assert data.edge_index is PAIRS  # nothing of the input is changed

    def test_round_trip(self):
        masks = {
            "train": torch.tensor([[True, False, False], [False, True, False]]),
            "validation": torch.tensor([[False, True, False], [True, False, False]]),
            "test": torch.tensor([[False, False, True], [False, False, True]]),
        }
        graph = Graph.build(X, PAIRS, ["a", "b", "c"])
        before = label_graph(graph, torch.tensor([1, -1, 0]), ("u", "v", "w"), masks)
        data = to_data(before)
        assert data.train_mask.shape == (3, 2)
        after = as_labelled(data)
        assert after.graph.ids == ("a", "b", "c")
        assert after.class_names == ("u", "v", "w")
        assert after.labels.tolist() == [1, -1, 0]
        for part, mask in masks.items():
            torch.testing.assert_close(after.masks[part], mask)

    def test_labels_are_not_looked_at_by_as_graph(self):
        assert as_graph(Data(x=X, edge_index=PAIRS, y=torch.rand(3, 7))).num_nodes == 3

    @pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
    def test_sparse_features(self, layout):
        eye = torch.eye(12)
        graph = as_graph(Data(x=eye.to_sparse(layout=layout), edge_index=PAIRS))
        assert isinstance(graph.features, SparseMatrix)
        torch.testing.assert_close(dense(graph.features), eye)

    @pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float64, torch.float16])
    def test_features_of_other_types(self, kind):
        x = torch.tensor([[1, 0], [1, 1], [0, 1]]).to(kind)
        assert dense(as_graph(Data(x=x, edge_index=PAIRS)).features).dtype == torch.float32

    def test_ids_under_either_name(self):
        numbers = torch.tensor([7, 8, 9])
        assert as_graph(Data(x=X, edge_index=PAIRS, node_id=numbers)).ids == ("7", "8", "9")
        assert as_graph(Data(x=X, edge_index=PAIRS, ids=["007", "7", "x"])).ids == ("007", "7", "x")

    @pytest.mark.parametrize(
        ("changed", "sentence"),
        [
            ({"edge_index": PAIRS.t().repeat(2, 1)}, r"Got \[4, 2\]. It looks transposed"),
            ({"edge_index": torch.tensor([0, 1])}, r"shape \[2, pairs\]. Got \[2\]"),
            ({"edge_index": torch.tensor([[0, 3], [1, 2]])}, r"0 to 2. Got \(3, 2\) \(1 in all\)"),
            ({"edge_index": torch.tensor([[0, -1], [1, 2]])}, r"Got \(-1, 2\)"),
            ({"edge_index": torch.tensor([[0, 0.5], [1, 2]])}, r"hold integers. Got 0.5"),
            ({"edge_index": torch.tensor([[0, 2.0**25], [1, 2]])}, "hold integers. Got 33554432.0"),
            ({"edge_index": torch.tensor([[True], [False]])}, "hold integers. Got torch.bool"),
            (
                {"edge_index": np.array([["a"], ["b"]], dtype=object)},
                "an array of numbers. Got obj",
            ),
            ({"edge_index": None}, "has no edges: set data.edge_index"),
            (
                {"x": None, "num_nodes": 3},
                "3 nodes have no features: set data.x.*--features degree",
            ),
            ({"x": torch.zeros(3, 0)}, "no features.*--features"),
            ({"x": torch.ones(3)}, r"shape \[nodes, features\]. Got \[3\]"),
            (
                {"x": torch.tensor([[1.0], [torch.nan], [torch.inf]])},
                "row 1 column 0, row 2 column 0",
            ),
            ({"x": X.to(torch.complex64)}, "real numbers. Got torch.complex64"),
            ({"x": torch.zeros(0, 2), "edge_index": torch.zeros(2, 0)}, "at least 2 nodes. Got 0"),
            ({"x": torch.zeros(1, 2), "edge_index": torch.zeros(2, 0)}, "at least 2 nodes. Got 1"),
            ({"x": torch.ones(2, 2)}, r"nodes 0 to 1. Got \(1, 2\)"),
            ({"ids": ["a", "b"]}, "one id per node. Got 2 for 3 nodes"),
            ({"ids": ["a", "b", "a"]}, r"unique. Repeated: 'a' \(1 in all\)"),
            ({"y": torch.tensor([0, 1])}, r"one per node, of shape \[3\]. Got \[2\]"),
            ({"y": torch.tensor([0.0, 0.5, 1.0])}, "integers from 0, or -1.*Got torch.float32"),
            ({"y": torch.tensor([0, -7, 1])}, "-1 where unknown. Got -7"),
            ({"y": torch.rand(3, 2)}, r"Got \[3, 2\]"),
            ({"edge_weight": torch.tensor([1.0, -2.0])}, r"positive numbers. Got -2.0"),
            ({"edge_weight": torch.tensor([1.0, torch.nan])}, "positive numbers. Got nan"),
        ],
    )
    def test_wrong_parts(self, changed, sentence):
        parts = {"x": X, "edge_index": PAIRS, "y": torch.tensor([0, 1, 0])} | changed
        with pytest.raises(GraphError, match=sentence):
            as_labelled(Data(**parts))

    def test_whole_numbers_kept_as_floats_are_cast(self):
        data = Data(x=X, edge_index=PAIRS.double(), y=torch.tensor([[1.0], [torch.nan], [0.0]]))
        labelled = as_labelled(data)
        assert labelled.graph.edge_index.tolist() == BOTH
        assert labelled.labels.tolist() == [1, -1, 0]

    def test_weights_are_said_to_be_left_aside(self):
        data = Data(x=X, edge_index=PAIRS, edge_weight=torch.tensor([1.0, 2.0]))
        assert any("weights are left aside" in notice for notice in as_graph(data).notices)

    def test_zero_edges_are_served_with_a_warning(self):
        graph = as_graph(Data(x=X, edge_index=torch.zeros(2, 0, dtype=torch.long)))
        assert graph.num_edges == 0
        assert any("no edges" in notice for notice in graph.notices)

    def test_single_split_and_incomplete_ones(self):
        train, val, test = torch.eye(3).bool()
        data = Data(
            x=X, edge_index=PAIRS, y=torch.tensor([0, 1, 0]), train_mask=train, val_mask=val
        )
        labelled = as_labelled(data)
        assert labelled.masks == {}
        assert any("only train_mask and val_mask" in notice for notice in labelled.graph.notices)
        data.test_mask = test
        assert as_labelled(data).masks["test"].tolist() == [[False, False, True]]
        data.test_mask = train | test
        with pytest.raises(GraphError, match=r"must not share nodes\. Got node 0 in split 0"):
            as_labelled(data)
        data.test_mask = torch.zeros(3, dtype=torch.bool)
        with pytest.raises(GraphError, match=r"Every split needs test nodes\. None in splits 0"):
            as_labelled(data)
        data.test_mask = torch.ones(2, dtype=torch.bool)
        with pytest.raises(GraphError, match=r"one shape \[splits, 3\]"):
            as_labelled(data)

    def test_too_few_class_names(self):
        with pytest.raises(GraphError, match=r"one per class\. Got 1 for 2 classes"):
            as_labelled(Data(x=X, edge_index=PAIRS, y=torch.tensor([0, 1, 0]), class_names=["u"]))


class TestScipy:
    def test_pair_of_matrices(self):
        adjacency = scipy.sparse.csr_matrix(([1, 1, 0], ([0, 1, 2], [1, 2, 0])), shape=(3, 3))
        features = scipy.sparse.random_array((3, 40), density=0.1, rng=0)
        for x in (features, features.tocsr(), features.toarray()):
            graph = as_graph((adjacency, x))
            assert graph.edge_index.tolist() == BOTH
            np.testing.assert_allclose(dense(graph.features), features.toarray(), rtol=1e-6)

    def test_wrong_counts(self):
        with pytest.raises(GraphError, match="Got 4 x 4 for 3 rows of features"):
            as_graph((scipy.sparse.eye_array(4), X))
        with pytest.raises(GraphError, match=r"must be square.*Got 3 x 4"):
            as_graph((scipy.sparse.csr_array((3, 4)), X))

    def test_wrong_values(self):
        for weight in (-1.0, np.nan, np.inf):
            adjacency = scipy.sparse.csr_array(([weight], ([0], [1])), shape=(3, 3))
            with pytest.raises(GraphError, match="positive numbers"):
                as_graph((adjacency, X))
        words = np.array([["a"], ["b"], ["c"]])
        with pytest.raises(GraphError, match="Features must be an array of numbers"):
            as_graph((scipy.sparse.csr_array((3, 3)), words))

    def test_other_tuples(self):
        with pytest.raises(
            GraphError, match=r"\(scipy adjacency, feature matrix\)\. Got \(Tensor, T"
        ):
            as_graph((X, PAIRS))


class TestNetworkx:
    def test_names_features_and_classes(self):
        source = networkx.Graph([("b", "a"), ("a", 3)])
        for k, node in enumerate(source):
            source.nodes[node].update(x=[k, 1.0], y="even" if k % 2 == 0 else "odd")
        labelled = as_labelled(source)
        assert labelled.graph.ids == ("b", "a", "3")
        assert labelled.graph.edge_index.tolist() == BOTH
        assert labelled.graph.notices == ()
        assert labelled.class_names == ("even", "odd")

    def test_without_classes_and_with_several_edges(self):
        source = networkx.MultiDiGraph([(0, 1), (0, 1), (1, 1)])
        networkx.set_node_attributes(source, {0: 1.0, 1: 2.0}, "x")
        labelled = as_labelled(source)
        assert labelled.num_classes == 0
        assert labelled.graph.num_edges == 1

    def test_missing_and_uneven_features(self):
        source = networkx.path_graph(8)
        with pytest.raises(
            GraphError, match=r"attribute 'x'. Missing at 0, 1, 2, 3, 4, ... \(8 in"
        ):
            as_graph(source)
        networkx.set_node_attributes(source, {k: [1.0] * (1 + k % 2) for k in range(8)}, "x")
        with pytest.raises(GraphError, match=r"one length. Got the shapes \(1,\), \(2,\)"):
            as_graph(source)
        with pytest.raises(GraphError, match="attribute 'x'"):
            as_graph(networkx.Graph())

    def test_impossible_weight(self):
        source = networkx.path_graph(2)
        networkx.set_node_attributes(source, 1.0, "x")
        source.edges[0, 1]["weight"] = -3
        with pytest.raises(GraphError, match=r"positive numbers\. Got -3"):
            as_graph(source)


def test_own_forms_pass_through():
    graph = Graph.build(X, PAIRS)
    labelled = as_labelled(graph)
    assert as_graph(graph) is graph
    assert as_graph(labelled) is graph
    assert as_labelled(labelled) is labelled
    assert labelled.labels.tolist() == [-1, -1, -1]


def test_anything_else_is_told_what_would_be_right():
    with pytest.raises(
        GraphError, match=r"A graph must be .* a PyG Data, .* networkx graph\. Got dict"
    ):
        as_graph({"x": 1})


def test_directed_as_an_error():
    with pytest.raises(GraphError, match="directed: 2 edges lack their reverse"):
        as_labelled(Data(x=X, edge_index=PAIRS), directed_is_error=True)
