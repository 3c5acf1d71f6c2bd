"""Flipping pairs: a graph in, a valid graph out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aspect.attacks.flips import apply_flips
from aspect.data.graph import Graph, edge_keys
from aspect.errors import GraphError
from attacks.graphs import build, edge_set, shapes


@st.composite
def shapes_with_flips(draw):
    shape = draw(shapes(least_edges=0))
    pairs = [(a, b) for a in range(shape[0]) for b in range(shape[0]) if a != b]
    return shape, draw(st.lists(st.sampled_from(pairs), unique_by=frozenset))


def build_both(drawn):
    shape, pairs = drawn
    return build(shape), torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)


@given(shapes_with_flips())
def test_flips_are_the_symmetric_difference(drawn):
    graph, flips = build_both(drawn)
    flipped = apply_flips(graph, flips)
    pairs = {tuple(sorted(pair)) for pair in flips.tolist()}
    assert edge_set(flipped) == edge_set(graph) ^ pairs
    assert flipped.ids == graph.ids
    assert flipped.notices == graph.notices
    assert flipped.features is graph.features


@given(shapes_with_flips())
def test_the_result_is_what_building_it_anew_would_give(drawn):
    flipped = apply_flips(*build_both(drawn))
    built = Graph.build(flipped.features, flipped.edge_index)
    assert torch.equal(built.edge_index, flipped.edge_index)


@given(shapes_with_flips())
def test_flipping_twice_changes_nothing(drawn):
    graph, flips = build_both(drawn)
    again = apply_flips(apply_flips(graph, flips), flips.flip(1))
    assert torch.equal(again.edge_index, graph.edge_index)


@given(shapes(least_edges=0))
def test_every_edge_has_one_key(shape):
    graph = build(shape)
    keys = edge_keys(graph).tolist()
    assert keys == sorted(set(keys))
    assert {divmod(key, graph.num_nodes) for key in keys} == edge_set(graph)


@pytest.mark.parametrize(
    ("flips", "words"),
    [
        ([[1, 1]], r"two different nodes from 0 to 29\. Got \(1, 1\)"),
        ([[0, 30]], r"two different nodes from 0 to 29\. Got \(0, 30\)"),
        ([[-1, 3]], r"Got \(-1, 3\)"),
        ([[1, 2], [2, 1]], r"once\. Got twice: \(1, 2\)"),
    ],
)
def test_what_is_no_set_of_pairs_is_refused(small_graph, flips, words):
    with pytest.raises(GraphError, match=words):
        apply_flips(small_graph.graph, torch.tensor(flips))
