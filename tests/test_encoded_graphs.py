"""Estimators on graphs whose features were encoded from columns of a table."""

from dataclasses import replace

import pytest
import torch

from aspect import Aspect, Embedder, mixed_graph
from aspect.data.archives import read_npz, write_npz
from aspect.data.encoder import FeatureEncoder
from aspect.data.source import read_graph
from aspect.errors import CheckpointError, GraphError, TrainingError
from aspect.experiment.plan import Plan, ReadFacts, lay_out
from aspect.methods.registry import find_method, method_names

SMALL = {"epochs": 2, "width": 8, "gate_width": 4, "device": "cpu"}


@pytest.fixture
def tables(tmp_path):
    """A ring of twelve nodes with two columns."""
    nodes = "".join(f"{k},{1000 * k},{'ab'[k % 2]},{k % 2}\n" for k in range(12))
    (tmp_path / "nodes.csv").write_text(f"id,income,kind,label\n{nodes}")
    edges = "".join(f"{k},{(k + 1) % 12}\n" for k in range(12))
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}")
    return tmp_path


@pytest.fixture
def labelled(tables):
    return read_graph(tables / "edges.csv", nodes=tables / "nodes.csv")


def test_rows_of_an_encoded_table_are_not_normalised_again(labelled):
    model = Aspect(**SMALL).fit(labelled)
    assert model.config.row_normalise is False
    assert Aspect(**SMALL, row_normalise=True).fit(labelled).config.row_normalise is True
    plain = mixed_graph(num_nodes=20, num_features=4)
    assert model.fit(plain).config.row_normalise is True  # the default again
    assert model.encoder is None


def test_a_training_that_fails_leaves_the_settings(labelled, monkeypatch):
    model = Aspect(**SMALL).fit(mixed_graph(num_nodes=20, num_features=4))

    def fail(*_, **__):
        raise TrainingError("no")

    monkeypatch.setattr("aspect.estimator.model.train", fail)
    with pytest.raises(TrainingError):
        model.fit(labelled)
    assert model.config.row_normalise is True


@pytest.mark.parametrize("name", sorted(method_names()))
def test_every_method_that_normalises_rows_leaves_it_to_the_table(labelled, name):
    model = Embedder(name, device="cpu")
    model.suit(labelled)
    if "row_normalise" in find_method(name).config.model_fields:
        assert model.config.row_normalise is False


def test_benchmarks_do_the_same():
    plan = Plan(name="p", entries=("aspect",), graphs=("mixed",), settings="defaults")
    for is_encoded in (True, False):
        facts = {"mixed": ReadFacts(sha256="0" * 64, kinds=((1, None),), is_encoded=is_encoded)}
        cell, *_ = lay_out(plan, facts, "cpu")
        assert cell.spec.settings["row_normalise"] is not is_encoded


def test_a_saved_model_knows_its_encoder(tables, labelled, tmp_path):
    model = Aspect(**SMALL).fit(labelled)
    model.save(tmp_path / "m.safetensors")
    loaded = Aspect.load(tmp_path / "m.safetensors", device="cpu")
    assert loaded.encoder == labelled.graph.encoder
    (tables / "nodes.csv").write_text("id,income,kind\n0,5000,a\n1,0,b\n2,1,b\n")
    (tables / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    paths = {"nodes": tables / "nodes.csv"}
    other = read_graph(tables / "edges.csv", **paths, encoder=loaded.encoder)
    torch.testing.assert_close(
        other.graph.features[0],
        labelled.graph.features[5] * torch.tensor([1.0, 0, 0]) + torch.tensor([0.0, 1, 0]),
    )
    assert loaded.embed(other).shape == (3, model.embed(labelled).shape[1])
    with pytest.raises(GraphError, match=r"another way .*encoder=model\.encoder"):
        loaded.embed(read_graph(tables / "edges.csv", **paths, feature_scaling="none"))
    same_values = replace(other.graph, encoder=None)  # arrays of the user's own
    torch.testing.assert_close(loaded.embed(same_values), loaded.embed(other))


def test_a_damaged_encoder_is_refused(labelled, tmp_path, monkeypatch):
    model = Aspect(**SMALL).fit(labelled)
    monkeypatch.setattr(FeatureEncoder, "to_json", lambda _: {"columns": 3})
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="encoder of features"):
        Aspect.load(tmp_path / "m.safetensors")


def test_archives_keep_the_encoder(labelled, tmp_path):
    write_npz(tmp_path / "g.npz", labelled)
    graph = read_npz(tmp_path / "g.npz").graph
    assert graph.encoder == labelled.graph.encoder
    assert Aspect(**SMALL).fit(graph).config.row_normalise is False
