from __future__ import annotations

import networkx as nx
import pytest
import torch
from sklearn.metrics import roc_auc_score

from aspect import mixed_graph
from aspect.data.graph import Graph, edge_keys, pair_keys
from aspect.errors import GraphError
from aspect.evaluation import links
from aspect.evaluation.links import hold_out, link_scores, rule_scores


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=120, degree=6.0, num_features=6, seed=0).graph


def keys_of(pairs, graph):
    return set(pair_keys(*pairs, graph.num_nodes).tolist())


def test_every_edge_is_in_one_part_and_no_negative_is_an_edge(graph):
    held_out = hold_out(graph, 3)
    edges, left = set(edge_keys(graph).tolist()), set(edge_keys(held_out.graph).tolist())
    parts = [keys_of(part.edges, graph) for part in (held_out.validation, held_out.test)]
    assert left | parts[0] | parts[1] == edges
    assert len(left) + len(parts[0]) + len(parts[1]) == len(edges)
    assert len(parts[1]) == round(0.1 * len(edges))
    assert len(parts[0]) == round(0.05 * len(edges))
    assert keys_of(held_out.train.edges, graph) == left
    drawn = []
    for part in (held_out.train, held_out.validation, held_out.test):
        assert part.edges.shape == part.negatives.shape
        drawn += keys_of(part.negatives, graph)
        assert bool((part.negatives[0] != part.negatives[1]).all())
    assert len(set(drawn)) == len(drawn)
    assert not edges & set(drawn)
    assert held_out.graph.num_nodes == graph.num_nodes
    assert held_out.graph.features is graph.features


def test_the_draw_follows_from_the_seed_alone(graph):
    one, again, other = hold_out(graph, 1), hold_out(graph, 1), hold_out(graph, 2)
    assert torch.equal(one.test.both, again.test.both)
    assert not torch.equal(one.test.edges, other.test.edges)


def test_negatives_of_a_large_graph_are_drawn_not_listed(graph, monkeypatch):
    monkeypatch.setattr(links, "MOST_LISTED", 0)
    held_out = hold_out(graph)
    negatives = keys_of(held_out.test.negatives, graph) | keys_of(held_out.train.negatives, graph)
    assert not negatives & set(edge_keys(graph).tolist())
    assert len(negatives) == len(held_out.test.truth) // 2 + len(held_out.train.truth) // 2


def test_the_classifier_learns_from_a_part_of_many_edges(graph, monkeypatch):
    monkeypatch.setattr(links, "MOST_TRAINING_PAIRS", 30)
    held_out = hold_out(graph)
    assert held_out.train.edges.shape == held_out.train.negatives.shape == (2, 30)
    assert held_out.graph.num_edges > 30


def test_embeddings_that_know_the_edges_score_high_and_noise_scores_chance():
    random = torch.Generator().manual_seed(0)
    groups = torch.arange(200) // 20
    source, target = torch.triu_indices(200, 200, offset=1)
    inside = groups[source] == groups[target]
    taken = inside & (torch.rand(len(source), generator=random) < 0.5)
    graph = Graph.build(torch.ones(200, 1), torch.stack([source, target])[:, taken])
    held_out = hold_out(graph)
    good = link_scores(torch.nn.functional.one_hot(groups).float() + 0.1, held_out)
    assert min(good.roc_auc, good.cosine_roc_auc, good.average_precision) > 90
    noise = link_scores(torch.randn(200, 4, generator=random), held_out)
    assert 35 < noise.roc_auc < 65
    assert 35 < noise.cosine_average_precision < 65
    assert rule_scores(held_out)["common neighbours"].roc_auc > 90


def test_the_cosine_is_what_scikit_learn_makes_of_it(graph):
    held_out = hold_out(graph)
    z = torch.randn(120, 5, generator=torch.Generator().manual_seed(1)).double()
    one, other = held_out.test.both
    cosines = torch.cosine_similarity(z[one], z[other]).numpy()
    expected = 100 * roc_auc_score(held_out.test.truth, cosines)
    assert link_scores(z, held_out).cosine_roc_auc == pytest.approx(expected)


@pytest.mark.parametrize("power", [-90, 80])
def test_tiny_and_huge_embeddings_score_as_others(graph, power):
    held_out = hold_out(graph)
    z = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    assert link_scores(z * 2.0**power, held_out) == link_scores(z, held_out)


def test_embeddings_of_other_nodes_are_refused(graph):
    for rows in (100, 130):
        with pytest.raises(GraphError, match=rf"120 nodes of the graph\. Got {rows} rows\."):
            link_scores(torch.ones(rows, 3), hold_out(graph))


def test_a_test_edge_changes_no_choice(graph):
    """Swapped answers of the test swap the score, and nothing else: no test pair is fitted to."""
    held_out = hold_out(graph)
    swapped = links.Pairs(held_out.test.negatives, held_out.test.edges)
    other = links.HeldOut(held_out.graph, held_out.train, held_out.validation, swapped)
    z = torch.randn(120, 5, generator=torch.Generator().manual_seed(2))
    first, second = link_scores(z, held_out), link_scores(z, other)
    assert first.roc_auc == pytest.approx(100 - second.roc_auc)


def test_rules_are_those_of_networkx(graph):
    held_out = hold_out(graph)
    left = nx.Graph(held_out.graph.edge_index.t().tolist())
    left.add_nodes_from(range(120))
    pairs = held_out.test.both.t().tolist()
    truth = held_out.test.truth
    adamic = [score for *_, score in nx.adamic_adar_index(left, pairs)]
    degrees = [score for *_, score in nx.preferential_attachment(left, pairs)]
    found = rule_scores(held_out)
    assert found["common neighbours"].roc_auc == pytest.approx(100 * roc_auc_score(truth, adamic))
    assert found["degrees"].roc_auc == pytest.approx(100 * roc_auc_score(truth, degrees))


def test_graphs_with_too_few_edges_or_non_edges():
    line = torch.stack([torch.arange(9), torch.arange(1, 10)])
    with pytest.raises(GraphError, match=r"at least 11 edges: .* Got 9\."):
        hold_out(Graph.build(torch.ones(10, 1), line))
    full = torch.triu_indices(12, 12, offset=1)
    with pytest.raises(GraphError, match=r"66 here\. The graph has only 0 such pairs"):
        hold_out(Graph.build(torch.ones(12, 1), full))
