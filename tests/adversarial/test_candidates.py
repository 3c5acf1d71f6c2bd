"""What a search may change: the pairs and entries that are drawn, and what changing them does."""

import pytest
import torch
from torch.testing import assert_close

from aspect.adversarial.candidates import draw_edges, draw_entries
from aspect.attacks.flips import apply_flips
from aspect.data.features import dense
from aspect.data.graph import Graph, edge_keys
from aspect.data.operators import Propagation
from aspect.data.sparse import SparseMatrix
from reference.graphs import path_graph, random_graph


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def hops(graph):
    """Steps between all pairs of nodes, by powers of the adjacency."""
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    adjacency[tuple(graph.edge_index)] = 1
    steps = torch.full_like(adjacency, torch.inf)
    reached = torch.eye(graph.num_nodes)
    for number in range(graph.num_nodes):
        steps[(reached > 0) & steps.isinf()] = number
        reached = reached @ adjacency
    return steps


def test_all_edges_and_as_many_other_pairs_as_wanted():
    graph = random_graph(60, 90)
    drawn = draw_edges(graph, 50, generator(), self_loops=True)
    assert len(drawn.keys) == graph.num_edges + 50
    assert torch.equal(drawn.keys, drawn.keys.unique())
    assert torch.equal(drawn.keys[drawn.present == 1], edge_keys(graph))
    low, high = drawn.keys // 60, drawn.keys % 60
    assert bool((low < high).all())


def test_half_of_the_other_pairs_are_two_hops_apart():
    graph = random_graph(400, 500, seed=3)
    drawn = draw_edges(graph, 300, generator(), self_loops=True)
    others = drawn.keys[drawn.present == 0]
    apart = hops(graph)[others // 400, others % 400]
    assert float(apart.min()) == 2
    assert int((apart == 2).sum()) >= 150  # the random half meets some now and then
    assert int((apart > 2).sum()) > 100


def test_a_walk_from_a_leaf_of_a_star_comes_to_every_other_leaf():
    leaves = torch.arange(1, 11)
    star = torch.stack([torch.zeros_like(leaves), leaves])
    graph = Graph.build(torch.ones(2000, 2), star)  # two random nodes are hardly ever leaves
    drawn = draw_edges(graph, 1000, generator(), self_loops=True)
    others = drawn.keys[drawn.present == 0]
    found = {(int(key) // 2000, int(key) % 2000) for key in others}
    assert {tuple(pair) for pair in torch.combinations(leaves).tolist()} <= found


def test_a_graph_that_is_nearly_full_offers_what_it_has():
    nodes = torch.arange(6)
    every = torch.combinations(nodes).t()[:, 1:]  # one pair is missing
    graph = Graph.build(torch.ones(6, 2), every)
    drawn = draw_edges(graph, 40, generator(), self_loops=False)
    assert int((drawn.present == 0).sum()) == 1


def test_a_graph_without_edges_has_no_pair_two_hops_apart():
    graph = Graph.build(torch.rand(8, 3), torch.empty(2, 0, dtype=torch.long))
    drawn = draw_edges(graph, 10, generator(), self_loops=True)
    assert len(drawn.keys) == 5  # the random half
    assert not bool(drawn.present.any())


@pytest.mark.parametrize("self_loops", [True, False])
def test_whole_flips_give_the_operator_of_the_flipped_graph(self_loops):
    graph = random_graph(30, 60, isolated=2)
    drawn = draw_edges(graph, 40, generator(), self_loops=self_loops)
    flips = torch.bernoulli(torch.full_like(drawn.present, 0.3), generator=generator(1))
    keys = drawn.keys[flips == 1]
    flipped = apply_flips(graph, torch.stack([keys // 30, keys % 30], dim=1))
    x = torch.randn(30, 4, dtype=torch.float64, generator=generator(2))
    expected = Propagation(flipped, self_loops=self_loops).operator()(x)
    assert_close(drawn.operator(flips)(x), expected)
    assert_close(
        drawn.operator(torch.zeros_like(flips))(x),
        Propagation(graph, self_loops=self_loops).operator()(x),
    )


def test_the_same_seed_draws_the_same():
    graph = random_graph(50, 80)
    first, again = (draw_edges(graph, 30, generator(4), self_loops=True) for _ in range(2))
    other = draw_edges(graph, 30, generator(5), self_loops=True)
    assert torch.equal(first.keys, again.keys)
    assert not torch.equal(first.keys, other.keys)


def compressed(density=0.2, rows=40, columns=25):
    values = torch.rand(rows, columns, dtype=torch.float64, generator=generator(7)) + 0.5
    return SparseMatrix.from_dense(
        values * (torch.rand(rows, columns, generator=generator(8)) < density)
    )


def test_of_compressed_features_half_of_the_entries_are_stored_ones():
    features = compressed()
    drawn = draw_entries(features, 0.4, generator())
    stored = int((dense(features)[dense(drawn.places) == 1] != 0).sum())
    wanted = round(0.4 * len(features.values))
    assert drawn.count == wanted
    assert stored == wanted // 2
    assert drawn.size == pytest.approx(float(features.values.mean()))


def test_of_dense_features_any_entry_may_be_moved():
    features = torch.randn(20, 10, generator=generator())
    drawn = draw_entries(features, 0.3, generator())
    assert drawn.count == 60
    assert drawn.size == pytest.approx(float(features.abs().mean()))


@pytest.mark.parametrize("kind", ["compressed", "dense"])
def test_moves_are_added_and_the_layout_stays(kind):
    features = compressed() if kind == "compressed" else dense(compressed())
    drawn = draw_entries(features, 0.4, generator())
    moves = torch.randn(drawn.count, dtype=torch.float64, generator=generator(3))
    before = dense(features).clone()
    moved = drawn.applied(features, moves)
    assert isinstance(moved, SparseMatrix) == (kind == "compressed")
    assert_close(dense(moved), before + dense(drawn.moved(moves)))
    assert_close(dense(features), before)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_may_be_none_or_all(share):
    drawn = draw_entries(compressed(), share, generator())
    assert drawn.count == round(share * len(compressed().values))


def test_features_that_are_all_zero_offer_nothing():
    drawn = draw_entries(torch.zeros(5, 4), 0.5, generator())
    assert (drawn.count, drawn.size) == (0, 0.0)


def test_on_a_long_path_half_of_the_other_pairs_skip_one_node():
    graph = path_graph(5000)  # on which two random nodes are hardly ever near
    drawn = draw_edges(graph, 40, generator(), self_loops=True)
    others = drawn.keys[drawn.present == 0]
    gaps = others % 5000 - others // 5000
    assert len(others) == 40
    assert int((gaps == 2).sum()) == 20
