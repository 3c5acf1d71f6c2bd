"""Pruning: the least supported edges go, and validation chooses how many, split by split."""

from dataclasses import replace

import pytest
import torch

from aspect.data.graph import Graph, edge_keys
from aspect.data.splits import make_splits
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import linear_probe
from aspect.evaluation.pruning import best_by_validation, edge_support, probe_pruned, prune_edges
from aspect.evaluation.result import ProbeResult

TINY = {"epochs": 2, "width": 8, "gate_width": 4, "order": 2}


@pytest.fixture
def probed():
    """Two readings of three splits, told apart by what they predict."""
    labels = torch.arange(60) % 2
    splits = make_splits("random", labels, 2, count=3)
    noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return [linear_probe(noise + way * labels[:, None], labels, splits) for way in (0.2, 1.0)]


def with_validation(result: ProbeResult, *values):
    scores = zip(result.splits, values, strict=True)
    return replace(
        result, splits=tuple(replace(score, validation=value) for score, value in scores)
    )


def test_each_split_takes_the_reading_with_the_best_validation_and_the_first_of_equals(probed):
    first = with_validation(probed[0], 70.0, 60.0, 50.0)
    second = with_validation(probed[1], 65.0, 61.0, 50.0)
    joined, chosen = best_by_validation([first, second])
    assert chosen == (0, 1, 0)
    assert joined.splits == (first.splits[0], second.splits[1], first.splits[2])
    assert torch.equal(joined.predictions[1], second.predictions[1])
    assert torch.equal(joined.predictions[2], first.predictions[2])


def test_test_scores_have_no_say(probed):
    better = replace(probed[1], splits=tuple(replace(s, strict=100.0) for s in probed[1].splits))
    level = [with_validation(result, 70.0, 70.0, 70.0) for result in (probed[0], better)]
    assert best_by_validation(level)[1] == (0, 0, 0)


def test_one_training_is_read_once_for_each_share(small_graph):
    splits = make_splits("random", small_graph.labels, 2, count=2)
    model = Embedder("aspect", device="cpu", **TINY).fit(small_graph.graph)
    shares = (0.0, 0.2, 0.4)
    found, chosen = probe_pruned(model, small_graph.graph, small_graph, splits, shares)
    by_hand = [
        linear_probe(model.embed(prune_edges(small_graph.graph, share)), small_graph.labels, splits)
        for share in shares
    ]
    expected, places = best_by_validation(by_hand)
    assert found.splits == expected.splits
    assert chosen == tuple(shares[place] for place in places)


# The support of edges


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(30, 7, generator=generator, dtype=torch.float64) - 0.3
    return Graph.build(features, torch.randint(30, (2, 90), generator=generator))


def by_hand(graph):
    """Edge by edge, with the neighbours listed."""
    unit = graph.features / graph.features.norm(dim=1, keepdim=True)
    neighbours = [set() for _ in range(graph.num_nodes)]
    for a, b in graph.edge_index.t().tolist():
        neighbours[a].add(b)
    found = []
    for key in edge_keys(graph).tolist():
        a, b = divmod(key, graph.num_nodes)
        one = sum((unit[k] for k in neighbours[a] - {b}), unit[a])
        other = sum((unit[k] for k in neighbours[b] - {a}), unit[b])
        found.append(torch.cosine_similarity(one, other, dim=0))
    return torch.stack(found)


def test_support_is_the_cosine_of_neighbourhoods_without_the_edge(graph, monkeypatch):
    monkeypatch.setattr("aspect.evaluation.pruning.EDGES_AT_ONCE", 7)  # in pieces
    torch.testing.assert_close(edge_support(graph), by_hand(graph))
    scaled = Graph.build(graph.features * torch.arange(1, 31).unsqueeze(1), graph.edge_index)
    torch.testing.assert_close(edge_support(scaled), edge_support(graph))
    features = graph.features * (graph.features > 0.5)  # few entries: kept in compressed rows
    sparse = Graph.build(features, graph.edge_index)
    assert not isinstance(sparse.features, torch.Tensor)
    plain = Graph(features, sparse.edge_index)
    torch.testing.assert_close(edge_support(sparse), edge_support(plain))


def test_an_edge_between_groups_has_the_least_support_and_goes_first():
    features = torch.eye(2).repeat_interleave(4, dim=0)
    pairs = [(a, b) for first in (0, 4) for a in range(first, first + 4) for b in range(a)]
    inside = torch.tensor([pair for pair in pairs if pair[1] >= (0 if pair[0] < 4 else 4)]).t()
    whole = Graph.build(features, torch.cat([inside, torch.tensor([[0], [7]])], dim=1))
    assert int(edge_support(whole).argmin()) == int((edge_keys(whole) == 7).nonzero())
    left = prune_edges(whole, 1 / whole.num_edges)
    assert torch.equal(left.edge_index, Graph.build(features, inside).edge_index)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.97])
def test_the_share_is_met_and_the_rest_keeps_its_order(graph, share):
    left = prune_edges(graph, share)
    assert torch.equal(left.edge_index, prune_edges(graph, share, edge_support(graph)).edge_index)
    assert left.num_edges == graph.num_edges - round(share * graph.num_edges)
    assert torch.equal(left.edge_index, Graph.build(graph.features, left.edge_index).edge_index)
    kept = torch.isin(edge_keys(graph), edge_keys(left))
    support = edge_support(graph)
    if not bool(kept.all()):
        assert support[~kept].max() <= support[kept].min()


def test_edges_that_are_level_stay_together(graph):
    alike = Graph.build(torch.ones(30, 2), graph.edge_index)
    assert torch.equal(prune_edges(alike, 0.3).edge_index, graph.edge_index)


def test_the_order_of_nodes_decides_nothing(graph):
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    place = torch.argsort(order)
    other = Graph.build(graph.features[order], place[graph.edge_index])
    left, expected = prune_edges(other, 0.2), prune_edges(graph, 0.2)
    pairs = {frozenset(order[pair].tolist()) for pair in left.edge_index.t()}
    assert pairs == {frozenset(pair.tolist()) for pair in expected.edge_index.t()}


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_what_is_no_share_is_refused(graph, share):
    with pytest.raises(SettingsError, match="at least 0 and below 1"):
        prune_edges(graph, share)


def test_a_graph_without_edges_or_features_is_no_trouble():
    empty = Graph.build(torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long))
    assert len(edge_support(empty)) == 0
    assert prune_edges(empty, 0.5).num_edges == 0
    dark = Graph.build(torch.zeros(3, 2), torch.tensor([[0, 1], [1, 2]]))
    assert torch.equal(edge_support(dark), torch.zeros(2))
