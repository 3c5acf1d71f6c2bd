"""The score `paths` against dense products and paths listed one by one."""

import networkx
import pytest
import torch

from aspect.attacks.base import apply_flips
from aspect.attacks.paths import Paths
from aspect.attacks.purification import auto_ratio, edge_scores, prune_edges, scored_parts
from aspect.data.graph import Graph, edge_keys


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    return Graph.build(torch.ones(25, 2), torch.randint(24, (2, 80), generator=generator))


def listed(graph, low, high):
    """Path by path, in the graph without the pair's own edge."""
    whole = networkx.Graph()
    whole.add_nodes_from(range(graph.num_nodes))
    whole.add_edges_from(graph.edge_index.t().tolist())
    rest = whole.copy()
    if rest.has_edge(low, high):
        rest.remove_edge(low, high)
    return sum(
        1 / (whole.degree(a) * whole.degree(b))
        for a in rest[low]
        for b in rest[a]
        if a != high and b != low and rest.has_edge(b, high)
    )


def test_paths_are_those_that_can_be_listed(graph, monkeypatch):
    expected = [listed(graph, *divmod(key, 25)) for key in edge_keys(graph).tolist()]
    expected = torch.tensor(expected, dtype=torch.float64)
    assert expected.max() > 0
    torch.testing.assert_close(edge_scores(graph, "paths"), expected)
    monkeypatch.setattr("aspect.attacks.paths.NUMBERS_AT_ONCE", 70)  # in pieces
    torch.testing.assert_close(edge_scores(graph, "paths"), expected)


def test_few_walks_are_held_at_once(graph, monkeypatch):
    monkeypatch.setattr("aspect.attacks.paths.NUMBERS_AT_ONCE", 1000)
    walks, rows, parts, two_steps = [], [], Paths._parts, Paths._two_steps

    def counted_parts(self, low, high):
        for part in parts(self, low, high):
            walks.append(int(graph.degrees()[high[part]].sum()))
            yield part

    def counted_rows(self, starts):
        found = two_steps(self, starts)
        rows.append(found.size)
        return found

    monkeypatch.setattr(Paths, "_parts", counted_parts)
    monkeypatch.setattr(Paths, "_two_steps", counted_rows)
    paths, nodes = Paths.of(graph), torch.arange(25)
    edge_scores(graph, "paths")
    block = paths.block(nodes)
    assert block.is_contiguous()  # or torch warns when ranks are looked up
    low, high = torch.triu_indices(25, 25, offset=1)
    absent = ~torch.isin(low * 25 + high, edge_keys(graph))
    torch.testing.assert_close(paths.scores(low, high)[absent], block[low, high][absent])
    most = int(graph.degrees().max())
    assert 4 * sum(walks) > 3 * 1000
    assert max(walks) <= 1000 // 4 + most
    assert max(rows) <= 1000 + 25


def test_a_pair_has_the_score_that_its_edge_would_have(graph):
    pairs = torch.combinations(torch.arange(25))
    joined = torch.isin(pairs[:, 0] * 25 + pairs[:, 1], edge_keys(graph))
    found = Paths.of(graph).scores(pairs[:, 0], pairs[:, 1])
    torch.testing.assert_close(found[joined], edge_scores(graph, "paths"))
    for place in (~joined).nonzero().flatten()[:40].tolist():
        added = apply_flips(graph, pairs[place][None])
        key = pairs[place, 0] * 25 + pairs[place, 1]
        torch.testing.assert_close(
            found[place], edge_scores(added, "paths")[edge_keys(added) == key][0]
        )


def test_the_mean_is_that_of_all_pairs(graph):
    pairs = torch.combinations(torch.arange(25))
    paths = Paths.of(graph)
    expected = float(paths.scores(pairs[:, 0], pairs[:, 1]).mean())
    assert paths.mean() == pytest.approx(expected, rel=1e-12)


def test_an_edge_between_two_groups_of_twins_goes_first():
    """Two complete bipartite graphs, without a triangle, and an edge between them."""
    pairs = [
        (a, b)
        for first in (0, 8)
        for a in range(first, first + 4)
        for b in range(first + 4, first + 8)
    ]
    whole = Graph.build(torch.ones(16, 1), torch.tensor([*pairs, (0, 15)]).t())
    left = prune_edges(whole, 1 / whole.num_edges, edge_scores(whole, "paths"))
    assert torch.equal(
        left.edge_index, Graph.build(torch.ones(16, 1), torch.tensor(pairs).t()).edge_index
    )


def test_a_graph_without_edges_is_no_trouble():
    empty = Graph.build(torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long))
    assert len(edge_scores(empty, "paths")) == 0
    assert Paths.of(empty).mean() == 0.0
    assert auto_ratio(scored_parts(empty, "paths")) == 0.0
