"""Nearest rows, edges chosen by similarity, and HLCL's split of the edges."""

import math

import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity as all_cosines
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.nn.augmentations import ViewSource
from aspect.nn.gcn import GCNStack
from aspect.nn.neighbours import (
    EdgeSplit,
    choose_edges,
    edge_similarity,
    nearest_by_cosine,
    similar_positives,
)
from reference.graphs import random_graph
from reference.two_views import features_of, smoothing


def drawn(nodes=25, width=6, seed=0, *, binary=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, width, dtype=torch.float64, generator=generator)
    return (x > 0.3).double() if binary else x


def slow(features, count):
    """Sorted by similarity, then by number, one row at a time."""
    similar = all_cosines(features.numpy()).round(9)
    found = []
    for i, row in enumerate(similar):
        others = sorted((j for j in range(len(row)) if j != i), key=lambda j: (-row[j], j))
        found.append(sorted(others[:count]) if bool(features[i].any()) else [i] * count)
    return found


@pytest.mark.parametrize("binary", [False, True], ids=["real", "binary"])
@pytest.mark.parametrize("compress", [False, True], ids=["dense", "compressed"])
@pytest.mark.parametrize(("block", "count"), [(1, 5), (7, 24), (None, 1)])
def test_they_are_the_most_similar(binary, compress, block, count):
    features = drawn(binary=binary)
    if binary:
        features[3] = 0
    given = SparseMatrix.from_dense(features) if compress else features
    assert nearest_by_cosine(given, count, block=block).tolist() == slow(features, count)


def test_single_precision_breaks_ties_alike():
    features = drawn(40, 8, binary=True) / 3
    assert nearest_by_cosine(features.float(), 6).tolist() == slow(features, 6)


def test_what_is_equal_but_for_rounding_is_equal():
    direction = drawn(1)
    lengths = torch.linspace(0.1, 7.3, 25, dtype=torch.float64).unsqueeze(1)
    first = [sorted({0, 1, 2, 3} - {i})[:3] for i in range(25)]
    assert nearest_by_cosine(lengths * direction, 3).tolist() == first


@pytest.mark.parametrize("count", [-1, 25])
def test_more_than_there_are_is_refused(count):
    with pytest.raises(ValueError, match=rf"between 0 and 24 in number\. Got {count}\."):
        nearest_by_cosine(drawn(), count)


def test_more_positives_than_nodes_are_all_nodes():
    assert bool(similar_positives(drawn(), 99).matrix.dense().all())


@pytest.fixture
def graph():
    return random_graph(num_nodes=25, num_edges=80, isolated=2)


def test_similarity_is_the_cosine_of_the_ends(graph):
    row, column = graph.edge_index
    expected = torch.cosine_similarity(graph.features[row], graph.features[column])
    assert_close(edge_similarity(graph, graph.features), expected)


def chosen_by_loop(graph, similarity, share):
    """Pairs that one of their ends has among its most similar ones."""
    pairs = {}
    for (row, column), value in zip(graph.edge_index.t().tolist(), similarity, strict=True):
        pairs.setdefault(row, []).append((-float(value), column))
    chosen = set()
    for row, others in pairs.items():
        for _, column in sorted(others)[: math.ceil(round(share * len(others), 9))]:
            chosen |= {(row, column), (column, row)}
    return chosen


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("sign", [1, -1], ids=["most", "least"])
def test_they_are_those_of_the_loop(graph, share, sign):
    similarity = sign * edge_similarity(graph, graph.features)
    weights = choose_edges(graph, similarity, share)
    found = {tuple(pair) for pair in graph.edge_index.t()[weights.bool()].tolist()}
    assert found == chosen_by_loop(graph, similarity, share)
    assert set(weights.tolist()) <= {0.0, 1.0}


def test_a_share_that_is_whole_but_for_rounding_is_whole():
    every = torch.combinations(torch.arange(26)).t()
    graph = Graph.build(torch.ones(26, 2, dtype=torch.float64), every)
    assert 0.28 * 25 > 7  # of 25 neighbours each node still chooses 7, the first of equals
    weights = choose_edges(graph, edge_similarity(graph, graph.features), 0.28)
    assert_close(weights, (graph.edge_index.amin(0) < 7).double())


SHARES = {"like_share": 0.4, "unlike_share": 0.7}


@pytest.fixture
def edge_split_graph():
    """Features without ties."""
    return random_graph(num_edges=60, num_features=12, isolated=1)


