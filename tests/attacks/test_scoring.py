"""The best flips are those of the dense matrix of all scores, however it is cut into blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aspect.attacks import scoring
from aspect.attacks.adjacency import AttackedEdges
from aspect.attacks.meta_gradient import PairScores
from aspect.attacks.scoring import Candidates, best_additions, best_flips
from aspect.data.sparse import Pattern
from reference.graphs import random_graph


def random_scores(num_nodes, seed, *, spread=2.0, width=3, ties=False):
    """Factors of the true form, symmetric, with some rows much larger than others."""
    generator = torch.Generator().manual_seed(seed)

    def draw(columns):
        drawn = torch.randn(num_nodes, columns, dtype=torch.float64, generator=generator)
        size = torch.rand(num_nodes, 1, dtype=torch.float64, generator=generator) ** spread
        return (drawn * size).sign() if ties else drawn * size

    f, f1, y0, y1, degree = draw(width), draw(width), draw(width), draw(width), draw(1)
    one = torch.ones_like(degree)
    left = torch.cat([f, f1, y1, y0, degree, one], dim=1)
    return PairScores(left, torch.cat([y1, y0, f, f1, one, degree], dim=1))


def groups(num_nodes, seed=0):
    return torch.randint(0, 4, (num_nodes,), generator=torch.Generator().manual_seed(seed))


def dense_flips(scores, graph, count):
    """All pairs in order, by one sort."""
    low, high = torch.triu_indices(graph.num_nodes, graph.num_nodes, offset=1)
    keys = low * graph.num_nodes + high
    joined = torch.isin(keys, graph.edge_index[0] * graph.num_nodes + graph.edge_index[1])
    worth = (scores.left @ scores.right.t())[low, high] * torch.where(joined, -1, 1)
    order = torch.sort(worth, descending=True, stable=True).indices[:count]
    return keys[order], worth[order]


@pytest.mark.parametrize("rows", [1, 7, 60])
@pytest.mark.parametrize("count", [1, 20, 3000])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_any_size_find_what_the_dense_matrix_shows(rows, count, seed, monkeypatch):
    monkeypatch.setitem(scoring.ROWS_AT_ONCE, "cpu", rows)
    graph = random_graph(60, 150, seed=seed)
    scores, edges = random_scores(60, seed), AttackedEdges(graph)
    keys, worth = dense_flips(scores, graph, count)
    found = best_flips(scores, edges, count, groups(60, seed))
    assert torch.equal(found.keys, keys)
    torch.testing.assert_close(found.scores, worth)


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 30), st.booleans())
@settings(max_examples=40, deadline=None)
def test_ties_are_ordered_by_key(seed, count, rows, many_closed):
    scores = random_scores(25, seed, ties=True)
    generator = torch.Generator().manual_seed(seed)
    closed = torch.rand(25, 25, generator=generator) < (0.7 if many_closed else 0.1)
    closed = closed | closed.t() | torch.eye(25, dtype=torch.bool)
    column = closed.nonzero()[:, 1]
    pointers = torch.cat([torch.zeros(1), closed.sum(1).cumsum(0)]).int()
    pattern = Pattern(pointers, column.int(), (25, 25))
    matrix = (scores.left @ scores.right.t()).masked_fill(closed, -torch.inf)
    low, high = torch.triu_indices(25, 25, offset=1)
    worth, order = matrix[low, high].sort(descending=True, stable=True)
    expected = (low * 25 + high)[order][worth > -torch.inf][:count]
    assert torch.equal(
        best_additions(scores, pattern, count, rows, groups(25, seed)).keys, expected
    )


def test_pairs_that_cannot_win_are_not_scored(monkeypatch):
    scores = random_scores(400, 0, spread=8.0)
    edges = AttackedEdges(random_graph(400, 500))
    looked = []
    search = scoring._Search._search

    def counted(self, start, columns):
        looked.append(20 * len(columns))
        search(self, start, columns)

    monkeypatch.setattr(scoring._Search, "_search", counted)
    best_additions(scores, edges.closed(), 10, 20, groups(400))
    assert sum(looked) < 0.3 * 400 * 399 / 2


def test_flipped_pairs_are_candidates_no_more():
    graph = random_graph(30, 60)
    edges = AttackedEdges(graph)
    scores = random_scores(30, 0)
    everything = best_flips(scores, edges, 1000, groups(30))
    assert len(everything.keys) == 435
    edges.flip(everything.keys[:50])
    left = best_flips(scores, edges, 1000, groups(30))
    assert torch.equal(left.keys, everything.keys[50:])


def test_candidates_without_any():
    none = Candidates(torch.empty(0, dtype=torch.long), torch.empty(0))
    assert len(none.first(3).keys) == 0
    complete = random_graph(4, 200)
    assert complete.num_edges == 6
    scores, edges = random_scores(4, 0), AttackedEdges(complete)
    assert len(best_additions(scores, edges.closed(), 5, 2, groups(4)).keys) == 0
    assert len(best_flips(scores, edges, 5, groups(4)).keys) == 5
