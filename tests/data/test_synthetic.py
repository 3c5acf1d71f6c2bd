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


def homophily(labelled, regions, region):
    source, target = labelled.graph.edge_index
    inside = (regions[source] == region) & (regions[target] == region)
    same = labelled.labels[source] == labelled.labels[target]
    return float(same[inside].double().mean())


@pytest.mark.parametrize(
    ("num_classes", "purity", "share", "count"),
    [(2, 0.9, 0.0, 0), (4, 0.95, 0.5, 400), (2, 0.8, 0.9, 720)],
)
def test_one_region_joins_equals_the_other_unequals(num_classes, purity, share, count):
    options = {"purity": purity, "num_classes": num_classes, "share": share}
    labelled = mixed_graph(800, degree=12.0, bridges=0.2, seed=1, **options)
    regions = mixed_regions(800, share)
    assert int(regions.sum()) == count
    assert bool((regions.diff() >= 0).all())
    assert homophily(labelled, regions, HOMOPHILIC) == pytest.approx(purity, abs=0.04)
    if count:
        assert homophily(labelled, regions, HETEROPHILIC) == pytest.approx(1 - purity, abs=0.04)
    source, target = labelled.graph.edge_index
    crossing = float((regions[source] != regions[target]).double().mean())
    assert crossing == pytest.approx(0.2 * 4 * share * (1 - share), abs=0.02)
    assert 2 * labelled.graph.num_edges / 800 == pytest.approx(12, rel=0.1)


def test_class_means_stand_at_the_signal_and_the_noise_is_standard():
    labelled = mixed_graph(2000, degree=2.0, signal=3.0, num_features=16, seed=2)
    x = dense(labelled.graph.features)
    means = torch.stack([x[labelled.labels == name].mean(0) for name in range(2)])
    assert_close(means.norm(dim=1), torch.full((2,), 3.0), rtol=0.05, atol=0)
    noise = x - means[labelled.labels]
    assert float(noise.std()) == pytest.approx(1, rel=0.02)


def test_the_seed_decides_everything_and_no_other_generator_is_used():
    before = torch.random.get_rng_state()
    first, again, other = (mixed_graph(60, seed=seed).graph for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.edge_index, again.edge_index)
    assert_close(dense(first.features), dense(again.features), rtol=0, atol=0)
    assert not torch.equal(dense(first.features), dense(other.features))


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


def test_the_embedded_graph_has_three_classes_in_two_halves():
    labelled, regions = embedded_graph(), mixed_regions(900)
    assert torch.bincount(labelled.labels).tolist() == [300, 300, 300]
    assert homophily(labelled, regions, HOMOPHILIC) == pytest.approx(0.7, abs=0.03)
    assert homophily(labelled, regions, HETEROPHILIC) == pytest.approx(0.3, abs=0.03)


def test_what_is_refused():
    with pytest.raises(GraphError, match=r"at least 8 nodes\. Got 7"):
        mixed_graph(7)
    for share in (1.1, float("nan")):
        with pytest.raises(GraphError, match=r"must lie in \[0, 1\]\. Got"):
            mixed_graph(20, share=share)
