"""What ASPECT-S says of its cost beforehand, against counts by hand and against the clock."""

import statistics
import time

import pytest
import torch

from aspect import Aspect, Embedder, mixed_graph
from aspect.attacks.projected_ascent import draw_edges, draw_entries
from aspect.data.datasets import load_named
from aspect.methods import aspect_s_cost
from aspect.methods.aspect_s import AspectSMethod
from aspect.methods.aspect_s_config import AspectSConfig
from aspect.methods.aspect_s_cost import Outlay, outlay_of
from aspect.methods.base import Step
from aspect.methods.registry import method_names
from attacks.searches import BASE, generator, make, small_graph

NODES = 24  # of the small graph


def outlay(**changes):
    graph = small_graph()
    return outlay_of(AspectSConfig(**BASE | changes), graph, 2, None)


@pytest.mark.parametrize("epochs", [0, 4, 5, 6, 7, 40])
@pytest.mark.parametrize("warm_up", [0, 5])
@pytest.mark.parametrize("interval", [1, 3])
def test_searches_are_counted_as_they_are_due(epochs, warm_up, interval):
    changes = {"epochs": epochs, "warm_up": warm_up, "interval": interval}
    method = make(small_graph(), **changes)
    due = sum(method.is_due(epoch) for epoch in range(1, epochs + 1))
    assert outlay(**changes).searches == due


@pytest.mark.parametrize("candidates", [0.0, 0.5, 2.0])
def test_pairs_and_entries_are_those_that_are_drawn(candidates):
    graph = mixed_graph(num_nodes=200, degree=4.0, num_features=16).graph
    config = AspectSConfig(candidates=candidates, feature_budget=0.2)
    found = outlay_of(config, graph, 2, None)
    others = round(candidates * graph.num_edges)
    drawn = draw_edges(graph, others, generator(), self_loops=True)
    assert len(drawn.keys) <= found.pairs
    assert found.pairs == pytest.approx(len(drawn.keys), rel=0.05)
    assert found.entries == draw_entries(graph.features, 0.2, generator()).count


def test_there_are_no_more_pairs_than_a_graph_has():
    assert outlay(candidates=100.0).pairs == NODES * (NODES - 1) // 2


def test_products_are_counted(monkeypatch):
    """By hand, with nothing but similarities: they alone grow with the square of the nodes."""
    monkeypatch.setattr(aspect_s_cost, "SPARSE", 0)
    monkeypatch.setattr(aspect_s_cost, "ENTRY", 0)
    monkeypatch.setattr(aspect_s_cost._Count, "_encoding", lambda _: 0)
    # Three contrasts, a product forth and two back; a step has two, of which one goes back.
    changes = {"order": 1, "width": 10**6, "channel_weight": 1.0, "draws": 3}
    steps = outlay(**changes, perturbation_steps=4)
    contrast = NODES * NODES
    combined = 2 * 2 * NODES
    look = 2 * contrast + combined
    back = 2 * contrast + combined
    expected = (4 * (look + back) + 4 * look + 2 * 3 * contrast) / (3 * 3 * contrast)
    assert steps.search_factor == pytest.approx(1 + expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation_steps": 5},
        {"draws": 4},
        {"candidates": 2.0},
        {"interval": 1, "warm_up": 0, "epochs": 7},
        {"channel_weight": 0.0},  # ASPECT's own epoch is cheaper
    ],
)
def test_what_costs_more_is_said_to(changes):
    base = {"interval": 2, "warm_up": 2, "epochs": 7, "channel_weight": 1.0}
    assert outlay(**base | changes).epoch_factor(7) > outlay(**base).epoch_factor(7)


@pytest.mark.parametrize(
    "changes",
    [{"discretisation": "largest"}, {"stability_weight": 0.0}, {"sensitivity_weight": 0.0}],
)
def test_what_costs_less_is_not_said_to_cost_more(changes):
    assert outlay(**changes).search_factor <= outlay().search_factor


def test_an_average_epoch_is_between_a_plain_one_and_one_with_a_search():
    found = Outlay(searches=3, pairs=1, entries=1, search_factor=5.0, bytes=0)
    assert found.epoch_factor(12) == 2.0
    assert found.epoch_factor(3) == 5.0


def told(graph, **settings):
    return Aspect(stable=True, device="cpu", **settings).outlook(graph)


def test_the_user_is_told_what_the_searches_take():
    graph = mixed_graph(num_nodes=60, degree=4.0, num_features=6)
    settings = {"width": 8, "epochs": 40, "warm_up": 10, "interval": 10, "perturbation_steps": 4}
    (sentence,) = told(graph, **settings)
    edges = graph.graph.num_edges
    start = "ASPECT-S searches for harmful changes in 3 of 40 epochs, 4 steps over up to "
    assert sentence.startswith(f"{start}{2 * edges:,} pairs and 36 feature entries: ")
    assert "times as long as one of ASPECT" in sentence
    assert "MB more memory." in sentence
    assert "in at most 3 of 40" in told(graph, **settings, patience=5)[0]


@pytest.mark.parametrize("settings", [{"epochs": 20}, {"epochs": 0}, {"epochs": 29}])
def test_the_user_is_warned_where_no_search_is_ever_due(settings):
    graph = mixed_graph(num_nodes=60, degree=4.0, num_features=6)
    (sentence,) = told(graph, width=8, warm_up=20, interval=10, **settings)
    assert sentence.startswith("ASPECT-S will never search, which makes this plain ASPECT: ")
    assert f"warm_up is 20 and interval 10, but epochs only {settings['epochs']}." in sentence


def test_other_methods_have_nothing_to_announce():
    graph = mixed_graph(num_nodes=60, degree=4.0, num_features=6)
    silent = [name for name in method_names() if name != "aspect-s"]
    assert [Embedder(name, device="cpu").outlook(graph) for name in silent] == [()] * len(silent)


def measured(graph, config):
    """Processor time of an epoch with a search over that of one without; they take turns."""
    method = AspectSMethod(config, graph.num_features).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-4)

    def seconds(epoch):
        start = time.process_time()
        terms = method.loss_terms(graph, Step(epoch, generator(epoch)))
        optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimiser.step()
        return time.process_time() - start

    rounds = [(seconds(1), seconds(2)) for _ in range(4)][1:]
    plain, searching = (statistics.median(times) for times in zip(*rounds, strict=True))
    return searching / plain


def graphs():
    yield pytest.param(lambda: mixed_graph().graph, id="mixed")
    yield pytest.param(lambda: load_named("cora").graph, id="cora", marks=pytest.mark.data)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make_graph", [*graphs()])
def test_the_count_is_within_a_factor_of_the_clock(make_graph):
    """Processor time of one thread, which does not depend on what else the machine does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        graph = make_graph().to(torch.float32)
        config = AspectSConfig(warm_up=0, interval=2, epochs=2)
        counted = outlay_of(config, graph, 2, None).search_factor
        ratio = counted / measured(graph, config)
        assert max(ratio, 1 / ratio) < 1.5
    finally:
        torch.set_num_threads(threads)
