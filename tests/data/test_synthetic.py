import hashlib

import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.synthetic import (
    HETEROPHILIC,
    HOMOPHILIC,
    embedded_graph,
    mixed_graph,
    mixed_regions,
)
from aspect.errors import GraphError


def homophily(labelled, region):
    regions = mixed_regions(labelled.graph.num_nodes)
    source, target = labelled.graph.edge_index
    inside = (regions[source] == region) & (regions[target] == region)
    same = labelled.labels[source] == labelled.labels[target]
    return float(same[inside].double().mean())


@pytest.mark.parametrize(("num_classes", "purity"), [(2, 0.8), (4, 0.95)])
def test_one_half_joins_equals_the_other_unequals(num_classes, purity):
    labelled = mixed_graph(800, degree=12.0, purity=purity, num_classes=num_classes, seed=1)
    assert homophily(labelled, HOMOPHILIC) == pytest.approx(purity, abs=0.03)
    assert homophily(labelled, HETEROPHILIC) == pytest.approx(1 - purity, abs=0.03)


@pytest.mark.parametrize("bridges", [0.0, 0.05, 0.3])
def test_the_share_of_edges_between_the_halves_is_as_asked(bridges):
    graph = mixed_graph(800, degree=12.0, bridges=bridges).graph
    regions = mixed_regions(800)
    assert regions.sum() == 400
    across = regions[graph.edge_index[0]] != regions[graph.edge_index[1]]
    assert float(across.double().mean()) == pytest.approx(bridges, abs=0.02)
    assert bool(across.any()) == (bridges > 0)


def test_mean_degree_is_as_asked():
    graph = mixed_graph(1000, degree=8.0).graph
    assert 2 * graph.num_edges / graph.num_nodes == pytest.approx(8, rel=0.1)


def test_class_means_stand_at_the_signal_and_the_noise_is_standard():
    labelled = mixed_graph(4000, degree=2.0, signal=3.0, num_features=16, seed=2)
    x = dense(labelled.graph.features)
    means = torch.stack([x[labelled.labels == name].mean(0) for name in range(2)])
    assert_close(means.norm(dim=1), torch.full((2,), 3.0), rtol=0.05, atol=0)
    noise = x - means[labelled.labels]
    assert float(noise.std()) == pytest.approx(1, rel=0.02)


def test_the_seed_decides_everything():
    first, again, other = (mixed_graph(60, seed=seed).graph for seed in (3, 3, 4))
    assert torch.equal(first.edge_index, again.edge_index)
    assert_close(dense(first.features), dense(again.features), rtol=0, atol=0)
    assert not torch.equal(dense(first.features), dense(other.features))


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    mixed_graph(40)
    assert torch.equal(before, torch.random.get_rng_state())


def test_too_few_nodes_are_refused():
    with pytest.raises(GraphError, match=r"at least 8 nodes\. Got 7"):
        mixed_graph(7)


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ({}, "44d5e82bf0e60b0c"),
        (
            {"num_nodes": 61, "num_classes": 3, "seed": 4, "bridges": 0.2, "purity": 0.9},
            "caeaf506e5a79428",
        ),
    ],
)
def test_equal_shares_give_the_graph_of_the_first_version(options, digest):
    """Runs and results of before shares existed remain those of this graph."""
    edges = mixed_graph(**options).graph.edge_index
    assert torch.equal(edges, mixed_graph(**options, share=0.5).graph.edge_index)
    assert hashlib.sha256(edges.contiguous().numpy().tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("share", "count"), [(0.0, 0), (0.1, 80), (0.25, 200), (0.9, 720), (1.0, 800)]
)
def test_the_share_of_heterophilic_nodes_is_as_asked(share, count):
    labelled = mixed_graph(800, purity=0.9, share=share, seed=1)
    regions = mixed_regions(800, share)
    assert int(regions.sum()) == count
    assert bool((regions.diff() >= 0).all())
    source, target = labelled.graph.edge_index
    same = (labelled.labels[source] == labelled.labels[target]).double()
    for region, expected in ((HOMOPHILIC, 0.9), (HETEROPHILIC, 0.1)):
        inside = (regions[source] == region) & (regions[target] == region)
        if bool(inside.any()):
            assert float(same[inside].mean()) == pytest.approx(expected, abs=0.04)
    assert 2 * labelled.graph.num_edges / 800 == pytest.approx(12, rel=0.1)


def test_bridges_are_fewer_where_one_region_is_small():
    crossing = {}
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        regions = mixed_regions(800, share)
        source, target = mixed_graph(800, share=share, bridges=0.2).graph.edge_index
        crossing[share] = float((regions[source] != regions[target]).double().mean())
    assert crossing[0.0] == crossing[1.0] == 0
    for share in (0.1, 0.5, 0.9):
        assert crossing[share] == pytest.approx(0.2 * 4 * share * (1 - share), abs=0.02)


@pytest.mark.parametrize("num_nodes", [8, 9, 61, 63])
def test_halves_of_odd_graphs_are_those_of_the_first_version(num_nodes):
    expected = (torch.arange(num_nodes) >= num_nodes // 2).long()
    assert torch.equal(mixed_regions(num_nodes), expected)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_shares_that_are_none_are_refused(share):
    with pytest.raises(GraphError, match=r"must lie in \[0, 1\]\. Got"):
        mixed_graph(20, share=share)


def test_the_embedded_graph_has_three_classes_in_two_halves():
    labelled, again = embedded_graph(), embedded_graph()
    assert torch.equal(labelled.graph.edge_index, again.graph.edge_index)
    assert torch.bincount(labelled.labels).tolist() == [300, 300, 300]
    assert homophily(labelled, HOMOPHILIC) == pytest.approx(0.7, abs=0.03)
    assert homophily(labelled, HETEROPHILIC) == pytest.approx(0.3, abs=0.03)
