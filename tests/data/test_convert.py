"""Graphs of other libraries, in memory and saved: what is taken over, and what is refused."""

import pickle
import random
from contextlib import suppress
from dataclasses import replace

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData

from aspect.data import files
from aspect.data.archives import content_sha256, write_npz
from aspect.data.convert import as_graph, as_labelled, to_data
from aspect.data.features import dense
from aspect.data.graph import Graph, label_graph
from aspect.data.source import read_graph
from aspect.data.sparse import SparseMatrix
from aspect.errors import AspectError, FileError, GraphError, SettingsError

X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
PAIRS = torch.tensor([[0, 1], [1, 2]])
BOTH = [[0, 1, 1, 2], [1, 0, 2, 1]]
Y = torch.tensor([0, 1, 0])


# PyG


def test_data_in_and_out():
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
    torch.testing.assert_close(after.graph.features, X)
    assert after.graph.edge_index.tolist() == BOTH
    assert after.graph.ids == ("a", "b", "c")
    assert after.class_names == ("u", "v", "w")
    assert after.labels.tolist() == [1, -1, 0]
    for part, mask in masks.items():
        torch.testing.assert_close(after.masks[part], mask)


def test_labels_are_not_looked_at_by_as_graph():
    data = Data(x=X, edge_index=PAIRS, y=torch.rand(3, 7))
    assert as_graph(data).num_nodes == 3
    assert data.edge_index is PAIRS  # nothing of the input is changed


def test_sparse_features():
    eye = torch.eye(12)
    for layout in (torch.sparse_coo, torch.sparse_csr):
        graph = as_graph(Data(x=eye.to_sparse(layout=layout), edge_index=PAIRS))
        assert isinstance(graph.features, SparseMatrix)
        torch.testing.assert_close(dense(graph.features), eye)


@pytest.mark.parametrize("kind", [torch.int64, torch.bool])
def test_other_types_are_cast_where_that_is_exact(kind):
    x = torch.tensor([[1, 0], [1, 1], [0, 1]]).to(kind)
    assert dense(as_graph(Data(x=x, edge_index=PAIRS)).features).dtype == torch.float32
    data = Data(x=x, edge_index=PAIRS.double(), y=torch.tensor([[1.0], [torch.nan], [0.0]]))
    assert as_labelled(data).graph.edge_index.tolist() == BOTH
    assert as_labelled(data).labels.tolist() == [1, -1, 0]


def test_ids_under_either_name():
    numbers = torch.tensor([7, 8, 9])
    assert as_graph(Data(x=X, edge_index=PAIRS, node_id=numbers)).ids == ("7", "8", "9")
    assert as_graph(Data(x=X, edge_index=PAIRS, ids=["007", "7", "x"])).ids == ("007", "7", "x")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"edge_index": torch.tensor([[0, 3], [1, 2]])}, r"0 to 2. Got \(3, 2\) \(1 in all\)"),
        ({"edge_index": torch.tensor([[0, 0.5], [1, 2]])}, r"hold integers. Got 0.5"),
        ({"edge_index": torch.tensor([[0, 2.0**25], [1, 2]])}, "hold integers. Got 33554432.0"),
        ({"edge_index": np.array([["a"], ["b"]], dtype=object)}, "an array of numbers. Got obj"),
        ({"edge_index": None}, "has no edges: set data.edge_index"),
        ({"x": torch.ones(3)}, r"shape \[nodes, features\]. Got \[3\]"),
        ({"x": X.to(torch.complex64)}, "real numbers. Got torch.complex64"),
        ({"x": torch.zeros(0, 2), "edge_index": torch.zeros(2, 0)}, "at least 2 nodes. Got 0"),
        ({"y": torch.tensor([0, 1])}, r"one per node, of shape \[3\]. Got \[2\]"),
        ({"y": torch.tensor([0.0, 0.5, 1.0])}, "y must hold integers. Got 0.5"),
        ({"y": torch.tensor([0, -7, 1])}, "-1 where unknown. Got -7"),
        ({"class_names": ["u"]}, "one per class. Got 1 for 2 classes"),
        ({"edge_weight": torch.tensor([1.0, -2.0])}, r"no edge. Got -2 at edge 2"),
    ],
)
def test_wrong_parts_of_data(changed, sentence):
    parts = {"x": X, "edge_index": PAIRS, "y": Y} | changed
    with pytest.raises(GraphError, match=sentence):
        as_labelled(Data(**parts))


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_weights_come_from_data_and_go_back(shape):
    data = Data(x=X, edge_index=PAIRS, edge_weight=torch.tensor([1.0, 2.0]).view(shape))
    graph = as_graph(data)
    assert any("weights are used" in notice for notice in graph.notices)
    back = to_data(as_labelled(data))
    assert back.is_undirected()
    assert sorted(back.edge_weight.tolist()) == [1, 1, 2, 2]
    torch.testing.assert_close(as_graph(back).weights, graph.weights)
    assert as_graph(back).notices == graph.notices[:1]


