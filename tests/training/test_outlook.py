"""Estimates from trial epochs: what is said, and that nothing else changes."""

import pytest
import torch

from aspect import Aspect, Embedder, mixed_graph
from aspect.methods.base import Method
from aspect.methods.registry import method_names
from aspect.training import outlook
from aspect.training.outlook import Estimate, estimate

SMALL = {"device": "cpu", "width": 8, "epochs": 20}


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=40, num_features=4, seed=0).graph


@pytest.fixture
def everything_is_told(monkeypatch):
    monkeypatch.setattr(outlook, "WORTH_TELLING", 0.0)


def built(name="grace", **settings):
    model = Embedder(name, device="cpu", **settings)
    return model.untrained(4)


def told(seconds, name="grace", *, nodes=5000, said="", device="cpu", **settings):
    expected = Estimate(
        epochs=100,
        nodes=nodes,
        seconds=seconds,
        bytes=1_500_000_000,
        device=device,
        may_stop_early=settings.get("patience") is not None,
    )
    return list(expected.sentences(built(name, **settings), said))


def test_time_and_memory_are_told_unless_it_is_short():
    assert told(9) == []
    assert told(150) == [
        "100 epochs will take about 2 min and 1.5 GB of memory on the CPU, by 2 trial epochs."
    ]
    (sentence,) = told(150, patience=5, device="cuda")
    assert "will take at most about 2 min and 1.5 GB of memory on the GPU" in sentence


def test_beyond_ten_minutes_there_is_advice():
    assert len(told(600)) == 1
    _, advice = told(601, "aspect")
    assert advice == (
        "That is long. Faster: negatives=1000, a lower width or order, fewer epochs, a GPU, "
        "batches of rows (--scale rows), "
        "a method of linear cost such as ggd."
    )
    assert "a GPU" not in told(601, "aspect", device="cuda")[1]
    assert "linear" not in told(601, "bgrl")[1]
    assert "negatives" not in told(601, "aspect", nodes=1000)[1]
    assert "negatives" not in told(601, "aspect", said="negatives=5000 takes all of them.")[1]
    assert "negatives" not in told(601, "aspect", negatives=50)[1].partition("a lower")[0]
    assert "a batch_size" in told(601, "greet")[1]


def test_the_example_of_a_linear_method_is_one():
    assert outlook.LINEAR in method_names()
    assert built(outlook.LINEAR).cost == "linear"


def test_an_estimate_is_the_second_epochs_time_for_all(graph, monkeypatch):
    method = built("grace", width=8, epochs=50)
    monkeypatch.setattr(outlook, "try_epochs", lambda *_, **__: [9.0, 2.0])
    monkeypatch.setattr(type(method), "epoch_factor", lambda *_: 1.5)
    expected = estimate(method, graph, seed=0)
    assert (expected.epochs, expected.seconds, expected.device) == (50, 150.0, "cpu")
    assert expected.bytes > 1e7


def test_searches_of_aspect_s_count(graph):
    settings = {"width": 8, "epochs": 40, "warm_up": 5, "interval": 5}
    method = built("aspect-s", **settings)
    assert method.epoch_factor(graph) == method.search_cost(graph).epoch_factor > 1
    assert built("aspect", width=8).epoch_factor(graph) == 1


@pytest.mark.parametrize("settings", [{"epochs": 19}, {"epochs": 20, "name": "raw"}])
def test_short_trainings_and_none_have_no_trial(graph, settings, monkeypatch):
    monkeypatch.setattr(outlook, "try_epochs", lambda *_, **__: pytest.fail("no trial"))
    name = settings.pop("name", "grace")
    assert estimate(built(name, **settings), graph, seed=0) is None


@pytest.mark.usefixtures("everything_is_told")
@pytest.mark.parametrize("name", ["aspect", "bgrl", "hlcl", "graphcl"])
def test_a_training_after_an_estimate_is_the_same_bit_for_bit(graph, name):
    model = Embedder(name, **SMALL)
    plain = Embedder(name, **SMALL).fit(graph).embed(graph)
    before = torch.get_rng_state()
    sentence = model.outlook(graph)[-1]
    assert sentence.startswith("20 epochs will take about 0 s") or "about" in sentence
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.is_fitted
    assert torch.equal(model.fit(graph).embed(graph), plain)


def test_what_the_training_will_refuse_is_left_to_it(graph, monkeypatch):
    model = Aspect(**SMALL)
    monkeypatch.setattr(Method, "prepare", lambda *_: (_ for _ in ()).throw(MemoryError))
    assert model.outlook(graph) == ()
