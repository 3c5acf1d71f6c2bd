"""Local homophily by hand."""

import torch

from aspect import Graph
from aspect.evaluation.inspection import neighbour_agreement


def star(labels):
    """Node 0 is joined with 1 and 2, these with each other; node 3 stands alone."""
    graph = Graph.build(torch.rand(4, 2), torch.tensor([[0, 0, 1], [1, 2, 2]]))
    return neighbour_agreement(graph, torch.tensor(labels))


def test_agreement_is_the_share_of_alike_neighbours():
    assert star([0, 0, 1, 1]) == [0.5, 0.5, 0.0, None]


def test_unknown_classes_neither_agree_nor_disagree():
    assert star([0, 0, -1, 1]) == [1.0, 1.0, None, None]
    assert star([-1, -1, -1, -1]) == [None] * 4
