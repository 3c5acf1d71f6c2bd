"""Budgets: a share of the edges becomes a number of flips, or a sentence."""

import math

import pytest
import torch

from aspect.attacks.budget import flips_within, least_share
from aspect.data.graph import Graph
from aspect.errors import GraphError, SettingsError


@pytest.fixture
def ring():
    nodes = torch.arange(20)
    return Graph.build(torch.rand(20, 3), torch.stack([nodes, nodes.roll(1)]))


@pytest.mark.parametrize(("share", "count"), [(0.05, 1), (0.1, 2), (0.12, 2), (1.0, 20)])
def test_a_share_counts_undirected_edges(ring, share, count):
    assert ring.num_edges == 20
    assert flips_within(share, ring) == count


@pytest.mark.parametrize("share", [0.0, -0.1, 1.2, float("nan")])
def test_what_is_no_share_is_refused(ring, share):
    with pytest.raises(SettingsError, match=r"share in \(0, 1\]"):
        flips_within(share, ring)


def test_a_budget_that_rounds_to_nothing_is_refused(ring):
    with pytest.raises(SettingsError, match=r"0\.01 allows no flip of 20 edges.*0\.026 or more"):
        flips_within(0.01, ring)
    assert flips_within(0.026, ring) == 1


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 20, 50, 333, 5278, 198_353])
def test_the_share_that_is_offered_allows_one_flip(count):
    share = least_share(count)
    assert share == float(f"{share:g}") == float(f"{share:.2g}")
    assert round(share * count) == 1
    assert round((share - 10 ** math.floor(math.log10(share) - 1)) * count) == 0


def test_a_graph_without_edges_is_refused():
    graph = Graph.build(torch.rand(3, 2), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match="the graph has none"):
        flips_within(0.5, graph)
