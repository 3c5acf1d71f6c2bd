import pytest
import torch
from torch.testing import assert_close

from aspect.errors import GraphError
from aspect.graph.features import dense
from aspect.graph.synthetic import HETEROPHILIC, HOMOPHILIC, mixed_graph, mixed_regions


def homophily(labelled, region):
    regions = mixed_regions(labelled.graph.num_nodes)
    source, target = labelled.graph.edge_index
    inside = (regions[source] == region) & (regions[target] == region)
    same = labelled.labels[source] == labelled.labels[target]
    return float(same[inside].double().mean())


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("purity", [0.8, 0.95])
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


def test_sizes_labels_and_names():
    labelled = mixed_graph(90, num_features=5, num_classes=3)
    assert labelled.graph.num_nodes == 90
    assert labelled.graph.num_features == 5
    assert labelled.class_names == ("0", "1", "2")
    assert torch.bincount(labelled.labels).tolist() == [30, 30, 30]


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
