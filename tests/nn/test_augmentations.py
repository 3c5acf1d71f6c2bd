import pytest
import torch
from torch.testing import assert_close

from aspect.nn.augmentations import (
    column_mask,
    edge_weights,
    entry_weights,
    exact_mask,
    isolate_nodes,
    weighted_mask,
)
from reference.graphs import random_graph

GRAPH = random_graph(num_nodes=400, num_edges=20_000, num_features=2)


def draw_edges(rate, generator):
    return edge_weights(GRAPH, rate, generator)


def draw_columns(rate, generator):
    return column_mask(20_000, rate, generator, torch.float64)


either = pytest.mark.parametrize("draw", [draw_edges, draw_columns], ids=["edges", "columns"])


@either
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_weighs_one(draw, rate):
    weights = draw(rate, torch.Generator().manual_seed(0))
    assert weights.shape == (GRAPH.num_edges if draw is draw_edges else 20_000,)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    deviation = (rate * (1 - rate) / len(weights)) ** 0.5
    assert abs(float((weights == 0).double().mean()) - rate) < 5 * deviation


@either
def test_rate_zero_draws_nothing(draw):
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert draw(0.0, generator) is None
    assert torch.equal(generator.get_state(), before)


@either
def test_type_and_repetition(draw):
    one, again = (draw(0.3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert one.dtype == GRAPH.dtype == torch.float64
    assert_close(one, again, rtol=0, atol=0)


def test_directions_are_decided_apart():
    graph = random_graph(num_nodes=200, num_edges=3000)
    weights = entry_weights(graph, 0.3, torch.Generator().manual_seed(0))
    entries = graph.edge_index.shape[1]
    assert abs(float((weights == 0).double().mean()) - 0.3) < 5 * (0.21 / entries) ** 0.5
    dense = torch.zeros(200, 200)
    dense[tuple(graph.edge_index[:, weights.bool()])] = 1
    one_way = (dense != dense.t()).sum() / 2
    # Of independent directions a share of 2 * 0.3 * 0.7 is cut on one side.
    expected, spread = 0.42 * graph.num_edges, (0.42 * 0.58 * graph.num_edges) ** 0.5
    assert abs(float(one_way) - expected) < 5 * spread
    assert entry_weights(graph, 0.0, torch.Generator()) is None


@pytest.mark.parametrize(
    ("count", "rate", "zeros"), [(10, 0.2, 2), (11, 0.2, 2), (7, 0.0, 0), (5, 1.0, 5), (3, 0.3, 0)]
)
def test_exact_masks_have_exactly_so_many_zeros(count, rate, zeros):
    for seed in range(5):
        mask = exact_mask(count, rate, torch.Generator().manual_seed(seed), torch.float64)
        assert int((mask == 0).sum()) == zeros
        assert int((mask == 1).sum()) == count - zeros


def test_exact_masks_are_uniform():
    generator = torch.Generator().manual_seed(0)
    masks = torch.stack([exact_mask(8, 0.25, generator, torch.float64) for _ in range(4000)])
    spread = (0.25 * 0.75 / 4000) ** 0.5
    assert float(((masks == 0).double().mean(0) - 0.25).abs().max()) < 5 * spread


def test_each_is_dropped_with_its_own_probability():
    drop = torch.tensor([0.0, 0.1, 0.5, 0.7, 1.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    kept = torch.stack([weighted_mask(drop, generator) for _ in range(4000)])
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert bool(kept[:, 0].all())
    assert not bool(kept[:, 4].any())
    assert_close(1 - kept.mean(0), drop, rtol=0, atol=5 * 0.5 / 4000**0.5)


def test_isolated_nodes_lose_all_edges_and_others_none_but_theirs():
    graph = random_graph(num_nodes=60, num_edges=200)
    weights = isolate_nodes(graph, 0.3, torch.Generator().manual_seed(0))
    dense = torch.zeros(60, 60, dtype=torch.float64)
    dense[tuple(graph.edge_index)] = weights
    assert_close(dense, dense.t())
    full = torch.zeros(60, 60, dtype=torch.float64)
    full[tuple(graph.edge_index)] = 1
    gone = (dense.sum(1) == 0) & (full.sum(1) > 0)
    assert 5 < int(gone.sum()) < 40
    expected = full * ~gone[:, None] * ~gone[None, :]
    assert_close(dense, expected)
    assert isolate_nodes(graph, 0.0, torch.Generator()) is None