def test_single_split_and_incomplete_ones():
    train, val, test = torch.eye(3).bool()
    data = Data(x=X, edge_index=PAIRS, y=Y, train_mask=train, val_mask=val)
    labelled = as_labelled(data)
    assert labelled.masks == {}
    assert any("only train_mask and val_mask" in notice for notice in labelled.graph.notices)
    data.test_mask = test
    assert as_labelled(data).masks["test"].tolist() == [[False, False, True]]
    data.test_mask = torch.ones(2, dtype=torch.bool)
    with pytest.raises(GraphError, match=r"one shape \[splits, 3\]"):
        as_labelled(data)


def test_splits_of_classes_by_name():
    masks = dict(zip(("train_mask", "val_mask", "test_mask"), torch.eye(3).bool(), strict=True))
    labelled = as_labelled(Data(x=X, edge_index=PAIRS, y=["u", "v", "u"], **masks))
    assert labelled.class_names == ("u", "v")
    assert labelled.masks["validation"].tolist() == [[False, True, False]]


# PyG in a file


@pytest.fixture
def saved(tmp_path):
    torch.save(Data(x=X, edge_index=PAIRS, y=Y), tmp_path / "graph.pt")
    return tmp_path / "graph.pt"


def test_saved_data(saved, monkeypatch):
    labelled = read_graph(saved)
    assert (labelled.graph.num_edges, labelled.class_names) == (2, ("0", "1"))
    with pytest.raises(SettingsError, match="--nodes belongs to an edge table"):
        read_graph(saved, nodes="nodes.csv")
    monkeypatch.setattr(files, "available_bytes", lambda: 4 * saved.stat().st_size - 1)
    with pytest.raises(FileError, match="fit the memory"):
        read_graph(saved)


def test_saved_data_without_features(saved):
    torch.save(Data(edge_index=PAIRS, num_nodes=4), saved)
    graph = read_graph(saved).graph
    assert "The nodes have no features, so laplacian ones are made" in graph.notices[-1]
    asked = read_graph(saved, features="laplacian").graph
    assert torch.equal(graph.features, asked.features)
    assert read_graph(saved, features="degree").graph.num_nodes == graph.num_nodes == 4


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo])
def test_missing_features_are_imputed_whatever_their_form(saved, layout):
    x = torch.zeros(4, 6)
    x[:, 0] = torch.tensor([1.0, torch.nan, 4.0, 1.0])
    x[0, 5] = torch.inf
    torch.save(Data(x=x.to_sparse(layout=layout), edge_index=PAIRS), saved)
    with pytest.raises(GraphError, match="row 0 column 5, row 1 column 0"):
        read_graph(saved)
    for how, value in (("zero", 0.0), ("mean", 2.0)):
        graph = read_graph(saved, impute=how).graph
        assert dense(graph.features)[:, 0].tolist() == [1, value, 4, 1]
        assert dense(graph.features)[0, 5] == 0
        assert f"2 missing or infinite features in 2 columns set to {how}." in graph.notices


@pytest.mark.parametrize("how", ["torch", "legacy", "pickle", "inside"])
def test_code_in_a_saved_file_is_never_run(saved, trap, how):
    if how == "pickle":
        saved.write_bytes(pickle.dumps(trap))
    elif how == "inside":
        torch.save(Data(x=X, edge_index=PAIRS, extra=trap), saved)
    else:
        torch.save(trap, saved, _use_new_zipfile_serialization=how == "torch")
    with pytest.raises(FileError, match=r"never loaded\. Save a plain torch_geometric\.data\.Data"):
        read_graph(saved)


