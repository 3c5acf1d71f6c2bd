"""Models that prune: trained on a pruned graph, and every graph is pruned by the same rule."""

import pytest
import torch
from sklearn.base import clone

from aspect import Aspect, Embedder
from aspect.attacks.pruning import Pruning
from aspect.attacks.purification import prune_edges, purify
from aspect.data.synthetic import mixed_graph
from aspect.data.tensors import read_tensors
from aspect.errors import CheckpointError, GraphError, SettingsError

TINY = {"epochs": 2, "width": 8, "gate_width": 4, "order": 2}


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=60, seed=0).graph


@pytest.mark.parametrize(
    ("method", "settings"), [("aspect", TINY), ("grace", {"epochs": 2}), ("propagated", {})]
)
def test_a_model_that_prunes_is_one_of_the_pruned_graph(graph, method, settings):
    model = Embedder(method, device="cpu", prune=0.2, **settings).fit(graph)
    pruned = prune_edges(graph, 0.2)
    plain = Embedder(method, device="cpu", **settings).fit(pruned)
    assert model.as_seen(graph).num_edges == pruned.num_edges < graph.num_edges
    assert torch.equal(model.embed(graph), plain.embed(pruned))
    other = mixed_graph(num_nodes=50, seed=1).graph
    assert torch.equal(model.embed(other), plain.embed(prune_edges(other, 0.2)))


def test_without_pruning_nothing_changes(graph, tmp_path):
    plain = Aspect(device="cpu", **TINY).fit(graph)
    for off in (None, 0):
        model = Aspect(device="cpu", prune=off, **TINY).fit(graph)
        assert model.as_seen(graph) is graph
        assert torch.equal(model.embed(graph), plain.embed(graph))
        for name, each in (("plain", plain), ("off", model)):
            each.save(tmp_path / name)
        assert (tmp_path / "plain").read_bytes() == (tmp_path / "off").read_bytes()


def test_a_saved_model_prunes_by_the_same_rule(graph, tmp_path):
    how = Pruning(ratio="auto", score="features", rounds=2)
    model = Aspect(device="cpu", prune=how, **TINY).fit(graph)
    model.save(tmp_path / "model")
    assert read_tensors(tmp_path / "model")[1]["prune"] == {
        "ratio": "auto",
        "score": "features",
        "rounds": 2,
        "soft": False,
    }
    for kind in (Aspect, Embedder):
        loaded = kind.load(tmp_path / "model", device="cpu")
        assert loaded.prune == how
        assert loaded.as_seen(graph).num_edges == purify(graph, how).num_edges
        assert torch.equal(loaded.embed(graph), model.embed(graph))


def test_a_method_of_one_graph_knows_it_pruned(graph, tmp_path):
    model = Embedder("spectral", device="cpu", prune=0.1, components=4).fit(graph)
    model.save(tmp_path / "model")
    loaded = Embedder.load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.embed(graph), model.embed(graph))
    with pytest.raises(GraphError, match="not trained on"):
        loaded.embed(prune_edges(graph, 0.5))


def test_soft_weights_reach_the_method(graph):
    model = Embedder("propagated", device="cpu", prune={"ratio": 0.3, "soft": True}).fit(graph)
    plain = Embedder("propagated", device="cpu").fit(graph)
    assert model.as_seen(graph).weights is not None
    assert not torch.equal(model.embed(graph), plain.embed(graph))


def test_pruning_is_an_argument_like_others():
    model = Aspect(device="cpu", prune="auto", **TINY)
    assert model.get_params()["prune"] == "auto"
    assert "prune='auto'" in repr(model)
    assert clone(model).prune == Pruning(ratio="auto")
    assert model.set_params(prune=None).prune is None
    with pytest.raises(SettingsError, match=r"or auto\. Got 2"):
        Aspect(prune=2)


def test_a_file_with_a_pruning_that_is_unknown_is_refused(graph, tmp_path, monkeypatch):
    model = Aspect(device="cpu", prune=0.1, **TINY).fit(graph)
    monkeypatch.setattr(Pruning, "to_json", lambda _: {"ratio": 0.1, "score": "other"})
    model.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="edge score 'other'"):
        Aspect.load(tmp_path / "model", device="cpu")
