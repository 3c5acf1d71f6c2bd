"""Choosing several flips at once: one per node, none forbidden."""

import torch

from aspect.attacks.adjacency import AttackedEdges
from aspect.attacks.choice import choose
from aspect.attacks.scoring import Candidates
from aspect.attacks.unnoticeable import DegreeTest
from aspect.data.graph import Graph


def graph():
    """A triangle 0 1 2 with a tail 2 3, a pair 4 5, and two lonely nodes."""
    edges = torch.tensor([[0, 0, 1, 2, 4], [1, 2, 2, 3, 5]])
    return Graph.build(torch.eye(8) + 0.1, edges)


def chosen(pairs, scores=None, most=10, keep_last_edges=True, test=None):
    keys = torch.tensor([low * 8 + high for low, high in pairs])
    if scores is None:
        scores = torch.arange(len(pairs), 0, -1.0)
    candidates = Candidates(keys, torch.as_tensor(scores))
    taken = choose(candidates, AttackedEdges(graph()), most, keep_last_edges, test)
    return [divmod(int(key), 8) for key in taken]


def test_a_node_is_met_once():
    assert chosen([(0, 3), (0, 4), (1, 4), (1, 5), (6, 7)]) == [(0, 3), (1, 4), (6, 7)]


def test_no_more_than_wanted_are_taken():
    assert chosen([(0, 3), (1, 4), (6, 7)], most=2) == [(0, 3), (1, 4)]


def test_last_edges_stay_unless_they_may_go():
    pairs = [(2, 3), (4, 5), (0, 1)]
    assert chosen(pairs) == [(0, 1)]
    assert chosen(pairs, keep_last_edges=False) == [(2, 3), (4, 5), (0, 1)]


def test_lonely_nodes_may_gain_edges():
    assert chosen([(3, 6), (5, 7)]) == [(3, 6), (5, 7)]


def test_scores_of_zero_and_below_are_taken_only_if_there_is_none_above():
    assert chosen([(0, 3), (1, 4), (6, 7)], [1.0, 0.0, -1.0]) == [(0, 3)]
    assert chosen([(0, 3), (1, 4), (6, 7)], [-1.0, -2.0, -3.0]) == [(0, 3)]
    assert chosen([(4, 5), (1, 4), (6, 7)], [1.0, -2.0, -3.0]) == [(1, 4)]


def test_what_would_be_noticed_is_passed_over():
    seen = []

    class Refuses(DegreeTest):
        def take(self, degrees, change):
            seen.append((tuple(degrees), change))
            return change > 0

    degrees = graph().degrees()
    taken = chosen([(0, 1), (0, 3), (1, 6)], test=Refuses(degrees, degrees))
    assert taken == [(0, 3), (1, 6)]
    assert seen == [((2, 2), -1), ((2, 1), 1), ((2, 0), 1)]


def test_nothing_to_choose_from():
    assert chosen([(4, 5)]) == []
