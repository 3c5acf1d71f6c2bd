"""Random flips: as many as asked for, none twice, the longer draw beginning as the shorter."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aspect import mixed_graph
from aspect.attacks.flips import apply_flips
from aspect.attacks.random_flips import random_flips
from aspect.data.graph import Graph
from aspect.errors import GraphError, SettingsError
from attacks.graphs import build, edge_set, shapes


def draw(graph, count, seed=0, **options):
    return random_flips(graph, count, torch.Generator().manual_seed(seed), **options)


@given(shapes(), st.integers(0, 5), st.data())
def test_any_number_of_pairs_can_be_flipped_each_once(shape, seed, data):
    graph = build(shape)
    pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
    count = data.draw(st.integers(1, pairs))
    flips = draw(graph, count, seed, keep_last_edges=False).tolist()
    assert len({tuple(pair) for pair in flips}) == count
    assert all(0 <= low < high < graph.num_nodes for low, high in flips)


@given(shapes(), st.integers(0, 5), st.data())
def test_a_longer_draw_begins_as_a_shorter_one(shape, seed, data):
    graph = build(shape)
    whole = _as_many_as_possible(graph, seed)
    count = data.draw(st.integers(1, len(whole)))
    assert torch.equal(draw(graph, count, seed), whole[:count])


@given(shapes(), st.integers(0, 5), st.data())
def test_no_node_loses_its_last_edge_at_any_moment(shape, seed, data):
    graph = build(shape)
    whole = _as_many_as_possible(graph, seed)
    count = data.draw(st.integers(1, len(whole)))
    after = apply_flips(graph, whole[:count]).degrees()
    assert not bool(((graph.degrees() > 0) & (after == 0)).any())


def _as_many_as_possible(graph, seed):
    """The longest draw there is; the refusal of a longer one must name its length."""
    pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
    try:
        return draw(graph, pairs, seed)
    except SettingsError as error:
        most = int(str(error).split("at most ")[1].split()[0])
        assume(most >= 1)
        return draw(graph, most, seed)


def test_long_draws_keep_their_prefix_beyond_one_block_of_numbers():
    graph = mixed_graph(num_nodes=400, seed=1).graph
    assert torch.equal(draw(graph, 2000), draw(graph, 2400)[:2000])


def test_removals_and_additions_are_equally_likely():
    graph = mixed_graph(num_nodes=400, seed=1).graph
    count = 1000
    flips = {tuple(pair) for pair in draw(graph, count).tolist()}
    removed = len(flips & edge_set(graph))
    assert abs(removed - count / 2) < 4 * (count / 4) ** 0.5  # four standard deviations


def test_added_pairs_are_uniform_over_the_nodes():
    graph = mixed_graph(num_nodes=40, degree=3.0, num_features=4, seed=0).graph
    ends = torch.zeros(40)
    for seed in range(200):
        added = {tuple(pair) for pair in draw(graph, 20, seed).tolist()} - edge_set(graph)
        for pair in added:
            ends[list(pair)] += 1
    free = 39 - graph.degrees()
    expected = ends.sum() * free / free.sum()
    assert bool(((ends - expected).abs() < 5 * expected.sqrt()).all())


def test_one_kind_takes_over_where_the_other_is_used_up():
    complete = Graph.build(torch.eye(5) + 0.1, torch.combinations(torch.arange(5)).t())
    flips = draw(complete, 5)
    assert {tuple(pair) for pair in flips.tolist()} <= edge_set(complete)
    path = Graph.build(torch.eye(5) + 0.1, torch.tensor([[0, 2], [1, 3]]))
    assert not {tuple(pair) for pair in draw(path, 1).tolist()} & edge_set(path)


def test_the_graph_is_not_changed(small_graph):
    before = small_graph.graph.edge_index.clone()
    draw(small_graph.graph, 10)
    assert torch.equal(small_graph.graph.edge_index, before)


def test_impossible_numbers_are_refused(small_graph):
    with pytest.raises(SettingsError, match=r"from 1 to 435, the pairs of nodes\. Got 436"):
        draw(small_graph.graph, 436)
    with pytest.raises(SettingsError, match="Got 0"):
        draw(small_graph.graph, 0)
    star = Graph.build(torch.eye(3) + 0.1, torch.tensor([[0, 0], [1, 2]]))
    with pytest.raises(SettingsError, match=r"at most \d here: .* last edge of a node\. Got 3"):
        draw(star, 3)
    lonely = Graph.build(torch.eye(3) + 0.1, torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match="needs edges"):
        draw(lonely, 1)