def split(edge_split_graph, encoder=None, **options):
    return EdgeSplit.of(ViewSource(edge_split_graph), encoder, **SHARES | options)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def an_encoder(edge_split_graph, width=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        encoder = GCNStack([edge_split_graph.num_features, width, width], activation="relu")
        for bias in encoder.biases:
            bias.data.normal_()
    return encoder.double()


def table(edge_split_graph, weights):
    """Weights of the edge index as a matrix."""
    matrix = torch.zeros(
        edge_split_graph.num_nodes, edge_split_graph.num_nodes, dtype=torch.float64
    )
    matrix[tuple(edge_split_graph.edge_index)] = weights
    return matrix


def edge_split_chosen_by_loop(edge_split_graph, x, share, sign):
    chosen = torch.zeros(
        edge_split_graph.num_nodes, edge_split_graph.num_nodes, dtype=torch.float64
    )
    for i in range(edge_split_graph.num_nodes):
        others = edge_split_graph.edge_index[1][edge_split_graph.edge_index[0] == i].tolist()
        likeness = {j: sign * float(cosine_similarity(x[i], x[j], dim=0)) for j in others}
        count = math.ceil(round(share * len(others), 9))
        for j in sorted(others, key=lambda j: -likeness[j])[:count]:
            chosen[i, j] = chosen[j, i] = 1
    return chosen[tuple(edge_split_graph.edge_index)]


class TestChoice:
    def test_it_is_by_features(self, edge_split_graph):
        found = split(edge_split_graph)
        assert_close(
            found.homophilic,
            edge_split_chosen_by_loop(edge_split_graph, edge_split_graph.features, 0.4, 1),
        )
        assert_close(
            found.heterophilic,
            edge_split_chosen_by_loop(edge_split_graph, edge_split_graph.features, 0.7, -1),
        )

    def test_an_encoder_chooses_by_both_passes_of_what_features_choose(self, edge_split_graph):
        first, encoder = split(edge_split_graph), an_encoder(edge_split_graph)
        own = torch.eye(edge_split_graph.num_nodes, dtype=torch.float64)
        low, high = (
            smoothing(edge_split_graph, first.homophilic),
            own - smoothing(edge_split_graph, first.heterophilic),
        )
        seen = []
        for operator in (low, high):
            x = features_of(edge_split_graph)
            for weight, bias in zip(encoder.weights, encoder.biases, strict=True):
                x = (operator @ (x @ weight) + bias).relu()
            seen.append(x.detach())
        x = torch.cat(seen, dim=1)
        assert bool((x.norm(dim=1) > 0).all())  # a row of zeros would be like nothing
        found = split(edge_split_graph, encoder)
        assert_close(found.homophilic, edge_split_chosen_by_loop(edge_split_graph, x, 0.4, 1))
        assert_close(found.heterophilic, edge_split_chosen_by_loop(edge_split_graph, x, 0.7, -1))
        assert not found.homophilic.requires_grad

    def test_equally_similar_edges_are_chosen_whatever_the_numbering(self):
        generator = draw(1)
        words = (torch.rand(40, 4, generator=generator) < 0.5).double()  # sixteen rows at most
        extra = torch.rand(40, 1, generator=generator, dtype=torch.float64) < 0.1
        features = torch.cat([words, extra], dim=1)
        edge_split_graph = Graph.build(features, torch.randint(40, (2, 150), generator=generator))
        order = torch.randperm(40, generator=generator)
        other = Graph.build(features[order], torch.argsort(order)[edge_split_graph.edge_index])
        here, there = (
            table(edge_split_graph, split(edge_split_graph).homophilic),
            table(other, split(other).homophilic),
        )
        assert_close(there, here[order][:, order])


class TestDraws:
    def test_low_views_lose_single_directions_of_like_edges(self, edge_split_graph):
        found = split(edge_split_graph)
        own = torch.eye(edge_split_graph.num_nodes, dtype=torch.float64)
        kept = found.low(0.5, 0.0, draw()).operator(own).fill_diagonal_(0) != 0
        like = table(edge_split_graph, found.homophilic).bool()
        assert not bool((kept & ~like).any())
        assert 0 < int(kept.sum()) < int(like.sum())
        assert bool((kept != kept.t()).any())

    def test_high_views_lose_all_edges_of_some_nodes(self, edge_split_graph):
        found = split(edge_split_graph)
        own = torch.eye(edge_split_graph.num_nodes, dtype=torch.float64)
        kept = found.high(0.3, 0.0, draw(2)).operator(own).fill_diagonal_(0) != 0
        unlike = table(edge_split_graph, found.heterophilic).bool()
        alone = unlike.any(1) & ~kept.any(1)
        assert 0 < int(alone.sum()) < edge_split_graph.num_nodes
        stay = ~alone[:, None] & ~alone[None, :]
        # An edge is lost only with one of its ends.
        assert torch.equal(kept & stay, unlike & stay)

    @pytest.mark.parametrize("kind", ["low", "high"])
    def test_columns_are_masked_for_all_nodes(self, edge_split_graph, kind):
        found = split(edge_split_graph)
        drawn = dense(getattr(found, kind)(0.0, 0.5, draw()).features)
        whole = features_of(edge_split_graph)
        masked = ~drawn.any(0)
        assert 0 < int(masked.sum()) < edge_split_graph.num_features
        assert_close(drawn[:, ~masked], whole[:, ~masked])