def test_other_saved_things(saved):
    torch.save({"weight": torch.ones(2)}, saved)
    with pytest.raises(GraphError, match=r"must hold a PyG Data with an edge_index\. Got dict"):
        read_graph(saved)
    torch.save(HeteroData(), saved)
    with pytest.raises(AspectError):
        read_graph(saved)
    data = Data(x=X, edge_index=PAIRS)
    torch.save(data, saved, _use_new_zipfile_serialization=False)
    assert "has no checksums" in read_graph(saved).graph.notices[0]
    del data.__dict__["_store"]  # a Data of another age
    torch.save(data, saved)
    with pytest.raises(FileError, match=r"not a whole file of torch\.save with a PyG Data"):
        read_graph(saved)


def test_cut_and_changed_saved_data_is_noticed(saved):
    whole, before = saved.read_bytes(), content_sha256(read_graph(saved))
    for cut in range(0, len(whole) - 1, len(whole) // 8):
        saved.write_bytes(whole[:cut])
        with pytest.raises(FileError, match=r"damaged|not a whole file"):
            read_graph(saved)
    draw = random.Random(0)  # noqa: S311 - no secret
    for _ in range(50):
        changed = bytearray(whole)
        changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        saved.write_bytes(changed)
        with suppress(AspectError):
            assert content_sha256(read_graph(saved)) == before


def test_saved_data_that_says_it_is_huge_is_refused(saved):
    for changed in (
        {"x": torch.zeros(1, 1).expand(10**8, 10**4)},  # one number, of strides zero
        {"edge_index": torch.zeros(2, 1, dtype=torch.long).expand(2, 10**12)},
        {"x": None, "num_nodes": 2 * 10**12},
    ):
        torch.save(Data(**({"x": X, "edge_index": PAIRS} | changed)), saved)
        with pytest.raises(FileError, match="fit the memory"):
            read_graph(saved, features="degree")


# Scipy and networkx


def test_pair_of_matrices():
    adjacency = scipy.sparse.csr_matrix(([1, 1, 0], ([0, 1, 2], [1, 2, 0])), shape=(3, 3))
    features = scipy.sparse.random_array((3, 40), density=0.1, rng=0)
    for x in (features, features.tocsr(), features.toarray()):
        graph = as_graph((adjacency, x))
        assert graph.edge_index.tolist() == BOTH
        np.testing.assert_allclose(dense(graph.features), features.toarray(), rtol=1e-6)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ((scipy.sparse.eye_array(4), X), "Got 4 x 4 for 3 rows of features"),
        ((scipy.sparse.csr_array((3, 4)), X), r"must be square.*Got 3 x 4"),
        ((scipy.sparse.csr_array(-np.eye(3)), X), "positive numbers"),
        ((scipy.sparse.csr_array((3, 3)), np.array([["a"]] * 3)), "must be an array of numbers"),
        ((X, PAIRS), r"shape \[2, pairs\]\. Got \[3, 2\]"),
        ((PAIRS, X, X), r"pair of edges and features.*\. Got \(Tensor, Tensor, Tensor\)"),
        (networkx.Graph(), r"at least 2 nodes\. Got 0"),
        ({"x": 1}, r"A graph must be .* a PyG Data .*, a NetworkX, .*\. Got dict"),
        ([1, 2], r"A graph must be .*\. Got list"),
    ],
)
def test_sources_that_are_refused(source, sentence):
    with pytest.raises(GraphError, match=sentence):
        as_graph(source)


def test_networkx():
    source = networkx.Graph([("b", "a"), ("a", 3)])
    for k, node in enumerate(source):
        source.nodes[node].update(x=[k, 1.0], y="even" if k % 2 == 0 else "odd")
    labelled = as_labelled(source)
    assert labelled.graph.ids == ("b", "a", "3")
    assert labelled.graph.edge_index.tolist() == BOTH
    assert labelled.graph.notices == ()
    assert labelled.class_names == ("even", "odd")
    source.edges["b", "a"]["weight"] = -3
    with pytest.raises(GraphError, match=r"no edge\. Got -3 at edge"):
        as_graph(source)
    source.nodes[3]["x"] = [1.0]
    with pytest.raises(GraphError, match=r"one length. Got the shapes \(1,\), \(2,\)"):
        as_graph(source)
    source = networkx.MultiDiGraph([(0, 1), (0, 1), (1, 1)])
    networkx.set_node_attributes(source, {0: 1.0, 1: 2.0}, "x")
    labelled = as_labelled(source)
    assert (labelled.num_classes, labelled.graph.num_edges) == (0, 1)


