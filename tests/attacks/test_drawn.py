"""Drawn attacks and the feature mask: none twice, a longer draw beginning as a shorter one."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aspect import mixed_graph
from aspect.attacks.base import Target, apply_flips
from aspect.attacks.drawn import Dice, DrawnConfig, mask_features, random_flips
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, SettingsError
from attacks.graphs import build, edge_set, shapes
from attacks.tasks import class_task

TASK = class_task()
rates = st.floats(0, 1)


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
    after = apply_flips(graph, whole[:count]).degrees()
    assert not bool(((graph.degrees() > 0) & (after == 0)).any())  # last edges stay


def _as_many_as_possible(graph, seed):
    """The longest draw there is; the refusal of a longer one must name its length."""
    pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
    try:
        return draw(graph, pairs, seed)
    except SettingsError as error:
        most = int(str(error).split("at most ")[1].split()[0])
        assume(most >= 1)
        return draw(graph, most, seed)


def test_removals_and_additions_are_equally_likely():
    graph = mixed_graph(num_nodes=400, seed=1).graph
    count = 1000
    longer = draw(graph, 2400)  # beyond one block of numbers
    assert torch.equal(longer[:count], draw(graph, count))
    flips = {tuple(pair) for pair in longer[:count].tolist()}
    removed = len(flips & edge_set(graph))
    assert abs(removed - count / 2) < 4 * (count / 4) ** 0.5  # four standard deviations


def test_one_kind_takes_over_where_the_other_is_used_up():
    complete = Graph.build(torch.eye(5) + 0.1, torch.combinations(torch.arange(5)).t())
    flips = draw(complete, 5)
    assert {tuple(pair) for pair in flips.tolist()} <= edge_set(complete)
    path = Graph.build(torch.eye(5) + 0.1, torch.tensor([[0, 2], [1, 3]]))
    assert not {tuple(pair) for pair in draw(path, 1).tolist()} & edge_set(path)


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


# DICE


def drawn(count, seed=0, train=TASK.train, **options):
    target = Target(TASK.graph, TASK.labels, train)
    return Dice(target, DrawnConfig(**options), seed=seed).advance(count)


def test_removed_edges_join_a_class_and_added_ones_join_two():
    flips = drawn(60)
    edges, known = edge_set(TASK.graph), set(TASK.train.tolist())
    removed = 0
    for low, high in flips.tolist():
        assert {low, high} <= known
        assert low < high
        within = bool(TASK.labels[low] == TASK.labels[high])
        assert within is ((low, high) in edges)
        removed += within
    assert len({tuple(pair) for pair in flips.tolist()}) == 60
    assert 0 < removed < 60


def test_a_longer_draw_begins_as_a_shorter_one_and_seeds_differ():
    longer = drawn(80)
    for count in (1, 13):
        assert torch.equal(drawn(count), longer[:count])
    assert not torch.equal(drawn(80, seed=1), longer)


def everything(**options):
    """All flips that there are; the refusal of more must name their number."""
    with pytest.raises(SettingsError, match=r"must be at most \d+ here.* Got 4005") as caught:
        drawn(4005, **options)
    return drawn(int(str(caught.value).split("at most ")[1].split()[0]), **options)


def test_one_kind_takes_over_until_both_are_used_up():
    flips = everything(keep_last_edges=False)
    known, labels, edges = TASK.train.tolist(), TASK.labels, edge_set(TASK.graph)
    pairs = [(a, b) for a in known for b in known if a < b]
    expected = {(a, b) for a, b in pairs if (bool(labels[a] == labels[b]) is ((a, b) in edges))}
    assert {tuple(pair) for pair in flips.tolist()} == expected
    after = apply_flips(TASK.graph, everything())
    assert not bool(((TASK.graph.degrees() > 0) & (after.degrees() == 0)).any())


def test_what_cannot_be_attacked_is_refused():
    with pytest.raises(GraphError, match="Got none"):
        drawn(3, train=TASK.train[:0])
    with pytest.raises(SettingsError, match="Got 0"):
        drawn(0)


# The feature mask


def matrix(seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(12, 7, generator=generator)
    return drawn * (torch.rand(12, 7, generator=generator) < 0.6)


def mask(features, rate, seed=0):
    return mask_features(features, rate, torch.Generator().manual_seed(seed))


@given(st.integers(0, 5), rates, rates)
def test_dense_and_compressed_matrices_lose_the_same_and_masks_nest(seed, first, second):
    features = matrix(seed)
    less, more = (mask(features, rate, seed) for rate in sorted((first, second)))
    compressed = mask(SparseMatrix.from_dense(features), max(first, second), seed)
    assert isinstance(compressed, SparseMatrix)
    assert torch.equal(dense(compressed), more)
    assert bool(((more == less) | (more == 0)).all())
    assert bool(((less == features) | (less == 0)).all())
    assert torch.equal(mask(features, 0.0), features)
    assert not bool(mask(features, 1.0).any())


def test_stored_zeros_are_no_entries():
    features = matrix(1)
    values = torch.cat([torch.zeros(2), SparseMatrix.from_dense(features).values])
    rows, columns = features.nonzero(as_tuple=True)
    zeros = (features == 0).nonzero()[:2]
    stored = SparseMatrix.from_entries(
        torch.cat([zeros[:, 0], rows]), torch.cat([zeros[:, 1], columns]), values, (12, 7)
    )
    assert torch.equal(dense(mask(stored, 0.5)), mask(features, 0.5))


def test_about_the_rate_is_masked():
    features = torch.ones(200, 100)
    kept = float(mask(features, 0.25).mean())
    assert abs(kept - 0.75) < 4 * (0.25 * 0.75 / features.numel()) ** 0.5


@pytest.mark.parametrize("rate", [-0.1, float("nan")])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(SettingsError, match=r"lie in \[0, 1\]"):
        mask(matrix(0), rate)
