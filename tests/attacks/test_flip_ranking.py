"""Edges under attack, and the best flips: those of the dense matrix of all scores."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from aspect.attacks import flip_ranking
from aspect.attacks.base import apply_flips
from aspect.attacks.flip_ranking import (
    THRESHOLD,
    AttackedEdges,
    Candidates,
    DegreeLaw,
    DegreeTest,
    PairScores,
    best_additions,
    best_flips,
    best_flips_among,
    choose,
)
from aspect.data.graph import Graph, edge_keys
from aspect.data.sparse import Pattern
from reference.graphs import random_graph
from reference.metattack import dense_adjacency


def dense_of(pattern):
    matrix = torch.zeros(pattern.shape)
    matrix[pattern.rows, pattern.columns.long()] = 1
    return matrix


def test_flips_give_the_same_matrix_as_building_the_graph_anew():
    graph = random_graph(25, 60, isolated=2)
    edges = AttackedEdges(graph)
    low, high = torch.triu_indices(25, 25, offset=1)
    order = torch.randperm(len(low), generator=torch.Generator().manual_seed(0))
    pairs = torch.stack([low, high], dim=1)[order]
    for start in range(0, 60, 15):
        done = pairs[: start + 15]
        edges.flip((done[:, 0] * 25 + done[:, 1])[start:])
        now = apply_flips(graph, done)
        looped = dense_adjacency(now) + torch.eye(25)
        scale = looped.sum(1).rsqrt()
        torch.testing.assert_close(edges.normalised().dense(), scale[:, None] * looped * scale)
        assert torch.equal(edges.degrees, now.degrees())
        keys = low * 25 + high
        assert torch.equal(edges.joined(keys), torch.isin(keys, edge_keys(now)))
        flipped = done[:, 0] * 25 + done[:, 1]
        clean = edge_keys(graph)
        assert torch.equal(edges.removable, clean[~torch.isin(clean, flipped)])
        closed = (dense_adjacency(graph) + dense_adjacency(now) + torch.eye(25)).sign()
        assert torch.equal(dense_of(edges.closed()), closed.float())

    edges = AttackedEdges(graph := random_graph(6, 10))  # every edge may go
    edges.flip(edge_keys(graph))
    torch.testing.assert_close(edges.normalised().dense(), torch.eye(6, dtype=torch.float64))
    assert len(edges.removable) == 0
    assert not bool(edges.joined(edge_keys(graph)).any())


# The best of all pairs


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


@pytest.mark.parametrize(
    ("rows", "count", "seed"), [(1, 20, 0), (7, 1, 1), (7, 3000, 0), (60, 20, 1)]
)
def test_blocks_of_any_size_find_what_the_dense_matrix_shows(rows, count, seed, monkeypatch):
    monkeypatch.setitem(flip_ranking.ROWS_AT_ONCE, "cpu", rows)
    graph = random_graph(60, 150, seed=seed)
    scores, edges = random_scores(60, seed), AttackedEdges(graph)
    keys, worth = dense_flips(scores, graph, count)
    found = best_flips(scores, edges, count, groups(60, seed))
    assert torch.equal(found.keys, keys)
    torch.testing.assert_close(found.scores, worth)


@pytest.mark.parametrize("count", [1, 20, 3000])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_the_best_of_some_pairs_are_found_in_pieces(count, kind, monkeypatch):
    monkeypatch.setattr(flip_ranking, "PAIRS_AT_ONCE", 17)
    graph = random_graph(60, 150, seed=2)
    scores, edges = random_scores(60, 2), AttackedEdges(graph)
    keys, worth = dense_flips(scores, graph, 60 * 59 // 2)
    edges.flip(keys[:5])
    is_asked = (keys % 3 > 0) & (torch.arange(len(keys)) >= 5)
    asked = keys[keys % 3 > 0].sort().values.to(kind)
    found = best_flips_among(scores, edges, asked, count)
    assert torch.equal(found.keys, keys[is_asked][:count])
    torch.testing.assert_close(found.scores, worth[is_asked][:count])


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
    search = flip_ranking._Search._search

    def counted(self, start, columns):
        looked.append(20 * len(columns))
        search(self, start, columns)

    monkeypatch.setattr(flip_ranking._Search, "_search", counted)
    best_additions(scores, edges.closed(), 10, 20, groups(400))
    assert sum(looked) < 0.3 * 400 * 399 / 2


def test_candidates_without_any():
    none = Candidates(torch.empty(0, dtype=torch.long), torch.empty(0))
    assert len(none.first(3).keys) == 0
    complete = random_graph(4, 200)
    assert complete.num_edges == 6
    scores, edges = random_scores(4, 0), AttackedEdges(complete)
    assert len(best_additions(scores, edges.closed(), 5, 2, groups(4)).keys) == 0
    everything = best_flips(scores, edges, 9, groups(4))
    assert len(everything.keys) == 6
    edges.flip(everything.keys[:4])  # flipped pairs are candidates no more
    assert torch.equal(best_flips(scores, edges, 9, groups(4)).keys, everything.keys[4:])


# Several flips at once


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


@pytest.mark.parametrize(
    ("pairs", "scores", "options", "expected"),
    [
        # A node is met once.
        ([(0, 3), (0, 4), (1, 4), (1, 5), (6, 7)], None, {}, [(0, 3), (1, 4), (6, 7)]),
        ([(0, 3), (1, 4), (6, 7)], None, {"most": 2}, [(0, 3), (1, 4)]),
        # Last edges stay unless they may go; lonely nodes may gain edges.
        ([(2, 3), (4, 5), (0, 1)], None, {}, [(0, 1)]),
        ([(2, 3), (4, 5), (0, 1)], None, {"keep_last_edges": False}, [(2, 3), (4, 5), (0, 1)]),
        ([(3, 6), (5, 7)], None, {}, [(3, 6), (5, 7)]),
        ([(4, 5)], None, {}, []),
        # Scores of zero and below are taken only if there is none above.
        ([(0, 3), (1, 4), (6, 7)], [1.0, 0.0, -1.0], {}, [(0, 3)]),
        ([(0, 3), (1, 4), (6, 7)], [-1.0, -2.0, -3.0], {}, [(0, 3)]),
        ([(4, 5), (1, 4), (6, 7)], [1.0, -2.0, -3.0], {}, [(1, 4)]),
    ],
)
def test_which_flips_are_taken_at_once(pairs, scores, options, expected):
    assert chosen(pairs, scores, **options) == expected


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


# The test of degrees


def slow_ratio(clean, now):
    """The ratio written out, from all degrees."""

    def likelihood(degrees):
        modelled = [d for d in degrees if d >= 2]
        n, logs = len(modelled), sum(math.log(d) for d in modelled)
        alpha = 1 + n / (logs - n * math.log(1.5))
        return n * math.log(alpha) + n * alpha * math.log(2) - (alpha + 1) * logs

    return -2 * likelihood(clean + now) + 2 * likelihood(clean) + 2 * likelihood(now)


def test_flips_are_refused_from_the_threshold_on_and_the_sums_stay_true():
    clean = random_graph(100, 200).degrees()
    test, now = DegreeTest(clean, clean), clean.clone()
    generator = torch.Generator().manual_seed(0)
    refused = 0
    assert test.ratio == pytest.approx(0.0, abs=1e-9)
    for number in range(100):
        change = -1 if number % 3 == 0 else 1
        pair = torch.randperm(100, generator=generator)[:2]
        after = now.clone()
        after[pair] += change
        allowed = slow_ratio(clean.tolist(), after.tolist()) < THRESHOLD
        assert test.take(now[pair].tolist(), change) is allowed
        now = after if allowed else now
        refused += not allowed
        assert test.ratio == pytest.approx(slow_ratio(clean.tolist(), now.tolist()), abs=1e-9)
        assert DegreeTest(clean, now).ratio == pytest.approx(test.ratio, abs=1e-9)
    assert refused > 0
    assert not torch.equal(now, clean)


def test_a_graph_without_degrees_of_two_is_no_error():
    ones = torch.ones(4, dtype=torch.long)
    test = DegreeTest(ones, ones)
    assert test.ratio == 0
    assert test.take([0, 0], 1)


def test_the_exponent_is_the_likeliest_one():
    degrees = random_graph(300, 900).degrees()
    modelled = degrees[degrees >= 2].double()
    logs = float((modelled / 1.5).log().sum())
    best = minimize_scalar(
        lambda a: a * logs - len(modelled) * math.log(a - 1), bounds=(1.01, 20), method="bounded"
    )
    assert DegreeLaw.of(degrees.tolist()).exponent == pytest.approx(best.x, rel=1e-4)