def test_own_forms_pass_through(tmp_path):
    graph = Graph.build(X, PAIRS)
    labelled = as_labelled(graph)
    assert as_graph(graph) is graph
    assert as_graph(labelled) is graph
    assert as_labelled(labelled) is labelled
    assert labelled.labels.tolist() == [-1, -1, -1]
    with pytest.raises(GraphError, match="directed: 2 edges lack their reverse"):
        as_labelled(Data(x=X, edge_index=PAIRS), directed_is_error=True)
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    for source in (tmp_path / "edges.csv", pd.read_csv(tmp_path / "edges.csv")):
        for read in (as_graph, as_labelled):
            with pytest.raises(GraphError, match="directed: 2 edges lack their reverse"):
                read(source, directed_is_error=True)


# Parts of a file, checked alike


def test_faults_of_features_are_none_where_structural_ones_take_their_place(tmp_path):
    saved, archive = tmp_path / "g.pt", tmp_path / "g.npz"
    labelled = label_graph(Graph.build(X, PAIRS), Y)
    torch.save(Data(x=X * torch.nan, edge_index=PAIRS, y=Y), saved)
    write_npz(archive, replace(labelled, graph=replace(labelled.graph, features=X * torch.nan)))
    made = read_graph(archive, features="degree").graph
    for path in (archive, saved):
        with pytest.raises(GraphError, match="must be finite"):
            read_graph(path)
        graph = read_graph(path, features="degree").graph
        assert torch.equal(dense(graph.features), dense(made.features))
        assert read_graph(path, encoder=made.encoder).graph.num_features == made.num_features
        assert not any("missing or infinite" in notice for notice in graph.notices)


def test_labels_beyond_the_number_of_nodes_are_names_of_classes(tmp_path):
    labelled = as_labelled(Data(x=X, edge_index=PAIRS, y=torch.tensor([2020, -1, 2001])))
    assert (labelled.class_names, labelled.labels.tolist()) == (("2001", "2020"), [1, -1, 0])
    assert "Labels up to 2020 are taken for names of 2 classes." in labelled.graph.notices
    write_npz(tmp_path / "g.npz", labelled)
    assert read_graph(tmp_path / "g.npz").class_names == ("2001", "2020")


@pytest.mark.parametrize("density", [1.0, 0.1])  # kept dense, kept sparse
def test_features_must_fit_float32(density):
    x = torch.zeros(3, 10, dtype=torch.float64)
    x[:, : int(10 * density)] = 1
    x[1, 0] = 1e39  # finite in float64
    sentence = "fit float32, up to 3.4e38. Missing, NaN or infinite at row 1 column 0"
    for source in (Data(x=x, edge_index=PAIRS), (PAIRS, x.numpy())):
        with pytest.raises(GraphError, match=sentence):
            as_graph(source)
    with pytest.raises(GraphError, match=sentence):
        Graph.build(x, PAIRS)


def test_one_test_mask_may_belong_to_several_splits():
    """PyG's WikiCS has twenty masks for training and validation, and one for the test."""
    splits, test = torch.tensor([[1, 0], [0, 1], [0, 0]]).bool(), torch.tensor([0, 0, 1]).bool()
    masks = {"train_mask": splits, "val_mask": splits.flip(1), "test_mask": test}
    labelled = as_labelled(Data(x=X, edge_index=PAIRS, y=Y, **masks))
    assert labelled.masks["train"].tolist() == splits.t().tolist()
    assert labelled.masks["test"].tolist() == [test.tolist()] * 2


def test_masks_of_three_axes_are_refused():
    masks = dict.fromkeys(("train_mask", "val_mask", "test_mask"), torch.ones(3, 1, 1).bool())
    with pytest.raises(GraphError, match="Split masks must have one shape"):
        as_labelled(Data(x=X, edge_index=PAIRS, y=Y, **masks))
